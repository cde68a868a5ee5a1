"""Solvers in σ reach the image for any prediction, and can stop at any level and continue from it."""

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
from mezzotint.sampling.network import CleanLatents
from mezzotint.sampling.requests import Request, Sampling, Span
from mezzotint.sampling.sample import sample_latents
from mezzotint.sampling.sigma_solvers import SIGMA_SOLVERS, SigmaSolver
from mezzotint.sampling.sigmas import compute_sigmas
from mezzotint.sampling.solvers import run_solver
from mezzotint.settings.sections.sample import SampleSettings, SolverName
from mezzotint.shapes import Size

SCHEDULE = Schedule.scaled_linear()
IMAGE = torch.randn(2, 4, 8, 8, generator=torch.Generator().manual_seed(0)).clamp(-0.9, 0.9)


def fresh(number: int) -> Tensor:
    return torch.randn(IMAGE.shape, generator=torch.Generator().manual_seed(100 + number))


def knowing(form: Parameterization) -> Any:
    """A network that knows the image: what it says of its input and what it is told of the level."""

    def network(shown: Tensor, time: Tensor) -> Tensor:
        sigma = (4 * time).exp() if form.takes_log_sigma else SCHEDULE.sigma[time]
        at = sigma.reshape(-1, 1, 1, 1)
        if not form.in_sigma:
            eps = (shown * (1 + at**2).sqrt() - IMAGE) / at
            return target(form.prediction, IMAGE, eps, (1 / (1 + sigma**2)).expand(len(shown)))
        x_sigma = shown / form.factors(sigma).c_in.reshape(-1, 1, 1, 1)
        return form.target(IMAGE, (x_sigma - IMAGE) / at, sigma)

    return network


@pytest.mark.parametrize("name", SIGMA_SOLVERS)
@pytest.mark.parametrize("prediction", [*PREDICTIONS, *IN_SIGMA])
@pytest.mark.parametrize(
    "settings", [{"timestep_spacing": "stability"}, {"sigmas": "karras"}], ids=["stability", "karras"]
)
def test_perfect_network_converges_to_the_image(name: SolverName, prediction: str, settings: dict[str, Any]) -> None:
    form = Parameterization(prediction)
    denoiser = CleanLatents(knowing(form), SCHEDULE, form, lambda output: output)
    visited = compute_sigmas(SampleSettings(**settings), SCHEDULE, form.solver_prediction, 12)
    x = IMAGE + float(visited[0]) * fresh(-1)
    assert float((run_solver(SigmaSolver(name, visited), x, denoiser, fresh) - IMAGE).abs().max()) < 2e-3


@pytest.mark.parametrize("name", ["ddim", "euler", "heun", "euler-a", "dpm++-2s-a", "lcm"])
@pytest.mark.parametrize("at", [1, 5, 11])
def test_stopping_and_continuing_equals_one_pass(name: SolverName, at: int) -> None:
    network = CleanLatents(
        lambda shown, time: 0.5 * torch.tanh(shown), SCHEDULE, Parameterization("epsilon"), lambda output: output
    )
    visited = compute_sigmas(SampleSettings(timestep_spacing="stability"), SCHEDULE, "epsilon", 12)
    x = float(visited[0]) * fresh(-1)
    whole = run_solver(SigmaSolver(name, visited), x, network, fresh)
    half = run_solver(SigmaSolver(name, visited, steps=at), x, network, fresh)
    assert not torch.equal(half, whole)
    rest = run_solver(SigmaSolver(name, visited[at:]), half, network, lambda number: fresh(number + at))
    torch.testing.assert_close(rest, whole, rtol=1e-5, atol=1e-5)
    assert torch.equal(run_solver(SigmaSolver(name, visited, steps=0), x, network, fresh), x)


def test_images_do_not_depend_on_their_batch() -> None:
    family = Family.tiny()
    requests = [Request(text, Size(32, 32), seed=n) for n, text in enumerate(("a fox", "a hare"))]

    def latents(some: list[Request], **span: Any) -> Tensor:
        settings = SampleSettings(sigmas="karras", steps=3, guidance=(3.0,), solver="dpm++-2s-a")
        return sample_latents(family, some, Sampling(family.schedule, family.prediction, "cpu", settings, Span(**span)))

    both = latents(requests)
    for number, request in enumerate(requests):
        torch.testing.assert_close(latents([request])[0], both[number], rtol=1e-4, atol=1e-4)
    again = latents(requests, stage=1)
    assert float((again - both).abs().max()) > 0.1, "a second model's noise is another one"
    assert math.isfinite(float(both.abs().max()))
