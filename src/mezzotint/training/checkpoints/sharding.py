"""Which part of a checkpoint each process writes: its rows of sharded tensors, or its share of replicated tensors; and
how the parts are joined.

In the manifest a tensor has its full `shape` and `rows`, the files that contain it:
`[{"file": "weights-00001-of-00002.safetensors", "start": 0, "stop": 160}, …]`, along the first dimension, in order and
without gaps. A tensor that is not sharded has one entry.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from mezzotint.runtimes.base import Runtime
from mezzotint.runtimes.base import Share as Share

OTHER_TENSORS = "manifest.json lists other tensors than the files contain"


def share_of(name: str, shares: Mapping[str, Share]) -> Share | None:
    """The rows of a tensor that this process holds, by its flat name: of `opt.mean/PART/PARAMETER` those of
    PART/PARAMETER. None for a tensor that is not sharded."""
    return shares.get(name.partition("/")[2])


def full_shape(name: str, tensor: Tensor, shares: Mapping[str, Share]) -> tuple[int, ...]:
    """The full shape of a tensor. tensor: the rows that this process holds."""
    share = share_of(name, shares)
    return tuple(tensor.shape) if share is None else share.shape


def select_rows(tensors: Mapping[str, Tensor], shares: Mapping[str, Share]) -> dict[str, Tensor]:
    """Selects the rows that this process holds. tensors: full tensors by parameter name."""
    return {name: shares[name].of(tensor) if name in shares else tensor for name, tensor in tensors.items()}


def copy_rows(
    tensors: dict[str, Tensor], name: str, source: Tensor, shape: tuple[int, ...], start: int, share: Share | None
) -> None:
    """Copies rows of a file into `tensors`. source: rows of a tensor of `shape`, from `start`. share: the rows to load;
    None for all."""
    if share is None and tuple(source.shape) == shape:
        tensors[name] = source
        return
    first, end = (0, shape[0]) if share is None else (share.start, share.stop)
    if name not in tensors:
        tensors[name] = torch.empty((end - first, *shape[1:]), dtype=source.dtype)
    low, high = max(first, start), min(end, start + len(source))
    if low < high:
        tensors[name][low - first : high - first] = source[low - start : high - start]


def table_entry(tensor: Tensor, file: str, share: Share | None) -> dict[str, Any]:
    """The manifest entry of a tensor that one process has written."""
    shape = list(tensor.shape) if share is None else list(share.shape)
    start, stop = (0, shape[0] if shape else 1) if share is None else (share.start, share.stop)
    dtype = str(tensor.dtype).removeprefix("torch.")
    return {"shape": shape, "dtype": dtype, "rows": [{"file": file, "start": start, "stop": stop}]}


def select_written(runtime: Runtime, tensors: Mapping[str, Tensor]) -> set[str]:
    """The names of the tensors that this process writes. Sharded tensors are written by every process that has rows of
    them, without duplicates, and the others by the first; if all are replicated, each process writes a share by bytes.
    """
    if not runtime.shares:
        return divide({name: tensor.nbytes for name, tensor in tensors.items()}, runtime.world_size)[runtime.rank]
    shares = {name: share_of(name, runtime.shares) for name in tensors}
    rows = {name: share.stop - share.start for name, share in shares.items() if share and 0 not in share.shape}
    sharded = {name for name, count in rows.items() if count and runtime.is_writer}
    return sharded | ({name for name in tensors if name not in rows} if runtime.is_first else set())


def divide(sizes: Mapping[str, int], count: int) -> list[set[str]]:
    """Divides tensors among processes evenly by bytes: starting with the largest, each goes to the process with the
    fewest bytes. sizes: bytes by name. The result is the same on every process."""
    parts: list[set[str]] = [set() for _ in range(count)]
    loads = [(0, number) for number in range(count)]
    for name in sorted(sizes, key=lambda name: (-sizes[name], name)):
        load, number = heapq.heappop(loads)
        parts[number].add(name)
        heapq.heappush(loads, (load + sizes[name], number))
    return parts


def join_tables(tables: list[dict[str, Any]]) -> dict[str, Any]:
    """Joins the manifest tables of all processes."""
    joined: dict[str, Any] = {}
    for name, entry in (item for table in tables for item in table.items()):
        if name in joined:
            joined[name]["rows"] = sorted(joined[name]["rows"] + entry["rows"], key=lambda piece: piece["start"])
        else:
            joined[name] = entry
    return joined


def damage(table: Any, shapes: Mapping[str, Mapping[str, Any]]) -> str | None:
    """Why a manifest's table does not match its files, or has gaps; None if it is valid. shapes: shape and dtype by
    file and name."""
    spare = {(file, name) for file, tensors in shapes.items() for name in tensors}
    try:
        for name, entry in table.items():
            next_row = 0
            for piece in entry["rows"]:
                stored = shapes[piece["file"]][name]
                spare.discard((piece["file"], name))
                rows = [piece["stop"] - piece["start"], *entry["shape"][1:]] if entry["shape"] else []
                if piece["start"] != next_row or stored != {"shape": rows, "dtype": entry["dtype"]}:
                    return f"the rows of {name} in {piece['file']} are not those that manifest.json lists"
                next_row = piece["stop"]
            if next_row != (entry["shape"][0] if entry["shape"] else 1):
                return f"{name} is incomplete: manifest.json lists {next_row} of its {entry['shape'][0]} rows"
    except (AttributeError, KeyError, TypeError, IndexError):
        return OTHER_TENSORS
    return OTHER_TENSORS if spare else None
