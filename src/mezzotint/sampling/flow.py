"""Descents along straight paths, from σ = 1 to 0: diffusers' schedulers, told the levels that the family's own pipeline
visits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from mezzotint.diffusion.flow import FlowSchedule, slow_sigmas
from mezzotint.errors import RecipeError
from mezzotint.recipe.sections.sample import SampleSettings, SolverName
from mezzotint.sampling.solvers import Network, Noise

ON_PATHS: tuple[SolverName, ...] = ("euler", "heun", "unipc")


class FlowSolver:
    """One descent; it keeps its place. name: of `ON_PATHS`. shape: of one sample's latents, by which levels may be
    shifted."""

    def __init__(
        self, name: SolverName, schedule: FlowSchedule, shape: Sequence[int], *, steps: int, device: torch.device | str
    ) -> None:
        require_on_path(name, "the model's path")
        self._scheduler = _scheduler(name, schedule, shape, steps, device)
        self.timesteps: Tensor = self._scheduler.timesteps
        """(n,) on the device, falling: 1000 σ at each call of the denoiser."""

    def __len__(self) -> int:
        return len(self.timesteps)

    def step(self, number: int, x: Tensor, network: Network, noise: Noise) -> Tensor:
        """One step down, in float32. network: the velocity at a timestep."""
        t = self.timesteps[number]
        return cast(Tensor, self._scheduler.step(network(x, t).float(), t, x, return_dict=False)[0])


def require_on_path(name: SolverName, why: str) -> None:
    """Raises RecipeError E1219 for a solver that knows no straight path. why: what asks for it, in words."""
    if name not in ON_PATHS:
        raise RecipeError(
            f"sample.solver: {name} is not for {why}, which is straight from picture to noise; take one of "
            f"{', '.join(ON_PATHS)}",
            code="E1219",
        )


def require_plain(settings: SampleSettings, *, starts: bool = False, has_span: bool = False) -> None:
    """Raises RecipeError E1219 for ways of drawing that models on straight paths do not know. starts: whether something
    is begun with. has_span: whether another model draws a part."""
    asked_for = {
        f"sample.sigmas={settings.sigmas}": settings.sigmas != "schedule",
        f"sample.timestep_spacing={settings.timestep_spacing}": settings.timestep_spacing != "auto",
        "sample.thresholding": settings.thresholding.ratio is not None,
        "sample.image": starts,
        "sample.refiner": has_span,
    }
    for what in (what for what, so in asked_for.items() if so):
        raise RecipeError(
            f"{what} is not for models on straight paths, whose levels of noise are those of their own pipeline; "
            "leave it out",
            code="E1219",
        )


def sigmas_of(schedule: FlowSchedule, shape: Sequence[int], steps: int) -> Tensor:
    """(steps + 1,) σ, falling, 0 at the end, as the family's pipeline visits them."""
    return cast(Tensor, _euler(schedule, shape, steps, "cpu").sigmas)


def _euler(schedule: FlowSchedule, shape: Sequence[int], steps: int, device: torch.device | str) -> Any:
    # imported here: importing diffusers takes seconds
    from diffusers.schedulers.scheduling_flow_match_euler_discrete import FlowMatchEulerDiscreteScheduler

    config = dict(schedule.config)
    if "flow_shift" in config:  # UniPC's file
        config = {"shift": schedule.shift}
    if steps == 1:  # from noise to the picture: there is no last level to put in its place
        config["shift_terminal"] = None
    scheduler = FlowMatchEulerDiscreteScheduler.from_config(config)
    handed = np.linspace(1.0, 1.0 / steps, steps) if schedule.tokens.evenly else None
    handed = slow_sigmas(steps) if schedule.tokens.slowly else handed
    mu = schedule.sampling_mu(schedule.tokens.count(shape), steps) if schedule.by_resolution else None
    scheduler.set_timesteps(steps, sigmas=handed, mu=mu, device=device)
    scheduler.set_begin_index(0)
    return scheduler


def _scheduler(
    name: SolverName, schedule: FlowSchedule, shape: Sequence[int], steps: int, device: torch.device | str
) -> Any:
    from diffusers.schedulers.scheduling_flow_match_heun_discrete import FlowMatchHeunDiscreteScheduler
    from diffusers.schedulers.scheduling_unipc_multistep import UniPCMultistepScheduler

    euler = _euler(schedule, shape, steps, device)
    match name:
        case "euler":
            return euler
        case "heun":
            scheduler = FlowMatchHeunDiscreteScheduler()
            scheduler.set_timesteps(steps, device=device)
            inner = euler.sigmas
            scheduler.sigmas = torch.cat([inner[:1], inner[1:-1].repeat_interleave(2), inner[-1:]])
            scheduler.timesteps = torch.cat([euler.timesteps[:1], euler.timesteps[1:].repeat_interleave(2)])
        case _:
            own = schedule.config if "flow_shift" in schedule.config else {}
            shift = schedule.shift_of(shape) if schedule.by_resolution else schedule.shift
            config = {**own, "use_flow_sigmas": True, "prediction_type": "flow_prediction", "flow_shift": shift}
            scheduler = UniPCMultistepScheduler.from_config(config)
            scheduler.set_timesteps(steps, device=device)
    scheduler.set_begin_index(0)
    return scheduler
