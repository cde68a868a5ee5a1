"""What a job trains, against numbers that tools/ai_toolkit_formulas.py works out from the published formulas."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from foreign_lines import ALONE
from jobs import FLUX, job, settings, write

from mezzotint.diffusion import densities, flow, weighting
from mezzotint.diffusion.flow import FlowSchedule, Tokens
from mezzotint.diffusion.flow_objective import objective_of
from mezzotint.diffusion.objective import StepDraws
from mezzotint.settings.recipe import Recipe
from mezzotint.tasks.reading import foreign
from mezzotint.training import lr

NUMBERS: dict[str, Any] = json.loads((Path(__file__).parent / "formulas.json").read_text("utf-8"))


def recipe(changes: dict[str, Any]) -> Recipe:
    return foreign.read_command_line("ai-toolkit", [write(job(changes))], (), ALONE).recipe


def test_linear_levels_are_the_thousand_of_ai_toolkit() -> None:
    read = recipe({**FLUX, "train.timestep_type": "linear"}).objective.flow
    assert (read.density, read.shift, read.grid) == ("uniform", 1.0, "table")
    uniforms = 1.0 - (np.arange(1000) + 0.5) / 1000
    levels = flow.round_to_table(densities.from_uniforms(read, uniforms))
    assert [levels[index] for index in (0, 1, 500, 999)] == pytest.approx(NUMBERS["linear_levels"])


def test_sigmoid_levels_have_the_same_quantiles() -> None:
    read = recipe(FLUX).objective.flow
    assert (read.density, read.shift, read.grid) == ("sigmoid", 1.0, "continuous")
    for share, sigma in NUMBERS["sigmoid_quantiles"].items():
        normal = torch.special.ndtri(torch.tensor(float(share), dtype=torch.float64)).numpy()
        assert densities.from_normals(read, normal) == pytest.approx(sigma)


@pytest.mark.parametrize("kind", ["shift", "flux_shift"])
def test_shift_depends_on_the_size_as_in_ai_toolkit(kind: str) -> None:
    read = recipe({**FLUX, "train.timestep_type": kind}).objective.flow
    assert (read.density, read.shift, read.grid) == ("uniform", "auto", "table")
    schedule = FlowSchedule.of({"use_dynamic_shifting": True, "base_shift": 0.5, "max_shift": 1.15}, Tokens(cell=2))
    for tokens, shift in NUMBERS["flux_shift"].items():
        side = 2 * int(int(tokens) ** 0.5)
        assert schedule.shift_of((16, side, side)) == pytest.approx(shift)
    for sigma, shifted in NUMBERS["shifted"].items():
        assert float(flow.shift_sigma(torch.tensor(float(sigma)), schedule.shift_of((16, 128, 128)))) == pytest.approx(
            shifted
        )


@pytest.mark.parametrize("span", list(NUMBERS["timesteps"]))
def test_timesteps_are_those_of_ai_toolkit(span: str) -> None:
    first, last = map(int, span.split())
    low, high = settings({"train.min_denoising_steps": first, "train.max_denoising_steps": last})["objective.timesteps"]
    assert [low, high - 1] == NUMBERS["timesteps"][span]


def test_cosine_falls_to_eta_min() -> None:
    changes = {"train.lr": 1e-4, "train.steps": 2000, "train.lr_scheduler": "cosine"}
    read = recipe(changes | {"train.lr_scheduler_params.eta_min": 1e-5}).optim
    for step, rate in NUMBERS["cosine"].items():
        assert read.lr * lr.factor(read.schedule, int(step), 2000) == pytest.approx(rate)


def test_linear_rises_from_a_third() -> None:
    read = recipe({"train.steps": 2000, "train.lr_scheduler": "linear"}).optim
    for step, factor in NUMBERS["linear"].items():
        assert lr.factor(read.schedule, int(step), 2000) == pytest.approx(factor)


def test_warmup_is_a_thousand_steps() -> None:
    read = recipe({"train.steps": 2000, "train.lr_scheduler": "constant_with_warmup"}).optim
    for step, factor in NUMBERS["warmup"].items():
        assert lr.factor(read.schedule, int(step), 2000) == pytest.approx(factor)


@pytest.mark.parametrize("prediction", ["epsilon", "v"])
def test_min_snr_is_a_ratio_for_both_predictions(prediction: str) -> None:
    read = recipe({"train.min_snr_gamma": 5, "model.is_v_pred": prediction == "v"}).objective
    assert read.min_snr_gamma == 5.0
    for snr, weight in NUMBERS["min_snr"].items():
        snrs = torch.tensor([float(snr)])
        assert float(weighting.min_snr(snrs, 5.0, prediction, read.min_snr_form)) == pytest.approx(weight)


def loss_weights(changes: dict[str, Any]) -> list[float]:
    """By index of ai-toolkit's levels, from 1000 to 1."""
    chosen = objective_of(recipe(changes).objective, FlowSchedule.of({"shift": 3.0}, Tokens()), "flow")
    sigma = torch.arange(1000, 0, -1) / 1000
    x_0 = torch.zeros(1000, 1, 1, 1)
    noised = replace(chosen.noise(x_0, StepDraws.at(0, 1, np.arange(1000), "cpu")), level=sigma)
    weights: list[float] = chosen.loss(x_0, noised, torch.ones(1000)).weight.tolist()
    return weights


@pytest.mark.parametrize("key", list(NUMBERS["bells"]))
def test_bells_of_weights(key: str) -> None:
    weights = loss_weights({**FLUX, f"train.{key}": True})
    for index, weight in NUMBERS["bells"][key].items():
        assert weights[int(index)] == pytest.approx(weight, abs=1e-5)


def test_weighted_timesteps_have_the_table_of_ai_toolkit() -> None:
    weights = loss_weights({**FLUX, "train.timestep_type": "weighted"})
    published = {0: 0.905706524848938, 1: 0.9097874164581299, 130: 1.5184354782104492, 998: 0.4453802704811096,
                 999: 0.4472601115703583}  # fmt: skip
    assert {index: weights[index] for index in published} == published
    assert sum(weights) / 1000 == pytest.approx(1.0, abs=1e-7)


def test_older_accumulation_counts_micro_batches() -> None:
    for case, updates in NUMBERS["updates"].items():
        steps, times = map(int, case.split())
        changes = {"train.steps": steps, "train.gradient_accumulation_steps": times}
        assert settings(changes)["run.steps"] == updates


@pytest.mark.parametrize("case", list(NUMBERS["square_side"]))
def test_resolution_is_that_of_the_square_bucket(case: str) -> None:
    resolution, tolerance = map(int, case.split())
    changes = {"datasets.0.resolution": resolution, "datasets.0.bucket_tolerance": tolerance}
    assert settings(changes)["data.resolution"] == NUMBERS["square_side"][case]


def test_scale_of_lora_is_alpha_over_rank_except_for_transformers() -> None:
    unet, transformer = recipe({}).model.adapter, recipe(FLUX).model.adapter
    assert unet.alpha is not None
    assert transformer.alpha is not None
    assert unet.alpha / unet.rank == NUMBERS["lora_scale"]["16 8"]
    assert transformer.alpha / transformer.rank == NUMBERS["lora_scale"]["peft"]
