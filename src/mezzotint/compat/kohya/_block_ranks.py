"""Ranks and alphas by block of a U-Net: `block_dims`, `block_alphas`, `conv_block_dims` and `conv_block_alphas` of
`network_args`, as patterns of `model.adapter`. The blocks are those of `_block_rates`.

A layer that is no 3×3 convolution has the rank of its block; convolutions have their own, or that of `conv_dim`. Layers
of rank 0 have no adapter, which a rate of 0 in `optim.part_lr` means here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from mezzotint.compat.kohya import _block_rates

ARGUMENTS = ("block_dims", "block_alphas", "conv_block_dims", "conv_block_alphas")


@dataclass(frozen=True, slots=True)
class Patterns:
    """Of the denoiser's layers. without: of layers that have no adapter; some may match nothing."""

    ranks: dict[str, int] = field(default_factory=dict)
    alphas: dict[str, float] = field(default_factory=dict)
    without: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Size:
    """rank, alpha: of layers that are no 3×3 convolutions; alpha 0 is the rank. conv_rank, conv_alpha: of these."""

    rank: int
    alpha: float
    conv_rank: int
    conv_alpha: float


def is_active(arguments: Mapping[str, Any]) -> bool:
    """Whether arguments act: the scripts read the others with `block_dims`, or with factors of rates, only."""
    names = ("block_dims", *_block_rates.ARGUMENTS)
    return is_given(arguments) and any(arguments.get(name) is not None for name in names)


def is_given(arguments: Mapping[str, Any]) -> bool:
    """Whether there is one of the arguments."""
    return any(arguments.get(name) is not None for name in ARGUMENTS)


def has_convolutions(arguments: Mapping[str, Any]) -> bool:
    """Whether 3×3 convolutions get an adapter."""
    return arguments.get("conv_dim") is not None or (is_active(arguments) and arguments["conv_block_dims"] is not None)


def choose(family: str, arguments: Mapping[str, Any], rank: int, alpha: float) -> Patterns:
    """The patterns of all blocks. rank, alpha: of layers that no pattern matches; alpha 0 is the rank. Raises
    ValueError for lists of another length than the number of blocks, and for wrong numbers."""
    chosen, with_convolutions = Patterns(), has_convolutions(arguments)
    blocks = _block_rates.blocks(family)
    for paths, size in zip(blocks, _sizes(arguments, len(blocks), rank, alpha), strict=True):
        for path in paths:
            _add(chosen, path, size, rank, alpha, with_convolutions=with_convolutions)
    return chosen


def _sizes(arguments: Mapping[str, Any], count: int, rank: int, alpha: float) -> Iterator[_Size]:
    conv_alpha = 1.0 if arguments["conv_alpha"] is None else arguments["conv_alpha"]
    usual = dict(zip(ARGUMENTS, (rank, alpha, arguments["conv_dim"] or 0, conv_alpha), strict=True))
    lists = [_numbers(name, arguments[name], count) or [usual[name]] * count for name in ARGUMENTS]
    if arguments["conv_block_dims"] is None:
        lists[3] = [conv_alpha] * count
    for dim, own_alpha, conv_dim, own_conv_alpha in zip(*lists, strict=True):
        yield _Size(int(dim), own_alpha, int(conv_dim), own_conv_alpha)


def _add(chosen: Patterns, path: str, size: _Size, rank: int, alpha: float, *, with_convolutions: bool) -> None:
    """Adds the patterns of one path of a block, where they differ from what matches without them."""
    linear, convolution = _kinds(path, with_convolutions=with_convolutions)
    if linear and size.rank == 0:
        chosen.without.extend(linear)
    elif linear:
        own_alpha = size.alpha or float(size.rank)
        if size.rank != rank:
            chosen.ranks[f"{path}.*"] = size.rank
        if own_alpha != (alpha or float(size.rank)):
            chosen.alphas[f"{path}.*"] = own_alpha
    if convolution and size.conv_rank == 0:
        chosen.without.append(convolution)
    elif convolution:
        own_alpha = size.conv_alpha or float(size.conv_rank)
        if size.conv_rank != chosen.ranks.get(f"{path}.*", rank):
            chosen.ranks[convolution] = size.conv_rank
        if own_alpha != chosen.alphas.get(f"{path}.*", alpha or float(size.conv_rank)):
            chosen.alphas[convolution] = own_alpha


def _kinds(path: str, *, with_convolutions: bool) -> tuple[list[str], str]:
    """The patterns of those layers of a path that are no 3×3 convolutions, and that of its 3×3 convolutions. Empty for
    layers that have no adapter."""
    if ".attentions." in path:
        return [f"{path}.*"], ""
    if path == "mid_block":
        convolution = f"{path}.resnets.*.conv[12]" if with_convolutions else ""
        return [f"{path}.attentions.*", f"{path}.resnets.*.time_emb_proj"], convolution
    if with_convolutions and ".resnets." in path:
        return [f"{path}.time_emb_proj", f"{path}.conv_shortcut"], f"{path}.conv[12]"
    return [], f"{path}.*" if with_convolutions and path.endswith("samplers") else ""


def _numbers(name: str, text: str | None, count: int) -> list[float]:
    """The numbers of an argument, [] without it. Raises ValueError."""
    if text is None:
        return []
    is_rank = name.endswith("dims")
    try:
        numbers = [float(int(one) if is_rank else float(one)) for one in text.split(",")]
    except ValueError:
        numbers = [math.nan]
    if not all(0 <= number < math.inf for number in numbers):
        what = "whole numbers" if is_rank else "numbers"
        raise ValueError(f"{name} must be {what} of 0 or more, separated by commas, got {text[:40]}")
    if len(numbers) != count:
        raise ValueError(f"{name} must be {count} numbers, one for each block, got {len(numbers)}")
    return numbers
