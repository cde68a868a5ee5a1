"""Descents in σ: they end at the picture whatever the network says of it, can be left and gone on with, and visit the
levels that are asked for."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from mezzotint.diffusion.parameterization import IN_SIGMA, Parameterization
from mezzotint.diffusion.prediction import PREDICTIONS, target
from mezzotint.diffusion.schedule import Schedule
from mezzotint.families.sd import Family
from mezzotint.recipe.sections.sample import SampleSettings, SolverName
from mezzotint.sampling.denoiser import Denoiser
from mezzotint.sampling.sample import WHOLE, Request, Sampling, Span, sample_latents
from mezzotint.sampling.sigma_samplers import SIGMA_SAMPLERS, SigmaSampler
from mezzotint.sampling.sigmas import sigmas_of
from mezzotint.sampling.solvers import descend
from mezzotint.shapes import Size

SCHEDULE = Schedule.scaled_linear()
PICTURE = torch.randn(2, 4, 8, 8, generator=torch.Generator().manual_seed(0)).clamp(-0.9, 0.9)


def fresh(number: int) -> Tensor:
    return torch.randn(PICTURE.shape, generator=torch.Generator().manual_seed(100 + number))


def knowing(form: Parameterization) -> Any:
    """A network that knows the picture: what it says of its input and what it is told of the level."""

    def network(shown: Tensor, time: Tensor) -> Tensor:
        sigma = (4 * time).exp() if form.tells_sigma else SCHEDULE.sigma[time]
        at = sigma.reshape(-1, 1, 1, 1)
        if not form.in_sigma:
            eps = (shown * (1 + at**2).sqrt() - PICTURE) / at
            return target(form.prediction, PICTURE, eps, (1 / (1 + sigma**2)).expand(len(shown)))
        x_sigma = shown / form.factors(sigma).c_in.reshape(-1, 1, 1, 1)
        return form.target(PICTURE, (x_sigma - PICTURE) / at, sigma)

    return network


@pytest.mark.parametrize("name", SIGMA_SAMPLERS)
@pytest.mark.parametrize("prediction", [*PREDICTIONS, *IN_SIGMA])
@pytest.mark.parametrize("settings", [{"spacing": "stability"}, {"sigmas": "karras"}], ids=["stability", "karras"])
def test_a_network_that_knows_the_picture_is_led_to_it(
    name: SolverName, prediction: str, settings: dict[str, Any]
) -> None:
    form = Parameterization(prediction)
    denoiser = Denoiser(knowing(form), SCHEDULE, form, scale=1.0)
    visited = sigmas_of(SampleSettings(**settings), SCHEDULE, form.solved, 12)
    x = PICTURE + float(visited[0]) * fresh(-1)
    assert float((descend(SigmaSampler(name, visited), x, denoiser, fresh) - PICTURE).abs().max()) < 2e-3


@pytest.mark.parametrize("name", ["ddim", "euler", "heun", "euler-a", "dpm++-2s-a", "lcm"])
@pytest.mark.parametrize("at", [1, 5, 11])
def test_a_descent_that_is_left_and_gone_on_with_is_the_whole_one(name: SolverName, at: int) -> None:
    network = Denoiser(lambda shown, time: 0.5 * torch.tanh(shown), SCHEDULE, "epsilon", scale=1.0)
    visited = sigmas_of(SampleSettings(spacing="stability"), SCHEDULE, "epsilon", 12)
    x = float(visited[0]) * fresh(-1)
    whole = descend(SigmaSampler(name, visited), x, network, fresh)
    half = descend(SigmaSampler(name, visited, last=at), x, network, fresh)
    assert not torch.equal(half, whole)
    rest = descend(SigmaSampler(name, visited[at:]), half, network, lambda number: fresh(number + at))
    torch.testing.assert_close(rest, whole, rtol=1e-5, atol=1e-5)
    assert torch.equal(descend(SigmaSampler(name, visited, last=0), x, network, fresh), x)


def test_pictures_of_a_descent_by_levels_do_not_depend_on_their_company() -> None:
    family = Family.tiny()
    requests = [Request(text, Size(32, 32), seed=n) for n, text in enumerate(("a fox", "a hare"))]

    def drawn(some: list[Request], span: Span = WHOLE) -> Tensor:
        settings = SampleSettings(sigmas="karras", steps=3, guidance=(3.0,), solver="dpm++-2s-a")
        return sample_latents(family, some, Sampling(family.schedule, family.prediction, "cpu", settings, span))

    both = drawn(requests)
    for number, request in enumerate(requests):
        torch.testing.assert_close(drawn([request])[0], both[number], rtol=1e-4, atol=1e-4)
    again = drawn(requests, span=Span(stage=1))
    assert float((again - both).abs().max()) > 0.1, "a second model's noise is another one"
    assert math.isfinite(float(both.abs().max()))
