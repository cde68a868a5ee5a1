"""Dropout before adapters whose draws have addresses: a function of the sample, the step and the layer alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from mezzotint import draws
from mezzotint.diffusion import noise


class DropoutDraws:
    """Where dropout draws now. keys: (B,) int64, an address for each sample; None while nothing is dropped."""

    keys: Tensor | None = None

    @contextmanager
    def at(self, keys: Tensor) -> Iterator[None]:
        """Within, everything draws at these addresses; what is computed again draws the same."""
        self.keys = keys
        try:
            yield
        finally:
            self.keys = None


class AddressedDropout(nn.Module):
    """Takes numbers as 0 by chance, and makes the others larger by 1 / (1 − chance), in training steps alone.

    place: the layer, which draws for itself. A sample's rows lie together along the first axis, (B · n, …).
    """

    def __init__(self, chance: float, place: str, where: DropoutDraws) -> None:
        super().__init__()
        self.chance = chance
        self._place = draws.text_key(place) - (1 << 63)
        self._draws = where

    def forward(self, x: Tensor) -> Tensor:
        """x: (B · n, …) of any floating type; returns the same shape and type."""
        keys = self._draws.keys
        if keys is None or not len(keys):
            return x
        assert len(x) % len(keys) == 0, (x.shape, keys.shape)
        drawn = noise.uniform(keys ^ self._place, (x.numel() // len(keys),))
        return torch.where(drawn.reshape(x.shape) >= self.chance, x * (1.0 / (1.0 - self.chance)), 0.0)
