"""Adapters of fused layers: original-format checkpoints have one matrix for query, key and value, diffusers three.

LoRAs of the parts form a block-diagonal LoRA of the fused layer with the sum of their ranks; a LoRA of the fused layer
splits into the rows of each part. Both conversions are exact.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from mezzotint.adapters.modules import MAGNITUDE, AdapterModule

_DOWN, _UP = "lora_down.weight", "lora_up.weight"
_ROW_FACTORS = (_UP, MAGNITUDE, "hada_w1_a", "hada_w2_a")
"""Factors whose rows are the layer's rows."""


def split(module: AdapterModule, rows: Sequence[int]) -> list[AdapterModule | None]:
    """The module of each part of a fused layer. rows: the number of rows of each part, in order.

    For a block-diagonal LoRA each part keeps only its block; None for a part without a block. A LoKr is not split: its
    parts share its tensors and use their rows of the product.
    """
    ends = [sum(rows[: number + 1]) for number in range(len(rows))]
    spans = [(end - size, end) for end, size in zip(ends, rows, strict=True)]
    if module.kind == "lokr":
        return [_select_rows(module, span) for span in spans]
    if module.kind == "oft":  # rotates the inputs, which all parts share
        return [module] * len(rows)
    parts = [replace(module, tensors=_slice_rows(module.tensors, *span)) for span in spans]
    if module.kind != "lora":
        return list(parts)
    used = [part.tensors[_UP].flatten(1).any(dim=0) for part in parts]
    if not any(mask.any() for mask in used):
        return list(parts)
    return [_keep_block(part, mask) for part, mask in zip(parts, used, strict=True)]


def _slice_rows(tensors: Mapping[str, Tensor], first: int, end: int) -> dict[str, Tensor]:
    return {name: tensor[first:end].clone() if name in _ROW_FACTORS else tensor for name, tensor in tensors.items()}


def _select_rows(module: AdapterModule, span: tuple[int, int]) -> AdapterModule:
    tensors = {n: t[slice(*span)].clone() if n == MAGNITUDE else t for n, t in module.tensors.items()}
    return replace(module, tensors=tensors, rows=span)


def _keep_block(part: AdapterModule, used: Tensor) -> AdapterModule | None:
    if not used.any():
        return part if part.is_dora else None
    if used.all():
        return replace(part, tensors={**part.tensors, _DOWN: part.tensors[_DOWN].clone()})
    tensors = {**part.tensors, _DOWN: part.tensors[_DOWN][used], _UP: part.tensors[_UP][:, used]}
    alpha = None if part.alpha is None else part.scale * int(used.sum())
    return replace(part, tensors=tensors, alpha=alpha, rank_stabilized=False)


def join(parts: Sequence[AdapterModule | None], rows: Sequence[int]) -> AdapterModule | None:
    """One module for a fused layer, or None if there is no exact one: for LoHa and LoKr of the parts, and for
    a DoRA of only some of them. rows: the number of rows of each part; a part without a module does not change."""
    present = [part for part in parts if part is not None]
    spans = [(sum(rows[:number]), sum(rows[: number + 1])) for number in range(len(rows))]
    if any(part.rows is not None for part in present):
        return _stack(present, (MAGNITUDE,)) if [part.rows for part in present] == spans else None
    stacked = _stack(present, _ROW_FACTORS) if len(present) == len(parts) else None
    if stacked is not None:
        return stacked
    is_dora = any(part.is_dora for part in present)
    if any(part.kind != "lora" for part in present) or (is_dora and not all(p and p.is_dora for p in parts)):
        return None
    starts = [start for (start, _), part in zip(spans, parts, strict=True) if part is not None]
    joined = _block_diagonal(present, starts, sum(rows))
    if not is_dora:
        return joined
    lengths = torch.cat([part.tensors[MAGNITUDE] for part in present])
    return replace(joined, tensors={**joined.tensors, MAGNITUDE: lengths})


def _stack(parts: Sequence[AdapterModule], row_factors: Sequence[str]) -> AdapterModule | None:
    """One module with the row factors of the parts concatenated; None if other factors differ."""
    first = parts[0]
    for part in parts[1:]:
        if (part.kind, part.scale, part.tensors.keys()) != (first.kind, first.scale, first.tensors.keys()):
            return None
        others = [(tensor, part.tensors[name]) for name, tensor in first.tensors.items() if name not in row_factors]
        if not all(a.shape == b.shape and torch.equal(a, b) for a, b in others):
            return None
    stacked = {n: torch.cat([part.tensors[n] for part in parts]) for n in first.tensors if n in row_factors}
    return replace(first, tensors={**first.tensors, **stacked}, rows=None)


def _block_diagonal(parts: Sequence[AdapterModule], starts: Sequence[int], rows: int) -> AdapterModule:
    scales = {part.scale for part in parts}
    scale = scales.pop() if len(scales) == 1 else 1.0
    rank = sum(part.rank for part in parts)
    up, left = torch.zeros(rows, rank, dtype=parts[0].tensors[_UP].dtype), 0
    for part, start in zip(parts, starts, strict=True):
        block = part.tensors[_UP] if part.scale == scale else part.tensors[_UP] * (part.scale / scale)
        up[start : start + block.shape[0], left : left + part.rank] = block
        left += part.rank
    return AdapterModule("lora", {_DOWN: torch.cat([part.tensors[_DOWN] for part in parts]), _UP: up}, scale * rank)


def swap_halves(module: AdapterModule, shape: tuple[int, ...]) -> AdapterModule:
    """The module for a layer whose two halves of rows are swapped; for a LoKr a LoRA of full rank, which is exact.

    shape: (out, in) of the weight, out even.
    """
    if module.kind == "lokr":
        up = module.difference(shape)
        tensors = {_DOWN: torch.eye(shape[1]), _UP: up}
        module = AdapterModule("lora", tensors | {n: t for n, t in module.tensors.items() if n == MAGNITUDE})
    half = shape[0] // 2
    return replace(module, tensors={n: _swap(t, half) if n in _ROW_FACTORS else t for n, t in module.tensors.items()})


def _swap(tensor: Tensor, half: int) -> Tensor:
    return torch.cat([tensor[half:], tensor[:half]]) if tensor.shape[0] == 2 * half else tensor
