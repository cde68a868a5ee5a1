"""Diffusers' schedulers, and two of our own after them. A module of its own, which is imported when something is
sampled: importing diffusers takes seconds.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
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


class ExactLms(LMSDiscreteScheduler):  # type: ignore[misc]
    """Diffusers' linear multistep scheduler, its coefficients integrated exactly: they are integrals of polynomials,
    and need no scipy."""

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


class Dpm2Ancestral(KDPM2AncestralDiscreteScheduler):  # type: ignore[misc]
    """diffusers' ancestral DPM2 (Karras et al. 2022, arXiv:2206.00364), whose noise can be given."""

    def with_noise(self, output: Tensor, t: Tensor, x: Tensor, noise: Tensor) -> Tensor:
        """One step: to the middle, or from there to σ_down and up by noise of σ_up."""
        if self.state_in_first_order:
            return cast(Tensor, self.step(output, t, x, return_dict=False)[0])
        place = (self.step_index or 0) - 1
        sigma, middle, up, down = (
            table[place] for table in (self.sigmas, self.sigmas_interpol, self.sigmas_up, self.sigmas_down)
        )
        if self.config.prediction_type == "epsilon":
            slope = output
        else:
            slope = (x - (output * (-middle / (middle**2 + 1) ** 0.5) + x / (middle**2 + 1))) / middle
        begun: Tensor = vars(self)["sample"]
        self.sample = None
        self._step_index += 1
        return cast(Tensor, begun + slope * (down - sigma) + noise * up)


CLASSES: dict[str, tuple[Any, dict[str, Any], dict[str, Any] | None]] = {
    "ddim": (DDIMScheduler, {"clip_sample": False, "set_alpha_to_one": False}, {}),
    "ddpm": (DDPMScheduler, {"clip_sample": False}, {}),
    "deis": (DEISMultistepScheduler, {}, {}),
    "dpm++": (DPMSolverMultistepScheduler, {"algorithm_type": "dpmsolver++"}, {}),
    "dpm++-sde": (
        DPMSolverMultistepScheduler, {"algorithm_type": "sde-dpmsolver++"}, {"algorithm_type": "sde-dpmsolver++"},
    ),
    "dpm++-single": (DPMSolverSinglestepScheduler, {}, {}),
    "dpm2": (KDPM2DiscreteScheduler, {}, {}),
    "euler": (EulerDiscreteScheduler, {}, {}),
    "euler-a": (EulerAncestralDiscreteScheduler, {}, {}),
    "heun": (HeunDiscreteScheduler, {}, {}),
    "pndm": (PNDMScheduler, {"skip_prk_steps": True}, {}),  # no Runge–Kutta start, as Stable Diffusion's own file says
    "unipc": (UniPCMultistepScheduler, {}, {}),
    "dpm2-a": (Dpm2Ancestral, {}, {}),
    "lms": (ExactLms, {}, None),
}  # fmt: skip
"""By solver, diffusers' class, how Stable Diffusion sets it up, and how `sample.timestep_spacing=library` does: None
refuses."""
