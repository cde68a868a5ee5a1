"""Noise, noise levels and loss weights, against numbers that tools/kohya_formulas.py works out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from kohya_commands import changed, notes, recipe, refusal, settings

from mezzotint.diffusion import densities, flow, weighting
from mezzotint.diffusion.objective import Objective, StepDraws
from mezzotint.diffusion.schedule import Schedule

NUMBERS: dict[str, Any] = json.loads((Path(__file__).parent / "formulas.json").read_text("utf-8"))
FLUX_SHIFT = 1.15 - (1.15 - 0.5) / (4096 - 256) * (4096 - 48 * 64)
"""μ of 768×1024 pixels."""


def factors(words: str, snr: list[float]) -> list[float]:
    read = recipe("train_network", *words.split())
    actual = weighting.factor(
        read.model.prediction, torch.tensor(snr), weighting=read.objective.weighting,
        gamma=read.objective.min_snr_gamma, form=read.objective.min_snr_form,
    )  # fmt: skip
    return [float(one) for one in actual]


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("--min_snr_gamma=5", "min_snr_epsilon"),
        ("--min_snr_gamma=5 --v_parameterization", "min_snr_v"),
        ("--v_parameterization --scale_v_pred_loss_like_noise_pred", "scaled_v"),
    ],
)
def test_loss_weights(words: str, name: str) -> None:
    assert factors(words, NUMBERS["snr"]) == pytest.approx(NUMBERS[name], rel=1e-5)


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("--debiased_estimation_loss", "debiased_epsilon"),
        ("--debiased_estimation_loss --loss_type=l1", "debiased_epsilon"),
        ("--debiased_estimation_loss --v_parameterization", "debiased_v"),
    ],
)
def test_debiased_loss_weights(words: str, name: str) -> None:
    assert factors(words, NUMBERS["wide_snr"]) == pytest.approx(NUMBERS[name], rel=1e-5)


def losses_of(words: str) -> list[list[float]]:
    """For each timestep of the numbers the loss of each error, with Stable Diffusion's schedule."""
    objective = Objective(recipe("train_network", *words.split()).objective, Schedule.scaled_linear(), "epsilon")
    times = torch.tensor(NUMBERS["timesteps"])
    drawn = StepDraws.at(0, 0, np.arange(len(times)), "cpu")
    noised = objective.noise_at(torch.zeros(len(times), 4, 2, 2), drawn, times)
    target = objective.target(noised)
    losses = [objective.loss(target + error, noised, torch.ones(3)).per_sample for error in NUMBERS["errors"]]
    return torch.stack(losses, dim=1).tolist()


@pytest.mark.parametrize("loss", ["huber", "smooth_l1"])
@pytest.mark.parametrize("schedule", ["constant", "exponential", "snr"])
def test_pseudo_huber_losses(loss: str, schedule: str) -> None:
    actual = losses_of(f"--loss_type={loss} --huber_c=0.2 --huber_scale=0.5 --huber_schedule={schedule}")
    for by_error, expected in zip(actual, NUMBERS[loss][schedule], strict=True):
        assert by_error == pytest.approx(expected, rel=1e-4, abs=1e-9)


def test_settings_of_the_pseudo_huber_losses() -> None:
    assert changed("train_network", "--loss_type=huber") == {
        "objective.loss": "pseudo-huber", "objective.huber_delta": 0.1, "objective.huber_schedule": "snr",
    }  # fmt: skip
    words = ("--loss_type=smooth_l1", "--huber_c=0.3", "--huber_schedule=exponential", "--huber_scale=2")
    assert changed("flux_train", *words) == {
        "objective.loss": "smooth-l1", "objective.huber_delta": 0.3, "objective.huber_schedule": "exponential",
        "objective.huber_scale": 2.0,
    }  # fmt: skip
    assert "huber_scale: has no effect with --huber_schedule=snr" in notes(
        "train_network", "--loss_type=huber", "--huber_scale=2"
    )
    assert "huber_c: has no effect with --loss_type=l2" in notes("train_network", "--huber_c=0.3")


def levels(script: str, words: str, drawn: list[float], *, is_reversed: bool) -> list[float]:
    """The noise levels of a recipe. drawn: sd-scripts' random numbers. is_reversed: it counts the other way."""
    settings_of_flow = recipe(script, *words.split()).objective.flow
    numbers = np.array(drawn)
    if settings_of_flow.density in ("uniform", "mode"):
        sigma = densities.from_uniforms(settings_of_flow, 1 - numbers if is_reversed else numbers)
    else:
        sigma = densities.from_normals(settings_of_flow, -numbers if is_reversed else numbers)
    if settings_of_flow.grid == "table":
        sigma = flow.round_to_table(sigma)
    s = float(np.exp(FLUX_SHIFT)) if settings_of_flow.shift == "resolution" else settings_of_flow.shift
    return [float(one) for one in flow.shift_sigma(torch.from_numpy(sigma), s)]


@pytest.mark.parametrize(
    ("script", "words", "drawn", "name", "is_reversed"),
    [
        ("flux_train", "", "uniform", "flux_sigma", True),
        ("flux_train", "--weighting_scheme=cosmap --timestep_sampling=sigma", "uniform", "flux_sigma", True),
        ("flux_train", "--weighting_scheme=mode", "uniform", "flux_sigma_mode", False),
        ("flux_train", "--weighting_scheme=logit_normal --logit_mean=0.5 --logit_std=0.8", "normal",
         "flux_sigma_logit_normal", True),
        ("flux_train", "--timestep_sampling=uniform", "uniform", "uniform", False),
        ("flux_train", "--timestep_sampling=sigmoid --sigmoid_scale=2", "normal", "flux_sigmoid", False),
        ("flux_train", "--timestep_sampling=shift --discrete_flow_shift=3.1", "normal", "flux_shift", False),
        ("flux_train_network", "--timestep_sampling=flux_shift", "normal", "flux_flux_shift", False),
        ("sd3_train", "--weighting_scheme=logit_normal --logit_mean=0.5 --logit_std=0.8 --training_shift=2", "normal",
         "sd3_logit_normal", False),
        ("sd3_train", "--weighting_scheme=mode --training_shift=2", "uniform", "sd3_mode", True),
    ],
)  # fmt: skip
def test_noise_levels(script: str, words: str, drawn: str, name: str, is_reversed: bool) -> None:
    actual = levels(script, words, NUMBERS[drawn], is_reversed=is_reversed)
    assert actual == pytest.approx(NUMBERS[name], abs=1e-6)


@pytest.mark.parametrize(
    ("script", "words", "expected"),
    [
        ("sd3_train", "--weighting_scheme=sigma_sqrt", {"objective.weighting": "sigma-sqrt"}),
        ("sd3_train", "--weighting_scheme=cosmap", {"objective.weighting": "cosmap"}),
        ("sd3_train", "--min_timestep=200 --max_timestep=900", {"objective.flow.sigmas": [0.2, 0.9]}),
        ("sd3_train", "--noise_offset=0.1 --ip_noise_gamma=0.1", {}),
        ("flux_train", "--ip_noise_gamma=0.1 --min_timestep=100", {"objective.input_perturbation": 0.1}),
        (
            "flux_train",
            "--ip_noise_gamma=0.1 --ip_noise_gamma_random_strength",
            {"objective.input_perturbation": 0.1, "objective.input_perturbation_random_strength": True},
        ),
        ("flux_train", "--model_prediction_type=raw", {}),
        ("flux_train", "--weighting_scheme=sigma_sqrt", {}),
        ("train_db", "--min_timestep=100 --max_timestep=900", {"objective.timesteps": [100, 900]}),
    ],
)
def test_settings_of_noise(script: str, words: str, expected: dict[str, Any]) -> None:
    assert changed(script, *words.split()) == expected


def test_loss_of_sd3_is_that_of_clean_latents() -> None:
    assert settings("sd3_train")["objective.flow.preconditioned"] is True
    assert settings("flux_train")["objective.flow.preconditioned"] is False


def test_options_without_effect_are_noted() -> None:
    words = ("--noise_offset=0.1", "--min_snr_gamma=5", "--debiased_estimation_loss", "--weighting_scheme=cosmap")
    actual = notes("flux_train", *words)
    assert actual.count("has no effect in flux_train.py") == 3
    assert "has no effect with raw predictions" in actual
    words = ("--noise_offset_random_strength", "--ip_noise_gamma_random_strength", "--adaptive_noise_scale=0.1")
    assert notes("sd3_train", *words).count("has no effect in sd3_train.py") == 3
    assert "has no effect without --noise_offset" in notes("train_db", *words[:1])
    assert "has no effect without --ip_noise_gamma" in notes("flux_train", *words[1:2])
    assert "read as raw" in notes("flux_train")
    assert "read as raw" not in notes("flux_train", "--model_prediction_type=raw")


@pytest.mark.parametrize(
    ("script", "words", "where"),
    [
        ("flux_train", "--model_prediction_type=sigma_scaled", "--model_prediction_type"),
        ("flux_train", "--model_prediction_type=additive", "--model_prediction_type"),
        ("sd3_train", "--training_shift=2 --min_timestep=100", "--min_timestep"),
        ("train_network", "--debiased_estimation_loss --min_snr_gamma=5", "--debiased_estimation_loss"),
        (
            "train_network",
            "--debiased_estimation_loss --v_parameterization --scale_v_pred_loss_like_noise_pred",
            "--debiased_estimation_loss",
        ),
    ],
)
def test_unsupported_objectives_are_refused(script: str, words: str, where: str) -> None:
    assert [one[:2] for one in refusal(script, *words.split())] == [(where, "E1018")]


def test_schedule_by_snr_is_not_for_flow_matching_models() -> None:
    for words in (["--loss_type=huber"], ["--loss_type=smooth_l1", "--huber_schedule=snr"]):
        [(where, code, *_)] = refusal("flux_train", *words)
        assert (where, code) == ("--huber_schedule", "E1017")
