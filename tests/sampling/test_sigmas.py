"""The noise levels of sampling."""

from __future__ import annotations

import pytest
import torch
from diffusers.schedulers.scheduling_euler_discrete import EulerDiscreteScheduler

from mezzotint.diffusion.schedule import Schedule
from mezzotint.errors import RecipeError
from mezzotint.sampling.sigmas import compute_sigmas, find_first_of_share, timesteps
from mezzotint.settings.sections.sample import SampleSettings, Spacing

SCHEDULE = Schedule.scaled_linear()


@pytest.mark.parametrize("spacing", ["leading", "trailing", "linspace"])
@pytest.mark.parametrize("steps", [1, 7, 30])
def test_timesteps_equal_diffusers(spacing: Spacing, steps: int) -> None:
    stock = EulerDiscreteScheduler(timestep_spacing=spacing, steps_offset=1)
    stock.set_timesteps(steps)
    # one step of diffusers' linspace begins, as a range of one number does, at its first
    expected = [999] if (spacing, steps) == ("linspace", 1) else [round(float(t)) for t in stock.timesteps]
    assert timesteps(spacing, 1000, steps) == expected


@pytest.mark.parametrize(
    ("share", "steps", "begins"),
    [(0.0, 40, 40), (0.02, 40, 40), (0.15, 40, 35), (0.75, 40, 11), (1.0, 40, 0), (0.5, 3, 2), (0.75, 4, 2)],
)
def test_share_of_levels_includes_the_final_zero(share: float, steps: int, begins: int) -> None:
    # Stability: of the rising list of steps + 1 levels the first max(int(share · (steps + 1)), 1) are kept
    assert find_first_of_share(torch.zeros(steps + 1), share) == begins == steps + 1 - max(int(share * (steps + 1)), 1)


def test_too_many_steps_and_library_spacing_are_refused() -> None:
    short = Schedule.scaled_linear(num_timesteps=10)
    with pytest.raises(RecipeError, match="write at most that many") as caught:
        compute_sigmas(SampleSettings(timestep_spacing="stability"), short, "epsilon", 11)
    assert caught.value.code == "E1070"
    with pytest.raises(RecipeError, match=r"sample\.timestep_spacing is library"):
        compute_sigmas(SampleSettings(timestep_spacing="library"), SCHEDULE, "epsilon", 11)
