"""Solvers of the reverse process, by name: diffusers' schedulers, told our schedule's very betas."""

from __future__ import annotations

from typing import Any, Literal, cast

import torch
from diffusers.schedulers.scheduling_ddim import DDIMScheduler
from diffusers.schedulers.scheduling_dpmsolver_multistep import DPMSolverMultistepScheduler
from diffusers.schedulers.scheduling_euler_discrete import EulerDiscreteScheduler
from torch import Tensor

from mezzotint.diffusion.schedule import Schedule

SolverName = Literal["ddim", "euler", "dpm++"]


class Solver:
    """One descent from noise to latents. It keeps its place, so each descent has a solver of its own.

    name: "ddim" (Song et al. 2021, arXiv:2010.02502, η = 0), "euler" (in σ, Karras et al. 2022, arXiv:2206.00364) or
    "dpm++" (second order, Lu et al. 2022, arXiv:2211.01095). prediction: what the denoiser gives, "epsilon", "v" or
    "x0". steps: calls of the denoiser.

    Timesteps are spaced as Stable Diffusion's own pipelines do ("leading", offset 1); with a schedule that ends in
    pure noise they are spaced from the very end ("trailing", Lin et al. 2023, arXiv:2305.08891), unless epsilon is
    predicted, which tells nothing of the picture there.
    """

    def __init__(
        self, name: SolverName, schedule: Schedule, prediction: str, *, steps: int, device: torch.device | str
    ) -> None:
        self._scheduler = _scheduler(name, schedule, prediction)
        self._scheduler.set_timesteps(steps, device=device)
        self.timesteps: Tensor = self._scheduler.timesteps
        """(n,) on the device, falling: what the denoiser is told at each step."""

    def start(self, noise: Tensor) -> Tensor:
        """Where the descent begins. noise: (B, C, h, w) standard normal."""
        return cast(Tensor, noise * self._scheduler.init_noise_sigma)

    def model_input(self, x: Tensor, t: Tensor) -> Tensor:
        """What the denoiser sees of x at timestep t."""
        return cast(Tensor, self._scheduler.scale_model_input(x, t))

    def step(self, predicted: Tensor, t: Tensor, x: Tensor) -> Tensor:
        """One step down, from x at timestep t, with the denoiser's output. Works in float32."""
        return cast(Tensor, self._scheduler.step(predicted.float(), t, x, return_dict=False)[0])


def _scheduler(name: SolverName, schedule: Schedule, prediction: str) -> Any:
    config: dict[str, Any] = {
        "num_train_timesteps": schedule.num_timesteps,
        "trained_betas": schedule.betas().tolist(),
        "prediction_type": {"epsilon": "epsilon", "v": "v_prediction", "x0": "sample"}[prediction],
        "timestep_spacing": "trailing" if schedule.zero_terminal and prediction != "epsilon" else "leading",
        "steps_offset": 1,
    }
    match name:
        case "ddim":
            return DDIMScheduler(**config, clip_sample=False, set_alpha_to_one=False)
        case "euler":
            return EulerDiscreteScheduler(**config, rescale_betas_zero_snr=schedule.zero_terminal)
        case "dpm++":
            return DPMSolverMultistepScheduler(
                **config, algorithm_type="dpmsolver++", rescale_betas_zero_snr=schedule.zero_terminal
            )
        case _:
            raise AssertionError(name)
