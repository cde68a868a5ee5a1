"""A content-addressed store of fixed-size rows on disk: arrays by 32-byte address, independent of any encoder.

One store has rows of one shape and dtype. Rows are in shards (`shard_files`) and are read by memory map directly into
the batch. Several processes may read and append at once, each to its own shard. A row is compared with its checksum
when a process first reads it; a damaged one counts as missing from then on, in all processes, and is encoded again.
Deleting or moving the folder is always safe.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mezzotint import durable, outside
from mezzotint.data.cache import _order, shard_files
from mezzotint.data.cache._entry_table import BAD, GOOD, UNKNOWN, EntryTable
from mezzotint.data.cache.shard_files import RemoteShard, Shard, ShardWriter, checksum_factors, checksums, shard_at
from mezzotint.errors import CacheError, StorageError

Dtype = Literal["fp32", "fp16", "bf16"]
DTYPES = MappingProxyType({"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16})
Addresses = Sequence[bytes] | NDArray[np.uint8]

SHARD_BYTES = 4 << 30
"""A shard of this size is full; the next row starts a new one."""

_CHECKED_BYTES = 16 << 20
"""Size of the blocks in which rows are checked."""

MIN_UNORDERED = 32_768
"""Minimum number of entries outside the order on disk for which the order is rewritten (`_order.py`)."""

_MTIME_SAFE_NS = 10_000_000
"""If a folder has not changed for this time, its next change is visible in its modification time."""

_INFINITE = {torch.float32: 0x7F800000, torch.float16: 0x7C00, torch.bfloat16: 0x7F80}
"""The bits of infinity: non-finite numbers have, without their sign, at least this value."""

_DAMAGED = np.dtype([("shard", "S16"), ("row", "<u8")])


class Store:
    """Rows of one shape and type by address. Entry numbers count from 0 and stay valid while the object lives.

    folder: of all stores; this one is in `rows-SHAPE-dtype` below it, which is created when the first row is appended.
    shape: of one row. dtype: of its numbers on disk.
    """

    def __init__(self, folder: Path, *, shape: tuple[int, ...], dtype: Dtype, shard_bytes: int = SHARD_BYTES) -> None:
        self.folder = folder / f"rows-{'x'.join(map(str, shape))}-{dtype}"
        self._arguments = (folder, shape, dtype, shard_bytes)
        self.shape = shape
        self.dtype = DTYPES[dtype]
        self.row_bytes = int(np.prod(shape)) * self.dtype.itemsize
        self._shard_bytes = shard_bytes
        self._factors = checksum_factors(self.row_bytes)
        self._shards: list[Shard] = []
        self._listed = -1
        self._lock = threading.RLock()  # batches are prepared in a separate thread
        self._writer: ShardWriter | None = None
        self._damage_seen = 0
        order = _order.read(self.folder, self.row_bytes)
        self._table = EntryTable(order)
        for covered in order.shards:
            self._shards.append(Shard(self.folder, covered.name, self.row_bytes))
            self._shards[-1].known_to(covered.index_bytes)
        self.refresh()
        self._table.sort()
        self.put_in_order()

    def __len__(self) -> int:
        """Number of entries of this object, including damaged and duplicate ones."""
        return len(self._table)

    def __reduce__(self) -> tuple[Any, ...]:
        # a worker process opens its own maps and never inherits the writer
        return (_reopen, self._arguments)

    def find(self, addresses: Addresses) -> NDArray[np.int64]:
        """The entry of each address (n, 32), −1 if there is none or it is known to be damaged."""
        return self._table.find(as_addresses(addresses))

    def read(self, entries: NDArray[np.int64], out: Tensor | None = None) -> Tensor:
        """Copies rows (n, *shape) of entries, in the store's dtype, from the memory map into `out` or a new tensor.
        Raises CacheError E1303 if one of them is damaged; it counts as missing from then on."""
        if not self.verify(entries).all():
            raise CacheError(
                f"{self.folder}: a cached entry is damaged (its checksum does not match); run `mezzotint cache` or "
                "the training again, which encode it again",
                code="E1303",
            )
        return self._copy(entries, out)

    def _copy(self, entries: NDArray[np.int64], out: Tensor | None = None) -> Tensor:
        result = torch.empty((len(entries), *self.shape), dtype=self.dtype) if out is None else out
        assert result.is_contiguous()
        assert (result.dtype, result.shape) == (self.dtype, (len(entries), *self.shape))
        target = result.view(-1).view(torch.uint8).numpy().reshape(len(entries), self.row_bytes)
        numbers, rows = self._locate(entries)
        if len(entries) and (numbers == numbers[0]).all():
            self._shards[numbers[0]].rows(rows, target)
            return result
        for number in np.unique(numbers):
            indexes = np.flatnonzero(numbers == number)
            target[indexes] = self._shards[number].rows(rows[indexes])
        return result

    def fetch(self, addresses: Addresses) -> Tensor | NDArray[np.int64]:
        """Copies the rows (n, *shape) of addresses, in the store's dtype, from the memory map; or returns the indexes
        of those without a valid entry. A row is checked when this process first reads it."""
        keys = as_addresses(addresses)
        with self._lock:
            entries = self.find(keys)
            if (entries >= 0).all():
                try:
                    rows = self._copy(entries)
                    if self._are_good(entries, rows):
                        return rows
                except (OSError, IndexError):
                    pass  # a file is missing or too short: rows are checked one by one below
            entries = self.find_valid(keys)
            missing = np.flatnonzero(entries < 0)
            return missing if len(missing) else self._copy(entries)

    def _are_good(self, entries: NDArray[np.int64], rows: Tensor) -> bool:
        """Whether rows that were just copied match their checksums."""
        if (self._table.state[entries] == GOOD).all():
            return True
        copies = rows.view(-1).view(torch.uint8).numpy().reshape(len(entries), self.row_bytes)
        records = self._table.records(entries)
        if (checksums(records["address"], copies, self._factors) != records["checksum"]).any():
            return False
        self._table.state[entries] = GOOD
        return True

    def verify(self, entries: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether each entry matches its checksum. Computed once per entry and process.

        Damaged ones are recorded in the folder, so every process treats them as missing.
        """
        unknown = entries[self._table.state[entries] == UNKNOWN]
        if len(unknown) > 1:
            is_unknown = np.zeros(len(self), dtype=np.bool_)
            is_unknown[unknown] = True
            unknown = np.flatnonzero(is_unknown)
        at_once = max(_CHECKED_BYTES // self.row_bytes, 1)
        for numbers in (unknown[i : i + at_once] for i in range(0, len(unknown), at_once)):
            self._table.state[numbers] = np.where(self._are_intact(numbers), GOOD, BAD)
            damaged = numbers[self._table.state[numbers] == BAD]
            if len(damaged):
                self._record_damage(damaged)
                self._table.sort()  # lookups then also find a duplicate of it that was added later
        return np.asarray(self._table.state[entries] == GOOD, dtype=np.bool_)

    def find_valid(self, addresses: Addresses) -> NDArray[np.int64]:
        """`find` and `verify` in one: the valid entry of each address, −1 without one. Finds a valid duplicate of a
        damaged entry."""
        keys = as_addresses(addresses)
        entries = self.find(keys)
        open_ = np.flatnonzero(entries >= 0)
        while len(open_ := open_[~self.verify(entries[open_])]):
            entries[open_] = self.find(keys[open_])
            open_ = open_[entries[open_] >= 0]
        return entries

    def has(self, addresses: Addresses, *, checks: bool) -> NDArray[np.bool_]:
        """Which addresses have an entry. checks: whether entries are also verified."""
        return np.asarray((self.find_valid(addresses) if checks else self.find(addresses)) >= 0, dtype=np.bool_)

    def is_damaged(self, addresses: Addresses) -> NDArray[np.bool_]:
        """Which addresses have an entry that is known to be damaged, and no valid one."""
        keys = as_addresses(addresses)
        bad = self._table.records(np.flatnonzero(self._table.state[: len(self)] == BAD))
        damaged = {address.tobytes() for address in bad["address"]}
        is_bad = np.array([address.tobytes() in damaged for address in keys], dtype=np.bool_)
        return is_bad & (self.find(keys) < 0)

    def append(self, addresses: Addresses, rows: Tensor, *, names: Sequence[str] = (), at_once: bool = True) -> int:
        """Adds rows (n, *shape) of any floating dtype; existing addresses are skipped. Returns the number of rows
        written. They are durable and visible to other processes on return, or, without `at_once`, a few megabytes later
        and after `close_writer`.

        names: of the samples, for messages. Raises CacheError E1304 if a row has non-finite numbers, E1301 if the
        folder cannot be written, StorageError E1708 if the disk is full.
        """
        keys = as_addresses(addresses)
        assert rows.shape == (len(keys), *self.shape), (rows.shape, self.shape)
        values = rows.detach().to("cpu", self.dtype).contiguous().flatten(1)
        self._require_finite(values, names)
        first = {key.tobytes(): i for i, key in reversed(list(enumerate(keys)))}
        absent = np.array(sorted(first.values()), dtype=np.int64)
        absent = absent[self.find(keys[absent]) < 0]
        if len(absent):
            data = values.view(torch.uint8).numpy()
            self._write(keys[absent], data if len(absent) == len(data) else data[absent], at_once)
        return len(absent)

    def refresh(self) -> None:
        """Reads entries that other processes have added or marked as damaged."""
        with self._lock:
            self._list_shards()
            before = len(self)
            for number, shard in enumerate(self._shards):
                if len(records := shard.new_records(self._shard_bytes)):
                    self._table.add(number, records["address"], records["row"], records["checksum"])
            self._read_damage(has_new=before != len(self))

    def _list_shards(self) -> None:
        try:
            changed = self.folder.stat().st_mtime_ns
        except OSError:
            return
        if changed != self._listed:
            listed = {shard.name for shard in self._shards}
            names = [name for name in shard_files.names_in(self.folder) if name not in listed]
            shards = [shard_at(self.folder, name, self.row_bytes) for name in names]
            self._shards += shards
            self._table.reserve(sum(shard.count_unread() for shard in shards))
            self._listed = changed if time.time_ns() - changed > _MTIME_SAFE_NS else -1

    def close_writer(self) -> None:
        """Syncs appended rows and releases the lock on this process's shard. A later `append` locks a shard again.
        Raises as `append` does."""
        writer, self._writer = self._writer, None
        if writer is not None:
            try:
                writer.close()
            except OSError as error:
                raise write_error(self.folder, error, shard_files.SYNC_BYTES) from error

    @property
    def bytes_on_disk(self) -> int:
        """Bytes of all files of this store."""
        return sum(p.stat().st_size for p in self.folder.glob("*")) if self.folder.is_dir() else 0

    def put_in_order(self) -> None:
        """Writes the order of all entries (`_order.py`) for later openings, if many of them are not in it. Not for
        object storage, and not while a writer is open."""
        is_elsewhere = self._writer is not None or any(isinstance(shard, RemoteShard) for shard in self._shards)
        first = len(self._table.ordered)
        if not is_elsewhere and len(self) - first >= max(MIN_UNORDERED, first // 8):
            _order.write(self.folder, [shard.coverage() for shard in self._shards], self._table.sorted_entries())

    def _locate(self, entries: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The shards and rows of entries."""
        records = self._table.records(entries)
        return records["shard"].astype(np.int64), records["row"].astype(np.int64)

    def _write(self, addresses: NDArray[np.uint8], rows: NDArray[np.uint8], at_once: bool) -> None:
        sums = checksums(addresses, rows, self._factors)
        try:
            number = self._shard_to_write()
            assert self._writer is not None
            first_row = self._writer.append(addresses, rows, sums, at_once=at_once)
        except OSError as error:
            raise write_error(self.folder, error, rows.nbytes) from error
        self._shards[number].mark_written(len(rows))
        self._table.add(number, addresses, np.arange(first_row, first_row + len(rows)), sums)

    def _shard_to_write(self) -> int:
        if self._writer is not None and self._writer.next_row * self.row_bytes >= self._shard_bytes:
            self.close_writer()
        if self._writer is None:
            durable.make_folders(self.folder)
            self._writer = shard_files.open_writer(self.folder, self.row_bytes, self._shard_bytes)
            self.refresh()
        return next(i for i, shard in enumerate(self._shards) if shard.name == self._writer.name)

    def _are_intact(self, entries: NDArray[np.int64]) -> NDArray[np.bool_]:
        is_intact = np.zeros(len(entries), dtype=np.bool_)
        records = self._table.records(entries)
        shards, rows = self._locate(entries)
        for number in np.unique(shards).tolist():
            indexes = np.flatnonzero(shards == number)
            if isinstance(self._shards[number], RemoteShard):
                is_intact[indexes] = True  # each is checked when it is fetched
                continue
            try:
                mapped = self._shards[number].map_rows(int(rows[indexes].max()))
            except OSError:
                continue  # the file is missing
            indexes = indexes[rows[indexes] < len(mapped)]
            sums = checksums(records["address"][indexes], mapped[rows[indexes]], self._factors)
            is_intact[indexes] = sums == records["checksum"][indexes]
        return is_intact

    def _record_damage(self, entries: NDArray[np.int64]) -> None:
        locations = zip(*(column.tolist() for column in self._locate(entries)), strict=True)
        records = np.array([(self._shards[shard].name.encode(), row) for shard, row in locations], dtype=_DAMAGED)
        try:
            fd = os.open(self.folder / "damaged", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        except OSError:
            return  # a folder that cannot be written: the next process will detect the damage again
        try:
            os.write(fd, records.tobytes())
        finally:
            os.close(fd)

    def _read_damage(self, has_new: bool) -> None:
        try:
            data = outside.read_bytes(self.folder / "damaged", limit=outside.LISTED)
        except OSError:
            return
        if len(data) == self._damage_seen and not has_new:
            return
        self._damage_seen = len(data)
        noted = np.frombuffer(data[: len(data) - len(data) % _DAMAGED.itemsize], dtype=_DAMAGED)
        numbers = {shard.name.encode(): i for i, shard in enumerate(self._shards)}
        for name in np.unique(noted["shard"]):
            number, rows = numbers.get(bytes(name), 1 << 31), noted["row"][noted["shard"] == name].astype(np.int64)
            self._table.mark_damaged(number, rows)

    def _require_finite(self, values: Tensor, names: Sequence[str]) -> None:
        bits = values.view(torch.int32 if values.itemsize == 4 else torch.int16).numpy()
        most = np.bitwise_and(bits, np.iinfo(bits.dtype).max).max(axis=1, initial=0)
        bad = np.flatnonzero(most >= _INFINITE[values.dtype]).tolist()
        if bad:
            samples = ", ".join(names[i] for i in bad[:10]) if names else f"{len(bad)} of {len(values)} rows"
            raise CacheError(
                f"{samples}: the encoder produced non-finite numbers in {str(self.dtype).removeprefix('torch.')}, "
                "which are not cached; try data.cache.dtype=fp32 and run.frozen_dtype=fp32, or remove the sample",
                code="E1304",
            )


def write_error(folder: Path, error: OSError, needed: int) -> CacheError | StorageError:
    """The error to raise for a failed write into a cache folder. needed: bytes that were to be written."""
    if error.errno in durable.FULL:
        existing = next(p for p in (folder, *folder.absolute().parents) if p.is_dir())
        free = shutil.disk_usage(existing).free
        return StorageError(
            f"{folder}: the disk is full: the cache needs {needed} bytes more, {free} are free; free space or set "
            "data.cache.path to another disk; finished entries are kept",
            code="E1708",
        )
    return CacheError(
        f"{folder}: the cache folder cannot be written ({error.strerror or error}); make it writable or set "
        "data.cache.path to another folder",
        code="E1301",
    )


def as_addresses(addresses: Addresses) -> NDArray[np.uint8]:
    """Addresses of 32 bytes each as an array (n, 32)."""
    if isinstance(addresses, np.ndarray):
        assert addresses.dtype == np.uint8
        assert addresses.shape[1:] == (32,)
        return addresses
    assert all(len(address) == 32 for address in addresses)
    return np.frombuffer(b"".join(addresses), dtype=np.uint8).reshape(-1, 32)


def _reopen(folder: Path, shape: tuple[int, ...], dtype: Dtype, shard_bytes: int) -> Store:
    return Store(folder, shape=shape, dtype=dtype, shard_bytes=shard_bytes)
