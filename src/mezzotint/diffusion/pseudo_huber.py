"""Pseudo-Huber losses, smooth between the squared and the absolute error, and their parameter c, which may depend on
the level of noise. Formulas and schedules are those of kohya's sd-scripts.

error: any shape, float32. c: above 0, broadcast against the error; (B,) where it is returned.
"""

from __future__ import annotations

import torch
from torch import Tensor


def pseudo_huber(error: Tensor, c: Tensor) -> Tensor:
    """2c (√(e² + c²) − c), twice the pseudo-Huber function c² (√(1 + (e/c)²) − 1): e² for |e| far below c, 2c |e| far
    beyond."""
    return c * smooth_l1(error, c)


def smooth_l1(error: Tensor, c: Tensor) -> Tensor:
    """2 (√(e² + c²) − c): e²/c for |e| far below c, 2 |e| far beyond. Computed as 2e²/(√(e² + c²) + c), which does not
    cancel for small errors."""
    return 2.0 * error.square() / (torch.hypot(error, c.expand_as(error)) + c)


def exponential_c(delta: float, noise_share: Tensor) -> Tensor:
    """δ^(t/T): 1 at timestep 0, δ at the last one. noise_share: t/T, (B,) in [0, 1]."""
    return torch.pow(torch.full_like(noise_share, delta), noise_share)


def snr_c(delta: float, sigma: Tensor) -> Tensor:
    """(1 − δ)/(1 + σ)² + δ: 1 without noise, δ for pure noise. sigma: (B,), σ = √((1 − ᾱ)/ᾱ), which may be
    infinite."""
    return (1.0 - delta) / (1.0 + sigma).square() + delta
