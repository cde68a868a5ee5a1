"""Solvers of the reverse process told in σ: x_σ = x_0 + σ ε, from the highest level down to 0 or to where one leaves.

They ask a denoiser for the clean picture at a level and know nothing of timesteps or of what the network predicts, so
that any levels can be visited. Each is held to a recorded run of Stability's sampler of its name. Where a scheduler of
diffusers does the same, it does it here:

    euler, ddim   EulerDiscreteScheduler; DDIM without noise is Euler's step in σ
    heun          HeunDiscreteScheduler
    lms           LMSDiscreteScheduler, its integrals solved exactly
    dpm++         DPMSolverMultistepScheduler (DPM-Solver++ with two steps)
    euler-a       written here: its noise is given, where diffusers' class draws from a generator
    dpm++-2s-a    written here: diffusers has DPM-Solver++ of single steps without fresh noise alone
    lcm           written here: diffusers' visits timesteps of a grid of its own and mixes the picture with x
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor

from mezzotint.errors import RecipeError
from mezzotint.recipe.sections.sample import SolverName
from mezzotint.sampling.solvers import Noise

Denoise = Callable[[Tensor, float], Tensor]
"""(x (B, C, …), σ) → the clean picture, float32."""


class SigmaSampler:
    """A descent through levels of noise. sigmas: (n + 1,), falling, 0 at the end. last: the number of the level where
    it is left; None is the last of all, where no noise is left."""

    def __init__(self, name: SolverName, sigmas: Tensor, *, last: int | None = None) -> None:
        self._values = [float(sigma) for sigma in sigmas]
        self._count = len(self._values) - 1 if last is None else last
        self._step = _STEPS[name](self._values) if self._count else None

    def __len__(self) -> int:
        return self._count

    def start(self, noise: Tensor) -> Tensor:
        """Where the descent begins. noise: (B, C, …) standard normal."""
        return noise * math.sqrt(1.0 + self._values[0] ** 2)

    def step(self, number: int, x: Tensor, network: Denoise, noise: Noise) -> Tensor:
        """x at the next level, float32."""
        assert self._step is not None
        return self._step(number, x, network, noise)


def require(name: SolverName, why: str) -> None:
    """Raises RecipeError E1070 for a solver that cannot visit any levels. why: what asks for it, in words."""
    if name not in SIGMA_SAMPLERS:
        raise RecipeError(
            f"sample.solver: {name} visits the timesteps of its own alone, and {why} takes one of "
            f"{', '.join(SIGMA_SAMPLERS)}",
            code="E1070",
        )


Step = Callable[[int, Tensor, Denoise, Noise], Tensor]


def _stock(scheduler: Any, values: list[float], *, twice: bool = False, unit: bool = False) -> Step:
    """A step of one of diffusers' schedulers, told our levels.

    twice: it looks at the next level, too, unless that is 0. unit: it works on pictures of unit variance, x/√(1 + σ²).
    """
    inner = torch.tensor(values, dtype=torch.float32)
    scheduler.set_timesteps(len(values) - 1)
    scheduler.sigmas = torch.cat([inner[:1], inner[1:-1].repeat_interleave(2), inner[-1:]]) if twice else inner
    scheduler.timesteps = torch.arange(len(scheduler.sigmas) - 1, 0, -1, dtype=torch.float32)
    scheduler.set_begin_index(0)
    scheduler.is_scale_input_called = True

    def once(x: Tensor, sigma: float, after: float, clean: Tensor) -> Tensor:
        inside, outside = (math.sqrt(1 + s**2) if unit else 1.0 for s in (sigma, after))
        place = scheduler.timesteps[scheduler.step_index or 0]
        return cast(Tensor, scheduler.step((x - clean) / sigma, place, x / inside, return_dict=False)[0]) * outside

    def step(number: int, x: Tensor, denoise: Denoise, noise: Noise) -> Tensor:
        here, after = values[number], values[number + 1]
        x = once(x, here, after, denoise(x, here))
        return once(x, after, after, denoise(x, after)) if twice and after > 0 else x

    return step


def _ancestral(values: list[float], number: int, x: Tensor, denoise: Denoise, noise: Noise) -> Tensor:
    """Euler down to σ_down, and up again by noise: k-diffusion's `sample_euler_ancestral` with η = 1."""
    here, after = values[number : number + 2]
    down, up = _parted(here, after)
    clean = denoise(x, here)
    return _lifted(x + (x - clean) / here * (down - here), up, number, noise)


def _single_step(values: list[float], number: int, x: Tensor, denoise: Denoise, noise: Noise) -> Tensor:
    """DPM-Solver++(2S) down to σ_down, and up again by noise: k-diffusion's `sample_dpmpp_2s_ancestral`, η = 1."""
    here, after = values[number : number + 2]
    down, up = _parted(here, after)
    clean = denoise(x, here)
    if down == 0:
        return clean
    middle = math.sqrt(here * down)  # half way on the logarithm
    clean = denoise(middle / here * x + (1 - middle / here) * clean, middle)
    return _lifted(down / here * x + (1 - down / here) * clean, up, number, noise)


def _consistency(values: list[float], number: int, x: Tensor, denoise: Denoise, noise: Noise) -> Tensor:
    """Latent consistency (Luo et al. 2023, arXiv:2310.04378): the clean picture, and noise of the next level on it."""
    return _lifted(denoise(x, values[number]), values[number + 1], number, noise)


def _parted(here: float, after: float) -> tuple[float, float]:
    """σ_down and σ_up, with σ_down² + σ_up² = after²."""
    up = math.sqrt(after**2 * (here**2 - after**2) / here**2)
    return math.sqrt(max(0.0, after**2 - up**2)), up


def _lifted(x: Tensor, up: float, number: int, noise: Noise) -> Tensor:
    return x + noise(number) * up if up > 0 else x


def _of_library(name: SolverName, values: list[float]) -> Step:
    """A step of the scheduler of diffusers that does what a sampler of this name does."""
    # imported here: importing diffusers takes seconds
    from diffusers.schedulers.scheduling_dpmsolver_multistep import DPMSolverMultistepScheduler
    from diffusers.schedulers.scheduling_euler_discrete import EulerDiscreteScheduler
    from diffusers.schedulers.scheduling_heun_discrete import HeunDiscreteScheduler

    from mezzotint.sampling._schedulers import ExactLms

    match name:
        case "heun":
            return _stock(HeunDiscreteScheduler(), values, twice=True)
        case "lms":
            return _stock(ExactLms(), values)
        case "dpm++":
            return _stock(DPMSolverMultistepScheduler(algorithm_type="dpmsolver++"), values, unit=True)
        case _:
            return _stock(EulerDiscreteScheduler(), values)


_STEPS: dict[SolverName, Callable[[list[float]], Step]] = {
    "ddim": partial(_of_library, "ddim"),
    "euler": partial(_of_library, "euler"),
    "euler-a": lambda values: partial(_ancestral, values),
    "heun": partial(_of_library, "heun"),
    "lms": partial(_of_library, "lms"),
    "dpm++": partial(_of_library, "dpm++"),
    "dpm++-2s-a": lambda values: partial(_single_step, values),
    "lcm": lambda values: partial(_consistency, values),
}
SIGMA_SAMPLERS = tuple(_STEPS)
"""Solvers that visit any levels."""
