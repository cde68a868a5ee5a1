"""How σ of a straight path is drawn before it is shifted: by address, on the host, in float64.

Each density is a function of one even or one normal number, so that a draw is a function of its address.
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
_OF_A_NORMAL = ("logit-normal", "sigmoid", "log-snr")
_PIECES = 1 << 14


def draw(settings: FlowSettings, addresses: NDArray[np.uint64]) -> Numbers:
    """σ in [0, 1] at addresses, as `objective.flow.density` says. addresses: (B,) uint64 of `draws.keys`."""
    if settings.density in _OF_A_NORMAL:
        normals = noise.normal(torch.from_numpy(addresses.view(np.int64)), ())
        return of_normals(settings, normals.double().numpy())
    return of_evens(settings, draws.uniforms(addresses))


def of_normals(settings: FlowSettings, normals: Numbers) -> Numbers:
    """What a density of normal numbers makes of some."""
    match settings.density:
        case "logit-normal":
            at = settings.mean + settings.std * normals
        case "sigmoid":
            at = settings.sigmoid_scale * normals
        case "log-snr":  # ln SNR = 2 ln((1 − σ)/σ)
            at = -0.5 * (settings.mean + settings.std * normals)
        case other:
            raise AssertionError(other)
    return 1.0 / (1.0 + np.exp(-at))


def of_evens(settings: FlowSettings, evens: Numbers) -> Numbers:
    """What a density of even numbers in [0, 1) makes of some."""
    match settings.density:
        case "uniform":
            return evens
        case "mode" | "heavy-tail":
            scale = settings.mode_scale
            return np.clip(evens + scale * (np.cos(np.pi / 2 * evens) ** 2 - 1.0 + evens), 0.0, 1.0)
        case "beta":
            return _beta_quantiles(*settings.beta, evens)
        case other:
            raise AssertionError(other)


def _beta_quantiles(alpha: float, beta: float, quantiles: Numbers) -> Numbers:
    """Of the beta distribution, by its density over the angle whose squared sine is σ, which is bounded: summed up by
    the trapezoidal rule, and looked up in proportion."""
    angles = np.linspace(0.0, np.pi / 2, _PIECES + 1)
    with np.errstate(divide="ignore"):
        density = np.sin(angles) ** (2 * alpha - 1) * np.cos(angles) ** (2 * beta - 1)
    sums: NDArray[Any] = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2)])
    return np.asarray(np.sin(np.interp(quantiles, sums / sums[-1], angles)) ** 2)
