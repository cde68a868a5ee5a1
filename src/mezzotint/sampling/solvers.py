"""What a solver of the reverse process is, and the loop that runs one.

    timestep_solvers   diffusers' schedulers over the timesteps of a discrete noise schedule
    sigma_solvers      solvers that visit any list of noise levels
    flow_solvers       diffusers' flow-matching schedulers, at the noise levels of the family's own pipeline

To add a solver: its name in `settings/sections/sample.py`, and a row in the table of its kind.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Protocol, cast

from torch import Tensor

Network = Callable[[Tensor, Any], Tensor]
"""The denoiser with guidance: (x (B, C, …), a timestep or σ) → (B, C, …), see `Solver.evaluates_at`."""
Noise = Callable[[int], Tensor]
"""Standard normal noise in the shape of x, by the number of the step that adds it."""
OnStep = Callable[[int, int, Tensor], None]
"""Called after each step with (steps done, steps in all, x (B, C, …))."""


class Solver(Protocol):
    """Takes one batch from noise to latents. A solver keeps state, so each batch needs a new one."""

    evaluates_at: Literal["timestep", "sigma"]
    """Where `step` evaluates the network: at a timestep, for its output there, or at a σ, for the clean latents x_0."""

    def __len__(self) -> int:
        """Number of steps. A step evaluates the network once or twice."""

    def initial_state(self, noise: Tensor, image: Tensor | None = None) -> Tensor:
        """x at the first noise level. noise: (B, C, …) float32 standard normal. image: clean latents to start from,
        only for solvers in σ."""

    def step(self, number: int, x: Tensor, network: Network, noise: Noise) -> Tensor:
        """x after step `number` (from 0), float32. noise: only stochastic solvers call it."""


class SchedulerSolver:
    """A scheduler of diffusers as a solver.

    scheduler: with its timesteps set. If it has `step_with_noise(output, t, x, noise)`, the solver is stochastic, and
    that is its step. Noise is passed in rather than taken from a generator, so that it is addressed and an image does
    not depend on the batch it is in.
    """

    evaluates_at: Literal["timestep", "sigma"] = "timestep"

    def __init__(self, scheduler: Any) -> None:
        self.scheduler = scheduler
        self.timesteps: Tensor = scheduler.timesteps
        """(n,) on the device, falling: one for each evaluation of the network."""

    def __len__(self) -> int:
        return len(self.timesteps)

    def initial_state(self, noise: Tensor, image: Tensor | None = None) -> Tensor:
        assert image is None
        return noise * cast(float, getattr(self.scheduler, "init_noise_sigma", 1.0))

    def step(self, number: int, x: Tensor, network: Network, noise: Noise) -> Tensor:
        t, scheduler = self.timesteps[number], self.scheduler
        # flow-matching schedulers do not scale the input
        scaled = scheduler.scale_model_input(x, t) if hasattr(scheduler, "scale_model_input") else x
        output = network(scaled, t).float()
        if hasattr(scheduler, "step_with_noise"):
            return cast(Tensor, scheduler.step_with_noise(output, t, x, noise(number)))
        return cast(Tensor, scheduler.step(output, t, x, return_dict=False)[0])


def run_solver(solver: Solver, x: Tensor, network: Network, noise: Noise, on_step: OnStep | None = None) -> Tensor:
    """x after the last step; x itself if the solver has none."""
    for number in range(len(solver)):
        x = solver.step(number, x, network, noise)
        if on_step is not None:
            on_step(number + 1, len(solver), x)
    return x
