"""Reads and validates safetensors headers before any tensor is read, and identifies other files by their first
bytes."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import torch

from mezzotint import outside
from mezzotint.errors import WeightsError
from mezzotint.settings import weights_formats
from mezzotint.weights.files import formats
from mezzotint.weights.files.spans import StoredTensor

_HEADER_LIMIT = 100_000_000  # defined by the format
_MOST_SIDES = 64  # as many as torch's tensors have
TYPES: Mapping[str, torch.dtype] = {
    "U64": torch.uint64, "I64": torch.int64, "F64": torch.float64, "F32": torch.float32, "U32": torch.uint32,
    "I32": torch.int32, "BF16": torch.bfloat16, "F16": torch.float16, "U16": torch.uint16, "I16": torch.int16,
    "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2, "I8": torch.int8, "U8": torch.uint8,
    "BOOL": torch.bool,
}  # fmt: skip
"""torch's data types by their names in a header, in the order in which safetensors writes them."""
SIZES = {kind: dtype.itemsize for kind, dtype in TYPES.items()}
"""Bytes per number, by the name of its data type in a header."""
PICKLES = (b"PK\x03\x04", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
"""First bytes of pickles and torch's archives."""
_LFS, _GGUF = b"version https://git-lfs", b"GGUF"
_MARKS: tuple[tuple[tuple[bytes, ...], str], ...] = (
    ((_LFS,), "it is a Git LFS pointer of {size} bytes, not the model; run `git lfs pull` where it came from"),
    (
        (b"<!doctype", b"<html", b"<?xml", b"<head"),
        "it is a web page, not a model: the download got a log-in or error page; download it again",
    ),
    (PICKLES, "it is a pickle file (.ckpt, .pt or .bin) under another name; rename it to its proper suffix"),
    ((_GGUF,), "it is a GGUF file; use the safetensors weights of the model"),
    ((b"{", b"["), "it is a JSON text, not a model"),
)
"""First bytes of other files, in any case and after whitespace, with the message for each."""


def tensors_of(path: Path) -> dict[str, StoredTensor]:
    """Type, shape and byte ranges of each tensor, from the header of one file. Checks that the ranges are contiguous
    and reach the end of the file. Raises WeightsError E1401, E1402."""
    other = formats.format_at(path)
    if other is not None:
        return other.read_header(path)
    entries, offset = header_at(path)
    size = path.stat().st_size
    tensors: dict[str, StoredTensor] = {}
    try:
        for name, entry in entries.items():
            if name != "__metadata__":
                kind, shape, (first, last) = entry["dtype"], tuple(entry["shape"]), entry["data_offsets"]
                if not all(type(number) is int for number in (first, last, *shape)) or len(shape) > _MOST_SIDES:
                    raise ValueError(name)
                tensors[name] = StoredTensor(kind, shape, ((offset + first, last - first),), TYPES.get(kind))
    except (KeyError, TypeError, ValueError):
        refuse(path, "its header describes no tensors")
    for start, count in sorted(span for stored in tensors.values() for span in stored.spans):
        if start != offset or count < 0:
            refuse(path, "its tensors overlap or leave gaps")
        offset += count
    if offset > size:
        refuse(path, f"{offset - size} bytes are missing at its end: the copy or download was cut short")
    if offset < size:
        refuse(path, f"it has {size - offset} bytes too many at its end")
    for name, stored in tensors.items():
        if stored.dtype in SIZES and math.prod(stored.shape) * SIZES[stored.dtype] != stored.spans[0][1]:
            refuse(path, f"{name[:100]!r} has {stored.spans[0][1]:,} bytes, which does not match its shape and type")
    return tensors


def header_at(path: Path) -> tuple[dict[str, Any], int]:
    """The entries of a header, and the offset of the first tensor's bytes. Raises WeightsError E1401, E1402."""
    try:
        with outside.open_plain(path) as file:
            size = os.fstat(file.fileno()).st_size
            start = file.read(512)
            length = int.from_bytes(start[:8], "little")
            if size < 8 or length > min(_HEADER_LIMIT, size - 8):
                refuse(path, _reason(start, size))
            file.seek(8)
            entries = outside.parse_json(file.read(length).decode())
    except OSError as error:
        raise WeightsError(f"{path}: cannot be read ({error.strerror}); check the path", code="E1401") from error
    except ValueError:
        refuse(path, _reason(start, size))
    if not isinstance(entries, dict):
        refuse(path, "its header is not a JSON object")
    return entries, 8 + length


def refuse_known(path: Path) -> None:
    """Raises WeightsError E1402 for a file of another kind by its first bytes, for any suffix."""
    with outside.open_plain(path) as file:
        start = file.read(64)
    if start.startswith((_GGUF, _LFS)) or not start:
        refuse(path, _reason(start, path.stat().st_size))


def _reason(start: bytes, size: int) -> str:
    """Describes a file that is not safetensors, by its first bytes."""
    registered = (mark for spec in weights_formats.specs().values() for mark in spec.unreadable)
    for marks, reason in (*_MARKS, *registered):
        if start.lstrip().lower().startswith(marks) or start.startswith(marks):
            return reason.format(size=size)
    if size == 0:
        return "it is empty (0 bytes); download it again"
    if len(start) >= 9 and start[8:9] == b"{" and int.from_bytes(start[:8], "little") <= _HEADER_LIMIT:
        return f"its header is cut short: the copy or download stopped at {size} bytes"
    return f"its header is damaged, or it is another kind of file ({size} bytes)"


def refuse(path: Path, reason: str) -> NoReturn:
    """Raises WeightsError E1402."""
    raise WeightsError(f"{path}: cannot be read as weights: {reason}", code="E1402")
