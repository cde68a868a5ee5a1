"""Dropout of adapters, drawn by address: a function of only the sample, the step and the layer."""

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


class AddressedMask:
    """A forward hook that sets parts of a layer's output to 0 for some samples: its channels, or all of it.

    chance: that a part is 0; the others are multiplied by factor. by_channel: whether each channel is drawn, of the
    last axis, or of axis 1 of a convolution; otherwise the whole output of a sample. name: part of the address. The
    output's first axis is (B · n), the rows of a sample contiguous.
    """

    def __init__(self, chance: float, factor: float, name: str, addresses: DropoutDraws, *, by_channel: bool) -> None:
        self.chance, self.factor, self._by_channel = chance, factor, by_channel
        self._key = draws.text_key(name) - (1 << 63)
        self._draws = addresses

    def __call__(self, layer: nn.Module, inputs: object, output: Tensor) -> Tensor:
        """See torch's forward hooks."""
        keys = self._draws.keys
        if keys is None or not len(keys):
            return output
        assert len(output) % len(keys) == 0, (output.shape, keys.shape)
        axis = output.ndim - 1 if isinstance(layer, nn.Linear) else 1
        channels = output.shape[axis] if self._by_channel else 1
        stays = noise.uniform(keys ^ self._key, (channels,)) >= self.chance
        shape = [len(output), *(channels if other == axis else 1 for other in range(1, output.ndim))]
        mask = stays.to(output.dtype).mul_(self.factor).repeat_interleave(len(output) // len(keys), dim=0)
        return output * mask.view(shape)
