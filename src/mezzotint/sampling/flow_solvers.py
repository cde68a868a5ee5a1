"""Diffusers' flow-matching schedulers as solvers, from σ = 1 to 0, at the noise levels of the family's own pipeline.

Import this module where it is needed: diffusers takes seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from diffusers.schedulers.scheduling_flow_match_euler_discrete import FlowMatchEulerDiscreteScheduler
from diffusers.schedulers.scheduling_flow_match_heun_discrete import FlowMatchHeunDiscreteScheduler
from diffusers.schedulers.scheduling_unipc_multistep import UniPCMultistepScheduler

from mezzotint.diffusion.flow import FlowSchedule, slow_sigmas
from mezzotint.errors import RecipeError
from mezzotint.sampling.solvers import SchedulerSolver
from mezzotint.settings.sections.sample import SampleSettings, SolverName

FLOW_SOLVERS: tuple[SolverName, ...] = ("euler", "heun", "unipc")


def open_solver(
    name: SolverName, schedule: FlowSchedule, shape: Sequence[int], *, steps: int, device: torch.device | str
) -> SchedulerSolver:
    """A solver whose network predicts the velocity. name: of `FLOW_SOLVERS`. shape: (C, …, h, w) of one sample's
    latents, by which the noise levels of some families are shifted."""
    scheduler = _euler(schedule, shape, steps, device)
    if name == "heun":
        scheduler = _heun(scheduler, steps, device)
    elif name == "unipc":
        scheduler = _unipc(schedule, shape, steps, device)
    scheduler.set_begin_index(0)
    return SchedulerSolver(scheduler)


def check(name: SolverName, settings: SampleSettings, *, starts: bool = False, has_refiner: bool = False) -> None:
    """Raises RecipeError E1219 for what flow-matching models do not support. starts: whether sampling starts from
    latents. has_refiner: whether a second model samples a part."""
    unsupported = {
        f"sample.sigmas={settings.sigmas}": settings.sigmas != "schedule",
        f"sample.timestep_spacing={settings.timestep_spacing}": settings.timestep_spacing != "auto",
        "sample.thresholding": settings.thresholding.ratio is not None,
        "sample.image": starts,
        "sample.refiner": has_refiner,
    }
    for setting, is_set in unsupported.items():
        if is_set:
            raise RecipeError(
                f"{setting} does not work with flow-matching models, which use the noise levels of their own pipeline; "
                "remove it",
                code="E1219",
            )
    if name not in FLOW_SOLVERS:
        raise RecipeError(
            f"sample.solver: {name} does not work with flow-matching models; use one of {', '.join(FLOW_SOLVERS)}",
            code="E1219",
        )


def _euler(schedule: FlowSchedule, shape: Sequence[int], steps: int, device: torch.device | str) -> Any:
    config = dict(schedule.config)
    if "flow_shift" in config:  # the configuration is UniPC's
        config = {"shift": schedule.shift}
    if steps == 1:  # from noise to the image: there is no last level to replace
        config["shift_terminal"] = None
    scheduler = FlowMatchEulerDiscreteScheduler.from_config(config)
    sigmas = np.linspace(1.0, 1.0 / steps, steps) if schedule.tokens.uniform_sigmas else None
    sigmas = slow_sigmas(steps) if schedule.tokens.slow_start else sigmas
    mu = schedule.sampling_mu(schedule.tokens.count(shape), steps) if schedule.by_resolution else None
    scheduler.set_timesteps(steps, sigmas=sigmas, mu=mu, device=device)
    return scheduler


def _heun(euler: Any, steps: int, device: torch.device | str) -> Any:
    """Heun's scheduler at Euler's noise levels; it evaluates the network at each inner level twice."""
    scheduler = FlowMatchHeunDiscreteScheduler()
    scheduler.set_timesteps(steps, device=device)
    scheduler.sigmas = torch.cat([euler.sigmas[:1], euler.sigmas[1:-1].repeat_interleave(2), euler.sigmas[-1:]])
    scheduler.timesteps = torch.cat([euler.timesteps[:1], euler.timesteps[1:].repeat_interleave(2)])
    return scheduler


def _unipc(schedule: FlowSchedule, shape: Sequence[int], steps: int, device: torch.device | str) -> Any:
    config = schedule.config if "flow_shift" in schedule.config else {}
    shift = schedule.shift_of(shape) if schedule.by_resolution else schedule.shift
    flow_options = {"use_flow_sigmas": True, "prediction_type": "flow_prediction", "flow_shift": shift}
    scheduler = UniPCMultistepScheduler.from_config({**config, **flow_options})
    scheduler.set_timesteps(steps, device=device)
    return scheduler
