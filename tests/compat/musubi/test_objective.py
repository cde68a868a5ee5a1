"""Noise levels and loss weights, against numbers that tools/musubi_formulas.py works out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from musubi_commands import notes, problems, recipe

from mezzotint.diffusion import densities, flow, weighting

NUMBERS: dict[str, Any] = json.loads((Path(__file__).parent / "formulas.json").read_text("utf-8"))
QWEN, WAN, FLUX = "qwen_image_train", "wan_train_network", "flux_2_train_network"


def levels(script: str, words: str, drawn: list[float], *, is_reversed: bool) -> list[float]:
    """The noise levels of a recipe. drawn: the scripts' random numbers. is_reversed: they count from noise."""
    settings = recipe(script, *words.split()).objective.flow
    numbers = np.array(drawn)
    if settings.density == "uniform":
        sigma = densities.from_uniforms(settings, 1 - numbers if is_reversed else numbers)
    else:
        sigma = densities.from_normals(settings, -numbers if is_reversed else numbers)
    low, high = (flow.unshift_sigma(end, settings.shift) for end in settings.sigmas)
    sigma = low + (high - low) * sigma
    if settings.grid == "table":
        sigma = np.clip(flow.round_to_table(sigma), low, high)
    return [float(one) for one in flow.shift_sigma(torch.from_numpy(sigma), settings.shift)]


@pytest.mark.parametrize(
    ("words", "drawn", "name", "is_reversed"),
    [
        ("", "uniforms", "sigma", True),
        ("--discrete_flow_shift=3 --weighting_scheme=cosmap", "uniforms", "sigma_3", True),
        ("--discrete_flow_shift=3 --min_timestep=100 --max_timestep=600", "uniforms", "sigma_3_range", True),
        ("--timestep_sampling=uniform --min_timestep=250 --max_timestep=750", "uniforms", "uniform_range", False),
        ("--timestep_sampling=shift --discrete_flow_shift=2.2 --sigmoid_scale=1.5", "normals", "shift", False),
    ],
)
def test_noise_levels(words: str, drawn: str, name: str, is_reversed: bool) -> None:
    actual = levels(QWEN, words, NUMBERS[drawn], is_reversed=is_reversed)
    assert actual == pytest.approx(NUMBERS[name], abs=1e-6)


def test_logsnr_is_a_normal_log_snr() -> None:
    words = ("--timestep_sampling=logsnr", "--logit_mean=0.5", "--logit_std=2")
    settings = recipe(QWEN, *words).objective.flow
    actual = densities.from_normals(settings, np.array(NUMBERS["normals"]))
    assert list(actual) == pytest.approx(NUMBERS["logsnr"], abs=1e-6)


@pytest.mark.parametrize("scheme", ["sigma_sqrt", "cosmap"])
def test_weights_are_those_of_the_velocity(scheme: str) -> None:
    read = recipe(WAN, f"--weighting_scheme={scheme}", "--timestep_sampling=shift").objective
    actual = weighting.flow_weight(read.weighting, torch.tensor(NUMBERS["uniforms"]))
    assert actual.tolist() == pytest.approx(NUMBERS[scheme], rel=1e-5)
    assert read.flow.preconditioned is False


@pytest.mark.parametrize(
    ("script", "sampling", "config"),
    [
        (FLUX, "flux2_shift", {}),
        ("flux_kontext_train_network", "flux_shift", {}),
        (QWEN, "qwen_shift", {"max_shift": 0.9, "max_image_seq_len": 8192}),
    ],
)
def test_shift_by_resolution_is_the_familys_rule(script: str, sampling: str, config: dict[str, Any]) -> None:
    assert recipe(script, f"--timestep_sampling={sampling}").objective.flow.shift == "resolution"
    schedule = flow.FlowSchedule.of({"use_dynamic_shifting": True, **config}, flow.Tokens(cell=1))
    assert schedule.shift_of((16, 64, 64)) == pytest.approx(NUMBERS[sampling])


@pytest.mark.parametrize(
    ("script", "words", "where", "text"),
    [
        (WAN, "--timestep_sampling=flux_shift", "--timestep_sampling", "shifts by the rule of another model"),
        (QWEN, "--timestep_sampling=qwen_shift --max_timestep=900", "--max_timestep", "rescaled to a range"),
        (QWEN, "--preserve_distribution_shape", "--preserve_distribution_shape", "cut to a range"),
        (QWEN, "--timestep_sampling=ideogram4_shift", "--timestep_sampling", "is for Ideogram 4"),
    ],
)
def test_unsupported_levels_are_refused(script: str, words: str, where: str, text: str) -> None:
    [problem] = problems(script, *words.split())
    assert (problem.where, problem.code) == (where, "E1018")
    assert text in problem.message


def test_options_without_effect_are_noted() -> None:
    assert "mode has no effect" in notes(QWEN, "--weighting_scheme=mode", "--timestep_sampling=uniform")
    assert "begins with noise" in notes(QWEN, "--min_timestep=100")
