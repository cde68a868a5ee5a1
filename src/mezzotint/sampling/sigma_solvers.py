"""Solvers in σ: x_σ = x_0 + σ ε, from the highest noise level down to 0, or to where a refiner takes over.

They evaluate the network for the clean latents at a level, know nothing of timesteps or of what the network predicts,
and so visit any levels. Each is tested against a recorded run of Stability's sampler of its name:

    euler, ddim   diffusers' EulerDiscreteScheduler; deterministic DDIM is Euler's step in σ
    heun          diffusers' HeunDiscreteScheduler
    lms           diffusers' LMSDiscreteScheduler with exact coefficients
    dpm++         diffusers' DPMSolverMultistepScheduler (DPM-Solver++, second order)
    euler-a       here: diffusers' scheduler takes its noise from a generator
    dpm++-2s-a    here: diffusers has single-step DPM-Solver++ only without fresh noise
    lcm           here: diffusers' scheduler visits its own timesteps, and mixes x_0 with x

Import this module where it is needed: diffusers takes seconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, cast

import torch
from diffusers.schedulers.scheduling_dpmsolver_multistep import DPMSolverMultistepScheduler
from diffusers.schedulers.scheduling_euler_discrete import EulerDiscreteScheduler
from diffusers.schedulers.scheduling_heun_discrete import HeunDiscreteScheduler
from torch import Tensor

from mezzotint.errors import RecipeError
from mezzotint.recipe.sections.sample import SolverName
from mezzotint.sampling.solvers import Network, Noise
from mezzotint.sampling.timestep_solvers import ExactLms

Step = Callable[[int, Tensor, Network, Noise], Tensor]


class SigmaSolver:
    """sigmas: (n + 1,), falling, 0 at the end. steps: how many of the n are run; None runs all."""

    evaluates_at: Literal["timestep", "sigma"] = "sigma"

    def __init__(self, name: SolverName, sigmas: Tensor, *, steps: int | None = None) -> None:
        self.sigmas = [float(sigma) for sigma in sigmas]
        self._steps = len(self.sigmas) - 1 if steps is None else steps
        self._step = _STEPS[name](self.sigmas) if self._steps else None

    def __len__(self) -> int:
        return self._steps

    def initial_state(self, noise: Tensor, image: Tensor | None = None) -> Tensor:
        if image is None:
            return noise * math.sqrt(1.0 + self.sigmas[0] ** 2)
        return image + self.sigmas[0] * noise

    def step(self, number: int, x: Tensor, network: Network, noise: Noise) -> Tensor:
        assert self._step is not None
        return self._step(number, x, network, noise)


def check(name: SolverName, reason: str) -> None:
    """Raises RecipeError E1070 for a solver that cannot visit any levels. reason: the setting that needs it."""
    if name not in SIGMA_SOLVERS:
        raise RecipeError(
            f"sample.solver: {name} visits only its own timesteps, and {reason} takes one of "
            f"{', '.join(SIGMA_SOLVERS)}",
            code="E1070",
        )


def _of_scheduler(scheduler: Any, sigmas: list[float], *, is_heun: bool = False, has_unit_variance: bool = False) -> Step:
    """The step of a scheduler of diffusers at these levels. is_heun: it evaluates the network at the next level too,
    unless that is 0. has_unit_variance: it works on x/√(1 + σ²)."""
    levels = torch.tensor(sigmas, dtype=torch.float32)
    scheduler.set_timesteps(len(sigmas) - 1)
    scheduler.sigmas = torch.cat([levels[:1], levels[1:-1].repeat_interleave(2), levels[-1:]]) if is_heun else levels
    scheduler.timesteps = torch.arange(len(scheduler.sigmas) - 1, 0, -1, dtype=torch.float32)
    scheduler.set_begin_index(0)
    scheduler.is_scale_input_called = True

    def substep(x: Tensor, sigma: float, next_sigma: float, x_0: Tensor) -> Tensor:
        before, after = (math.sqrt(1 + s**2) if has_unit_variance else 1.0 for s in (sigma, next_sigma))
        t = scheduler.timesteps[scheduler.step_index or 0]
        return cast(Tensor, scheduler.step((x - x_0) / sigma, t, x / before, return_dict=False)[0]) * after

    def step(number: int, x: Tensor, network: Network, noise: Noise) -> Tensor:
        sigma, next_sigma = sigmas[number], sigmas[number + 1]
        x = substep(x, sigma, next_sigma, network(x, sigma))
        if is_heun and next_sigma > 0:
            return substep(x, next_sigma, next_sigma, network(x, next_sigma))
        return x

    return step


def _ancestral_euler(sigmas: list[float], number: int, x: Tensor, network: Network, noise: Noise) -> Tensor:
    """Euler's step to σ_down, then noise: k-diffusion's `sample_euler_ancestral` with η = 1."""
    sigma, next_sigma = sigmas[number : number + 2]
    down, up = _ancestral_sigmas(sigma, next_sigma)
    x_0 = network(x, sigma)
    return _add_noise(x + (x - x_0) / sigma * (down - sigma), up, number, noise)


def _ancestral_dpm(sigmas: list[float], number: int, x: Tensor, network: Network, noise: Noise) -> Tensor:
    """DPM-Solver++(2S) to σ_down, then noise: k-diffusion's `sample_dpmpp_2s_ancestral` with η = 1."""
    sigma, next_sigma = sigmas[number : number + 2]
    down, up = _ancestral_sigmas(sigma, next_sigma)
    x_0 = network(x, sigma)
    if down == 0:
        return x_0
    middle = math.sqrt(sigma * down)  # half way in log σ
    x_0 = network(middle / sigma * x + (1 - middle / sigma) * x_0, middle)
    return _add_noise(down / sigma * x + (1 - down / sigma) * x_0, up, number, noise)


def _latent_consistency(sigmas: list[float], number: int, x: Tensor, network: Network, noise: Noise) -> Tensor:
    """The clean latents and noise of the next level (Luo et al. 2023, arXiv:2310.04378)."""
    return _add_noise(network(x, sigmas[number]), sigmas[number + 1], number, noise)


def _ancestral_sigmas(sigma: float, next_sigma: float) -> tuple[float, float]:
    """σ_down and σ_up, with σ_down² + σ_up² = next_sigma²."""
    up = math.sqrt(next_sigma**2 * (sigma**2 - next_sigma**2) / sigma**2)
    return math.sqrt(max(0.0, next_sigma**2 - up**2)), up


def _add_noise(x: Tensor, sigma: float, number: int, noise: Noise) -> Tensor:
    return x + noise(number) * sigma if sigma > 0 else x


_STEPS: dict[SolverName, Callable[[list[float]], Step]] = {
    "ddim": lambda sigmas: _of_scheduler(EulerDiscreteScheduler(), sigmas),
    "euler": lambda sigmas: _of_scheduler(EulerDiscreteScheduler(), sigmas),
    "euler-a": lambda sigmas: partial(_ancestral_euler, sigmas),
    "heun": lambda sigmas: _of_scheduler(HeunDiscreteScheduler(), sigmas, is_heun=True),
    "lms": lambda sigmas: _of_scheduler(ExactLms(), sigmas),
    "dpm++": lambda sigmas: _of_scheduler(
        DPMSolverMultistepScheduler(algorithm_type="dpmsolver++"), sigmas, has_unit_variance=True
    ),
    "dpm++-2s-a": lambda sigmas: partial(_ancestral_dpm, sigmas),
    "lcm": lambda sigmas: partial(_latent_consistency, sigmas),
}
SIGMA_SOLVERS = tuple(_STEPS)
"""Solvers that visit any levels."""
