"""Stochastic rounding to bf16, by address: a value between two numbers of bf16 becomes one of them, with chances that
keep its mean, so changes smaller than a weight's last bit are not lost (Zamirai et al. 2020, arXiv:2010.06192)."""

from __future__ import annotations

import torch
from torch import Tensor

from mezzotint.training.optimizers.base import PIECE

_GOLDEN = 0x9E3779B97F4A7C15 - (1 << 64)
_FACTORS = (0xBF58476D1CE4E5B9 - (1 << 64), 0x94D049BB133111EB - (1 << 64))
"""SplitMix64's constants (see `draws.py`), as signed integers."""


def round_to_bf16(values: Tensor, address: int) -> Tensor:
    """Rounds float32 to bf16 at random: 16 random bits are added to the 16 that bf16 lacks, and those are cut off.

    values: float32 of any shape; numbers of bf16 stay as they are. address: a key of `draws.key`. Element i (row-major)
    depends only on its value, the address and i.
    """
    pieces = values.reshape(-1).split(PIECE)
    return torch.cat([_round_piece(piece, address, n * PIECE) for n, piece in enumerate(pieces)]).view(values.shape)


def _round_piece(values: Tensor, address: int, start: int) -> Tensor:
    """start: index of the first value, a multiple of 4."""
    first, last = start // 4, -(-(start + len(values)) // 4)
    bits = _words(address, torch.arange(first, last, device=values.device)).view(torch.int16)[: len(values)]
    sums = bits.to(torch.int32).bitwise_and_(0xFFFF).add_(values.view(torch.int32))
    return sums.bitwise_and_(-0x10000).view(torch.float32).to(torch.bfloat16)


def _words(address: int, index: Tensor) -> Tensor:
    """The words of SplitMix64 that starts at an address, int64. index: int64, overwritten."""
    words = index.add_(1).mul_(_GOLDEN).add_(address - (1 << 64) if address >> 63 else address)
    for shift, factor in zip((30, 27), _FACTORS, strict=True):
        words.bitwise_xor_((words >> shift).bitwise_and_((1 << 64 - shift) - 1)).mul_(factor)
    return words.bitwise_xor_((words >> 31).bitwise_and_((1 << 33) - 1))
