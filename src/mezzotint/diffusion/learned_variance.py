"""Denoisers that also predict the variance of the reverse step: improved DDPM (Nichol and Dhariwal 2021,
arXiv:2102.09672).

The output has twice the channels of the latents: the prediction, then v ∈ about [−1, 1], which interpolates the
logarithm of the variance between its two bounds. The prediction is trained by its own error, v only by the variational
term L_vlb, in which the x_0 implied by the prediction is detached. Throughout: x_0, x_t, v (B, C, *spatial); t (B,)
int64, an index into the tables.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, fields
from typing import Self

import torch
from torch import Tensor

from mezzotint.diffusion import prediction
from mezzotint.diffusion.prediction import expand_to
from mezzotint.diffusion.schedule import Schedule
from mezzotint.errors import RecipeError
from mezzotint.stages import Noised

_BIN = 1.0 / 255.0  # half a step of eight-bit pixels in [−1, 1]
_EDGE = 0.999
_LEAST = 1e-12


def split_prediction(predicted: Tensor, x_t: Tensor) -> tuple[Tensor, Tensor | None]:
    """What is predicted, in the shape of x_t, and v, or None where no variance is learned. Types stay."""
    channels = x_t.shape[1]
    if predicted.shape[1] == channels:
        return predicted, None
    assert predicted.shape[1] == 2 * channels, predicted.shape
    mean_part, v = predicted.chunk(2, dim=1)
    return mean_part, v


class LearnedRange:
    """The variational term of one schedule. kind: what is predicted, "epsilon", "v" or "x0"; another one, and a
    schedule that ends in pure noise, raise RecipeError E1465."""

    def __init__(self, schedule: Schedule, kind: str) -> None:
        if schedule.zero_terminal or kind not in ("epsilon", "v", "x0"):
            reason = "its schedule ends in pure noise" if schedule.zero_terminal else f"it predicts {kind!r}"
            raise RecipeError(
                f"this model's denoiser learns its variance, for which there is no rule where {reason}; leave "
                "objective.zero_terminal_snr and model.prediction as the model has them, or train without the variance",
                code="E1465",
            )
        self._kind = kind
        self._alpha_bar = schedule.alpha_bar
        self._posterior = Posterior.of(schedule).to(schedule.alpha_bar.device)

    def bits(self, mean_part: Tensor, v: Tensor, noised: Noised) -> Tensor:
        """The term of each element, in bits, (B, C, *spatial) float32, without the paper's factor 0.001. mean_part: the
        prediction of the mean; it receives no gradient."""
        t, x_t = noised.model_t, noised.x_t
        if self._kind == "epsilon":
            predicted_x_0 = self._posterior.x_0(mean_part.detach(), x_t, t)
        else:
            predicted_x_0 = prediction.to_x_0(self._kind, mean_part.detach(), x_t, self._alpha_bar[t])
        return self._posterior.variational_bits(predicted_x_0, v, noised.x_0, x_t, t)


@dataclass(frozen=True, slots=True, eq=False)
class Posterior:
    """Tables of the reverse step, q(x_{t−1} | x_t, x_0): each (T,) float32, computed in float64.

    x_0 = from_x_t x_t − from_eps ε;  mean = share_x_0 x_0 + share_x_t x_t (Ho et al. 2020, arXiv:2006.11239, eq. 7).
    log_min: logarithm of its variance, the lower bound of the learned variance; at t = 0, where the variance is 0, it
    has the value of t = 1. log_max: log β, the upper bound.
    """

    from_x_t: Tensor
    from_eps: Tensor
    share_x_0: Tensor
    share_x_t: Tensor
    log_min: Tensor
    log_max: Tensor

    @classmethod
    def of(cls, schedule: Schedule) -> Self:
        """The tables of a schedule without zero terminal SNR."""
        assert not schedule.zero_terminal, "the schedule ends in pure noise"
        alpha_bar = torch.cumprod(1.0 - schedule.betas().double(), dim=0)
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
        """The clean latents implied by predicted noise, float32, not clipped."""
        from_x_t, from_eps = (expand_to(table[t], x_t.ndim) for table in (self.from_x_t, self.from_eps))
        return from_x_t * x_t.float() - from_eps * eps.float()

    def mean(self, x_0: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
        """The mean of q(x_{t−1} | x_t, x_0), float32."""
        share_x_0, share_x_t = (expand_to(table[t], x_t.ndim) for table in (self.share_x_0, self.share_x_t))
        return share_x_0 * x_0.float() + share_x_t * x_t.float()

    def log_variance(self, v: Tensor, t: Tensor) -> Tensor:
        """The learned log variance, float32: v = −1 is the lower bound, 1 the upper (eq. 15)."""
        share = (v.float() + 1) / 2
        least, most = (expand_to(table[t], v.ndim) for table in (self.log_min, self.log_max))
        return share * most + (1 - share) * least

    def variational_bits(self, predicted_x_0: Tensor, v: Tensor, x_0: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
        """The difference of the model's reverse step from the true one, in bits, (B, C, *spatial) float32: a KL
        divergence, and at t = 0 the negative log-likelihood of x_0 in bins of 2/255 (Ho et al. 2020, section 3.3).

        predicted_x_0: the x_0 implied by the model's prediction.
        """
        true_mean, mean = self.mean(x_0, x_t, t), self.mean(predicted_x_0, x_t, t)
        log_variance = self.log_variance(v, t)
        kl = gaussian_kl(true_mean, expand_to(self.log_min[t], x_t.ndim), mean, log_variance)
        first = -discretized_log_likelihood(x_0.float(), mean, 0.5 * log_variance)
        return torch.where(expand_to(t == 0, x_t.ndim), first, kl) / math.log(2.0)


def gaussian_kl(mean_1: Tensor, log_variance_1: Tensor, mean_2: Tensor, log_variance_2: Tensor) -> Tensor:
    """KL(N₁ ‖ N₂) in nats, element by element."""
    ratio = log_variance_2 - log_variance_1
    return 0.5 * (ratio - 1.0 + (-ratio).exp() + (mean_1 - mean_2) ** 2 * (-log_variance_2).exp())


def discretized_log_likelihood(x: Tensor, mean: Tensor, log_deviation: Tensor) -> Tensor:
    """Logarithm of the probability of x's bin under a normal distribution; the bins at ±1 extend to infinity. At least
    log 1e-12."""
    centred, narrow = x - mean, (-log_deviation).exp()
    above = _normal_cdf(narrow * (centred + _BIN))
    below = _normal_cdf(narrow * (centred - _BIN))
    inside = torch.where(x > _EDGE, 1.0 - below, above - below)
    return torch.where(x < -_EDGE, above, inside).clamp_min(_LEAST).log()


def _normal_cdf(x: Tensor) -> Tensor:
    """The cumulative normal distribution, by the approximation that the paper's code uses."""
    return 0.5 * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))


def mean(elements: Tensor, mask: Tensor | None) -> Tensor:
    """(B, C, *spatial) → (B,). mask: (B, *spatial) or (B, 1, *spatial), 1 where latents count; the sum is still divided
    by the number of all elements, as Open-Sora-Plan does."""
    if mask is not None:
        elements = elements * (mask if mask.ndim == elements.ndim else mask[:, None]).float()
    return elements.flatten(1).mean(1)
