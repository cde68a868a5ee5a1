"""The noise schedule: how much signal is left at each timestep.

The table is computed in float32 with the same operations as in diffusers' schedulers: on processors of the same kind,
training here and sampling in diffusers use bitwise identical numbers.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Self

import torch
from torch import Tensor

from mezzotint.errors import WeightsError

MAX_TIMESTEPS = 1_000_000
"""Limit for a schedule read from a configuration; models in use have 1,000."""


@dataclass(frozen=True, slots=True, eq=False)
class Schedule:
    """A discrete variance-preserving schedule (Ho et al. 2020, arXiv:2006.11239).

    alpha_bar: (T,) float32, ᾱ_t in [0, 1), never rising; timestep t is its index. zero_terminal: whether the last
    timestep is pure noise (ᾱ = 0). The table is checked once, when it is created on the CPU; nothing is read back
    later. Raises WeightsError E1450 for an invalid table.
    """

    alpha_bar: Tensor
    zero_terminal: bool = field(init=False)
    _betas: Tensor | None = field(default=None, repr=False, kw_only=True)

    def __post_init__(self) -> None:
        _check_table(self.alpha_bar)
        object.__setattr__(self, "zero_terminal", bool(self.alpha_bar[-1] == 0))

    @classmethod
    def from_betas(cls, betas: Tensor | Sequence[float]) -> Self:
        """ᾱ_t = ∏ (1 − β_s), s ≤ t. betas: (T,), each in (0, 1]; stored, and returned by `betas()` unchanged."""
        table = torch.as_tensor(betas, dtype=torch.float32, device="cpu")
        return cls(torch.cumprod(1.0 - table, dim=0), _betas=table)

    @classmethod
    def linear(cls, beta_start: float = 0.0001, beta_end: float = 0.02, num_timesteps: int = 1000) -> Self:
        """β evenly spaced (Ho et al. 2020)."""
        return cls.from_betas(torch.linspace(beta_start, beta_end, num_timesteps, dtype=torch.float32))

    @classmethod
    def scaled_linear(cls, beta_start: float = 0.00085, beta_end: float = 0.012, num_timesteps: int = 1000) -> Self:
        """√β evenly spaced: latent diffusion (Rombach et al. 2022, arXiv:2112.10752), all Stable Diffusion models."""
        roots = torch.linspace(beta_start**0.5, beta_end**0.5, num_timesteps, dtype=torch.float32)
        return cls.from_betas(roots**2)

    @classmethod
    def squared_cosine(cls, num_timesteps: int = 1000, max_beta: float = 0.999) -> Self:
        """ᾱ along a squared cosine, β at most max_beta (Nichol and Dhariwal 2021, arXiv:2102.09672, eq. 17)."""

        def alpha_bar(share: float) -> float:
            return math.cos((share + 0.008) / 1.008 * math.pi / 2) ** 2

        ends = [alpha_bar(t / num_timesteps) for t in range(num_timesteps + 1)]
        return cls.from_betas([min(1 - after / before, max_beta) for before, after in pairwise(ends)])

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """The schedule of a diffusers `scheduler_config.json`, for any scheduler class.

        Reads num_train_timesteps, beta_start, beta_end, beta_schedule, trained_betas and rescale_betas_zero_snr; a
        missing key has diffusers' default (1000, 0.0001, 0.02, linear). Raises WeightsError E1450 naming the key that
        cannot be used.
        """
        schedule = cls._before_rescaling(config)
        # not skipped for a table that already ends in pure noise: diffusers rescales, and rounds, once more
        return schedule._rescale() if config.get("rescale_betas_zero_snr") else schedule

    @classmethod
    def _before_rescaling(cls, config: Mapping[str, Any]) -> Self:
        trained = config.get("trained_betas")
        if trained is not None:
            if not isinstance(trained, (list, tuple)) or not all(_is_number(beta) for beta in trained):
                raise _config_error("trained_betas must be a list of numbers")
            return cls.from_betas(trained)
        count = config.get("num_train_timesteps", 1000)
        if not isinstance(count, int) or not 1 <= count <= MAX_TIMESTEPS:
            raise _config_error(f"num_train_timesteps must be an integer from 1 to {MAX_TIMESTEPS:,}, got {count!r}")
        start, end = config.get("beta_start", 0.0001), config.get("beta_end", 0.02)
        if not all(_is_number(beta) and 0 < beta <= 1 for beta in (start, end)):
            raise _config_error(f"beta_start and beta_end must be above 0 and at most 1, got {start!r} and {end!r}")
        match config.get("beta_schedule", "linear"):
            case "linear":
                return cls.linear(start, end, count)
            case "scaled_linear":
                return cls.scaled_linear(start, end, count)
            case "squaredcos_cap_v2":
                return cls.squared_cosine(count)
            case other:
                supported = "linear, scaled_linear, squaredcos_cap_v2"
                raise _config_error(f"unknown beta_schedule {other!r}; use one of {supported}, or set trained_betas")

    def rescale_to_zero_terminal_snr(self) -> Self:
        """√ᾱ shifted and scaled to end at 0 with the first value unchanged (Lin et al. 2023, arXiv:2305.08891,
        algorithm 1). A schedule that already ends in pure noise is returned unchanged."""
        return self if self.zero_terminal else self._rescale().to(self.alpha_bar.device)

    def _rescale(self) -> Self:
        root = self.alpha_bar.cpu().sqrt()
        root = (root - root[-1]) * (root[0] / (root[0] - root[-1]))
        return self.from_betas(_betas_of(root**2))

    def to(self, device: torch.device | str) -> Self:
        """The same schedule on a device."""
        moved = copy.copy(self)
        object.__setattr__(moved, "alpha_bar", self.alpha_bar.to(device))
        return moved

    @property
    def num_timesteps(self) -> int:
        """T."""
        return self.alpha_bar.shape[0]

    @property
    def snr(self) -> Tensor:
        """Signal-to-noise ratio ᾱ/(1 − ᾱ), (T,) float32. Finite everywhere; exactly 0 at a terminal timestep of pure
        noise."""
        return self.alpha_bar / (1.0 - self.alpha_bar)

    @property
    def sigma(self) -> Tensor:
        """Noise over signal √((1 − ᾱ)/ᾱ), (T,) float32; what EDM-style samplers call σ.

        At a terminal timestep of pure noise it would be infinite: ᾱ is then clamped to 2⁻²⁴, which gives 4096, as in
        diffusers' Euler scheduler.
        """
        signal = self.alpha_bar.clamp_min(2.0**-24)
        return ((1.0 - signal) / signal).sqrt()

    def betas(self) -> Tensor:
        """(T,) float32 on the CPU: those the schedule was created from, otherwise 1 − ᾱ_t/ᾱ_{t−1}, which reproduces ᾱ
        up to rounding."""
        return self._betas.clone() if self._betas is not None else _betas_of(self.alpha_bar.cpu())


def _betas_of(alpha_bar: Tensor) -> Tensor:
    return 1.0 - torch.cat([alpha_bar[:1], alpha_bar[1:] / alpha_bar[:-1]])


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _config_error(reason: str) -> WeightsError:
    return WeightsError(f"scheduler_config.json: {reason}", code="E1450")


def _check_table(alpha_bar: Tensor) -> None:
    if alpha_bar.ndim != 1 or alpha_bar.dtype != torch.float32 or not len(alpha_bar):
        raise WeightsError(
            f"noise schedule: alpha_bar must be a (T,) float32 table, got {tuple(alpha_bar.shape)} {alpha_bar.dtype}",
            code="E1450",
        )
    inside = bool(((alpha_bar >= 0) & (alpha_bar < 1)).all())
    if not inside or bool((alpha_bar[1:] > alpha_bar[:-1]).any()):
        raise WeightsError(
            "noise schedule: alpha_bar must be in [0, 1) and never rise; every beta must be above 0 and at most 1",
            code="E1450",
        )
