"""The flow-matching objective: inputs, shifts, limits, weights, and draws that do not depend on the batch."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from mezzotint.diffusion.flow import FlowSchedule, Tokens
from mezzotint.diffusion.flow_objective import FlowObjective, objective_of
from mezzotint.diffusion.objective import Objective, StepDraws
from mezzotint.diffusion.schedule import Schedule
from mezzotint.settings.sections.flow import FlowSettings
from mezzotint.settings.sections.objective import ObjectiveSettings

RECORDS = Path(__file__).parents[1] / "parity" / "data" / "flow" / "densities.safetensors"
FIXED = FlowSchedule.of({"shift": 3.0}, Tokens())
BY_RESOLUTION = FlowSchedule.of({"use_dynamic_shifting": True}, Tokens())


def objective(schedule: FlowSchedule = FIXED, *, flow: dict[str, Any] | None = None, **settings: Any) -> FlowObjective:
    opened = objective_of(ObjectiveSettings(flow=FlowSettings(**flow or {}), **settings), schedule, "flow")
    assert isinstance(opened, FlowObjective)
    return opened


def drawn_at(count: int, step: int = 5) -> StepDraws:
    return StepDraws.at(1, step, np.arange(count), "cpu")


def levels(chosen: FlowObjective, count: int = 4000, shape: tuple[int, ...] = (4, 16, 16)) -> Tensor:
    return chosen.levels(drawn_at(count), torch.Size(shape))


def weight_at(chosen: FlowObjective, sigma: Tensor) -> Tensor:
    """The weight of the loss at these noise levels."""
    count = len(sigma)
    noised = replace(chosen.noise(torch.zeros(count, 4, 2, 2), drawn_at(count)), level=sigma)
    return chosen.loss(noised.noise, noised, torch.ones(count)).weight


def test_schedule_selects_its_objective() -> None:
    assert type(objective_of(ObjectiveSettings(), Schedule.scaled_linear(), "epsilon")) is Objective
    assert type(objective()) is FlowObjective


def test_exponential_huber_parameter_falls_with_sigma() -> None:
    chosen, sigma = (
        objective(loss="smooth-l1", huber_delta=0.2, huber_schedule="exponential"),
        torch.tensor([0.25, 1.0]),
    )
    noised = replace(chosen.noise(torch.zeros(2, 4, 2, 2), drawn_at(2)), level=sigma)
    losses = chosen.loss(chosen.target(noised) + 3.0, noised, torch.ones(2)).per_sample
    expected = [2 * (math.hypot(3.0, c) - c) for c in (0.2**0.25, 0.2)]
    assert losses.tolist() == pytest.approx(expected, rel=1e-4)


def test_noising_is_linear_and_velocity_inverts_it() -> None:
    chosen, x_0 = objective(), torch.randn(3, 4, 8, 8)
    noised = chosen.noise(x_0, drawn_at(3))
    at = noised.level.view(-1, 1, 1, 1)
    torch.testing.assert_close(noised.x_t, (1 - at) * x_0 + at * noised.noise)
    torch.testing.assert_close(noised.x_t - at * chosen.target(noised), x_0, rtol=1e-5, atol=1e-5)
    assert torch.equal(noised.model_t, noised.level * 1000)
    assert torch.equal(chosen.timestep(noised), noised.model_t)


def test_noise_levels_depend_only_on_the_address() -> None:
    chosen, x_0 = objective(), torch.randn(6, 4, 8, 8)
    whole = chosen.noise(x_0, drawn_at(6))
    part = chosen.noise(x_0[2:4], StepDraws.at(1, 5, np.arange(2, 4), "cpu"))
    assert torch.equal(part.x_t, whole.x_t[2:4])
    assert torch.equal(part.level, whole.level[2:4])


def test_held_out_levels_do_not_depend_on_training() -> None:
    for chosen in (objective(), objective(BY_RESOLUTION, flow={"density": "uniform"})):
        noised = chosen.noise_at(torch.randn(2, 4, 8, 8), drawn_at(2), torch.tensor([100, 900]))
        assert noised.level.tolist() == pytest.approx([0.1, 0.9])


def test_shift_is_from_table_number_or_resolution() -> None:
    even = {"density": "uniform"}
    plain = levels(objective(flow=even | {"shift": 1.0}))
    for schedule, words, shift in (
        (FIXED, {}, 3.0),
        (FIXED, {"shift": "table"}, 3.0),
        (FIXED, {"shift": 2.0}, 2.0),
        (FIXED, {"shift": "resolution"}, math.exp(0.5 + (64 - 256) * 0.65 / 3840)),
        (BY_RESOLUTION, {}, math.exp(0.5 + (64 - 256) * 0.65 / 3840)),
        (BY_RESOLUTION, {"shift": "table"}, 1.0),
    ):
        ours = levels(objective(schedule, flow=even | words))
        torch.testing.assert_close(ours, shift * plain / (1 + (shift - 1) * plain), rtol=1e-5, atol=1e-6)
    larger = levels(objective(BY_RESOLUTION, flow=even), shape=(4, 128, 128))
    assert larger.mean() > levels(objective(BY_RESOLUTION, flow=even)).mean() + 0.05


def test_table_has_a_thousand_levels_and_continuous_grid_more() -> None:
    on_table = levels(objective(flow={"shift": 1.0}))
    torch.testing.assert_close(on_table * 1000, (on_table * 1000).round(), rtol=0, atol=1e-3)
    continuous = levels(objective(flow={"shift": 1.0, "grid": "continuous"}))
    assert (on_table - continuous).min() >= -1e-6
    assert (on_table - continuous).max() <= 1e-3 + 1e-6
    assert len(set(continuous.tolist())) > 3900


@pytest.mark.parametrize("grid", ["table", "continuous"])
def test_sigma_limits_hold_after_shifting(grid: str) -> None:
    ours = levels(objective(flow={"sigmas": (0.875, 1.0), "grid": grid}))
    assert ours.min() >= 0.875 - 1e-6
    assert ours.max() <= 1.0
    assert ours.max() - ours.min() > 0.1
    low = levels(objective(flow={"sigmas": (0.0, 0.875), "grid": grid}))
    assert low.max() <= 0.875 + 1e-6
    assert low.min() < 0.2


def test_weights_equal_the_recorded_ones() -> None:
    records = load_file(RECORDS)
    for name in ("none", "sigma_sqrt", "cosmap"):
        chosen = objective(**({} if name == "none" else {"weighting": name.replace("_", "-")}))
        ours = weight_at(chosen, records["weights.sigmas"])
        torch.testing.assert_close(ours, records[f"weights.{name}"].float(), rtol=1e-5, atol=0)


def test_min_snr_clamps_flow_weights() -> None:
    sigma = torch.tensor([0.05, 0.3, 0.5, 0.9, 1.0])
    snr = ((1 - sigma) / sigma) ** 2
    for form, theirs in (
        ("prediction", snr.clamp_max(5) * sigma**2),
        ("x0", (sigma**-2).clamp_max(5) * sigma**2),
        ("ratio", torch.where(snr > 0, snr.clamp_max(5) / snr, 1.0)),
    ):
        ours = weight_at(objective(min_snr_gamma=5.0, min_snr_form=form), sigma)
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


def test_x0_weights_equal_those_of_other_objectives() -> None:
    sigma = torch.tensor([0.2, 0.7])
    torch.testing.assert_close(weight_at(objective(weighting="unit"), sigma), sigma**2)
    preconditioned = objective(flow={"preconditioned": True}, weighting="unit")
    torch.testing.assert_close(weight_at(preconditioned, sigma), torch.ones(2))


@pytest.mark.parametrize("loss", ["mse", "l1", "huber", "mse-huber"])
def test_preconditioned_loss_is_the_error_of_x0(loss: str) -> None:
    chosen, x_0 = objective(flow={"preconditioned": True}, loss=loss), torch.randn(2, 4, 8, 8)
    noised, output = chosen.noise(x_0, drawn_at(2)), torch.randn(2, 4, 8, 8)
    at = noised.level.view(-1, 1, 1, 1)
    error = (noised.x_t - at * output) - x_0
    per_sample = chosen.loss(output, noised, torch.ones(2)).per_sample
    if loss == "mse":
        torch.testing.assert_close(per_sample, error.square().flatten(1).mean(1))
    elif loss == "l1":
        torch.testing.assert_close(per_sample, error.abs().flatten(1).mean(1))
    assert per_sample.isfinite().all()
