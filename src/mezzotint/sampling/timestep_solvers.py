"""Diffusers' schedulers as solvers over the timesteps of a discrete noise schedule, configured with its exact betas.

With `sample.timestep_spacing=library` the classes keep their defaults: DDIM and DDPM clip the predicted x_0 at −1 and
1, PNDM starts with Runge-Kutta steps (nine more evaluations), and timesteps are not offset by one. Open-Sora-Plan
samples this way. The noise schedule is still the model's: no such model was trained with the default of Heun and DPM2.

Import this module where it is needed: diffusers takes seconds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import torch
from diffusers.schedulers.scheduling_ddim import DDIMScheduler
from diffusers.schedulers.scheduling_ddpm import DDPMScheduler
from diffusers.schedulers.scheduling_deis_multistep import DEISMultistepScheduler
from diffusers.schedulers.scheduling_dpmsolver_multistep import DPMSolverMultistepScheduler
from diffusers.schedulers.scheduling_dpmsolver_singlestep import DPMSolverSinglestepScheduler
from diffusers.schedulers.scheduling_euler_ancestral_discrete import EulerAncestralDiscreteScheduler
from diffusers.schedulers.scheduling_euler_discrete import EulerDiscreteScheduler
from diffusers.schedulers.scheduling_heun_discrete import HeunDiscreteScheduler
from diffusers.schedulers.scheduling_k_dpm_2_ancestral_discrete import KDPM2AncestralDiscreteScheduler
from diffusers.schedulers.scheduling_k_dpm_2_discrete import KDPM2DiscreteScheduler
from diffusers.schedulers.scheduling_lms_discrete import LMSDiscreteScheduler
from diffusers.schedulers.scheduling_pndm import PNDMScheduler
from diffusers.schedulers.scheduling_unipc_multistep import UniPCMultistepScheduler
from torch import Tensor

from mezzotint.diffusion.prediction import to_x_0
from mezzotint.diffusion.schedule import Schedule
from mezzotint.errors import RecipeError
from mezzotint.sampling.sigmas import resolve_spacing
from mezzotint.sampling.solvers import SchedulerSolver
from mezzotint.settings.sections.sample import SolverName, Spacing

_RUNGE_KUTTA_STEPS = 4
_PREDICTION_TYPES = {"epsilon": "epsilon", "v": "v_prediction", "x0": "sample"}


def ancestral_sigmas(sigma: float, next_sigma: float) -> tuple[float, float]:
    """σ_down and σ_up, with σ_down² + σ_up² = next_sigma² (k-diffusion's `get_ancestral_step`)."""
    up = math.sqrt(next_sigma**2 * (sigma**2 - next_sigma**2) / sigma**2)
    return math.sqrt(max(0.0, next_sigma**2 - up**2)), up


class AncestralEuler(EulerAncestralDiscreteScheduler):  # type: ignore[misc]
    """Diffusers' ancestral Euler scheduler, with the noise passed in."""

    def step_with_noise(self, output: Tensor, t: Tensor, x: Tensor, noise: Tensor) -> Tensor:
        """Euler's step to σ_down, then noise of σ_up."""
        sigma, next_sigma = (float(s) for s in self.sigmas[self.step_index : self.step_index + 2])
        # x = x_0 + σ ε; scaled to unit variance it is √ᾱ x_0 + √(1 − ᾱ) ε with ᾱ = 1/(1 + σ²)
        x_0 = _x_0(self, output, x / math.sqrt(1.0 + sigma**2), 1.0 / (1.0 + sigma**2))
        sigma_down, sigma_up = ancestral_sigmas(sigma, next_sigma)
        self._step_index += 1
        return x + (x - x_0) / sigma * (sigma_down - sigma) + noise * sigma_up


class Ddpm(DDPMScheduler):  # type: ignore[misc]
    """Diffusers' DDPM scheduler, with the noise passed in."""

    def step_with_noise(self, output: Tensor, t: Tensor, x: Tensor, noise: Tensor) -> Tensor:
        """A sample of q(x_{t'} | x_t, x_0), t' the next timestep (Ho et al. 2020, arXiv:2006.11239, eq. 6 and 7)."""
        next_t = int(self.previous_timestep(int(t)))
        alpha_bar, next_alpha_bar = (float(self.alphas_cumprod[i]) if i >= 0 else 1.0 for i in (int(t), next_t))
        x_0 = _x_0(self, output, x, alpha_bar)
        if self.config.clip_sample:
            x_0 = x_0.clamp(-1.0, 1.0)
        alpha = alpha_bar / next_alpha_bar
        mean = math.sqrt(next_alpha_bar) * (1.0 - alpha) * x_0 + math.sqrt(alpha) * (1.0 - next_alpha_bar) * x
        variance = (1.0 - alpha) * (1.0 - next_alpha_bar) / (1.0 - alpha_bar)
        return mean / (1.0 - alpha_bar) + math.sqrt(variance) * noise


class AncestralDpm2(KDPM2AncestralDiscreteScheduler):  # type: ignore[misc]
    """Diffusers' ancestral DPM2 scheduler (Karras et al. 2022, arXiv:2206.00364), with the noise passed in."""

    def step_with_noise(self, output: Tensor, t: Tensor, x: Tensor, noise: Tensor) -> Tensor:
        """To the midpoint, or from there to σ_down, then noise of σ_up."""
        if self.state_in_first_order:
            return cast(Tensor, self.step(output, t, x, return_dict=False)[0])
        index = (self.step_index or 0) - 1
        sigma, middle, up, down = (
            table[index] for table in (self.sigmas, self.sigmas_interpol, self.sigmas_up, self.sigmas_down)
        )
        if self.config.prediction_type == "epsilon":
            slope = output
        else:
            slope = (x - (output * (-middle / (middle**2 + 1) ** 0.5) + x / (middle**2 + 1))) / middle
        before: Tensor = vars(self)["sample"]
        self.sample = None
        self._step_index += 1
        return cast(Tensor, before + slope * (down - sigma) + noise * up)


class StochasticDpm(DPMSolverMultistepScheduler):  # type: ignore[misc]
    """Diffusers' DPM-Solver++ SDE scheduler, with the noise passed in."""

    def step_with_noise(self, output: Tensor, t: Tensor, x: Tensor, noise: Tensor) -> Tensor:
        """One step."""
        return cast(Tensor, self.step(output, t, x, variance_noise=noise).prev_sample)


class ExactLms(LMSDiscreteScheduler):  # type: ignore[misc]
    """Diffusers' linear multistep scheduler. Its coefficients are integrals of polynomials, here exact, without
    scipy."""

    def get_lms_coefficient(self, order: int, t: int, current_order: int) -> float:
        """∫ of the Lagrange polynomial through σ_t, σ_{t−1}, … that is 1 at σ_{t − current_order}, from σ_t to
        σ_{t+1}."""
        sigmas = [float(s) for s in self.sigmas]
        others = [sigmas[t - k] for k in range(order) if k != current_order]
        at = sigmas[t - current_order]
        lagrange = np.poly1d([1.0])
        for other in others:
            lagrange = lagrange * np.poly1d([1.0, -other]) / (at - other)
        integral = np.polyint(lagrange)
        return float(integral(sigmas[t + 1]) - integral(sigmas[t]))


def _x_0(scheduler: Any, output: Tensor, x_t: Tensor, alpha_bar: float) -> Tensor:
    [prediction] = (ours for ours, name in _PREDICTION_TYPES.items() if name == scheduler.config.prediction_type)
    return to_x_0(prediction, output, x_t, torch.tensor(alpha_bar, device=x_t.device).expand(len(x_t)))


@dataclass(frozen=True, slots=True)
class Scheduler:
    """How a solver uses a class of diffusers. config: in addition to the noise schedule and the spacing. library: the
    same with `sample.timestep_spacing=library`. is_spaced: whether the class knows spacings. predicts_x0: whether it
    takes models that predict x_0. from_zero_snr: whether it can start at zero SNR, where the others divide by the
    signal. has_zero_snr: whether it has the option `rescale_betas_zero_snr`."""

    kind: Any
    config: dict[str, Any] = field(default_factory=dict)
    library: dict[str, Any] = field(default_factory=dict)
    is_spaced: bool = True
    predicts_x0: bool = True
    from_zero_snr: bool = False
    has_zero_snr: bool = False


_SDE = {"algorithm_type": "sde-dpmsolver++"}
_LOWER_ORDER = {"lower_order_final": True}  # the class sets it too, with a warning
SCHEDULERS: dict[SolverName, Scheduler] = {
    "ddim": Scheduler(DDIMScheduler, {"clip_sample": False, "set_alpha_to_one": False}, from_zero_snr=True),
    "ddpm": Scheduler(Ddpm, {"clip_sample": False}, from_zero_snr=True),
    "deis": Scheduler(DEISMultistepScheduler),
    "dpm++": Scheduler(DPMSolverMultistepScheduler, from_zero_snr=True, has_zero_snr=True),
    "dpm++-sde": Scheduler(StochasticDpm, _SDE, _SDE, from_zero_snr=True, has_zero_snr=True),
    "dpm++-single": Scheduler(DPMSolverSinglestepScheduler, _LOWER_ORDER, _LOWER_ORDER, is_spaced=False),
    "dpm2": Scheduler(KDPM2DiscreteScheduler, predicts_x0=False),
    "euler": Scheduler(EulerDiscreteScheduler, from_zero_snr=True, has_zero_snr=True),
    "euler-a": Scheduler(AncestralEuler, from_zero_snr=True, has_zero_snr=True),
    "heun": Scheduler(HeunDiscreteScheduler),
    "pndm": Scheduler(PNDMScheduler, {"skip_prk_steps": True}, predicts_x0=False),  # as Stable Diffusion configures it
    "unipc": Scheduler(UniPCMultistepScheduler, from_zero_snr=True, has_zero_snr=True),
    "dpm2-a": Scheduler(AncestralDpm2, predicts_x0=False),
    "lms": Scheduler(ExactLms),
}


def open_solver(
    name: SolverName,
    schedule: Schedule,
    prediction: str,
    *,
    steps: int,
    device: torch.device | str,
    spacing: Spacing = "auto",
) -> SchedulerSolver:
    """A solver over timesteps. prediction: of the network, "epsilon", "v" or "x0". steps: heun and dpm2 evaluate the
    network nearly twice as often, pndm once more. spacing: `sample.timestep_spacing`, except "stability". Raises
    RecipeError E1070 for a solver that cannot sample from the model."""
    entry, spacing = SCHEDULERS[name], resolve_spacing(spacing, schedule, prediction)
    _check_supported(name, schedule, prediction, spacing, steps)
    config: dict[str, Any] = {
        "num_train_timesteps": schedule.num_timesteps,
        "trained_betas": schedule.betas().tolist(),
        "prediction_type": _PREDICTION_TYPES[prediction],
    }
    if spacing == "library":
        config |= entry.library
    else:
        config |= entry.config
        config |= {"timestep_spacing": spacing, "steps_offset": 1} if entry.is_spaced else {}
        config |= {"rescale_betas_zero_snr": schedule.zero_terminal} if entry.has_zero_snr else {}
    scheduler = entry.kind(**config)
    scheduler.set_timesteps(steps, device=device)
    return SchedulerSolver(scheduler)


def _check_supported(name: SolverName, schedule: Schedule, prediction: str, spacing: Spacing, steps: int) -> None:
    entry = SCHEDULERS[name]
    if prediction == "x0" and not entry.predicts_x0:
        raise RecipeError(
            f"sample.solver: {name} needs a model that predicts epsilon or v, but this one predicts the image; "
            "set sample.solver=ddim",
            code="E1070",
        )
    # leading timesteps do not include the last one; the others start there
    starts_at_last = spacing != "leading" or not entry.is_spaced
    if schedule.zero_terminal and starts_at_last and not entry.from_zero_snr:
        usable = ", ".join(other for other, its in SCHEDULERS.items() if its.from_zero_snr)
        raise RecipeError(
            f"sample.solver: {name} cannot start at the last timestep of this model, which is pure noise; "
            f"use one of {usable}, or sample.timestep_spacing=leading",
            code="E1070",
        )
    if spacing == "library" and name == "pndm" and steps < _RUNGE_KUTTA_STEPS:
        raise RecipeError(
            f"sample.steps is {steps}, but diffusers' default pndm starts with {_RUNGE_KUTTA_STEPS} Runge-Kutta steps; "
            f"set sample.steps={_RUNGE_KUTTA_STEPS} or more, or another sample.timestep_spacing",
            code="E1070",
        )
