"""How much the loss of a timestep counts: Min-SNR (Hang et al. 2023, arXiv:2303.09556) in its three named forms."""

from __future__ import annotations

import torch
from torch import Tensor

from mezzotint.diffusion.prediction import PREDICTIONS


def min_snr(snr: Tensor, gamma: float, prediction: str, form: str) -> Tensor:
    """The factor of the squared error of a prediction.

    snr: any shape, float32, ≥ 0. gamma: γ, above 0. Returns the shape of snr, float32, finite and ≥ 0. Raises
    ValueError for an unknown prediction or form.

    form "prediction" (diffusers): min(SNR, γ)/SNR for epsilon, min(SNR, γ)/(SNR + 1) for v, min(SNR, γ) for x0.
    form "x0" (MindONE): the weight w that the plain error has when written in x₀ (SNR for epsilon, SNR + 1 for v, 1
    for x0) is clamped: min(w, γ)/w. The same as "prediction" for epsilon, not for v.
    form "ratio" (EveryDream2): min(SNR, γ)/SNR whatever is predicted.

    At SNR = 0 the first two have 0 for epsilon, where the input is pure noise and has nothing to teach (diffusers
    divides by zero there); "ratio" has 1, as EveryDream2.
    """
    if prediction not in PREDICTIONS:
        raise ValueError(f"no Min-SNR weight is known for prediction {prediction!r}")
    match form:
        case "prediction":
            return _of_prediction(snr, gamma, prediction)
        case "x0":
            weight = {"epsilon": snr, "v": snr + 1.0, "x0": torch.ones_like(snr)}[prediction]
            return _share(weight, gamma, at_zero=0.0)
        case "ratio":
            return _share(snr, gamma, at_zero=1.0)
        case _:
            raise ValueError(f"no form of Min-SNR is called {form!r}")


def _of_prediction(snr: Tensor, gamma: float, prediction: str) -> Tensor:
    match prediction:
        case "epsilon":
            return _share(snr, gamma, at_zero=0.0)
        case "v":
            return snr.clamp_max(gamma) / (snr + 1.0)
        case _:
            return snr.clamp_max(gamma)


def _share(weight: Tensor, gamma: float, *, at_zero: float) -> Tensor:
    """min(w, γ)/w, and at_zero where w is 0."""
    return torch.where(weight > 0, weight.clamp_max(gamma) / weight.clamp_min(torch.finfo(weight.dtype).tiny), at_zero)
