"""A U-Net's weights with more input channels than its file has. The new ones are zeros, so at first they change
nothing."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from mezzotint.weights.files.tensor_files import Stored, TensorInfo

CONV_IN = "conv_in.weight"
"""The U-Net's first layer, (out, in, 3, 3)."""


@dataclass(frozen=True, slots=True)
class WidenedInput:
    """Implements `Stored`. stored: the file's tensors. channels: of the input, at least as many as the file's."""

    stored: Stored
    channels: int

    @property
    def path(self) -> Path:
        """See Stored."""
        return self.stored.path

    def header(self) -> dict[str, TensorInfo]:
        """See Stored."""
        header = dict(self.stored.header())
        if CONV_IN in header:
            out, _, *kernel = header[CONV_IN].shape
            header[CONV_IN] = header[CONV_IN]._replace(shape=(out, self.channels, *kernel))
        return header

    def read(self, names: Collection[str]) -> dict[str, Tensor]:
        """See Stored."""
        tensors = dict(self.stored.read(names))
        if CONV_IN in tensors:
            weight = tensors[CONV_IN]
            zeros = weight.new_zeros(len(weight), self.channels - weight.shape[1], *weight.shape[2:])
            tensors[CONV_IN] = torch.cat([weight, zeros], dim=1)
        return tensors
