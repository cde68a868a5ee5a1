"""The scheduler's file of an exported folder: the source's, made true where training changed what it says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_PREDICTIONS = {"epsilon": "epsilon", "v": "v_prediction", "x0": "sample"}
_ZERO_TERMINAL = ("DDIMScheduler", "DDPMScheduler", "EulerDiscreteScheduler", "UniPCMultistepScheduler")
"""Schedulers that know what to do where the signal is zero. Others divide by it."""


def corrected(config: Mapping[str, Any], *, prediction: str, zero_terminal: bool) -> dict[str, Any]:
    """A scheduler's configuration that samples as the model was trained.

    prediction: "epsilon", "v" or "x0". With zero_terminal the betas are rescaled and steps are spaced from the very
    end (Lin et al. 2023, arXiv:2305.08891), unless epsilon is predicted, which tells nothing there; a scheduler class
    that does not know such betas gives way to DDIM.
    """
    told = {k: v for k, v in config.items() if k != "_name_or_path"}
    word = _PREDICTIONS[prediction]
    if told.get("prediction_type", "epsilon") != word:
        told["prediction_type"] = word
    if not zero_terminal:
        if told.get("rescale_betas_zero_snr"):
            told["rescale_betas_zero_snr"] = False
        return told
    if told.get("_class_name") not in _ZERO_TERMINAL:
        told["_class_name"] = "DDIMScheduler"
        told.setdefault("clip_sample", False)  # DDIM's own default clips latents
        told.setdefault("set_alpha_to_one", False)
    spacing = "leading" if prediction == "epsilon" else "trailing"
    return told | {"rescale_betas_zero_snr": True, "timestep_spacing": spacing}
