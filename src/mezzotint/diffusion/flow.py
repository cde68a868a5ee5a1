"""Straight paths from pictures to noise, x = (1 − σ) x_0 + σ ε (Liu et al. 2022, arXiv:2209.03003; Lipman et al. 2022,
arXiv:2210.02747), as a schedule: σ on a table, and how a model shifts it.

Brought to unit variance such a path is one of ᾱ = (1 − σ)²/((1 − σ)² + σ²), so that signal over noise, and everything
that goes by it, means the same as elsewhere. Its timesteps are 1000 σ, from 1 to 1000.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from mezzotint.diffusion.schedule import Schedule
from mezzotint.errors import WeightsError

PREDICTION = "flow"
"""What a denoiser on a straight path predicts: the velocity dx/dσ = ε − x_0."""
_TRAINED = 1000
_MOST_TOKENS = 4300


@dataclass(frozen=True, slots=True)
class Tokens:
    """How a denoiser counts latents. cell: latents in height and width that make a token. by_steps: whether sampling is
    shifted by tokens and steps together, as FLUX.2 is. evenly: whether a sampler hands in σ from 1 to 1/N itself, as
    all pipelines do but SD3's, whose levels are shifted twice. slowly: whether it begins with small steps, as those of
    LTX-Video do from 0.9.5 on, see `slow_sigmas`."""

    cell: int = 2
    by_steps: bool = False
    evenly: bool = True
    slowly: bool = False

    def count(self, shape: Sequence[int]) -> int:
        """Tokens of a sample. shape: of its latents, (C, …, h, w)."""
        *frames, height, width = shape[1:]
        return math.prod(frames) * (height // self.cell) * (width // self.cell)


@dataclass(frozen=True, slots=True, eq=False)
class FlowSchedule(Schedule):
    """A straight path. config: the scheduler's file. shift: s of the table, 1 where levels are shifted by resolution.
    by_resolution: whether the file asks for that. span: the lowest and the highest σ that the trained denoiser is
    for."""

    shift: float = 1.0
    by_resolution: bool = False
    config: Mapping[str, Any] = field(default_factory=dict)
    tokens: Tokens = Tokens()
    span: tuple[float, float] = (0.0, 1.0)

    @classmethod
    def of(cls, config: Mapping[str, Any], tokens: Tokens) -> Self:
        """The schedule of a `scheduler_config.json` of diffusers' FlowMatchEulerDiscreteScheduler, or of UniPC with
        flow sigmas. Raises WeightsError E1450 with the key that cannot be used."""
        by_resolution = config.get("use_dynamic_shifting") is True
        value = config.get("flow_shift" if "flow_shift" in config else "shift", 1.0)
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 < value < math.inf:
            raise WeightsError(
                f"scheduler_config.json: shift is a number above 0, got {value!r}; take another copy", code="E1450"
            )
        if config.get("num_train_timesteps", _TRAINED) != _TRAINED:
            count = config["num_train_timesteps"]
            raise WeightsError(
                f"scheduler_config.json: num_train_timesteps is {count!r}, and straight paths are read with {_TRAINED}",
                code="E1450",
            )
        shift = 1.0 if by_resolution else float(value)
        sigma = shifted(torch.arange(1, _TRAINED + 1, dtype=torch.float64) / _TRAINED, shift)
        alpha_bar = (1 - sigma) ** 2 / ((1 - sigma) ** 2 + sigma**2)
        return cls(alpha_bar.float(), shift=shift, by_resolution=by_resolution, config=dict(config), tokens=tokens)

    def shift_of(self, shape: Sequence[int]) -> float:
        """s of pictures of this resolution, by the line of μ that the file gives. shape: of their latents,
        (C, …, h, w)."""
        return self._factor(self.mu(self.tokens.count(shape)))

    def mu(self, tokens: int) -> float:
        """μ along a line through two numbers of tokens; not bounded at its ends, as the pipelines have it."""
        few, many = (
            self.config.get(key, usual) for key, usual in (("base_image_seq_len", 256), ("max_image_seq_len", 4096))
        )
        low, high = (self.config.get(key, usual) for key, usual in (("base_shift", 0.5), ("max_shift", 1.15)))
        slope = (high - low) / (many - few)
        return float(tokens * slope + (low - slope * few))

    def sampling_mu(self, tokens: int, steps: int) -> float:
        """μ of a descent in so many steps."""
        return mu_by_steps(tokens, steps) if self.tokens.by_steps else self.mu(tokens)

    def _factor(self, mu: float) -> float:
        return mu if self.config.get("time_shift_type") == "linear" else math.exp(mu)


def mu_by_steps(tokens: int, steps: int) -> float:
    """μ as FLUX.2's pipelines have found it to be good, by tokens and steps."""
    few_steps = 0.00016927 * tokens + 0.45666666
    if tokens > _MOST_TOKENS:
        return few_steps
    slope = (few_steps - (8.73809524e-05 * tokens + 1.89833333)) / 190.0
    return slope * steps + (few_steps - 200.0 * slope)


def slow_sigmas(steps: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """(steps,) σ from 1 on: the first half of the steps goes a fortieth of the way, the others go on in a parabola that
    has the same slope there and would end at 0."""
    if steps < 2:
        return np.ones(1)
    slow, number = steps // 2, np.arange(steps)
    slope, rest = 0.025 / slow, steps - slow
    bend = (1 - slope * steps) / rest**2
    return np.asarray(1 - slope * number - bend * np.maximum(number - slow, 0) ** 2)


def shifted(sigma: Tensor, shift: float) -> Tensor:
    """s σ/(1 + (s − 1) σ), in the type of sigma."""
    return shift * sigma / (1 + (shift - 1) * sigma)


def unshifted(sigma: float, shift: float) -> float:
    """What is shifted to σ."""
    return sigma / (shift - (shift - 1) * sigma)


def on_table(sigma: np.ndarray[Any, np.dtype[np.float64]]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The entry of the table of 1000 levels, not shifted, at the index ⌊1000 (1 − σ)⌋, as diffusers' scripts look it up
    (their u is 1 − σ)."""
    index = np.clip(np.floor(_TRAINED * (1.0 - sigma)), 0, _TRAINED - 1)
    return np.asarray((_TRAINED - index) / _TRAINED)
