"""The layers of SD3 and FLUX.1 that `network_args` choose by kind and by block, as patterns of `model.adapter`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_DOUBLE, _SINGLE = "transformer_blocks", "single_transformer_blocks"
_IMAGE = ("attn.to_[qkv]", "attn.to_out*")
_TEXT = ("attn.add_[qkv]_proj", "attn.to_add_out")
KINDS: dict[str, Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "flux": {
        "img_attn_dim": (_DOUBLE, _IMAGE),
        "txt_attn_dim": (_DOUBLE, _TEXT),
        "img_mlp_dim": (_DOUBLE, ("ff.net.*",)),
        "txt_mlp_dim": (_DOUBLE, ("ff_context.net.*",)),
        "img_mod_dim": (_DOUBLE, ("norm1.linear",)),
        "txt_mod_dim": (_DOUBLE, ("norm1_context.linear",)),
        "single_dim": (_SINGLE, ("attn.to_[qkv]", "proj_mlp", "proj_out")),
        "single_mod_dim": (_SINGLE, ("norm.linear",)),
    },
    "sd3": {
        "x_attn_dim": (_DOUBLE, _IMAGE),
        "context_attn_dim": (_DOUBLE, _TEXT),
        "x_mlp_dim": (_DOUBLE, ("ff.net.*",)),
        "context_mlp_dim": (_DOUBLE, ("ff_context.net.*",)),
        "x_mod_dim": (_DOUBLE, ("norm1.linear",)),
        "context_mod_dim": (_DOUBLE, ("norm1_context.linear",)),
    },
}
KINDS["chroma"] = {name: kind for name, kind in KINDS["flux"].items() if "_mod_" not in name}
"""(blocks, layers) by family and argument: a rank of these layers, 0 for none."""
_OF_FLUX = {"train_double_block_indices": _DOUBLE, "train_single_block_indices": _SINGLE}
INDICES: Mapping[str, Mapping[str, str]] = {
    "flux": _OF_FLUX,
    "chroma": _OF_FLUX,
    "sd3": {"train_block_indices": _DOUBLE},
}
"""Blocks by family and argument."""
_PART = re.compile(r"(\d{1,3})(?:-(\d{1,3}))?")


def parse_indices(text: str) -> list[int] | None:
    """The numbers of blocks in a text such as `0,3-5`, none for `none`; None for `all`. Raises ValueError."""
    if text in ("all", "none"):
        return None if text == "all" else []
    numbers: list[int] = []
    for part in text.split(","):
        match = _PART.fullmatch(part.strip())
        if match is None or int(match[2] or match[1]) < int(match[1]):
            raise ValueError(f"must be all, none, or numbers like 0,3-5, got {text[:40]}")
        numbers += range(int(match[1]), int(match[2] or match[1]) + 1)
    return numbers


def choose_layers(family: str, arguments: Mapping[str, Any]) -> tuple[list[str], dict[str, int]]:
    """(targets, ranks by pattern) of the denoiser's layers that the arguments choose; no targets if they choose all.
    Raises ValueError for wrong numbers of blocks."""
    kinds = KINDS[family]
    ranks = {name: arguments[name] for name in kinds if arguments.get(name) is not None}
    blocks = {group: parse_indices(arguments.get(name) or "all") for name, group in INDICES[family].items()}
    only = {"double": _SINGLE, "single": _DOUBLE}.get(arguments.get("train_blocks") or "all")
    if only is not None:
        blocks[only] = []
    if not ranks and all(numbers is None for numbers in blocks.values()):
        return [], {}
    if not ranks:
        return [f"denoiser/{path}.*" for group in blocks for path in _paths(group, blocks[group])], {}
    targets: list[str] = []
    by_pattern: dict[str, int] = {}
    for name, (group, layers) in kinds.items():
        patterns = list(_patterns(group, blocks[group], layers)) if ranks.get(name) != 0 else []
        targets += patterns
        if name in ranks:
            by_pattern |= dict.fromkeys(patterns, ranks[name])
    return targets, by_pattern


def _paths(group: str, numbers: Sequence[int] | None) -> Iterator[str]:
    """The blocks of a group: some, or all."""
    if numbers is None:
        yield group
    else:
        yield from (f"{group}.{number}" for number in numbers)


def _patterns(group: str, numbers: Sequence[int] | None, layers: Sequence[str]) -> Iterator[str]:
    for path in _paths(group, numbers):
        for layer in layers:
            yield f"denoiser/{path}.*.{layer}" if numbers is None else f"denoiser/{path}.{layer}"


def find_arguments(family: str, targets: Sequence[str], ranks: Mapping[str, int]) -> dict[str, Any]:
    """The arguments that choose these layers of the denoiser, with their ranks by pattern; none if there are no such
    arguments."""
    numbers = {
        group: sorted({int(match[1]) for one in targets if (match := re.match(rf"denoiser/{group}\.(\d+)\.", one))})
        for group in INDICES[family].values()
    }
    blocks = {
        name: _format_indices(numbers[group])
        for name, group in INDICES[family].items()
        if not any(one.startswith(f"denoiser/{group}.*") for one in targets)
    }
    kinds = {}
    for name, (group, layers) in KINDS[family].items():
        patterns = [*_patterns(group, numbers[group] or None, layers)]
        if not {*patterns} & {*targets}:
            kinds[name] = 0
        elif rank := next((ranks[one] for one in patterns if one in ranks), None):
            kinds[name] = rank
    for arguments in (blocks, {**blocks, **kinds}):
        if choose_layers(family, arguments) == (list(targets), dict(ranks)):
            return arguments
    return {}


def _format_indices(numbers: Sequence[int]) -> str:
    """Numbers of blocks as text, such as `0,3-5`."""
    starts = [number for number in numbers if number - 1 not in numbers]
    ends = [number for number in numbers if number + 1 not in numbers]
    spans = [str(first) if first == last else f"{first}-{last}" for first, last in zip(starts, ends, strict=True)]
    return ",".join(spans) or "none"
