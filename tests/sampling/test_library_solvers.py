"""`sample.spacing=library`: every step is that of diffusers' class with its own defaults, stochastic ones with our
noise."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
import torch

from mezzotint.diffusion.schedule import Schedule
from mezzotint.errors import RecipeError
from mezzotint.sampling.solvers import STOCHASTIC, Solver

TEN = {
    "ddim": ("ddim", "DDIMScheduler"),
    "euler": ("euler_discrete", "EulerDiscreteScheduler"),
    "ddpm": ("ddpm", "DDPMScheduler"),
    "dpm++": ("dpmsolver_multistep", "DPMSolverMultistepScheduler"),
    "dpm++-single": ("dpmsolver_singlestep", "DPMSolverSinglestepScheduler"),
    "pndm": ("pndm", "PNDMScheduler"),
    "heun": ("heun_discrete", "HeunDiscreteScheduler"),
    "euler-a": ("euler_ancestral_discrete", "EulerAncestralDiscreteScheduler"),
    "deis": ("deis_multistep", "DEISMultistepScheduler"),
    "dpm2-a": ("k_dpm_2_ancestral_discrete", "KDPM2AncestralDiscreteScheduler"),
}
"""Those that Open-Sora-Plan v1.1 draws with."""


def says(x: torch.Tensor, t: Any) -> torch.Tensor:
    """A made-up denoiser."""
    return torch.tanh(1.7 * x.roll(1, -1)) * (1.0 + float(t) / 2000.0)


@pytest.mark.parametrize("name", TEN)
def test_a_descent_is_that_of_the_class_with_its_defaults(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    scheduling = importlib.import_module(f"diffusers.schedulers.scheduling_{TEN[name][0]}")
    stock = getattr(scheduling, TEN[name][1])(beta_start=0.0001, beta_end=0.02)  # the default of eight of them
    stock.set_timesteps(6)
    ours = Solver(name, Schedule.linear(), "epsilon", steps=6, device="cpu", spacing="library")  # type: ignore[arg-type]
    assert torch.equal(ours.timesteps, stock.timesteps)
    assert ours.is_stochastic == (name in STOCHASTIC)
    start = torch.randn(2, 4, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    x, y = ours.start(start), start * stock.init_noise_sigma
    for number, t in enumerate(stock.timesteps):
        noise = torch.randn(x.shape, generator=torch.Generator().manual_seed(number + 1))
        monkeypatch.setattr(scheduling, "randn_tensor", lambda *_, noise=noise, **__: noise, raising=False)
        x = ours.step(says(ours.model_input(x, t), t), t, x, noise if ours.is_stochastic else None)
        y = stock.step(says(stock.scale_model_input(y, t), t), t, y, return_dict=False)[0]
        torch.testing.assert_close(x, y, rtol=1e-4, atol=1e-4)


def test_pndm_begins_with_runge_kutta() -> None:
    descent = Solver("pndm", Schedule.linear(), "epsilon", steps=50, device="cpu", spacing="library")
    assert len(descent.timesteps) == 59
    assert int(descent.timesteps[0]) == 980


def test_what_has_no_such_class_is_refused() -> None:
    with pytest.raises(RecipeError, match="library") as met:
        Solver("lms", Schedule.linear(), "epsilon", steps=5, device="cpu", spacing="library")
    assert met.value.code == "E1070"


def test_the_single_step_solver_never_begins_at_pure_noise() -> None:
    schedule = Schedule.linear().rescaled_to_zero_terminal_snr()
    for spacing in ("auto", "leading", "library"):
        with pytest.raises(RecipeError, match="pure noise"):
            Solver("dpm++-single", schedule, "v", steps=4, device="cpu", spacing=spacing)  # type: ignore[arg-type]
