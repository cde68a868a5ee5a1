"""The weight of the loss at a level of noise: the weight of the error of x_0, Min-SNR (Hang et al. 2023,
arXiv:2303.09556) in three forms, and debiased estimation (Yu et al. 2023, arXiv:2310.08442).

SNR = 1/σ² throughout: any shape, float32, ≥ 0. sigma_data: σ_d, only for "edm".
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from mezzotint.assets import LOSS_WEIGHTS

DEBIASED_PREDICTIONS = ("epsilon", "epsilon-unscaled", "v", "v-edm")
"""The predictions for which `debiased` has a formula."""
_LARGEST_DEBIASED_SNR = 1000.0
_BELL_MEAN = sum(math.exp(-2.0 * (k / 1000 - 0.5) ** 2) - math.exp(-0.5) for k in range(1, 1001)) / 1000


def flow_weight(kind: str, sigma: Tensor) -> Tensor:
    """The weight of a flow-matching loss at levels σ: with diffusers' names "sigma-sqrt" σ⁻², "cosmap"
    2/(π (1 − 2σ + 2σ²)); "bell" c (exp(−2 (σ − ½)²) − exp(−½)), whose mean over the levels 1/1000, 2/1000, …, 1 is 1,
    and "half-bell", its maximum up to σ = ½, as in ai-toolkit (linear_timesteps and linear_timesteps2)."""
    match kind:
        case "sigma-sqrt":
            return sigma**-2.0
        case "cosmap":
            return 2.0 / (math.pi * (1.0 - 2.0 * sigma + 2.0 * sigma**2))
        case "bell":
            return _bell(sigma) / _BELL_MEAN
        case "half-bell":
            return _bell(sigma.clamp_min(0.5)) / _BELL_MEAN
        case _:
            raise ValueError(f"unknown flow-matching weight {kind!r}")


def _bell(sigma: Tensor) -> Tensor:
    return torch.exp(-2.0 * (sigma - 0.5) ** 2) - math.exp(-0.5)


def read_weight_table(table: str | Sequence[float]) -> Tensor:
    """The weights of N levels from little noise to pure noise, (N,) float32. table: these, or the name of a table in
    the package."""
    if isinstance(table, str):
        table = [float(line) for line in (LOSS_WEIGHTS / f"{table}.txt").read_text("ascii").split()]
    return torch.tensor(table)


def look_up(table: Tensor, sigma: Tensor) -> Tensor:
    """The weights at levels σ: the nearest of those at σ = 1/N, 2/N, …, 1. table: (N,)."""
    count = len(table)
    return table[(sigma * count).round().long().clamp(1, count) - 1]


def x_0_weight(kind: str, snr: Tensor, *, sigma_data: float = 0.5) -> Tensor:
    """The weight with which the squared error of x_0 equals the unweighted squared error of a prediction: SNR for
    epsilon, SNR + 1 for v, SNR + σ_d⁻² for edm, 1 for x0, (1 + √SNR)², which is σ⁻², for the velocity of flow matching.
    Raises ValueError for another kind."""
    match kind:
        case "flow":
            return (1.0 + snr.sqrt()).square()
        case "epsilon" | "epsilon-unscaled":
            return snr
        case "v" | "v-edm":
            return snr + 1.0
        case "edm":
            return snr + 1.0 / sigma_data**2
        case "x0" | "unit":
            return torch.ones_like(snr)
        case _:
            raise ValueError(f"unknown prediction {kind!r}")


def factor(
    prediction: str,
    snr: Tensor,
    *,
    weighting: str = "prediction",
    gamma: float | None = None,
    form: str = "prediction",
    squared: bool = True,
    sigma_data: float = 0.5,
) -> Tensor:
    """The factor of a prediction's error, in the shape of snr, finite and ≥ 0.

    weighting: the kind whose weight w the error of x_0 gets ("unit", "epsilon", "v", "edm"); "prediction" is the
    unweighted error of the network's output, "debiased" see `debiased`. gamma, form: see `min_snr`; with one of the
    first four the form is "x0", and w becomes min(w, γ). squared: whether errors are squared; otherwise a prediction's
    is |c_out| times that of x_0, once.
    """
    if weighting == "debiased":
        return debiased(snr, prediction)
    if weighting == "prediction":
        if gamma is None:
            return torch.ones_like(snr)
        return min_snr(snr, gamma, prediction, form, sigma_data=sigma_data)
    weight = x_0_weight(weighting, snr, sigma_data=sigma_data)
    if gamma is not None:
        weight = weight.clamp_max(gamma)
    of_squares = x_0_weight(prediction, snr, sigma_data=sigma_data)
    unweighted = of_squares if squared else of_squares.sqrt()
    # where unweighted is 0 the input is pure noise, and there is nothing to learn
    return torch.where(unweighted > 0, weight / unweighted.clamp_min(torch.finfo(unweighted.dtype).tiny), 0.0)


def debiased(snr: Tensor, prediction: str) -> Tensor:
    """The factor of the error of a prediction in debiased estimation (Yu et al. 2023, arXiv:2310.08442), with the
    formulas and the limit of kohya's sd-scripts: 1/√S for epsilon, 1/(S + 1) for v, S = min(SNR, 1000).

    Returns the shape of snr, float32, finite and ≥ 0: for epsilon at SNR = 0, where the input is pure noise and there
    is nothing to learn, 0. Raises ValueError for another prediction.
    """
    clamped = snr.clamp_max(_LARGEST_DEBIASED_SNR)
    match prediction:
        case "epsilon" | "epsilon-unscaled":
            return torch.where(snr > 0, clamped.clamp_min(torch.finfo(snr.dtype).tiny).rsqrt(), 0.0)
        case "v" | "v-edm":
            return 1.0 / (clamped + 1.0)
        case _:
            raise ValueError(f"no debiased weight for the prediction {prediction!r}")


def min_snr(snr: Tensor, gamma: float, prediction: str, form: str, *, sigma_data: float = 0.5) -> Tensor:
    """The factor of the squared error of a prediction.

    gamma: γ, above 0. Returns the shape of snr, float32, finite and ≥ 0. Raises ValueError for an unknown prediction or
    form.

    form "prediction" (diffusers): min(SNR, γ) on the error of x_0 for any prediction: min(SNR, γ)/SNR for epsilon,
    min(SNR, γ)/(SNR + 1) for v, min(SNR, γ) for x0.
    form "x0" (MindONE): the weight w of `x_0_weight` is clamped: min(w, γ)/w. The same as "prediction" only for
    epsilon.
    form "ratio" (EveryDream2): min(SNR, γ)/SNR for any prediction.
    For the velocity of flow matching the first is min(SNR, γ) σ², the second min(σ⁻², γ) σ².

    At SNR = 0 the first two are 0 for epsilon, where the input is pure noise and there is nothing to learn (diffusers
    divides by zero); "ratio" is 1, as in EveryDream2.
    """
    weight = x_0_weight(prediction, snr, sigma_data=sigma_data)
    match form:
        case "prediction":
            if prediction.startswith("epsilon"):
                return _share(snr, gamma, at_zero=0.0)
            return snr.clamp_max(gamma) / weight
        case "x0":
            return _share(weight, gamma, at_zero=0.0)
        case "ratio":
            return _share(snr, gamma, at_zero=1.0)
        case _:
            raise ValueError(f"unknown form of Min-SNR {form!r}")


def _share(weight: Tensor, gamma: float, *, at_zero: float) -> Tensor:
    """min(w, γ)/w, and at_zero where w is 0."""
    return torch.where(weight > 0, weight.clamp_max(gamma) / weight.clamp_min(torch.finfo(weight.dtype).tiny), at_zero)
