"""What a network takes the clean picture to be at a level of noise: D(x_σ, σ) (Karras et al. 2022, arXiv:2206.00364,
eq. 7), whatever it predicts, with guidance.

A network of a discrete schedule is told the index of the nearest level of its table, and its input is scaled by that
level, too, as Stability's `DiscreteDenoiser` does: levels between two entries go to one of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import cast

import torch
from torch import Tensor

from mezzotint.diffusion import preconditioning
from mezzotint.diffusion.parameterization import Parameterization
from mezzotint.diffusion.preconditioning import Scaling, ScalingName
from mezzotint.diffusion.schedule import Schedule
from mezzotint.recipe.sections.sample import ThresholdingSettings
from mezzotint.sampling.guidance import guided, thresholded

Network = Callable[[Tensor, Tensor], Tensor]
"""(scaled input (B, C, …), what it is told of the level, ()) → its output for the negative texts, then for the texts,
(2B, C, …); for the texts alone without guidance."""


class Denoiser:
    """A network with its schedule. form: what it is shown and told, and what it says; a kind alone is its usual form.
    scale: of guidance; 1 is none, and the network is then asked for the texts alone."""

    def __init__(
        self,
        network: Network,
        schedule: Schedule,
        form: Parameterization | str,
        *,
        scale: float,
        rescale: float = 0.0,
        thresholding: ThresholdingSettings | None = None,
    ) -> None:
        self._network = network
        self._table = schedule.sigma.cpu()
        self._form = Parameterization(form) if isinstance(form, str) else form
        self._scale = scale
        self._rescale = rescale
        self._thresholding = thresholding or ThresholdingSettings()

    def __call__(self, x: Tensor, sigma: float) -> Tensor:
        """The clean picture, float32. x: (B, C, …) float32."""
        factors = self._factors(sigma)
        output = self._network(x * factors.c_in.to(x.device), factors.c_noise.to(x.device)).float()
        if self._thresholding.ratio is not None:
            parts = [self._bounded(_clean(part, x, factors)) for part in output.split(len(x))]
            return guided(torch.cat(parts), scale=self._scale)
        return _clean(guided(output, scale=self._scale, rescale=self._rescale), x, factors)

    def _factors(self, sigma: float) -> Scaling:
        """With what the network is told as c_noise: ¼ ln σ, or the index of the nearest level."""
        level, kind = torch.tensor([sigma], dtype=torch.float32), self._form.prediction
        index = preconditioning.nearest(self._table, level)
        if not self._form.tells_sigma:
            level = self._table[index]
        c_noise = self._form.model_t(level, index)
        if self._form.in_sigma:
            scaling = self._form.factors(level)
        elif kind == "x0":
            zero, one = torch.zeros_like(level), torch.ones_like(level)
            scaling = Scaling(zero, one, 1.0 / (level**2 + 1.0).sqrt(), c_noise)
        else:
            scaling = preconditioning.scaling(cast(ScalingName, kind), level)
        return replace(scaling, c_noise=c_noise)

    def _bounded(self, clean: Tensor) -> Tensor:
        assert self._thresholding.ratio is not None
        return thresholded(clean, ratio=self._thresholding.ratio, most=self._thresholding.max)


def _clean(output: Tensor, x: Tensor, factors: Scaling) -> Tensor:
    return factors.c_skip.to(x.device) * x + factors.c_out.to(x.device) * output
