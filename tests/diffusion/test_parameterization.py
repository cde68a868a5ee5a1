"""Inputs and targets of networks, and the meaning of their outputs."""

from __future__ import annotations

import pytest
import torch

from mezzotint.diffusion import prediction
from mezzotint.diffusion.parameterization import IN_SIGMA, Parameterization, sigma_at
from mezzotint.diffusion.schedule import Schedule
from mezzotint.errors import RecipeError

SCHEDULE = Schedule.scaled_linear()
T = torch.tensor([3, 400, 950])


@pytest.mark.parametrize("kind", IN_SIGMA)
def test_exact_prediction_gives_the_exact_velocity(kind: str) -> None:
    form = Parameterization(kind)
    x_0, eps = (torch.randn(3, 4, 2, 2, generator=torch.Generator().manual_seed(seed)) for seed in (1, 2))
    alpha_bar, sigma = SCHEDULE.alpha_bar[T], sigma_at(T, SCHEDULE)
    x_t = prediction.add_noise(x_0, eps, alpha_bar)
    shown, time = form.make_inputs(x_t, T, SCHEDULE)
    torch.testing.assert_close(
        shown, form.model_input(x_0 + sigma.view(-1, 1, 1, 1) * eps, sigma), rtol=1e-4, atol=1e-4
    )
    assert torch.equal(time, 0.25 * sigma.log() if form.takes_log_sigma else T)
    velocity = form.as_velocity(form.target(x_0, eps, sigma), x_t, T, SCHEDULE)
    torch.testing.assert_close(velocity, prediction.velocity(x_0, eps, alpha_bar), rtol=1e-3, atol=1e-3)
    assert form.solver_prediction == "v"


def test_other_predictions_pass_through_unchanged() -> None:
    form, x = Parameterization("epsilon"), torch.ones(3, 4, 2, 2)
    shown, time = form.make_inputs(x, T, SCHEDULE)
    assert shown is x
    assert time is T
    assert form.as_velocity(x, x, T, SCHEDULE) is x
    assert (form.solver_prediction, Parameterization("v", time_input="log-sigma").takes_log_sigma) == ("epsilon", True)


def test_levels_between_timesteps_are_interpolated() -> None:
    table = SCHEDULE.sigma
    between = sigma_at(torch.tensor([7.25, 998.5, 5000.0]), SCHEDULE)
    torch.testing.assert_close(between[0], torch.lerp(table[7], table[8], 0.25))
    assert between[2] == table[-1]


def test_unknown_or_sigma_free_kinds_are_refused() -> None:
    with pytest.raises(ValueError, match="choose from epsilon"):
        Parameterization("warp")
    with pytest.raises(RecipeError, match="works with v"):
        Parameterization("epsilon", time_input="log-sigma")
