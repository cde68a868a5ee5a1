"""The one module that opens model files. It reads and writes safetensors and the formats in `formats`, none of which
can contain code.

A file's header is validated before any tensor is loaded; errors include the reason that the first bytes suggest.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import mmap
import os
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from mezzotint import durable, outside
from mezzotint.errors import StorageError, WeightsError
from mezzotint.settings import counting
from mezzotint.weights.files import formats
from mezzotint.weights.files._headers import PICKLES as PICKLES
from mezzotint.weights.files._headers import SIZES as SIZES
from mezzotint.weights.files._headers import TYPES as TYPES
from mezzotint.weights.files._headers import header_at, refuse, tensors_of
from mezzotint.weights.files._headers import refuse_known as refuse_known
from mezzotint.weights.files.spans import StoredTensor, blocks, bytes_at, read_into

AT_ONCE = 256 << 20
"""Bytes that `iterate_stored` reads at a time from sources that cannot be read tensor by tensor; a larger tensor is
read separately."""
_KINDS = {dtype: kind for kind, dtype in TYPES.items()}


class TensorInfo(NamedTuple):
    """A tensor in a file's header. dtype: as written in the file ("F32", "BF16", …)."""

    dtype: str
    shape: tuple[int, ...]


class Digest(Protocol):
    """Takes bytes incrementally, as hashlib's objects do."""

    def update(self, data: Any, /) -> None: ...


class Stored(Protocol):
    """Tensors stored in files, under the names of one network. path: for messages."""

    @property
    def path(self) -> Path: ...

    def header(self) -> dict[str, TensorInfo]:
        """Names, types and shapes. Raises WeightsError E1401, E1402."""

    def read(self, names: Collection[str]) -> dict[str, Tensor]:
        """The named tensors, in their stored data types. Raises WeightsError E1402, E1403."""


@runtime_checkable
class IterableStored(Protocol):
    """Stored tensors that can be read one after the other, with memory for one of them."""

    def iterate(self, names: Collection[str], *, parts: bool = False) -> Iterator[tuple[str, Tensor]]:
        """The named tensors, in file order, in their stored data types. Copy a tensor before taking the next, which may
        reuse its memory. Values are not checked. parts: see `iterate`. Raises WeightsError E1402."""


@dataclass(frozen=True, slots=True)
class InFile:
    """The tensors of a safetensors file or a sharded set, under their stored names."""

    path: Path

    def header(self) -> dict[str, TensorInfo]:
        """See Stored."""
        return read_header(self.path)

    def read(self, names: Collection[str]) -> dict[str, Tensor]:
        """See Stored."""
        return read(self.path, names)

    def iterate(self, names: Collection[str], *, parts: bool = False) -> Iterator[tuple[str, Tensor]]:
        """See IterableStored."""
        return iterate(self.path, names, parts=parts)


def iterate_stored(stored: Stored, names: Collection[str], *, parts: bool = False) -> Iterator[tuple[str, Tensor]]:
    """Stored tensors one after the other, see IterableStored; from other sources, `AT_ONCE` bytes are read at a
    time."""
    if isinstance(stored, IterableStored):
        yield from stored.iterate(names, parts=parts)
        return
    header, portion, room = stored.header(), list[str](), AT_ONCE
    for name in [*names, None]:
        size = 0 if name is None else math.prod(header[name].shape) * SIZES[header[name].dtype]
        if portion and (name is None or size > room):
            yield from stored.read(portion).items()
            portion, room = [], AT_ONCE
        portion += [] if name is None else [name]
        room -= size


def shards(path: Path) -> tuple[Path, ...]:
    """The files of a weights path: the file itself, or those that an index (`….index.json`) names, sorted.

    Raises WeightsError E1404 for an index that is damaged, or that names anything but plain files in its folder.
    """
    if not path.name.endswith(".index.json"):
        return (path,)
    try:
        table = outside.read_json(path, limit=outside.LISTED)["weight_map"]
        names = sorted(set(table.values()))
    except OSError as error:
        raise WeightsError(f"{path}: cannot be read ({error.strerror})", code="E1401") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise WeightsError(
            f"{path}: not a weights index; it needs a `weight_map` of names to files", code="E1404"
        ) from error
    for name in names:
        if not isinstance(name, str) or name != Path(name).name or not name.endswith(".safetensors"):
            raise WeightsError(
                f"{path}: names {str(name)!r}; an index may only name .safetensors files in its folder", code="E1404"
            )
        if not os.path.isfile(path.parent / name):  # pathlib's raises for a name that is too long
            raise WeightsError(
                f"{path}: names {name[:100]}, which does not exist; download the missing shard", code="E1404"
            )
    return tuple(path.parent / name for name in names)


def read_header(path: Path) -> dict[str, TensorInfo]:
    """Names, types and shapes of the tensors in a file or a sharded set, from headers only.

    Raises WeightsError: E1401 when the file does not exist, E1402 when it is not a valid safetensors file; for another
    format, as that format does.
    """
    header: dict[str, TensorInfo] = {}
    for shard in shards(path):
        for name, stored in tensors_of(shard).items():
            if name in header:
                raise WeightsError(f"{shard}: has {name!r}, which another shard has too", code="E1404")
            header[name] = TensorInfo(stored.dtype, stored.shape)
    return header


def read_metadata(path: Path) -> dict[str, str]:
    """The text metadata of a file's header."""
    other = formats.format_at(path)
    if other is not None:
        return other.read_metadata(path)
    texts = header_at(path)[0].get("__metadata__", {})
    if not isinstance(texts, dict):
        refuse(path, "the metadata in its header is not a JSON object")
    return {str(k): str(v) for k, v in texts.items()}


def read(
    path: Path, names: Collection[str] | None = None, device: str = "cpu", *, unchecked: Collection[str] = ()
) -> dict[str, Tensor]:
    """Tensors of a file or a sharded set, in their stored data types; the named ones, all by default.

    unchecked: names whose values may be non-finite. The tensors own their memory: changing or removing the file
    afterwards does not affect them.
    Raises WeightsError: as `read_header`; E1403 when a value is not finite; E1405 when a name is missing.
    """
    tensors: dict[str, Tensor] = {}
    for shard in shards(path):
        present = tensors_of(shard)
        for name, tensor in _tensors(shard, [n for n in present if names is None or n in names]):
            if name not in unchecked:
                _refuse_non_finite(shard, name, tensor)
            tensors[name] = tensor.to(device)
    missing = sorted(set(names or ()) - tensors.keys())
    if missing:
        raise WeightsError(f"{path}: lacks {summary(missing)}", code="E1405")
    return tensors


def iterate(path: Path, names: Collection[str], *, parts: bool = False) -> Iterator[tuple[str, Tensor]]:
    """Tensors of a file or a sharded set, one after the other in file order, in their stored data types. Each reuses
    the memory of the one before, so a caller copies what it keeps, and checks values: they are not checked.

    parts: only some rows or numbers of each will be used. The tensors are then memory-mapped, and unused pages are not
    read. If another process truncates the file meanwhile, a signal ends this process; the length is checked just
    before each tensor. Raises as `read`, except E1403.
    """
    missing, plan, most = set(names), [], 0
    for shard in shards(path):
        present = tensors_of(shard)
        of_shard = sorted((name for name in present if name in missing), key=lambda name: present[name].spans)
        missing.difference_update(of_shard)
        if of_shard:
            plan.append((shard, present, of_shard))
            most = max(most, *(_size(present[name]) for name in of_shard))
    if missing:
        raise WeightsError(f"{path}: lacks {summary(sorted(missing))}", code="E1405")
    buffer = torch.empty(0 if parts else most, dtype=torch.uint8)  # for all files: the last tensor may still be in use
    for shard, present, of_shard in plan:
        other = formats.format_at(shard)
        if other is not None:
            yield from other.read(shard, of_shard)
        elif parts:
            yield from _map_tensors(shard, present, of_shard)
        else:
            yield from _read_into_buffer(buffer, shard, present, of_shard)


def _size(stored: StoredTensor) -> int:
    """Bytes of a tensor; 0 if torch does not have its type."""
    return 0 if stored.torch_dtype is None else sum(count for _, count in stored.spans)


def _read_into_buffer(
    buffer: Tensor, path: Path, present: Mapping[str, StoredTensor], names: Sequence[str]
) -> Iterator[tuple[str, Tensor]]:
    with path.open("rb", buffering=0) as file:
        for name in names:
            dtype = present[name].torch_dtype
            if dtype is None:
                yield from _tensors(path, [name])
                continue
            raw = buffer[: _size(present[name])]
            try:
                read_into(raw, file, present[name].spans)
            except (OSError, EOFError) as error:
                raise WeightsError(f"{path}: cannot be read ({error})", code="E1402") from error
            yield name, raw.view(dtype).reshape(present[name].shape)


def _map_tensors(path: Path, present: Mapping[str, StoredTensor], names: Sequence[str]) -> Iterator[tuple[str, Tensor]]:
    with path.open("rb") as file:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # torch warns that the map is read-only; nothing writes to it
                whole = torch.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), dtype=torch.uint8)
        except (OSError, ValueError) as error:
            raise WeightsError(f"{path}: cannot be read ({error})", code="E1402") from error
        for name in names:
            ((start, count),), dtype = present[name].spans, present[name].torch_dtype
            if dtype is None:
                yield from _tensors(path, [name])
                continue
            if os.fstat(file.fileno()).st_size < start + count:
                raise WeightsError(f"{path}: cannot be read (it is shorter than its header declares)", code="E1402")
            raw = whole[start : start + count]
            raw = raw if start % dtype.itemsize == 0 else raw.clone()
            yield name, raw.view(dtype).reshape(present[name].shape)


def read_hashed(path: Path) -> tuple[dict[str, Tensor], str]:
    """All tensors of a safetensors file, their values unchecked, and the file's SHA-256, in one pass. The header is
    validated first: raises WeightsError as `read_header`."""
    tensors: dict[str, Tensor] = {}
    hasher = hashlib.sha256()
    present = sorted(tensors_of(path).items(), key=lambda item: item[1].spans)
    with path.open("rb", buffering=0) as file:
        start = min((stored.spans[0][0] for _, stored in present), default=path.stat().st_size)
        hasher.update(bytes_at(file, [(0, start)]).numpy().data)
        for name, stored in present:
            raw = bytes_at(file, stored.spans)
            hasher.update(raw.numpy().data)
            if stored.torch_dtype is None:
                refuse(path, f"{name[:100]!r} has the type {str(stored.dtype)[:20]!r}, which torch does not have")
            tensors[name] = raw.view(stored.torch_dtype).reshape(stored.shape)
    return tensors, hasher.hexdigest()


def digest(path: Path, names: Collection[str]) -> str:
    """SHA-256 of some tensors of a file: of their names, types, shapes and bytes, independent of their positions.

    Raises WeightsError as `read_header`. 64 hexadecimal digits.
    """
    hasher, tensors = hashlib.sha256(), tensors_of(path)
    with path.open("rb") as file:
        for name in sorted(set(names) & tensors.keys()):
            hasher.update(json.dumps([name, tensors[name].dtype, list(tensors[name].shape)]).encode())
            for block in blocks(file, tensors[name].spans):
                hasher.update(block)
    return hasher.hexdigest()


def write(
    tensors: Mapping[str, Tensor],
    path: Path,
    metadata: Mapping[str, str] | None = None,
    *,
    unchecked: Collection[str] = (),
    seal: Callable[[Path], None] | None = None,
    dtype: torch.dtype | None = None,
) -> None:
    """Writes a safetensors file atomically: after a power cut there is the old file or the new one, never a part.

    Tensors that share memory are written separately, and at most one of them is copied at a time. metadata: texts for
    the header; the default, `{"format": "pt"}`, is what other readers expect. unchecked: names whose values may be
    non-finite. seal: called with the finished file before it is renamed to `path`. dtype: of floating-point tensors;
    None keeps each one's. Raises WeightsError E1403 for values that are not finite, StorageError E1701 when the disk
    refuses.
    """
    types = {n: dtype if dtype is not None and t.is_floating_point() else t.dtype for n, t in tensors.items()}
    header = header_of(tensors, types)
    ordered = ((name, tensors[name].detach().to("cpu").to(types[name])) for name in header)
    write_iteratively(path, header, ordered, metadata, unchecked=unchecked, seal=seal)


def header_of(tensors: Mapping[str, Tensor], types: Mapping[str, torch.dtype]) -> dict[str, TensorInfo]:
    """The header of a file with these tensors, each with its data type in `types`, in the order of writing."""
    return in_order({name: TensorInfo(kind_of(types[name]), tuple(tensor.shape)) for name, tensor in tensors.items()})


def in_order(header: Mapping[str, TensorInfo]) -> dict[str, TensorInfo]:
    """A header in the order of safetensors: the widest types first, then by name."""
    return dict(sorted(header.items(), key=lambda item: (tuple(TYPES).index(item[1].dtype), item[0])))


def kind_of(dtype: torch.dtype) -> str:
    """The name of a data type in a header."""
    return _KINDS[dtype]


def write_iteratively(
    path: Path,
    header: Mapping[str, TensorInfo],
    tensors: Iterable[tuple[str, Tensor]],
    metadata: Mapping[str, str] | None = None,
    *,
    unchecked: Collection[str] = (),
    seal: Callable[[Path], None] | None = None,
) -> None:
    """As `write`, for tensors that are generated one after the other, so only one is in memory at a time.

    header: names, types and shapes of all of them, in their order; the widest types first, as readers expect. Raises as
    `write`.
    """

    def pieces() -> Iterator[Tensor]:
        for (name, info), (tensor_name, tensor) in zip(header.items(), tensors, strict=True):
            assert (tensor_name, kind_of(tensor.dtype), tuple(tensor.shape)) == (name, *info), (tensor_name, name)
            if name not in unchecked:
                _refuse_non_finite(path, name, tensor)
            yield tensor.detach().to("cpu").contiguous().reshape(-1).view(torch.uint8)

    write_pieces(path, header, pieces(), metadata, seal=seal)


def write_pieces(
    path: Path,
    header: Mapping[str, TensorInfo],
    pieces: Iterable[Tensor],
    metadata: Mapping[str, str] | None = None,
    *,
    seal: Callable[[Path], None] | None = None,
    digest: Digest | None = None,
) -> int:
    """As `write_iteratively`, from the bytes of each tensor, uint8 on the CPU; values are not checked. digest: is
    updated with the file's bytes as they are written. Returns the file's size."""
    entries: dict[str, Any] = {"__metadata__": dict(metadata or {"format": "pt"})}
    end = 0
    for name, info in header.items():
        begin, end = end, end + math.prod(info.shape) * SIZES[info.dtype]
        entries[name] = {"dtype": info.dtype, "shape": list(info.shape), "data_offsets": [begin, end]}
    text = json.dumps(entries, separators=(",", ":")).encode()
    text = text.ljust(-(-len(text) // 8) * 8)
    with replacing(path) as aside:
        with aside.open("wb") as file:
            content: Iterator[Any] = (piece.numpy().data for piece in pieces)
            for block in itertools.chain([len(text).to_bytes(8, "little") + text], content):
                if digest is not None:
                    digest.update(block)
                file.write(block)
            size = file.tell()
        assert size == 8 + len(text) + end, (size, end)
        if seal is not None:
            seal(aside)
    return size


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """As `durable.replace_atomically`, after removing temporary files that a killed process left for `path`. Raises
    StorageError E1701."""
    try:
        durable.sweep(path.parent, path.name)
        with durable.replace_atomically(path) as aside:
            yield aside
    except OSError as error:
        remedy = "make room on the disk" if error.errno in durable.FULL else "check the folder and its permissions"
        raise StorageError(
            f"{path}: cannot be written ({error}); {remedy}. The existing file is unchanged", code="E1701"
        ) from error


def require_finite(path: Path, tensors: Mapping[str, Tensor], *, unchecked: Collection[str] = ()) -> None:
    """Raises WeightsError E1403 for the first tensor with values that are not finite."""
    for name, tensor in tensors.items():
        if name not in unchecked:
            _refuse_non_finite(path, name, tensor)


def summary(names: Collection[str], limit: int = 5) -> str:
    """`7 tensors (a, b, c and 4 more)`: how many, and the first few."""
    return f"{counting.format_count(len(names), 'tensor')} ({counting.format_names(list(names), limit)})"


def _tensors(path: Path, names: Collection[str]) -> Iterator[tuple[str, Tensor]]:
    """Tensors that own their memory. They are read, not mapped: a map would keep the file's pages in memory, too."""
    other = formats.format_at(path)
    if other is not None:
        yield from other.read(path, names)
        return
    tensors = tensors_of(path)
    try:
        with safe_open(path, framework="pt", device="cpu") as reader, path.open("rb", buffering=0) as file:
            for name in names:
                stored = tensors[name]
                if stored.torch_dtype is None:
                    yield name, reader.get_tensor(name).clone()
                else:
                    yield name, bytes_at(file, stored.spans).view(stored.torch_dtype).reshape(stored.shape)
    except (SafetensorError, OSError, EOFError) as error:
        raise WeightsError(f"{path}: cannot be read ({error})", code="E1402") from error


def _refuse_non_finite(path: Path, name: str, tensor: Tensor) -> None:
    if not can_be_checked(tensor):
        return
    low, high = torch.aminmax(tensor.detach())  # propagates NaN without temporary memory
    if not (math.isfinite(low) and math.isfinite(high)):
        raise not_finite(path, name, int((~torch.isfinite(tensor)).sum()), tensor.numel())


def can_be_checked(tensor: Tensor) -> bool:
    """Whether a tensor is not empty and its data type can represent non-finite values that torch can check."""
    return tensor.is_floating_point() and tensor.dtype.itemsize > 1 and tensor.numel() > 0


def not_finite(path: Path, name: str, count: int, numbers: int) -> WeightsError:
    """E1403 for a tensor with `count` of `numbers` values that are not finite."""
    return WeightsError(
        f"{path}: {name} has {count} of {numbers} values that are not finite; the weights are damaged, "
        "use another copy or an earlier checkpoint",
        code="E1403",
    )
