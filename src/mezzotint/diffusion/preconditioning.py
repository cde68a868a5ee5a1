"""Diffusion in terms of σ: how a network's input and output are scaled.

x_σ = x_0 + σ ε, and a denoiser is D(x_σ, σ) = c_skip x_σ + c_out F(c_in x_σ, c_noise), with F the network (Karras et
al. 2022, arXiv:2206.00364, eq. 7). The discrete models of latent diffusion are the same on a table of 1000 σ: √ᾱ x_σ is
their x_t, and the index in the table their timestep. σ: any shape, above 0, float32; results have its shape.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from mezzotint.diffusion.prediction import expand_to

ScalingName = Literal["epsilon", "v", "edm", "v-edm", "epsilon-unscaled"]


@dataclass(frozen=True, slots=True)
class Scaling:
    """The factors at σ, each in the shape of σ."""

    c_skip: Tensor
    c_out: Tensor
    c_in: Tensor
    c_noise: Tensor


def compute_scaling(kind: ScalingName, sigma: Tensor, *, sigma_data: float = 0.5) -> Scaling:
    """The factors of a kind of network. sigma_data: σ_d, the standard deviation of clean latents, only for "edm".

    "epsilon": predicts ε. "v": predicts v. "edm": preconditioned for σ_d (Karras et al. 2022, table 1). "v-edm": as
    "v", with the time input ¼ ln σ. "epsilon-unscaled": predicts ε from an unscaled input, MindONE's `EpsScaling2`.
    c_noise is σ for discrete models, whose time input is the index of the nearest σ in the table (`find_nearest`).
    Raises ValueError for another kind.
    """
    ones, root = torch.ones_like(sigma), (sigma**2 + 1.0).sqrt()
    match kind:
        case "epsilon":
            return Scaling(ones, -sigma, 1.0 / root, sigma)
        case "epsilon-unscaled":
            return Scaling(ones, -sigma, ones, sigma)
        case "v" | "v-edm":
            c_noise = sigma if kind == "v" else 0.25 * sigma.log()
            return Scaling(1.0 / (sigma**2 + 1.0), -sigma / root, 1.0 / root, c_noise)
        case "edm":
            whole = sigma**2 + sigma_data**2
            return Scaling(
                sigma_data**2 / whole, sigma * sigma_data / whole.sqrt(), 1.0 / whole.sqrt(), 0.25 * sigma.log()
            )
        case _:
            raise ValueError(f"unknown scaling {kind!r}")


def denoise(network_output: Tensor, x_sigma: Tensor, factors: Scaling) -> Tensor:
    """D, the clean latents implied by a network's output, float32. network_output, x_sigma: (B, C, …); factors of
    (B,)."""
    skip, out = (expand_to(c, x_sigma.ndim) for c in (factors.c_skip, factors.c_out))
    return skip * x_sigma.float() + out * network_output.float()


def find_nearest(table: Tensor, sigma: Tensor) -> Tensor:
    """The index of the nearest entry of a table (T,) for each σ, by absolute difference; the lower index in a tie.
    int64."""
    return (sigma.reshape(-1, 1) - table.reshape(1, -1)).abs().argmin(dim=1).reshape(sigma.shape)


def log_normal(normals: Tensor, *, mean: float = -1.2, std: float = 1.2) -> Tensor:
    """σ for training, exp(mean + std · n), from standard normal numbers (Karras et al. 2022, table 1)."""
    return (mean + std * normals).exp()


def karras_sigmas(steps: int, *, sigma_min: float = 0.002, sigma_max: float = 80.0, rho: float = 7.0) -> Tensor:
    """σ for sampling, falling, with 0 at the end: (steps + 1,) float32 (Karras et al. 2022, eq. 5)."""
    ramp = torch.linspace(0, 1, steps, dtype=torch.float32)
    low, high = sigma_min ** (1.0 / rho), sigma_max ** (1.0 / rho)
    return torch.cat([(high + ramp * (low - high)) ** rho, torch.zeros(1)])


def spread_sigmas(table: Tensor, steps: int) -> Tensor:
    """σ of a rising table (T,), evenly spaced from its last entry down, with 0 at the end: (steps + 1,).

    Stability's choice of timesteps: ⌊T − 1 − k (T − 1)/steps⌋ for k = 0 … steps − 1, so index 0 is used only with a
    step for every entry. Raises ValueError for more steps than entries.
    """
    count = len(table)
    if not 0 < steps <= count:
        raise ValueError(f"steps must be from 1 to {count} (the entries of the table), got {steps}")
    if steps == count:
        return torch.cat([table.flip(0), table.new_zeros(1)])
    indices = [count - 1 - -(-(k * (count - 1)) // steps) for k in range(steps)]
    return torch.cat([table[indices], table.new_zeros(1)])
