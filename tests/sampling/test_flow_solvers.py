"""Flow-matching solvers visit the recorded noise levels of diffusers' schedulers and pipelines."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from mezzotint.diffusion.flow import FlowSchedule, Tokens
from mezzotint.errors import RecipeError
from mezzotint.sampling.flow_solvers import open_solver
from mezzotint.sampling.requests import Request, Sampling
from mezzotint.sampling.sample import check_solver, sample_latents
from mezzotint.settings.families.base import specs
from mezzotint.settings.sections.sample import SampleSettings
from mezzotint.shapes import Size

DATA = Path(__file__).parents[1] / "parity" / "data" / "flow"
LINES: dict[str, dict[str, Any]] = {
    "flux": {},
    "qwen_image": {"max_shift": 0.9, "max_image_seq_len": 8192, "shift_terminal": 0.02},
    "ltx": {"base_shift": 0.95, "max_shift": 2.05, "base_image_seq_len": 1024, "shift_terminal": 0.1},
}


def sigmas_of(schedule: FlowSchedule, shape: tuple[int, ...], steps: int) -> Tensor:
    sigmas: Tensor = open_solver("euler", schedule, shape, steps=steps, device="cpu").scheduler.sigmas
    return sigmas


@pytest.fixture(scope="module")
def tables() -> dict[str, Tensor]:
    return load_file(DATA / "schedules.safetensors")


def test_fixed_shifts_use_the_recorded_levels(tables: dict[str, Tensor]) -> None:
    seen = 0
    for key, recorded in tables.items():
        match = re.fullmatch(r"sample\.shift_([\d.]+)\.steps_(\d+)(\.given_linspace)?\.sigmas", key)
        if match:
            schedule = FlowSchedule.of({"shift": float(match[1])}, Tokens(uniform_sigmas=bool(match[3])))
            torch.testing.assert_close(sigmas_of(schedule, (4, 8, 8), int(match[2])), recorded, rtol=1e-6, atol=1e-7)
            seen += 1
    assert seen == 40


def test_resolution_shifts_use_the_recorded_levels(tables: dict[str, Tensor]) -> None:
    seen = 0
    for key, recorded in tables.items():
        match = re.fullmatch(r"sample\.(\w+)\.(\w+)\.length_(\d+)\.steps_(\d+)\.sigmas", key)
        if match:
            config = {"use_dynamic_shifting": True, "time_shift_type": match[2], **LINES[match[1]]}
            schedule = FlowSchedule.of(config, Tokens(cell=1))
            torch.testing.assert_close(
                sigmas_of(schedule, (4, int(match[3]), 1), int(match[4])), recorded, rtol=1e-5, atol=1e-6
            )
            seen += 1
    assert seen == 90


def test_one_step_goes_from_noise_to_the_image() -> None:
    for line in LINES.values():
        schedule = FlowSchedule.of({"use_dynamic_shifting": True, **line}, Tokens(cell=1))
        torch.testing.assert_close(sigmas_of(schedule, (4, 64, 1), 1), torch.tensor([1.0, 0.0]))


def test_unipc_uses_the_recorded_levels(tables: dict[str, Tensor]) -> None:
    for shift in (3.0, 5.0):
        for steps in (4, 20, 50):
            solver = open_solver(
                "unipc", FlowSchedule.of({"flow_shift": shift}, Tokens()), (4, 8, 8), steps=steps, device="cpu"
            )
            name = f"unipc.shift_{shift}.steps_{steps}"
            torch.testing.assert_close(solver.scheduler.sigmas, tables[f"{name}.sigmas"], rtol=1e-6, atol=1e-7)
            assert torch.equal(solver.timesteps, tables[f"{name}.timesteps"])


def test_euler_step_equals_the_recorded_one(tables: dict[str, Tensor]) -> None:
    solver = open_solver(
        "euler", FlowSchedule.of({"shift": 3.0}, Tokens(uniform_sigmas=False)), (4, 3, 5), steps=4, device="cpu"
    )
    ours = solver.step(0, tables["euler.x"], lambda x, t: tables["euler.v"], lambda number: torch.zeros(()))
    torch.testing.assert_close(ours, tables["euler.first"], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", ["euler", "heun", "unipc"])
def test_every_solver_integrates_a_constant_velocity_exactly(name: Any) -> None:
    """Where the velocity is the same everywhere, any number of steps ends at x − v."""
    x, v = torch.randn(2, 4, 4, 4), torch.randn(2, 4, 4, 4)
    for schedule in (
        FlowSchedule.of({"shift": 3.0}, Tokens()),
        FlowSchedule.of({"use_dynamic_shifting": True}, Tokens()),
    ):
        solver, at = open_solver(name, schedule, (4, 4, 4), steps=5, device="cpu"), x
        for number in range(len(solver)):
            at = solver.step(number, at, lambda x, t: v, lambda number: torch.zeros(()))
        torch.testing.assert_close(at, x - v, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("solver", "settings", "word"),
    [
        ("ddim", {}, "ddim"), ("euler-a", {}, "euler-a"), ("euler", {"sigmas": "karras"}, "sample.sigmas=karras"),
        ("euler", {"timestep_spacing": "trailing"}, "sample.timestep_spacing=trailing"),
        ("euler", {"thresholding": {"ratio": 0.9}}, "sample.thresholding"),
    ],
)  # fmt: skip
def test_settings_unsupported_by_flow_matching_are_refused(solver: Any, settings: dict[str, Any], word: str) -> None:
    with pytest.raises(RecipeError) as caught:
        check_solver(solver, FlowSchedule.of({}, Tokens()), "flow", SampleSettings(**settings))
    assert caught.value.code == "E1219"
    assert word in caught.value.message


@pytest.mark.parametrize("name", [spec.name for spec in specs() if spec.is_flow_matching])
def test_progress_is_reported_after_each_step(name: str) -> None:
    family = importlib.import_module(f"mezzotint.families.{name.replace('-', '_')}").Family.tiny()
    reports: list[tuple[int, int, Tensor]] = []
    how = Sampling(
        family.schedule, family.prediction, "cpu", SampleSettings(steps=2, solver="euler", guidance=(1.0,)),
        on_step=lambda done, total, x: reports.append((done, total, x)),
    )  # fmt: skip
    side = family.grid.pixels * family.grid.cell
    latents = sample_latents(family, [Request("a red circle", Size(side, side))], how)
    assert [(done, total) for done, total, _ in reports] == [(1, 2), (2, 2)]
    assert not torch.equal(reports[0][2], latents)
    assert torch.equal(reports[1][2], latents)
