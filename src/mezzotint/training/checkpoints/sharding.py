"""What each of several processes writes of a checkpoint: the rows of tensors that they share, or its part of tensors
that all hold; and how it fits together.

In the manifest a tensor has its whole `shape` and `rows`, the files it lies in:
`[{"file": "weights-00001-of-00002.safetensors", "start": 0, "stop": 160}, …]`, of the first dimension, in order and
without gaps. A tensor that is not shared has one entry.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from mezzotint.runtimes.base import Runtime
from mezzotint.runtimes.base import Share as Share

OTHER_TENSORS = "manifest.json tells of other tensors than its files hold"


def share_of(name: str, shares: Mapping[str, Share]) -> Share | None:
    """What this process holds of a tensor, by its flat name: of `opt.mean/PART/PARAMETER` the rows that it holds of
    PART/PARAMETER. None for a tensor that is not shared."""
    return shares.get(name.partition("/")[2])


def whole_shape(name: str, held: Tensor, shares: Mapping[str, Share]) -> tuple[int, ...]:
    """The shape of the whole tensor of which `held` is what this process holds."""
    share = share_of(name, shares)
    return tuple(held.shape) if share is None else share.shape


def cut(tensors: Mapping[str, Tensor], shares: Mapping[str, Share]) -> dict[str, Tensor]:
    """Of whole tensors by parameter name the rows that this process holds."""
    return {name: shares[name].of(tensor) if name in shares else tensor for name, tensor in tensors.items()}


def take(
    tensors: dict[str, Tensor], name: str, held: Tensor, shape: tuple[int, ...], start: int, share: Share | None
) -> None:
    """Puts the rows of a file where they belong in `tensors`. held: rows from `start` on of a tensor of `shape`. share:
    which rows are wanted; None is all."""
    if share is None and tuple(held.shape) == shape:
        tensors[name] = held
        return
    first, end = (0, shape[0]) if share is None else (share.start, share.stop)
    if name not in tensors:
        tensors[name] = torch.empty((end - first, *shape[1:]), dtype=held.dtype)
    low, high = max(first, start), min(end, start + len(held))
    if low < high:
        tensors[name][low - first : high - first] = held[low - start : high - start]


def table_entry(tensor: Tensor, file: str, share: Share | None) -> dict[str, Any]:
    """What one process tells of a tensor that it has written."""
    shape = list(tensor.shape) if share is None else list(share.shape)
    start, stop = (0, shape[0] if shape else 1) if share is None else (share.start, share.stop)
    dtype = str(tensor.dtype).removeprefix("torch.")
    return {"shape": shape, "dtype": dtype, "rows": [{"file": file, "start": start, "stop": stop}]}


def written_by(runtime: Runtime, tensors: Mapping[str, Tensor]) -> set[str]:
    """The names of what this process writes of the tensors that it holds. What is shared, the process that has rows of
    it, where no other writes the same, and the rest the first; where all hold everything, each its part by bytes."""
    if not runtime.shares:
        return parts({name: tensor.nbytes for name, tensor in tensors.items()}, runtime.world_size)[runtime.rank]
    shares = {name: share_of(name, runtime.shares) for name in tensors}
    rows = {name: share.stop - share.start for name, share in shares.items() if share and 0 not in share.shape}
    mine = {name for name, count in rows.items() if count and runtime.is_writer}
    return mine | ({name for name in tensors if name not in rows} if runtime.is_first else set())


def parts(sizes: Mapping[str, int], count: int) -> list[set[str]]:
    """Tensors divided among processes so that each has about as many bytes: from the largest on, each to the one that
    has least. sizes: bytes by name; every process works out the same."""
    divided: list[set[str]] = [set() for _ in range(count)]
    loads = [(0, number) for number in range(count)]
    for name in sorted(sizes, key=lambda name: (-sizes[name], name)):
        load, number = heapq.heappop(loads)
        divided[number].add(name)
        heapq.heappush(loads, (load + sizes[name], number))
    return divided


def joined(tables: list[dict[str, Any]]) -> dict[str, Any]:
    """The manifest's table, of what all processes have written."""
    whole: dict[str, Any] = {}
    for name, entry in (item for table in tables for item in table.items()):
        if name in whole:
            whole[name]["rows"] = sorted(whole[name]["rows"] + entry["rows"], key=lambda piece: piece["start"])
        else:
            whole[name] = entry
    return whole


def damage(table: Any, shapes: Mapping[str, Mapping[str, Any]]) -> str | None:
    """Why a manifest's table is not what its files hold, or has gaps; None when all is well. shapes: shape and type by
    file and name."""
    spare = {(file, name) for file, tensors in shapes.items() for name in tensors}
    try:
        for name, entry in table.items():
            at = 0
            for piece in entry["rows"]:
                held = shapes[piece["file"]][name]
                spare.discard((piece["file"], name))
                rows = [piece["stop"] - piece["start"], *entry["shape"][1:]] if entry["shape"] else []
                if piece["start"] != at or held != {"shape": rows, "dtype": entry["dtype"]}:
                    return f"the rows of {name} in {piece['file']} are not those that manifest.json tells of"
                at = piece["stop"]
            if at != (entry["shape"][0] if entry["shape"] else 1):
                return f"{name} is not whole: manifest.json tells of {at} of its {entry['shape'][0]} rows"
    except (AttributeError, KeyError, TypeError, IndexError):
        return OTHER_TENSORS
    return OTHER_TENSORS if spare else None
