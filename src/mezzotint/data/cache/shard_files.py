"""One shard of a cache store: a file of fixed-size rows, and an index with the address of each row.

A shard has one writer at a time, which holds a lock on its index; any number of readers is allowed. Rows are synced
before the index names them, every few megabytes. If the writer is killed at any moment, each complete index record
belongs to a complete row, and only what was written since the last sync is lost.
A truncated record at the end is recognised by its length or its check number and ignored; the next writer overwrites
everything after the last indexed row.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mezzotint import draws, durable, fault_injection, outside
from mezzotint.data.files import remote
from mezzotint.errors import CacheError

RECORD = np.dtype([("address", "u1", (32,)), ("row", "<u4"), ("check", "<u4"), ("checksum", "<u8")])
"""One index record, 48 bytes: address, number of the row, check number of this record, checksum of the row."""

ORIGIN = ".origin"
"""Extension of a file that refers to rows on object storage: address, size, local folder and its maximum size."""

SYNC_BYTES = 8 << 20
"""Maximum size of rows that wait for the next sync; while rows are appended, they wait at most `SYNC_SECONDS`."""
SYNC_SECONDS = 2.0

_NUM_THREADS = 16
"""Number of rows of a batch that are fetched from object storage in parallel."""

_Pending = tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.uint64]]

FACTORS = np.array(
    [0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB, 0xD6E8FEB86659FD93, 0xA0761D6478BD642F,
     0xE7037ED1A0B428DB], dtype=np.uint64,
)  # fmt: skip


def records_of(addresses: NDArray[np.uint8], numbers: NDArray[np.int64], checksums: NDArray[np.uint64]) -> NDArray[Any]:
    """Index records of rows. addresses: (n, 32). numbers: (n,) row numbers in the shard. checksums: (n,)."""
    records = np.zeros(len(addresses), dtype=RECORD)
    records["address"] = addresses
    records["row"] = numbers
    records["checksum"] = checksums
    records["check"] = _check(records)
    return records


def find_intact(records: NDArray[Any]) -> NDArray[np.bool_]:
    """Which index records are intact, that is not truncated, zeroed or changed."""
    return np.asarray(records["check"] == _check(records), dtype=np.bool_)


def _check(records: NDArray[Any]) -> NDArray[np.uint32]:
    words = records.view("<u8").reshape(len(records), 6)
    check = records["check"].astype(np.uint64) << np.uint64(32)  # counts as 0
    mixed = (np.einsum("ij,j->i", words, FACTORS) - check * FACTORS[4]) ^ FACTORS[0]
    return np.asarray(mixed >> np.uint64(32), dtype=np.uint32)


@dataclass(frozen=True, slots=True)
class Covered:
    """How much of a shard has been read. index_bytes: of its index. rows: minimum number of rows of its file."""

    name: str
    index_bytes: int
    rows: int


class Shard:
    """Reader of a shard: maps its rows, and reads index records added since the last call."""

    def __init__(self, folder: Path, name: str, row_bytes: int) -> None:
        self.name = name
        self.rows_path = folder / f"{name}.rows"
        self.index_path = folder / f"{name}.index"
        self._row_bytes = row_bytes
        self._seen = 0
        self._is_full = False
        self._mapped: NDArray[np.uint8] | None = None

    def new_records(self, max_bytes: int) -> NDArray[Any]:
        """Intact index records written since the last call, with complete rows. max_bytes: size at which a shard is
        full. The index is opened only if it has grown."""
        if self._is_full:
            return np.zeros(0, dtype=RECORD)
        try:
            size = self.index_path.stat().st_size
            if size - size % RECORD.itemsize <= self._seen:
                return np.zeros(0, dtype=RECORD)
            with outside.open_plain(self.index_path) as file:
                file.seek(self._seen)
                data = file.read()
        except (FileNotFoundError, outside.NotRegularFile):
            return np.zeros(0, dtype=RECORD)
        data = data[: len(data) - len(data) % RECORD.itemsize]
        self._seen += len(data)
        num_rows = self._rows_on_disk()
        records = np.frombuffer(data, dtype=RECORD)
        records = records[find_intact(records) & (records["row"] < num_rows)]
        is_indexed = bool(len(records)) and int(records["row"].max()) + 1 == num_rows
        self._is_full = is_indexed and num_rows * self._row_bytes >= max_bytes
        return records

    def count_unread(self) -> int:
        """Approximate number of index records that `new_records` would read."""
        try:
            return (self.index_path.stat().st_size - self._seen) // RECORD.itemsize
        except FileNotFoundError:
            return 0

    def known_to(self, index_bytes: int) -> None:
        """Marks the first `index_bytes` of the index as read."""
        self._seen = index_bytes

    def coverage(self) -> Covered:
        """How much of the shard was read."""
        return Covered(self.name, self._seen, self._rows_on_disk())

    def mark_written(self, num_records: int) -> None:
        """Marks `num_records`, written by this process, as read."""
        self._seen += num_records * RECORD.itemsize

    def map_rows(self, last: int) -> NDArray[np.uint8]:
        """The rows as (n, row_bytes) bytes, mapped read-only; n reaches row `last` if the file does."""
        if self._mapped is None or last >= len(self._mapped):
            n = self._rows_on_disk()
            shape = (n, self._row_bytes)
            empty = np.zeros((0, self._row_bytes), dtype=np.uint8)
            self._mapped = np.asarray(np.memmap(self.rows_path, mode="r", shape=shape)) if n else empty
        return self._mapped

    def rows(self, numbers: NDArray[np.int64], out: NDArray[np.uint8] | None = None) -> NDArray[np.uint8]:
        """Copies rows, (n, row_bytes). Raises OSError, IndexError if the file is missing or too short."""
        rows: NDArray[np.uint8] = np.take(self.map_rows(int(numbers.max())), numbers, axis=0, out=out, mode="clip")
        return rows

    def _rows_on_disk(self) -> int:
        try:
            return self.rows_path.stat().st_size // self._row_bytes
        except FileNotFoundError:
            return 0


class RemoteShard(Shard):
    """A shard whose rows are on object storage (`carried.py`): its index is local; a row is fetched when it is read,
    stored locally under its address, and checked each time."""

    def __init__(self, folder: Path, name: str, row_bytes: int) -> None:
        super().__init__(folder, name, row_bytes)
        origin = outside.read_json(folder / f"{name}{ORIGIN}")
        self._origin = Path(origin["address"])
        self._bytes = int(origin["bytes"])
        self._fetched = remote.fetched_at(Path(origin["kept"]), int(origin["keep_gb"] * 1e9))
        self._factors = checksum_factors(row_bytes)
        self._named: dict[int, NDArray[Any]] = {}

    def new_records(self, max_bytes: int) -> NDArray[Any]:
        """See Shard."""
        records = super().new_records(max_bytes)
        self._named.update(zip(records["row"].tolist(), records, strict=True))
        return records

    def rows(self, numbers: NDArray[np.int64], out: NDArray[np.uint8] | None = None) -> NDArray[np.uint8]:
        """See Shard. Raises DatasetError E1841, CacheError E1845 for a row that is damaged on the storage."""
        rows = np.empty((len(numbers), self._row_bytes), np.uint8) if out is None else out
        with ThreadPoolExecutor(min(_NUM_THREADS, len(numbers))) as pool:
            for target, row in zip(rows, pool.map(self._row, numbers.tolist()), strict=True):
                target[:] = row
        return rows

    def _row(self, number: int) -> NDArray[np.uint8]:
        record, name = self._named[number], ""
        address = record["address"].reshape(1, 32)
        for _ in range(2):  # the local copy may be damaged, too
            name = f"{address.tobytes().hex()}-{self._row_bytes}"
            data = self._fetched.fetch_range(name, self._origin, number * self._row_bytes, self._row_bytes)
            row = np.frombuffer(data, np.uint8).reshape(1, -1)
            if row.shape[1] == self._row_bytes and checksums(address, row, self._factors)[0] == record["checksum"]:
                return row.reshape(-1)
            self._fetched.drop(name)
        raise CacheError(
            f"{remote.url_of(self._origin)}: row {number} is damaged on the storage; delete this file and its .index "
            f"on the storage and the local {self.index_path}, then run `mezzotint cache`, which encodes the rows again",
            code="E1845",
        )

    def _rows_on_disk(self) -> int:
        return self._bytes // self._row_bytes


def shard_at(folder: Path, name: str, row_bytes: int) -> Shard:
    """The reader of a shard, local or on object storage."""
    if not (folder / f"{name}.rows").is_file() and (folder / f"{name}{ORIGIN}").is_file():
        with suppress(OSError, ValueError, KeyError, TypeError):  # an invalid file refers to no rows
            return RemoteShard(folder, name, row_bytes)
    return Shard(folder, name, row_bytes)


class ShardWriter:
    """The only writer of a shard. Created by `open_writer`."""

    def __init__(self, folder: Path, name: str, row_bytes: int, rows_fd: int, index_fd: int) -> None:
        self.name = name
        self._row_bytes = row_bytes
        self._rows_fd = rows_fd
        self._index_fd = index_fd
        size = os.fstat(index_fd).st_size
        size -= size % RECORD.itemsize
        os.ftruncate(index_fd, size)
        records = np.frombuffer(os.pread(index_fd, size, 0), dtype=RECORD)
        records = records[find_intact(records)]
        self._index_end = size
        self._waiting: list[_Pending] = []
        self._synced = time.monotonic()
        self.next_row = int(records["row"].max()) + 1 if len(records) else 0

    def append(
        self, addresses: NDArray[np.uint8], rows: NDArray[np.uint8], checksums: NDArray[np.uint64], *, at_once: bool
    ) -> int:
        """Writes rows (n, row_bytes) and returns the number of the first one. They are synced and indexed every few
        megabytes or seconds, or immediately if at_once. Raises OSError if the disk is full; rows that are not synced
        yet are then not indexed."""
        first = self.next_row
        _write(self._rows_fd, rows.reshape(-1), first * self._row_bytes)
        waiting = [*self._waiting, (addresses, np.arange(first, first + len(rows)), checksums)]
        is_due = (first + len(rows) - int(waiting[0][1][0])) * self._row_bytes >= SYNC_BYTES
        if at_once or is_due or time.monotonic() - self._synced >= SYNC_SECONDS:
            self._sync(waiting)
        else:
            self._waiting = waiting
        self.next_row += len(rows)
        return first

    def _sync(self, waiting: Sequence[_Pending]) -> None:
        os.fsync(self._rows_fd)
        fault_injection.reach("cache.append")
        addresses, numbers, checksums = (np.concatenate(column) for column in zip(*waiting, strict=True))
        records = records_of(addresses, numbers, checksums)
        try:
            _write(self._index_fd, records.view(np.uint8), self._index_end)
        except OSError:
            os.ftruncate(self._index_fd, self._index_end)
            raise
        os.fsync(self._index_fd)
        self._index_end += records.nbytes
        self._waiting, self._synced = [], time.monotonic()
        fault_injection.reach("cache.commit")

    def close(self) -> None:
        """Syncs pending rows and releases the lock; another writer may continue this shard. Raises OSError."""
        try:
            if self._waiting:
                self._sync(self._waiting)
        finally:
            os.close(self._rows_fd)
            os.close(self._index_fd)


def open_writer(folder: Path, row_bytes: int, max_bytes: int) -> ShardWriter:
    """Opens a shard of this folder that no running process writes and that is not full, otherwise a new one. Raises
    OSError if the folder cannot be written."""
    for index_path in sorted(folder.glob("*.index")):
        rows_path = index_path.with_suffix(".rows")
        is_unfinished = _is_unfinished(index_path)
        if is_unfinished or (rows_path.is_file() and rows_path.stat().st_size < max_bytes):
            writer = _try_lock(folder, index_path.stem, row_bytes, os.O_RDWR | (os.O_CREAT if is_unfinished else 0))
            if writer is not None:
                if is_unfinished:
                    durable.sync_folder(folder)
                return writer
    while True:
        writer = _try_lock(folder, secrets.token_hex(8), row_bytes, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        if writer is not None:
            durable.sync_folder(folder)
            return writer


def _is_unfinished(index_path: Path) -> bool:
    """Whether a shard has an empty index and no rows yet: its writer was killed between creating the two."""
    others = (index_path.with_suffix(".rows"), index_path.with_suffix(ORIGIN))
    return not any(map(os.path.lexists, others)) and index_path.stat().st_size < RECORD.itemsize


def _try_lock(folder: Path, name: str, row_bytes: int, flags: int) -> ShardWriter | None:
    index_fd = os.open(folder / f"{name}.index", flags, 0o666)
    rows_fd = -1
    try:
        fcntl.flock(index_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        rows_fd = os.open(folder / f"{name}.rows", flags, 0o666)
        return ShardWriter(folder, name, row_bytes, rows_fd, index_fd)
    except OSError as error:
        for fd in filter(lambda fd: fd >= 0, (index_fd, rows_fd)):
            os.close(fd)
        if isinstance(error, (BlockingIOError, FileNotFoundError, FileExistsError)):
            return None
        raise


def _write(fd: int, data: NDArray[np.uint8], offset: int) -> None:
    view = data.data
    while view:
        written = os.pwrite(fd, view, offset)
        view, offset = view[written:], offset + written


def names_in(folder: Path) -> Sequence[str]:
    return sorted(path.stem for path in folder.glob("*.index"))


def checksums(addresses: NDArray[np.uint8], rows: NDArray[np.uint8], factors: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The checksum of each row with its address: Σ wᵢ·fᵢ mod 2⁶⁴ over 64-bit words. addresses: (n, 32), rows: (n,
    bytes), factors: of `checksum_factors(bytes)`. Returns (n,).

    Any change within one word is detected with certainty, any other with a probability of about 1 − 2⁻⁶⁴. Several times
    faster than a cryptographic hash, but no protection against deliberate changes.
    """
    if rows.shape[1] % 8:
        rows = np.pad(rows, ((0, 0), (0, -rows.shape[1] % 8)))
    words = np.ascontiguousarray(rows).view("<u8")
    mixed = words >> np.uint64(32)
    mixed ^= words  # otherwise two changed top bits would cancel out
    of_row = np.einsum("ij,j->i", mixed, factors[4:])
    of_address = np.einsum("ij,j->i", np.ascontiguousarray(addresses).view("<u8"), factors[:4])
    return np.asarray(of_row + of_address, dtype=np.uint64)


def checksum_factors(row_bytes: int) -> NDArray[np.uint64]:
    """Odd factors for the four words of an address and those of a row; identical on every machine."""
    return draws.keys(0, "cache-checksum", np.arange(4 + -(-row_bytes // 8))) | np.uint64(1)
