"""diffusers' schedulers as their classes are by default, for `sample.spacing=library`; and its ancestral DPM2 with
noise from outside.

By default DDIM and DDPM cut what they take the clean latents to be at −1 and 1, PNDM begins with Runge–Kutta steps
(nine more calls of the denoiser), and no timestep is shifted by one. Open-Sora-Plan draws so. The noise schedule is the
model's own, also for Heun and DPM2, whose classes would by default take one that no such model was trained on.
"""

from __future__ import annotations

from typing import Any, cast

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
from diffusers.schedulers.scheduling_pndm import PNDMScheduler
from diffusers.schedulers.scheduling_unipc_multistep import UniPCMultistepScheduler
from torch import Tensor

from mezzotint.errors import RecipeError

_KINDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "ddim": (DDIMScheduler, {}),
    "ddpm": (DDPMScheduler, {}),
    "deis": (DEISMultistepScheduler, {}),
    "dpm++": (DPMSolverMultistepScheduler, {}),
    "dpm++-sde": (DPMSolverMultistepScheduler, {"algorithm_type": "sde-dpmsolver++"}),
    "dpm++-single": (DPMSolverSinglestepScheduler, {}),
    "dpm2": (KDPM2DiscreteScheduler, {}),
    "euler": (EulerDiscreteScheduler, {}),
    "euler-a": (EulerAncestralDiscreteScheduler, {}),
    "heun": (HeunDiscreteScheduler, {}),
    "pndm": (PNDMScheduler, {}),
    "unipc": (UniPCMultistepScheduler, {}),
}


class Dpm2Ancestral(KDPM2AncestralDiscreteScheduler):  # type: ignore[misc]
    """diffusers' ancestral DPM2 (Karras et al. 2022, arXiv:2206.00364), whose noise can be given."""

    def given(self, output: Tensor, t: Tensor, x: Tensor, noise: Tensor) -> Tensor:
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


def scheduler(name: str, config: dict[str, Any]) -> Any:
    """A class with its own defaults. config: the schedule and the prediction. Raises RecipeError E1070 for a solver of
    which diffusers has no class that draws with these."""
    if name == "dpm2-a":
        return Dpm2Ancestral(**config)
    if name not in _KINDS:
        raise RecipeError(
            f"sample.spacing is library, and {name} is not drawn with diffusers' defaults; take one of "
            f"{', '.join(_KINDS)}, dpm2-a, or another sample.spacing",
            code="E1070",
        )
    kind, own = _KINDS[name]
    return kind(**config, **own)
