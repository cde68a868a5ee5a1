"""Learning rates by block of a U-Net: `--block_lr` of sdxl_train, and `down_lr_weight`, `mid_lr_weight` and
`up_lr_weight` of `network_args`, as patterns of `optim.part_lr`.

The scripts count blocks as the original U-Nets do. SDXL has 23: the embeddings of time and size, 9 input blocks, 3
middle ones, 9 output blocks, the output. Stable Diffusion 1.x and 2.x have 25: 12 input blocks, of which the first has
no adapter, a middle one, 12 output blocks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_SHAPES: Mapping[str, tuple[int, int]] = {"sd": (12, 1), "sdxl": (9, 3)}
"""By family the number of input blocks, which is that of output blocks, and of middle ones."""
ARGUMENTS = ("down_lr_weight", "mid_lr_weight", "up_lr_weight")
NUM_BLOCKS = 23
"""Of SDXL."""


def blocks(family: str) -> list[list[str]]:
    """The paths of each block, in the scripts' order."""
    return _blocks_of_sdxl() if family == "sdxl" else _blocks_of_sd()


def _blocks_of_sdxl() -> list[list[str]]:
    down = [["conv_in"], *_levels("down", 3, 2, without_attention=0)]
    middle = [["mid_block.resnets.0"], ["mid_block.attentions.0"], ["mid_block.resnets.1"]]
    up = _levels("up", 3, 3, without_attention=2)
    return [["time_embedding", "add_embedding"], *down, *middle, *up, ["conv_norm_out", "conv_out"]]


def _blocks_of_sd() -> list[list[str]]:
    down, up = (_levels("down", 4, 2, without_attention=3), _levels("up", 4, 3, without_attention=0))
    return [[], *down, ["mid_block"], *up]


def _levels(side: str, levels: int, layers: int, *, without_attention: int) -> Iterator[list[str]]:
    """Each layer is a block; so is what halves the size, but what doubles it belongs to the layer before it.
    without_attention: the level that has none."""
    for level in range(levels):
        path = f"{side}_blocks.{level}"
        for layer in range(layers):
            attention = [f"{path}.attentions.{layer}"] if level != without_attention else []
            doubles = [f"{path}.upsamplers"] if side == "up" and layer == layers - 1 and level < levels - 1 else []
            yield [f"{path}.resnets.{layer}", *attention, *doubles]
        if side == "down" and level < levels - 1:
            yield [f"{path}.downsamplers"]


def rates_by_pattern(
    family: str, rates: Sequence[float], usual: float, *, only_attention: bool = False
) -> dict[str, float]:
    """The entries of `optim.part_lr` for rates by block; those that equal the usual rate need none. only_attention:
    whether other layers have no adapter."""
    return {
        f"~denoiser/{path}.*": rate
        for paths, rate in zip(blocks(family), rates, strict=True)
        for path in paths
        if rate != usual and (not only_attention or ".attentions." in path or path == "mid_block")
    }


def find_rates(family: str, by_pattern: Mapping[str, float], usual: float) -> list[float]:
    """The rates by block of entries of `optim.part_lr`; [] if no block has one of its own."""
    rates = [
        next((by_pattern[key] for path in paths if (key := f"~denoiser/{path}.*") in by_pattern), usual)
        for paths in blocks(family)
    ]
    return rates if set(rates) != {usual} else []


def write_weights(family: str, rates: Sequence[float], usual: float) -> dict[str, str]:
    """The arguments for rates by block."""
    outer, middle = _SHAPES[family]
    weights = [float(f"{rate / usual:.12g}") for rate in rates]
    weights = weights[1:-1] if family == "sdxl" else weights
    groups = (weights[:outer], weights[outer : outer + middle], weights[outer + middle :])
    return {
        name: ",".join(map(str, group)) for name, group in zip(ARGUMENTS, groups, strict=True) if set(group) - {1.0}
    }


def parse_rates(text: str) -> list[float]:
    """The rates of `--block_lr`. Raises ValueError."""
    rates = [_number(one) for one in text.split(",")]
    if len(rates) != NUM_BLOCKS:
        raise ValueError(f"must be {NUM_BLOCKS} numbers separated by commas, got {len(rates)}")
    if min(rates) < 0:
        raise ValueError(f"must be 0 or more, got {min(rates):g}")
    return rates


def weights_by_block(family: str, arguments: Mapping[str, Any]) -> list[float]:
    """The factor of each block's rate. A factor at or below `block_lr_zero_threshold` is 0. Raises ValueError."""
    outer, middle = _SHAPES[family]
    counts = dict(zip(ARGUMENTS, (outer, middle, outer), strict=True))
    least = arguments["block_lr_zero_threshold"]
    weights = [one for name, count in counts.items() for one in _weights(name, arguments[name], count, least)]
    return [1.0, *weights, 1.0] if family == "sdxl" else weights


def _weights(name: str, text: str | None, count: int, least: float) -> list[float]:
    if text is None:
        return [1.0] * count
    try:
        weights = _parse_curve(text, count) if name != "mid_lr_weight" and "," not in text else []
        weights = weights or [_number(one) if one.strip() else 0.0 for one in text.split(",")]
    except ValueError as error:
        raise ValueError(f"{name} {error}") from None
    filled = [*weights, *[1.0] * (count - len(weights))][:count]
    return [weight if weight > least else 0.0 for weight in filled]


def _parse_curve(text: str, count: int) -> list[float]:
    """A curve over the blocks, such as `sine` or `cosine+0.5`, a number that is added to it."""
    name, plus, added = text.partition("+")
    shift = _number(added) if plus else 0.0
    positions = [index / (count - 1) for index in range(count)]
    curves = {
        "sine": [math.sin(math.pi * position / 2) for position in positions],
        "cosine": [math.sin(math.pi * position / 2) for position in reversed(positions)],
        "linear": positions,
        "reverse_linear": positions[::-1],
        "zeros": [0.0] * count,
    }
    if name not in curves:
        raise ValueError(f"must be numbers separated by commas, or one of {', '.join(curves)}, got {text[:40]}")
    return [value + shift for value in curves[name]]


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"must be numbers separated by commas, got {text[:40]}")
    return value
