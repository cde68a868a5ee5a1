"""Densities from which flow matching draws σ before the shift: by address, on the host, in float64.

Each density is a function of one uniform or one normal number, so a draw is a function of its address.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from mezzotint import draws
from mezzotint.diffusion import noise
from mezzotint.settings.sections.flow import FlowSettings

Numbers = NDArray[np.float64]
_NORMAL_DENSITIES = ("logit-normal", "sigmoid", "log-snr")
_INTERVALS = 1 << 14


def draw(settings: FlowSettings, addresses: NDArray[np.uint64]) -> Numbers:
    """σ in [0, 1] at addresses, from the density `objective.flow.density`. addresses: (B,) uint64 of `draws.keys`."""
    if settings.density in _NORMAL_DENSITIES:
        normals = noise.normal(torch.from_numpy(addresses.view(np.int64)), ())
        return from_normals(settings, normals.double().numpy())
    return from_uniforms(settings, draws.uniforms(addresses))


def from_normals(settings: FlowSettings, normals: Numbers) -> Numbers:
    """σ of a density that is a function of a normal number."""
    match settings.density:
        case "logit-normal":
            logits = settings.mean + settings.std * normals
        case "sigmoid":
            logits = settings.sigmoid_scale * normals
        case "log-snr":  # ln SNR = 2 ln((1 − σ)/σ)
            logits = -0.5 * (settings.mean + settings.std * normals)
        case other:
            raise AssertionError(other)
    return 1.0 / (1.0 + np.exp(-logits))


def from_uniforms(settings: FlowSettings, uniforms: Numbers) -> Numbers:
    """σ of a density that is a function of a uniform number in [0, 1)."""
    match settings.density:
        case "uniform":
            return uniforms
        case "mode" | "heavy-tail":
            scale = settings.mode_scale
            return np.clip(uniforms + scale * (np.cos(np.pi / 2 * uniforms) ** 2 - 1.0 + uniforms), 0.0, 1.0)
        case "beta":
            return _beta_quantiles(*settings.beta, uniforms)
        case other:
            raise AssertionError(other)


def _beta_quantiles(alpha: float, beta: float, quantiles: Numbers) -> Numbers:
    """Quantiles of the beta distribution. The density over the angle whose squared sine is σ is bounded; it is
    integrated by the trapezoidal rule and inverted by linear interpolation."""
    angles = np.linspace(0.0, np.pi / 2, _INTERVALS + 1)
    with np.errstate(divide="ignore"):
        density = np.sin(angles) ** (2 * alpha - 1) * np.cos(angles) ** (2 * beta - 1)
    sums: NDArray[Any] = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2)])
    return np.asarray(np.sin(np.interp(quantiles, sums / sums[-1], angles)) ** 2)
