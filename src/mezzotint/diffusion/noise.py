"""Noise by address: standard normal and uniform numbers as functions of a 64-bit key, never of earlier draws.

Philox-4x32-10 (Salmon, Moraes, Dror, Shaw 2011, "Parallel random numbers: as easy as 1, 2, 3") turns (key, block
number) into four 32-bit words, in int64 tensor operations on the keys' device. Words become normals by Box–Muller.
Every operation is exact in integers or correctly rounded in float32 (+, ×, ÷, √), and the logarithm and the sine are
polynomials of those: the numbers are bitwise identical in every batch, shape and split, and on every device that
follows IEEE 754. They are drawn outside compiled regions, whose fused multiply-adds would round differently.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

_MASK = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10

_HALF_TURN = 1 << 31
_QUARTER_TURN = 1 << 30

_SINE = (3.1415927, -5.1677098, 2.5500698, -0.5982421, 0.0775604)
"""sin(πy) = y · P(y²) for |y| ≤ ½; relative error below 1e-8 before rounding."""

_LOGARITHM = (4.0, 1.33332634, 0.80049825, 0.5592109, 0.56356476)
"""−2 ln m = r · P(r²) with r = (1 − m)/(1 + m), for m in [½, 1); relative error below 1e-8 before rounding."""


def normal(keys: Tensor, shape: Sequence[int]) -> Tensor:
    """Standard normal numbers at addresses.

    keys: (B,) int64, the bits of `draws.keys`. shape: of one sample. Returns (B, *shape) float32 on the keys' device,
    always finite, at most 6.66 in size.

    Sample b depends only on keys[b]. Element i (row-major) depends only on its key and on i, so a shorter draw is a
    prefix of a longer one. Block i // 4 has words w₀ … w₃; (w₀, w₁) give elements 0 and 1 of the block, (w₂, w₃)
    elements 2 and 3: √(−2 ln u) cos θ and √(−2 ln u) sin θ with u = (w + 1)/2³² (below 1 always), θ = 2π w′/2³² (Box
    and Muller 1958).
    """
    count = math.prod(shape)
    radius_words, angle_words = _blocks(keys, -(-count // 4))
    radius = _minus_two_log(radius_words).sqrt_()
    waves = _cosine(torch.stack((angle_words, (angle_words - _QUARTER_TURN) & _MASK))).mul_(radius)
    return _in_order(waves, shape)


def uniform(keys: Tensor, shape: Sequence[int]) -> Tensor:
    """Uniform numbers in [0, 1) at addresses: the upper 24 bits of the words, in order.

    keys: (B,) int64. shape: of one sample. Returns (B, *shape) float32 on the keys' device, with the independence and
    the prefix property of `normal`. The same key gives related numbers in both: use one key for one draw.
    """
    count = math.prod(shape)
    even, odd = _blocks(keys, -(-count // 4))
    return _in_order((torch.stack((even, odd)) >> 8).float().mul_(2.0**-24), shape)


def adaptive_offset(x_0: Tensor, strength: float, scale: float) -> Tensor:
    """The deviation of offset noise that follows the latents: max(0, strength + scale · |mean of the channel|), as
    kohya's adaptive_noise_scale.

    x_0: (B, C, *spatial) latents. strength: at a mean of 0. scale: may be below 0. Returns (B, C, 1, …).
    """
    means = x_0.flatten(2).mean(dim=2).view(*x_0.shape[:2], *[1] * (x_0.ndim - 2))
    return (strength + scale * means.abs()).clamp_min(0.0)


def philox(counter: Tensor, key: Tensor) -> Tensor:
    """Philox-4x32-10: four words from a counter of four words and a key of two.

    counter: (4, …) int64 in [0, 2³²). key: (2, …) int64 in [0, 2³²), broadcast against the counter. Returns (4, …)
    int64 in [0, 2³²).
    """
    steps = torch.arange(_ROUNDS, device=key.device).view(-1, *[1] * (key.ndim - 1))
    round_keys = torch.stack([key[i] + steps * step for i, step in enumerate(_KEY_STEPS)], dim=1)
    even, odd = _rounds(counter[0::2], counter[1::2], round_keys)
    return torch.stack((even, odd), dim=1).flatten(0, 1)


def _rounds(even: Tensor, odd: Tensor, round_keys: Tensor) -> tuple[Tensor, Tensor]:
    """Ten rounds over words (c₀, c₂) and (c₁, c₃), both rows of one tensor at a time. round_keys: (10, 2, …), of which
    the lower 32 bits count."""
    multipliers = _pair(_MULTIPLIERS, even)
    for round_key in round_keys.unbind():
        # int64 multiplication wraps: all 64 bits of the product of two 32-bit words are correct
        product = (even * multipliers).flip(0)
        even = (product >> 32).bitwise_xor_(odd).bitwise_xor_(round_key).bitwise_and_(_MASK)
        # the lower words carry garbage above bit 31, which the next mask removes
        odd = product
    return even, odd & _MASK


def _blocks(keys: Tensor, blocks: int) -> tuple[Tensor, Tensor]:
    """Words (w₀, w₂) and (w₁, w₃) of the first blocks of each key: twice (2, B, blocks) int64."""
    steps = torch.arange(_ROUNDS, device=keys.device).view(-1, 1)
    low, high = keys + steps * _KEY_STEPS[0], (keys >> 32) + steps * _KEY_STEPS[1]
    number = torch.arange(blocks, device=keys.device).expand(1, keys.shape[0], blocks)
    even = torch.cat((number & _MASK, torch.zeros_like(number)))
    odd = torch.cat((number >> 32, torch.zeros_like(number)))
    return _rounds(even, odd, torch.stack((low, high), dim=1).unsqueeze(-1))


def _pair(values: tuple[int, int], like: Tensor) -> Tensor:
    """Two constants as (2, 1, …), created on the device: a copy from the host would synchronize."""
    first, second = values
    row = torch.arange(2, device=like.device) * (second - first) + first
    return row.view(2, *[1] * (like.ndim - 1))


def _minus_two_log(words: Tensor) -> Tensor:
    """−2 ln((w + 1)/2³²), float32, above 0. The largest words are clamped to 1 − 2⁻²⁴, so it never reaches 0."""
    mantissa, exponent = torch.frexp((words + 1).float().clamp_max_(2.0**32 - 2.0**8))
    ratio = (1.0 - mantissa).div_(mantissa + 1.0)
    halvings = (32 - exponent).float().mul_(2.0 * math.log(2.0))
    return _odd_polynomial(ratio, _LOGARITHM).add_(halvings)


def _cosine(words: Tensor) -> Tensor:
    """cos(2π w/2³²), float32: sin(πy) of the distance to the half turn, subtracted exactly, in integers."""
    distance = (words - _HALF_TURN).abs_().sub_(_QUARTER_TURN)
    return _odd_polynomial(distance.float().mul_(2.0**-31), _SINE)


def _odd_polynomial(x: Tensor, coefficients: tuple[float, ...]) -> Tensor:
    """x · P(x²), by Horner's rule in separate multiplications and additions."""
    square = x * x
    total = square * coefficients[-1]
    for coefficient in reversed(coefficients[1:-1]):
        total.add_(coefficient).mul_(square)
    return total.add_(coefficients[0]).mul_(x)


def _in_order(pairs: Tensor, shape: Sequence[int]) -> Tensor:
    """(position in the pair 2, pair 2, B, blocks) → (B, *shape): blocks, then pairs, then positions."""
    samples, blocks = pairs.shape[2:]
    in_row = pairs.permute(2, 3, 1, 0).reshape(samples, 4 * blocks)
    return in_row[:, : math.prod(shape)].reshape(samples, *shape)
