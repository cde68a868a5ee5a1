"""Solvers in σ: x_σ = x_0 + σ ε, from the highest noise level down to 0, or to where a refiner takes over.

They evaluate the network for the clean latents at a level, independent of timesteps and the network's prediction, and
can therefore visit any levels. Each is tested against a recorded run of Stability's sampler of the same name. Where
possible they are schedulers of diffusers; not for stochastic ones, whose noise comes from a generator, and lcm, whose
timesteps are fixed. Deterministic DDIM is Euler's step in σ.

Import this module where it is needed: diffusers takes seconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal, cast

import torch
from diffusers.schedulers.scheduling_dpmsolver_multistep import DPMSolverMultistepScheduler
from diffusers.schedulers.scheduling_euler_discrete import EulerDiscreteScheduler
from diffusers.schedulers.scheduling_heun_discrete import HeunDiscreteScheduler
from torch import Tensor

from mezzotint.errors import RecipeError
from mezzotint.sampling.solvers import Network, Noise
from mezzotint.sampling.timestep_solvers import ExactLms, ancestral_sigmas
from mezzotint.settings.sections.sample import SolverName

Step = Callable[[Tensor, float, float, Network, Callable[[], Tensor]], Tensor]
"""(x, σ, the next σ, network, noise) → x at the next σ."""


class SigmaSolver:
    """sigmas: (n + 1,), falling, 0 at the end. steps: how many of the n are run; None runs all."""

    evaluates_at: Literal["timestep", "sigma"] = "sigma"

    def __init__(self, name: SolverName, sigmas: Tensor, *, steps: int | None = None) -> None:
        self.sigmas = [float(sigma) for sigma in sigmas]
        self._steps = len(self.sigmas) - 1 if steps is None else steps
        self._step = _STEPS.get(name) or (_scheduler_step(name, self.sigmas) if self._steps else None)

    def __len__(self) -> int:
        return self._steps

    def initial_state(self, noise: Tensor, image: Tensor | None = None) -> Tensor:
        if image is None:
            return noise * math.sqrt(1.0 + self.sigmas[0] ** 2)
        return image + self.sigmas[0] * noise

    def step(self, number: int, x: Tensor, network: Network, noise: Noise) -> Tensor:
        assert self._step is not None
        sigma, next_sigma = self.sigmas[number : number + 2]
        return self._step(x, sigma, next_sigma, network, lambda: noise(number))


def check(name: SolverName, reason: str) -> None:
    """Raises RecipeError E1070 for a solver that cannot visit any levels. reason: the setting that needs it."""
    if name not in SIGMA_SOLVERS:
        raise RecipeError(
            f"sample.solver: {name} visits only its own timesteps, but {reason} needs one of "
            f"{', '.join(SIGMA_SOLVERS)}",
            code="E1070",
        )


def _scheduler_step(name: SolverName, sigmas: list[float]) -> Step:
    """The step of a scheduler of diffusers at these levels. Heun's evaluates the network at the next level too, unless
    that is 0. DPM-Solver's works on x of unit variance, x/√(1 + σ²)."""
    scheduler, is_heun, has_unit_variance = _SCHEDULERS[name](), name == "heun", name == "dpm++"
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

    def step(x: Tensor, sigma: float, next_sigma: float, network: Network, noise: Callable[[], Tensor]) -> Tensor:
        x = substep(x, sigma, next_sigma, network(x, sigma))
        if is_heun and next_sigma > 0:
            return substep(x, next_sigma, next_sigma, network(x, next_sigma))
        return x

    return step


def _ancestral_euler(
    x: Tensor, sigma: float, next_sigma: float, network: Network, noise: Callable[[], Tensor]
) -> Tensor:
    """Euler's step to σ_down, then noise: k-diffusion's `sample_euler_ancestral` with η = 1."""
    down, up = ancestral_sigmas(sigma, next_sigma)
    x = x + (x - network(x, sigma)) / sigma * (down - sigma)
    return x + noise() * up if up > 0 else x


def _ancestral_dpm(x: Tensor, sigma: float, next_sigma: float, network: Network, noise: Callable[[], Tensor]) -> Tensor:
    """DPM-Solver++(2S) to σ_down, then noise: k-diffusion's `sample_dpmpp_2s_ancestral` with η = 1."""
    down, up = ancestral_sigmas(sigma, next_sigma)
    x_0 = network(x, sigma)
    if down == 0:
        return x_0
    middle = math.sqrt(sigma * down)  # half way in log σ
    x_0 = network(middle / sigma * x + (1 - middle / sigma) * x_0, middle)
    x = down / sigma * x + (1 - down / sigma) * x_0
    return x + noise() * up if up > 0 else x


def _latent_consistency(
    x: Tensor, sigma: float, next_sigma: float, network: Network, noise: Callable[[], Tensor]
) -> Tensor:
    """The clean latents and noise of the next level (Luo et al. 2023, arXiv:2310.04378)."""
    x_0 = network(x, sigma)
    return x_0 + noise() * next_sigma if next_sigma > 0 else x_0


_SCHEDULERS: dict[SolverName, Callable[[], Any]] = {
    "ddim": EulerDiscreteScheduler,
    "euler": EulerDiscreteScheduler,
    "heun": HeunDiscreteScheduler,
    "lms": ExactLms,
    "dpm++": DPMSolverMultistepScheduler,
}
_STEPS: dict[SolverName, Step] = {
    "euler-a": _ancestral_euler,
    "dpm++-2s-a": _ancestral_dpm,
    "lcm": _latent_consistency,
}
SIGMA_SOLVERS: tuple[SolverName, ...] = (*_SCHEDULERS, *_STEPS)
"""Solvers that visit any levels."""
