"""The weights format `mindspore`: MindSpore's checkpoints, read header first, tensor by tensor, and written slice by
slice.

Such a file contains numbers, names and texts, and no code. A tensor above 512 MiB is in several entries of the same
name. A checksum may follow at the end.
"""

from __future__ import annotations

import math
import os
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO, NoReturn

import torch
from torch import Tensor

from mezzotint import durable, outside
from mezzotint.compat.mindone import _mindspore_wire as wire
from mezzotint.compat.mindone._mindspore_wire import Value
from mezzotint.errors import WeightsError
from mezzotint.weights.files.protobuf import CUT_SHORT, Damaged
from mezzotint.weights.files.spans import StoredTensor, blocks, bytes_at

SLICE = 512 << 20
"""Tensors of more bytes are written in several entries."""

_TYPES: dict[str, tuple[str, torch.dtype]] = {
    "Float64": ("F64", torch.float64), "Float32": ("F32", torch.float32), "Float16": ("F16", torch.float16),
    "BFloat16": ("BF16", torch.bfloat16), "Int64": ("I64", torch.int64), "Int32": ("I32", torch.int32),
    "Int16": ("I16", torch.int16), "Int8": ("I8", torch.int8), "UInt64": ("U64", torch.uint64),
    "UInt32": ("U32", torch.uint32), "UInt16": ("U16", torch.uint16), "UInt8": ("U8", torch.uint8),
    "Bool": ("BOOL", torch.bool),
    "Int4": ("I8", torch.int8),  # two numbers per byte, not unpacked: the dimensions count bytes
}  # fmt: skip
_KINDS = {dtype: kind for kind, (_, dtype) in reversed(_TYPES.items())}
_TEXT = "str"
ENTRY_LIMIT = 1_000_000
"""Largest number of tensors of a file."""
_TEXT_LIMIT = 1 << 20  # bytes


def read_header(path: Path) -> dict[str, StoredTensor]:
    """The tensors of a file, from the headers of its entries.

    Raises WeightsError E1401 if there is no such file, E1420 for a damaged one, with the byte offset.
    """
    with _open(path) as file:
        return {name: stored for name, stored in _read_entries(path, file) if isinstance(stored, StoredTensor)}


def read_metadata(path: Path) -> dict[str, str]:
    """The texts of a file, such as notes of a trainer. Raises as `read_header`."""
    with _open(path) as file:
        entries_by_name = dict(_read_entries(path, file))
        return {
            name: _read_text(path, file, stored)
            for name, stored in entries_by_name.items()
            if isinstance(stored, Value)
        }


def read(path: Path, names: Collection[str] | None = None) -> Iterator[tuple[str, Tensor]]:
    """Yields the named tensors of a file, all by default, in their stored dtypes. Each owns its memory.

    If the file ends with a checksum, the whole file is verified first, once per process. Raises as `read_header`.
    """
    with _open(path) as file:
        entries_by_name = dict(_read_entries(path, file))
        facts = os.fstat(file.fileno())
        _require_checksum(path.resolve(), (facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns, facts.st_ino))
        for name, stored in entries_by_name.items():
            if isinstance(stored, StoredTensor) and (names is None or name in names):
                yield name, _tensor(path, file, name, stored)


def write(path: Path, tensors: Mapping[str, Tensor] | Iterable[tuple[str, Tensor]]) -> None:
    """Writes a file atomically: after a power failure, the old or the new file exists, never a part. Tensors are
    written one at a time, so that pairs may be generated lazily.

    Raises WeightsError E1420 for a duplicate name or a dtype that the format does not have, StorageError E17xx for
    errors of the disk.
    """
    names = set()
    durable.sweep(path.parent, path.name)
    with durable.replacing(path) as aside, aside.open("wb") as file:
        for name, tensor in tensors.items() if isinstance(tensors, Mapping) else tensors:
            if name in names or not name:
                raise WeightsError(f"{path}: {name!r} is a duplicate or empty name", code="E1420")
            names.add(name)
            file.writelines(_encode_entries(path, name, tensor))


def _open(path: Path) -> BinaryIO:
    try:
        return outside.open_plain(path)
    except OSError as error:
        raise WeightsError(f"{path}: cannot be read ({error.strerror}); check the path", code="E1401") from error


def _read_entries(path: Path, file: BinaryIO) -> Iterator[tuple[str, StoredTensor | Value]]:
    """Yields tensors with their slices joined, and entries of texts, by name."""
    handle, size = file.fileno(), os.fstat(file.fileno()).st_size
    seen: set[str] = set()
    slices: list[Value] = []
    lacking = 0  # missing bytes of the tensor whose slices are being collected
    try:
        for count, value in enumerate(wire.values(handle, size)):
            if slices and (value.name != slices[0].name or lacking <= 0):
                yield slices[0].name, _join_slices(slices)
                slices = []
            if not slices:
                if value.name in seen:
                    raise Damaged(f"{value.name!r} is in the file twice", value.at)
                lacking = 0 if value.kind == _TEXT else _expected_bytes(value)
                seen.add(value.name)
            if count == ENTRY_LIMIT:
                raise Damaged("it has too many entries", value.at)
            lacking -= value.size
            slices.append(value)
        if slices:
            yield slices[0].name, _join_slices(slices)
    except Damaged as error:
        _refuse(path, error.reason, error.offset)


def _expected_bytes(value: Value) -> int:
    """Bytes of a tensor from its dimensions and type; without dimensions, or with a single 0, it may be one number."""
    if value.kind not in _TYPES:
        supported = ", ".join(_TYPES)
        raise Damaged(f"{value.name!r} is of type {value.kind!r}; known types: {supported}", value.at)
    number = _TYPES[value.kind][1].itemsize
    return number if value.dims == (0,) and value.size else math.prod(value.dims) * number


def _join_slices(slices: list[Value]) -> StoredTensor | Value:
    first = slices[0]
    if first.kind == _TEXT:
        return first
    expected, held = _expected_bytes(first), sum(v.size for v in slices)
    other = next((v for v in slices if (v.dims, v.kind) != (first.dims, first.kind)), None)
    if other is not None:
        raise Damaged(f"{first.name!r} continues in another shape or type", other.at)
    if held != expected:
        raise Damaged(f"{first.name!r} has {held:,} bytes, its shape {list(first.dims)} needs {expected:,}", first.at)
    shape = () if first.dims == (0,) and held else first.dims
    dtype, torch_dtype = _TYPES[first.kind]
    return StoredTensor(dtype, shape, tuple((v.start, v.size) for v in slices), torch_dtype)


def _read_text(path: Path, file: BinaryIO, value: Value) -> str:
    file.seek(value.start)
    try:
        if value.size > _TEXT_LIMIT:
            raise ValueError
        return file.read(value.size).decode("utf-32-le")
    except ValueError:
        _refuse(path, f"{value.name!r} is marked as text but is not text", value.at)


def _tensor(path: Path, file: BinaryIO, name: str, stored: StoredTensor) -> Tensor:
    try:
        raw = bytes_at(file, stored.spans)
    except EOFError:
        _refuse(path, f"{name!r} ends while it is read; {CUT_SHORT}", stored.spans[0][0])
    assert stored.torch_dtype is not None
    flat = raw.ne(0) if stored.torch_dtype == torch.bool else raw.view(stored.torch_dtype)
    return flat.reshape(stored.shape)


@lru_cache(maxsize=64)
def _require_checksum(path: Path, identity: tuple[int, int, int, int]) -> None:
    """Verifies a checksum. `identity` is part of the cache's key: a changed file is verified again."""
    with _open(path) as file:
        handle, size = file.fileno(), identity[0]
        begin = wire.find_trailer(handle, size)
        if begin is None or max((value.end for value in wire.values(handle, size)), default=0) > begin:
            return
        computed = 0
        for block in blocks(file, [(0, begin)]):
            computed = zlib.crc32(block, computed)
        written = int.from_bytes(file.read()[len(wire.TRAILER) :], "big")
    if computed != written:
        reason = f"its checksum is {written:#010x}, its content gives {computed:#010x}; the copy is damaged"
        _refuse(path, reason, begin)


def _encode_entries(path: Path, name: str, tensor: Tensor) -> Iterator[bytes | memoryview]:
    if tensor.dtype not in _KINDS:
        raise WeightsError(f"{path}: {name} is {tensor.dtype}, which MindSpore's format does not have", code="E1420")
    flat = tensor.detach().to("cpu").contiguous().reshape(-1)
    count = max(1, math.ceil(flat.nbytes / SLICE))
    for part in flat.tensor_split(count):
        yield wire.head_of(name, tuple(tensor.shape), _KINDS[tensor.dtype], part.nbytes)
        yield part.view(torch.uint8).numpy().data


def _refuse(path: Path, reason: str, offset: int) -> NoReturn:
    raise WeightsError(f"{path}: the MindSpore checkpoint cannot be read: at byte {offset:,}, {reason}", code="E1420")
