"""Sampling from networks parameterized by σ: a network that knows the image reproduces it, for any prediction."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mezzotint.diffusion.parameterization import Parameterization as Form
from mezzotint.diffusion.parameterization import sigma_at
from mezzotint.diffusion.schedule import Schedule
from mezzotint.families.base import Grid
from mezzotint.sampling.guidance import apply_guidance
from mezzotint.sampling.network import CleanLatents
from mezzotint.sampling.requests import Request, Sampling
from mezzotint.sampling.sample import sample_latents
from mezzotint.settings.sections.sample import SampleSettings, ThresholdingSettings
from mezzotint.shapes import Size
from mezzotint.stages import TextEmbedding

SCHEDULE = Schedule.scaled_linear()
IMAGE = torch.linspace(-1.5, 1.5, 64).view(1, 4, 4, 4)
TEXT = TextEmbedding(torch.zeros(1, 1, 1))


class Knowing:
    """A family whose denoiser says what is right of `IMAGE`, from its input and what it is told alone."""

    grid = Grid(channels=4, pixels=8)
    zeros_for_empty = False
    takes_guidance = False
    no_guidance = 1.0

    def __init__(self, form: Form) -> None:
        self.form = form
        self.told: list[float] = []

    def parts(self) -> dict[str, nn.Module]:
        return {"denoiser": nn.Identity()}

    def refuse_guidance(self, scale: float) -> None: ...

    def condition(self, text: TextEmbedding, batch: Any, framing: Any) -> Any:
        return SimpleNamespace(text=text)

    def predict(self, noised: Any, condition: Any) -> Tensor:
        time = noised.model_t[:1]
        self.told.append(float(time[0]))
        sigma = (4.0 * time).exp() if self.form.takes_log_sigma else sigma_at(time, SCHEDULE)
        at = sigma.view(1, 1, 1, 1)
        x_sigma = noised.model_input / (self.form.factors(sigma).c_in.view(1, 1, 1, 1) if self.form.in_sigma else
                                        1 / (1 + at**2).sqrt())  # fmt: skip
        eps = (x_sigma - IMAGE) / at
        return self.form.target(IMAGE, eps, sigma) if self.form.in_sigma else (eps - at * IMAGE) / (1 + at**2).sqrt()


@pytest.mark.parametrize("form", [Form("edm"), Form("edm", 1.0, "timestep"), Form("v-edm"), Form("epsilon-unscaled"),
                                  Form("v", time_input="log-sigma"), Form("v")], ids=str)  # fmt: skip
@pytest.mark.parametrize("solver", ["ddim", "euler", "dpm++", "heun"])
def test_perfect_denoiser_reproduces_the_image(form: Form, solver: Any) -> None:
    family: Any = Knowing(form)
    request = Request("", Size(32, 32), text=TEXT, negative_text=TEXT)
    settings = SampleSettings(steps=12, guidance=(1.0,), solver=solver)
    drawn = sample_latents(family, [request], Sampling(SCHEDULE, form, "cpu", settings))
    # leading timesteps end at 1: a little of the noise of the last level stays, with every network the same
    torch.testing.assert_close(drawn, IMAGE, rtol=0, atol=0.08)
    plain: Any = Knowing(Form("v"))
    usual = sample_latents(plain, [request], Sampling(SCHEDULE, "v", "cpu", settings))
    torch.testing.assert_close(drawn, usual, rtol=0, atol=2e-3)
    assert (max(family.told) < 3) is form.takes_log_sigma


def test_thresholding_applies_before_guidance() -> None:
    away, towards = torch.full((1, 1, 1, 2), 3.0), torch.tensor([4.0, -0.5]).reshape(1, 1, 1, 2)
    bound = ThresholdingSettings(ratio=1.0, max=1.0)

    def guide(output: Tensor) -> Tensor:
        return apply_guidance(output, lambda n, p: n + 2.0 * (p - n))

    model = (lambda shown, time: torch.cat([away, towards]), SCHEDULE, Form("x0"), guide)
    network = CleanLatents(*model, bound)
    assert network(torch.zeros(1, 1, 1, 2), 1.0).flatten().tolist() == [1.0, -2.0], "1 + 2·(1 − 1), 1 + 2·(−0.5 − 1)"
    free = CleanLatents(*model)
    assert free(torch.zeros(1, 1, 1, 2), 1.0).flatten().tolist() == [5.0, -4.0]
