"""The noise levels of sampling, as σ (noise over signal): falling, with 0 at the end."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from mezzotint.diffusion.preconditioning import karras_sigmas, spread_sigmas
from mezzotint.diffusion.schedule import Schedule
from mezzotint.errors import RecipeError
from mezzotint.settings.sections.sample import SampleSettings, Spacing

EDM_RANGE = (0.002, 80.0)
"""Lowest and highest level of EDM's own networks (Karras et al. 2022, table 1)."""


def resolve_spacing(spacing: Spacing, schedule: Schedule, prediction: str) -> Spacing:
    """Resolves `auto`: leading, or trailing (Lin et al. 2023, arXiv:2305.08891) if the schedule ends in pure noise,
    unless the network predicts epsilon, from which nothing of the image can be computed there."""
    if spacing != "auto":
        return spacing
    return "trailing" if schedule.zero_terminal and prediction != "epsilon" else "leading"


def compute_sigmas(settings: SampleSettings, schedule: Schedule, prediction: str, steps: int) -> Tensor:
    """(steps + 1,) float32 on the CPU, by `sample.sigmas` and `sample.timestep_spacing`. Raises RecipeError E1070 for
    an empty range, more steps than the schedule has levels, and the spacing `library`."""
    table = schedule.sigma.cpu()
    if settings.sigmas == "schedule":
        return _of_schedule(resolve_spacing(settings.timestep_spacing, schedule, prediction), table, steps)
    low, high = EDM_RANGE if settings.sigmas == "edm" else (float(table[0]), float(table[-1]))
    low, high = settings.sigma_min or low, settings.sigma_max or high
    if low >= high:
        raise RecipeError(
            f"sample.sigma_min: noise levels would go from {high:g} up to {low:g}; write a smaller sample.sigma_min or "
            "a larger sample.sigma_max",
            code="E1070",
        )
    return karras_sigmas(steps, sigma_min=low, sigma_max=high, rho=settings.rho)


def timesteps(spacing: Spacing, count: int, steps: int) -> list[int]:
    """Falling indices into a table of `count` levels. spacing: "leading" (offset 1, as in Stable Diffusion's
    pipelines), "trailing" or "linspace"."""
    match spacing:
        case "leading":
            indices = [k * (count // steps) + 1 for k in reversed(range(steps))]
        case "trailing":
            indices = [int(t) - 1 for t in np.round(np.arange(count, 0, -count / steps))]
        case "linspace":
            indices = [int(t) for t in np.round(np.linspace(count - 1, 0, steps))]
        case _:
            raise AssertionError(spacing)
    return [min(t, count - 1) for t in indices[:steps]]


def find_first_of_share(sigmas: Tensor, share: float) -> int:
    """The index of the first of the lowest levels that are a share of all, the final 0 counted and always among them
    (Stability's rule for image to image)."""
    count = len(sigmas)
    return count - max(1, min(count, int(share * count)))


def _of_schedule(spacing: Spacing, table: Tensor, steps: int) -> Tensor:
    if steps > len(table):
        raise RecipeError(
            f"sample.steps is {steps}, but the model's schedule has {len(table)} levels; write at most that many",
            code="E1070",
        )
    if spacing == "library":
        raise RecipeError(
            "sample.timestep_spacing is library, which uses diffusers' classes unchanged, but another setting needs "
            "custom noise levels; use another sample.timestep_spacing",
            code="E1070",
        )
    if spacing == "stability":
        return spread_sigmas(table, steps)
    return torch.cat([table[timesteps(spacing, len(table), steps)], torch.zeros(1)])
