"""The scheduler's file of an exported folder: the source's, updated where training changed its values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_PREDICTIONS = {"epsilon": "epsilon", "v": "v_prediction", "v-edm": "v_prediction", "x0": "sample"}
_OURS = ("edm", "epsilon-unscaled")
"""Prediction types of ours that no scheduler of diffusers implements."""
_IN_SIGMA = ("sigma_min", "sigma_max", "sigma_data", "rho", "timestep_type")
_ZERO_TERMINAL = ("DDIMScheduler", "DDPMScheduler", "EulerDiscreteScheduler", "UniPCMultistepScheduler")
"""Schedulers that support a zero signal-to-noise ratio. Others divide by it."""


def prediction_of(config: Mapping[str, Any]) -> str | None:
    """What the denoiser predicts by a scheduler's configuration, in our terms; None for an unknown type."""
    word = config.get("prediction_type", "epsilon")
    if word == "epsilon":
        return "edm" if str(config.get("_class_name", "")).startswith("EDM") else "epsilon"
    if word == "v_prediction":
        return "v-edm" if config.get("timestep_type") == "continuous" else "v"
    return word if word in _OURS else None


def correct_config(
    config: Mapping[str, Any],
    *,
    prediction: str,
    zero_terminal: bool,
    sigma_data: float = 0.5,
    takes_log_sigma: bool | None = None,
) -> dict[str, Any]:
    """A scheduler's configuration that samples as the model was trained.

    prediction: "epsilon", "v", "x0", "edm", "v-edm" or "epsilon-unscaled". sigma_data: of "edm". tells_sigma: whether
    the denoiser's time input is ¼ ln σ; None is the prediction's default. With zero_terminal the betas are rescaled and
    steps are spaced from the last timestep (Lin et al. 2023, arXiv:2305.08891), unless epsilon is predicted, which
    carries no information there; a scheduler class that does not support such betas is replaced by DDIM. "edm" uses
    EDMEulerScheduler, "v-edm" EulerDiscreteScheduler with continuous timesteps. A prediction that no scheduler of
    diffusers implements is written by its name, which they refuse instead of generating noise.
    """
    scheduler = {k: v for k, v in config.items() if k != "_name_or_path"}
    in_sigma = prediction in ("edm", "v-edm") if takes_log_sigma is None else takes_log_sigma
    match prediction:
        case "edm" if in_sigma:
            span = {"sigma_min": 0.002, "sigma_max": 80.0, "rho": 7.0, "sigma_data": sigma_data}
            return scheduler | {"_class_name": "EDMEulerScheduler", "prediction_type": "epsilon"} | span
        case "v" | "v-edm" if in_sigma:
            kind = {"_class_name": "EulerDiscreteScheduler", "prediction_type": "v_prediction"}
            return scheduler | kind | {"timestep_type": "continuous"}
    scheduler = _of_timesteps(scheduler)
    prediction_type = _PREDICTIONS.get(prediction, prediction)
    if scheduler.get("prediction_type", "epsilon") != prediction_type:
        scheduler["prediction_type"] = prediction_type
    if not zero_terminal:
        if scheduler.get("rescale_betas_zero_snr"):
            scheduler["rescale_betas_zero_snr"] = False
        return scheduler
    if scheduler.get("_class_name") not in _ZERO_TERMINAL:
        scheduler["_class_name"] = "DDIMScheduler"
        scheduler.setdefault("clip_sample", False)  # DDIM's own default clips latents
        scheduler.setdefault("set_alpha_to_one", False)
    spacing = "leading" if prediction == "epsilon" else "trailing"
    return scheduler | {"rescale_betas_zero_snr": True, "timestep_spacing": spacing}


def _of_timesteps(scheduler: dict[str, Any]) -> dict[str, Any]:
    """Without entries that an earlier training in σ has left."""
    if str(scheduler.get("_class_name", "")).startswith("EDM") or scheduler.get("timestep_type") == "continuous":
        scheduler = {k: v for k, v in scheduler.items() if k not in _IN_SIGMA} | {
            "_class_name": "EulerDiscreteScheduler"
        }
    return scheduler
