"""Dropout before adapters, drawn by address: a function of only the sample, the step and the layer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from mezzotint import draws
from mezzotint.diffusion import noise


class DropoutDraws:
    """The current addresses of dropout. keys: (B,) int64, one for each sample; None disables dropout."""

    keys: Tensor | None = None

    @contextmanager
    def at(self, keys: Tensor) -> Iterator[None]:
        """Context in which dropout draws at these addresses; recomputation draws the same."""
        self.keys = keys
        try:
            yield
        finally:
            self.keys = None


class AddressedDropout(nn.Module):
    """Sets random values to 0 and scales the others by 1 / (1 − chance), only in training steps.

    layer_path: the layer's path, part of the address. A sample's rows are contiguous along the first axis, (B · n, …).
    """

    def __init__(self, chance: float, layer_path: str, addresses: DropoutDraws) -> None:
        super().__init__()
        self.chance = chance
        self._layer_key = draws.text_key(layer_path) - (1 << 63)
        self._draws = addresses

    def forward(self, x: Tensor) -> Tensor:
        """x: (B · n, …) of any floating-point dtype; returns the same shape and dtype."""
        keys = self._draws.keys
        if keys is None or not len(keys):
            return x
        assert len(x) % len(keys) == 0, (x.shape, keys.shape)
        drawn = noise.uniform(keys ^ self._layer_key, (x.numel() // len(keys),))
        return torch.where(drawn.reshape(x.shape) >= self.chance, x * (1.0 / (1.0 - self.chance)), 0.0)
