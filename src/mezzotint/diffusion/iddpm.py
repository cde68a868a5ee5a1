"""Improved DDPM: a denoiser that says, besides the noise, how uncertain the step back is (Nichol and Dhariwal 2021,
arXiv:2102.09672).

Its output has twice the channels of the latents: ε, then v ∈ about [−1, 1], which places the logarithm of the variance
between its two bounds. ε is taught by the squared error, v by the variational term L_vlb with ε held fixed. Throughout:
x_0, x_t, eps, v (B, C, *spatial); t (B,) int64, an index into the tables.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Self

import torch
from torch import Tensor

from mezzotint.diffusion.prediction import expand_to
from mezzotint.diffusion.schedule import Schedule

_BIN = 1.0 / 255.0  # half a step of eight-bit pixels in [−1, 1]
_EDGE = 0.999
_LEAST = 1e-12


@dataclass(frozen=True, slots=True, eq=False)
class Posterior:
    """Tables of the step back, q(x_{t−1} | x_t, x_0): each (T,) float32, worked out in float64.

    x_0 = from_x_t x_t − from_eps ε;  mean = share_x_0 x_0 + share_x_t x_t (Ho et al. 2020, arXiv:2006.11239, eq. 7).
    log_least: logarithm of its variance, the lower bound of what is learnt; its value at t = 0, where the variance is
    0, is that of t = 1. log_most: log β, the upper bound.
    """

    from_x_t: Tensor
    from_eps: Tensor
    share_x_0: Tensor
    share_x_t: Tensor
    log_least: Tensor
    log_most: Tensor

    @classmethod
    def of(cls, schedule: Schedule, timesteps: Sequence[int] | None = None) -> Self:
        """Of a schedule; or of steps between some of its timesteps, rising, at least two (section 4 of the paper):
        index i then means timesteps[i]. The signal must not vanish at any of them."""
        alpha_bar = torch.cumprod(1.0 - schedule.betas().double(), dim=0)
        if timesteps is not None:
            assert len(timesteps) > 1, timesteps
            assert sorted(set(timesteps)) == list(timesteps), timesteps
            alpha_bar = alpha_bar[torch.tensor(list(timesteps))]
        assert not schedule.zero_terminal, "no way back from pure noise"
        before = torch.cat([torch.ones(1, dtype=torch.float64), alpha_bar[:-1]])
        beta = 1.0 - alpha_bar / before
        variance = beta * (1.0 - before) / (1.0 - alpha_bar)
        tables = (
            (1.0 / alpha_bar).sqrt(),
            (1.0 / alpha_bar - 1.0).sqrt(),
            beta * before.sqrt() / (1.0 - alpha_bar),
            (1.0 - before) * (1.0 - beta).sqrt() / (1.0 - alpha_bar),
            torch.cat([variance[1:2], variance[1:]]).log(),
            beta.log(),
        )
        return cls(*(table.float() for table in tables))

    def to(self, device: torch.device | str) -> Self:
        """The same tables on a device."""
        moved = copy.copy(self)
        for field in fields(self):
            object.__setattr__(moved, field.name, getattr(self, field.name).to(device))
        return moved

    def x_0(self, eps: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
        """The clean latents that a predicted noise means, float32, not clipped."""
        return self._at(self.from_x_t, t, x_t) * x_t.float() - self._at(self.from_eps, t, x_t) * eps.float()

    def mean(self, x_0: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
        """Of q(x_{t−1} | x_t, x_0), float32."""
        return self._at(self.share_x_0, t, x_t) * x_0.float() + self._at(self.share_x_t, t, x_t) * x_t.float()

    def log_variance(self, v: Tensor, t: Tensor) -> Tensor:
        """The learnt one, float32: v = −1 is the lower bound, 1 the upper (eq. 15)."""
        share = (v.float() + 1) / 2
        return share * self._at(self.log_most, t, v) + (1 - share) * self._at(self.log_least, t, v)

    def least(self, t: Tensor, ndim: int) -> Tensor:
        """The lower bound, (B, 1, …, 1)."""
        return expand_to(self.log_least[t], ndim)

    @staticmethod
    def _at(table: Tensor, t: Tensor, like: Tensor) -> Tensor:
        return expand_to(table[t], like.ndim)


@dataclass(frozen=True, slots=True)
class Terms:
    """mse, variational: (B,) float32, the two terms of the loss of each sample. Their sum is what Open-Sora-Plan
    trains on."""

    mse: Tensor
    variational: Tensor


def split(predicted: Tensor) -> tuple[Tensor, Tensor]:
    """ε and v: halves of the channels, float32."""
    eps, v = predicted.float().chunk(2, dim=1)
    return eps, v


def losses(
    predicted: Tensor,
    noise: Tensor,
    x_0: Tensor,
    x_t: Tensor,
    t: Tensor,
    *,
    posterior: Posterior,
    mask: Tensor | None = None,
) -> Terms:
    """L_simple and L_vlb of each sample, the latter in bits an element and without the paper's factor 0.001.

    predicted: (B, 2C, *spatial). noise: the true ε. mask: (B, *spatial) or (B, 1, *spatial), 1 where latents count:
    both terms are multiplied by it and still divided by the number of all elements, as Open-Sora-Plan does.
    """
    eps, v = split(predicted)
    squared = (eps - noise.float()) ** 2
    guessed = posterior.x_0(eps.detach(), x_t, t)  # v alone learns from the variational term
    bits = variational_bits(guessed, v, x_0, x_t, t, posterior=posterior)
    if mask is not None:
        counts = (mask if mask.ndim == x_0.ndim else mask[:, None]).float()
        squared, bits = squared * counts, bits * counts
    return Terms(squared.flatten(1).mean(1), bits.flatten(1).mean(1))


def variational_bits(
    guessed: Tensor, v: Tensor, x_0: Tensor, x_t: Tensor, t: Tensor, *, posterior: Posterior
) -> Tensor:
    """How far the model's step back is from the true one, in bits, (B, C, *spatial) float32: a KL divergence, and at
    t = 0 the negative log-likelihood of x_0 in bins of 2/255 (Ho et al. 2020, section 3.3).

    guessed: the x_0 that the model means.
    """
    true_mean, mean = posterior.mean(x_0, x_t, t), posterior.mean(guessed, x_t, t)
    log_variance = posterior.log_variance(v, t)
    kl = gaussian_kl(true_mean, posterior.least(t, x_t.ndim), mean, log_variance)
    first = -discretized_log_likelihood(x_0.float(), mean, 0.5 * log_variance)
    return torch.where(expand_to(t == 0, x_t.ndim), first, kl) / math.log(2.0)


def gaussian_kl(mean_1: Tensor, log_variance_1: Tensor, mean_2: Tensor, log_variance_2: Tensor) -> Tensor:
    """KL(N₁ ‖ N₂) in nats, element by element."""
    ratio = log_variance_2 - log_variance_1
    return 0.5 * (ratio - 1.0 + (-ratio).exp() + (mean_1 - mean_2) ** 2 * (-log_variance_2).exp())


def discretized_log_likelihood(x: Tensor, mean: Tensor, log_deviation: Tensor) -> Tensor:
    """Logarithm of the share of a normal distribution that lies in the bin of x; the bins at ±1 reach to infinity. Not
    below log 1e-12."""
    centred, narrow = x - mean, (-log_deviation).exp()
    above = _normal_share(narrow * (centred + _BIN))
    below = _normal_share(narrow * (centred - _BIN))
    inside = torch.where(x > _EDGE, 1.0 - below, above - below)
    return torch.where(x < -_EDGE, above, inside).clamp_min(_LEAST).log()


def _normal_share(x: Tensor) -> Tensor:
    """The cumulative normal distribution, by the approximation that the paper's code uses."""
    return 0.5 * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))


def step_back(predicted: Tensor, x_t: Tensor, i: Tensor, noise: Tensor, *, posterior: Posterior) -> Tensor:
    """One draw of the model's p(x_{i−1} | x_i), float32; at i = 0 its mean.

    predicted: (B, 2C, *spatial). noise: standard normal, of the shape of x_t. i: an index into the posterior's tables,
    which may be those of chosen timesteps. The x_0 in between is not clipped: latents have no bounds.
    """
    eps, v = split(predicted)
    mean = posterior.mean(posterior.x_0(eps, x_t, i), x_t, i)
    deviation = (0.5 * posterior.log_variance(v, i)).exp()
    return mean + expand_to((i > 0).float(), x_t.ndim) * deviation * noise.float()
