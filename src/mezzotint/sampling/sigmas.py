"""The levels of noise that a descent visits, as σ, noise over picture: falling, with 0 at the end."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from mezzotint.diffusion.preconditioning import karras_sigmas, spread_sigmas
from mezzotint.diffusion.schedule import Schedule
from mezzotint.errors import RecipeError
from mezzotint.recipe.sections.sample import SampleSettings, Spacing

EDM_RANGE = (0.002, 80.0)
"""Lowest and highest level of EDM's own networks (Karras et al. 2022, table 1)."""


def chosen_spacing(spacing: Spacing, schedule: Schedule, prediction: str) -> str:
    """What `auto` is: leading, or trailing where the schedule ends in pure noise, unless epsilon is predicted, which
    tells nothing of the picture there."""
    if spacing != "auto":
        return spacing
    return "trailing" if schedule.zero_terminal and prediction != "epsilon" else "leading"


def sigmas_of(settings: SampleSettings, schedule: Schedule, prediction: str, steps: int) -> Tensor:
    """(steps + 1,) float32 on the CPU, as `sample.sigmas` and `sample.timestep_spacing` say. Raises RecipeError E1070
    for bounds that make no range, more steps than the schedule has levels, and the spacing `library`."""
    table = schedule.sigma.cpu()
    if settings.sigmas == "schedule":
        return _of_schedule(chosen_spacing(settings.timestep_spacing, schedule, prediction), table, steps)
    low, high = EDM_RANGE if settings.sigmas == "edm" else (float(table[0]), float(table[-1]))
    low, high = settings.sigma_min or low, settings.sigma_max or high
    if low >= high:
        raise RecipeError(
            f"sample.sigma_min: levels go from {high:g} down to {low:g}, which is no descent; write a smaller "
            "sample.sigma_min or a larger sample.sigma_max",
            code="E1070",
        )
    return karras_sigmas(steps, sigma_min=low, sigma_max=high, rho=settings.rho)


def timesteps(spacing: str, count: int, steps: int) -> list[int]:
    """Indices of a table of `count` levels, falling; spacing: of `sample.timestep_spacing`, without auto."""
    match spacing:
        case "leading":  # offset 1, as Stable Diffusion's own pipelines
            indices = [k * (count // steps) + 1 for k in reversed(range(steps))]
        case "trailing":
            indices = [int(t) - 1 for t in np.round(np.arange(count, 0, -count / steps))]
        case "linspace":
            indices = [int(t) for t in np.round(np.linspace(count - 1, 0, steps))]
        case _:
            raise AssertionError(spacing)
    return [min(t, count - 1) for t in indices[:steps]]


def kept(descent: Tensor, share: float) -> int:
    """The index where the lowest levels begin, a share of all, the final 0 counted among them, and at least that one:
    where a picture is begun with (Stability's rule for image to image)."""
    count = len(descent)
    return count - max(1, min(count, int(share * count)))


def _of_schedule(spacing: str, table: Tensor, steps: int) -> Tensor:
    if steps > len(table):
        raise RecipeError(
            f"sample.steps is {steps} and the model's schedule has {len(table)} levels; write at most that many",
            code="E1070",
        )
    if spacing == "library":
        raise RecipeError(
            "sample.timestep_spacing is library, which is about diffusers' classes as they are, and something asks for "
            "levels of noise of its own; take another sample.timestep_spacing",
            code="E1070",
        )
    if spacing == "stability":
        return spread_sigmas(table, steps)
    return torch.cat([table[timesteps(spacing, len(table), steps)], torch.zeros(1)])
