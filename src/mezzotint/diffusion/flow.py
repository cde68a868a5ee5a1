"""The schedule of flow matching, x = (1 − σ) x_0 + σ ε (Liu et al. 2022, arXiv:2209.03003; Lipman et al. 2022,
arXiv:2210.02747): a table of σ, and how a model shifts it.

Scaled to unit variance the path has ᾱ = (1 − σ)²/((1 − σ)² + σ²), so the signal-to-noise ratio, and everything that
depends on it, means the same as in other schedules. Timesteps are 1000 σ, from 1 to 1000.
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
"""The prediction of a flow-matching denoiser: the velocity dx/dσ = ε − x_0."""
_TRAINED = 1000
_MAX_TOKENS = 4300


@dataclass(frozen=True, slots=True)
class Tokens:
    """How a denoiser turns latents into tokens, and which σ its pipeline samples at. cell: height and width of a token
    in latents. by_steps: whether the shift in sampling depends on tokens and steps together, as in FLUX.2.
    uniform_sigmas: whether the pipeline passes σ from 1 to 1/N to the scheduler, as all do but SD3's, whose levels are
    shift_sigma twice. slow_start: whether sampling starts with small steps, as LTX-Video does from 0.9.5 on, see
    `slow_sigmas`."""

    cell: int = 2
    by_steps: bool = False
    uniform_sigmas: bool = True
    slow_start: bool = False

    def count(self, shape: Sequence[int]) -> int:
        """Number of tokens of a sample. shape: of its latents, (C, …, h, w)."""
        *frames, height, width = shape[1:]
        return math.prod(frames) * (height // self.cell) * (width // self.cell)


@dataclass(frozen=True, slots=True, eq=False)
class FlowSchedule(Schedule):
    """A flow-matching schedule. config: the scheduler's file. shift: s of the table, 1 where the shift depends on the
    resolution. by_resolution: whether the file asks for that. span: the lowest and the highest σ of the trained
    denoiser."""

    shift: float = 1.0
    by_resolution: bool = False
    config: Mapping[str, Any] = field(default_factory=dict)
    tokens: Tokens = Tokens()
    span: tuple[float, float] = (0.0, 1.0)

    @classmethod
    def of(cls, config: Mapping[str, Any], tokens: Tokens) -> Self:
        """The schedule of a `scheduler_config.json` of diffusers' FlowMatchEulerDiscreteScheduler, or of UniPC with
        flow sigmas. Raises WeightsError E1450 naming the key that cannot be used."""
        by_resolution = config.get("use_dynamic_shifting") is True
        value = config.get("flow_shift" if "flow_shift" in config else "shift", 1.0)
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 < value < math.inf:
            raise WeightsError(
                f"scheduler_config.json: shift must be a number above 0, got {value!r}; use another copy", code="E1450"
            )
        if config.get("num_train_timesteps", _TRAINED) != _TRAINED:
            count = config["num_train_timesteps"]
            raise WeightsError(
                f"scheduler_config.json: num_train_timesteps is {count!r}; flow-matching models must have {_TRAINED}",
                code="E1450",
            )
        shift = 1.0 if by_resolution else float(value)
        sigma = shift_sigma(torch.arange(1, _TRAINED + 1, dtype=torch.float64) / _TRAINED, shift)
        alpha_bar = (1 - sigma) ** 2 / ((1 - sigma) ** 2 + sigma**2)
        return cls(alpha_bar.float(), shift=shift, by_resolution=by_resolution, config=dict(config), tokens=tokens)

    def shift_of(self, shape: Sequence[int]) -> float:
        """s at a resolution, from the line of μ that the file gives. shape: of the latents, (C, …, h, w)."""
        return self._factor(self.mu(self.tokens.count(shape)))

    def mu(self, tokens: int) -> float:
        """μ, linear in the number of tokens through two points; extrapolated beyond them, as in the pipelines."""
        few, many = (
            self.config.get(key, usual) for key, usual in (("base_image_seq_len", 256), ("max_image_seq_len", 4096))
        )
        low, high = (self.config.get(key, usual) for key, usual in (("base_shift", 0.5), ("max_shift", 1.15)))
        slope = (high - low) / (many - few)
        return float(tokens * slope + (low - slope * few))

    def sampling_mu(self, tokens: int, steps: int) -> float:
        """μ for sampling in so many steps."""
        return mu_by_steps(tokens, steps) if self.tokens.by_steps else self.mu(tokens)

    def _factor(self, mu: float) -> float:
        return mu if self.config.get("time_shift_type") == "linear" else math.exp(mu)


def mu_by_steps(tokens: int, steps: int) -> float:
    """The empirical μ of FLUX.2's pipelines, by tokens and steps."""
    few_steps = 0.00016927 * tokens + 0.45666666
    if tokens > _MAX_TOKENS:
        return few_steps
    slope = (few_steps - (8.73809524e-05 * tokens + 1.89833333)) / 190.0
    return slope * steps + (few_steps - 200.0 * slope)


def slow_sigmas(steps: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """(steps,) σ from 1 down: the first half of the steps covers a fortieth of the way, the others continue along a
    parabola with the same slope that would end at 0."""
    if steps < 2:
        return np.ones(1)
    slow, number = steps // 2, np.arange(steps)
    slope, rest = 0.025 / slow, steps - slow
    bend = (1 - slope * steps) / rest**2
    return np.asarray(1 - slope * number - bend * np.maximum(number - slow, 0) ** 2)


def shift_sigma(sigma: Tensor, shift: float) -> Tensor:
    """s σ/(1 + (s − 1) σ), in the dtype of sigma."""
    return shift * sigma / (1 + (shift - 1) * sigma)


def unshift_sigma(sigma: float, shift: float) -> float:
    """The inverse of `shift_sigma`."""
    return sigma / (shift - (shift - 1) * sigma)


def round_to_table(sigma: np.ndarray[Any, np.dtype[np.float64]]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The entry of the unshift_sigma table of 1000 levels at the index ⌊1000 (1 − σ)⌋, as diffusers' scripts look it up
    (their u is 1 − σ)."""
    index = np.clip(np.floor(_TRAINED * (1.0 - sigma)), 0, _TRAINED - 1)
    return np.asarray((_TRAINED - index) / _TRAINED)
