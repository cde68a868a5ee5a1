"""What the objective adds for a denoiser that says, besides its prediction, how uncertain the step back is: half of its
channels is v of `iddpm.py`.

The variational term teaches v alone, whatever is predicted: the x_0 in it is the one that the prediction means, held
fixed.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from mezzotint.diffusion import iddpm, prediction
from mezzotint.diffusion.schedule import Schedule
from mezzotint.errors import RecipeError
from mezzotint.stages import Noised

Variance = Literal["none", "learned-range"]


def parted(predicted: Tensor, x_t: Tensor, variance: Variance | None) -> tuple[Tensor, Tensor | None]:
    """What is predicted, in the shape of x_t, and v, or None where no variance is learnt. Types stay.

    asked: `objective.variance`; None learns it where the denoiser has channels for it. Raises RecipeError E1465 when it
    has none and is asked to.
    """
    channels = x_t.shape[1]
    if predicted.shape[1] == channels:
        if variance == "learned-range":
            raise RecipeError(
                f"objective.variance is learned-range, and this model's denoiser has {channels} channels, none for a "
                "variance; write objective.variance=none, or leave it out",
                code="E1465",
            )
        return predicted, None
    assert predicted.shape[1] == 2 * channels, predicted.shape
    said, v = predicted.chunk(2, dim=1)
    return said, None if variance == "none" else v


class LearnedRange:
    """The variational term of one schedule. kind: what is predicted, "epsilon", "v" or "x0"; another one, and a
    schedule that ends in pure noise, raise RecipeError E1465."""

    def __init__(self, schedule: Schedule, kind: str) -> None:
        if schedule.zero_terminal or kind not in ("epsilon", "v", "x0"):
            what = "its schedule ends in pure noise" if schedule.zero_terminal else f"it predicts {kind!r}"
            raise RecipeError(
                f"this model's denoiser learns its variance, for which there is no rule where {what}; write "
                "objective.variance=none, or leave objective.zero_terminal_snr and model.prediction as the model has "
                "them",
                code="E1465",
            )
        self._kind = kind
        self._alpha_bar = schedule.alpha_bar
        self._posterior = iddpm.Posterior.of(schedule).to(schedule.alpha_bar.device)

    def bits(self, said: Tensor, v: Tensor, noised: Noised) -> Tensor:
        """The term by element, in bits, (B, C, *spatial) float32. said: the prediction, through which no gradient
        goes."""
        t, x_t = noised.model_t, noised.x_t
        if self._kind == "epsilon":
            guessed = self._posterior.x_0(said.detach(), x_t, t)
        else:
            guessed = prediction.to_x_0(self._kind, said.detach(), x_t, self._alpha_bar[t])
        return iddpm.variational_bits(guessed, v, noised.x_0, x_t, t, posterior=self._posterior)


def mean(elements: Tensor, mask: Tensor | None) -> Tensor:
    """(B, C, *spatial) → (B,). mask: (B, *spatial) or (B, 1, *spatial), 1 where latents count; the sum is divided by
    the number of all elements all the same, as Open-Sora-Plan does."""
    if mask is not None:
        elements = elements * (mask if mask.ndim == elements.ndim else mask[:, None]).float()
    return elements.flatten(1).mean(1)
