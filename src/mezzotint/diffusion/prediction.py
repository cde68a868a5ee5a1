"""Noising, and what a denoiser can be trained to predict: the noise ε, the velocity v, or the clean latents x₀.

x_t = √ᾱ_t x_0 + √(1 − ᾱ_t) ε and v = √ᾱ_t ε − √(1 − ᾱ_t) x_0 are a rotation of (x_0, ε): any one of ε, v and x₀
determines the others, given x_t. Throughout: x_0, eps, x_t, predicted (B, C, *spatial); alpha_bar_t (B,) float32 in [0,
1).
"""

from __future__ import annotations

import torch
from torch import Tensor

PREDICTIONS = ("epsilon", "v", "x0")
"""The kinds of prediction of this module. "edm" has its own scaling, in `preconditioning`."""


def expand_to(per_sample: Tensor, ndim: int) -> Tensor:
    """(B,) → (B, 1, …, 1) of ndim dimensions, to be broadcast over samples."""
    return per_sample.view(-1, *[1] * (ndim - 1))


def add_noise(x_0: Tensor, eps: Tensor, alpha_bar_t: Tensor) -> Tensor:
    """Forward diffusion, x_t = √ᾱ_t x_0 + √(1 − ᾱ_t) ε (Ho et al. 2020, arXiv:2006.11239, eq. 4).

    Computed in float32 and returned in the dtype of x_0.
    """
    signal, noise = _coefficients(alpha_bar_t, x_0.ndim)
    return (signal * x_0.float() + noise * eps.float()).to(x_0.dtype)


def velocity(x_0: Tensor, eps: Tensor, alpha_bar_t: Tensor) -> Tensor:
    """v = √ᾱ_t ε − √(1 − ᾱ_t) x_0 (Salimans and Ho 2022, arXiv:2202.00512, appendix D), in the dtype of x_0."""
    signal, noise = _coefficients(alpha_bar_t, x_0.ndim)
    return (signal * eps.float() - noise * x_0.float()).to(x_0.dtype)


def target(prediction: str, x_0: Tensor, eps: Tensor, alpha_bar_t: Tensor) -> Tensor:
    """The target of a denoiser of this kind. Raises ValueError for a kind outside `PREDICTIONS`."""
    match prediction:
        case "epsilon":
            return eps
        case "v":
            return velocity(x_0, eps, alpha_bar_t)
        case "x0":
            return x_0
        case _:
            raise _unknown(prediction)


def to_x_0(prediction: str, predicted: Tensor, x_t: Tensor, alpha_bar_t: Tensor) -> Tensor:
    """The clean latents implied by a prediction, float32.

    For epsilon the result is divided by √ᾱ_t: at ᾱ_t = 0 x_t contains nothing of x_0, and the result is not finite.
    Raises ValueError for a kind outside `PREDICTIONS`.
    """
    signal, noise = _coefficients(alpha_bar_t, x_t.ndim)
    predicted, x_t = predicted.float(), x_t.float()
    match prediction:
        case "epsilon":
            return (x_t - noise * predicted) / signal
        case "v":
            return signal * x_t - noise * predicted
        case "x0":
            return predicted
        case _:
            raise _unknown(prediction)


def _coefficients(alpha_bar_t: Tensor, ndim: int) -> tuple[Tensor, Tensor]:
    # float32 for latents of any dtype: √(1 − ᾱ_t) vanishes in bf16 for small t
    expanded = expand_to(alpha_bar_t.to(torch.float32), ndim)
    return expanded.sqrt(), (1.0 - expanded).sqrt()


def _unknown(prediction: str) -> ValueError:
    return ValueError(f"unknown prediction {prediction!r}; choose from {', '.join(PREDICTIONS)}")
