"""One shard of a cache store: a file of fixed-size rows, and an index that says what each row is.

A shard has one writer at a time, which holds a lock on its index while it lives; everybody may read. Rows are synced
before the index names them, every few megabytes, so that whatever moment the writer is killed, each complete index
record speaks of a complete row, and what was written since the last sync is all that is lost.
A torn record at the end is recognised by its length or its check number and is ignored; the next owner writes over what
lies behind the last row that is named.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mezzotint import draws, durable, fault_injection, outside
from mezzotint.data.files import remote
from mezzotint.errors import CacheError

RECORD = np.dtype([("address", "u1", (32,)), ("row", "<u4"), ("check", "<u4"), ("checksum", "<u8")])
"""One index record, 48 bytes: what the row is, where it lies, whether this record is whole, the row's checksum."""

ORIGIN = ".origin"
"""The ending of a file that stands for rows on object storage: address, bytes, where and how many are kept here."""

SYNC_BYTES = 8 << 20
"""Rows of so many bytes wait for the next sync at most, and no longer than `SYNC_SECONDS` while rows come."""
SYNC_SECONDS = 2.0

_AT_ONCE = 16
"""So many rows of a batch come from object storage at the same time."""

_Named = tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.uint64]]

FACTORS = np.array(
    [0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB, 0xD6E8FEB86659FD93, 0xA0761D6478BD642F,
     0xE7037ED1A0B428DB], dtype=np.uint64,
)  # fmt: skip


def records_of(addresses: NDArray[np.uint8], numbers: NDArray[np.int64], checksums: NDArray[np.uint64]) -> NDArray[Any]:
    """Index records for rows. addresses: (n, 32). numbers: (n,) places in the shard. checksums: (n,)."""
    records = np.zeros(len(addresses), dtype=RECORD)
    records["address"] = addresses
    records["row"] = numbers
    records["checksum"] = checksums
    records["check"] = _check(records)
    return records


def whole(records: NDArray[Any]) -> NDArray[np.bool_]:
    """Which index records are as they were written; a torn, zeroed or changed one is not."""
    return np.asarray(records["check"] == _check(records), dtype=np.bool_)


def _check(records: NDArray[Any]) -> NDArray[np.uint32]:
    words = records.view("<u8").reshape(len(records), 6)
    own = records["check"].astype(np.uint64) << np.uint64(32)  # counts as 0
    mixed = (np.einsum("ij,j->i", words, FACTORS) - own * FACTORS[4]) ^ FACTORS[0]
    return np.asarray(mixed >> np.uint64(32), dtype=np.uint32)


@dataclass(frozen=True, slots=True)
class Covered:
    """How far a shard is known. index_bytes: of its index. rows: that its file has at least."""

    name: str
    index_bytes: int
    rows: int


class Shard:
    """The reader's side of a shard: maps its rows, reads index records that are new since the last look."""

    def __init__(self, folder: Path, name: str, row_bytes: int) -> None:
        self.name = name
        self.rows_path = folder / f"{name}.rows"
        self.index_path = folder / f"{name}.index"
        self._row_bytes = row_bytes
        self._seen = 0
        self._is_full = False
        self._mapped: NDArray[np.uint8] | None = None

    def new_records(self, max_bytes: int) -> NDArray[Any]:
        """Whole index records written since the last call, with rows that are there in full. max_bytes: a shard of this
        size gets no more. The index is opened only when it has grown."""
        if self._is_full:
            return np.zeros(0, dtype=RECORD)
        try:
            size = self.index_path.stat().st_size
            if size - size % RECORD.itemsize <= self._seen:
                return np.zeros(0, dtype=RECORD)
            with outside.open_plain(self.index_path) as file:
                file.seek(self._seen)
                data = file.read()
        except (FileNotFoundError, outside.NoPlainFile):
            return np.zeros(0, dtype=RECORD)
        data = data[: len(data) - len(data) % RECORD.itemsize]
        self._seen += len(data)
        num_rows = self._rows_on_disk()
        records = np.frombuffer(data, dtype=RECORD)
        records = records[whole(records) & (records["row"] < num_rows)]
        is_named = bool(len(records)) and int(records["row"].max()) + 1 == num_rows
        self._is_full = is_named and num_rows * self._row_bytes >= max_bytes
        return records

    def unread(self) -> int:
        """About how many index records `new_records` would look at."""
        try:
            return (self.index_path.stat().st_size - self._seen) // RECORD.itemsize
        except FileNotFoundError:
            return 0

    def known_to(self, index_bytes: int) -> None:
        """Says that its index need not be read up to there."""
        self._seen = index_bytes

    def covered(self) -> Covered:
        """How far it was read."""
        return Covered(self.name, self._seen, self._rows_on_disk())

    def passed(self, num_records: int) -> None:
        """Says that so many records, written by this process itself, need not be read again."""
        self._seen += num_records * RECORD.itemsize

    def mapped(self, last: int) -> NDArray[np.uint8]:
        """The rows as (n, row_bytes) bytes, mapped read-only; n reaches row `last` if the file does."""
        if self._mapped is None or last >= len(self._mapped):
            n = self._rows_on_disk()
            shape = (n, self._row_bytes)
            empty = np.zeros((0, self._row_bytes), dtype=np.uint8)
            self._mapped = np.asarray(np.memmap(self.rows_path, mode="r", shape=shape)) if n else empty
        return self._mapped

    def rows(self, numbers: NDArray[np.int64], out: NDArray[np.uint8] | None = None) -> NDArray[np.uint8]:
        """Some rows, (n, row_bytes), copied. Raises OSError, IndexError where the file is gone or too short."""
        taken: NDArray[np.uint8] = np.take(self.mapped(int(numbers.max())), numbers, axis=0, out=out, mode="clip")
        return taken

    def _rows_on_disk(self) -> int:
        try:
            return self.rows_path.stat().st_size // self._row_bytes
        except FileNotFoundError:
            return 0


class RemoteShard(Shard):
    """A shard whose rows lie on object storage (`carried.py`): its index is here, a row comes when it is read, is kept
    under its address, and is checked each time."""

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
        with ThreadPoolExecutor(min(_AT_ONCE, len(numbers))) as pool:
            for target, row in zip(rows, pool.map(self._row, numbers.tolist()), strict=True):
                target[:] = row
        return rows

    def _row(self, number: int) -> NDArray[np.uint8]:
        record, name = self._named[number], ""
        address = record["address"].reshape(1, 32)
        for _ in range(2):  # what is kept here may be damaged, too
            name = f"{address.tobytes().hex()}-{self._row_bytes}"
            data = self._fetched.piece(name, self._origin, number * self._row_bytes, self._row_bytes)
            row = np.frombuffer(data, np.uint8).reshape(1, -1)
            if row.shape[1] == self._row_bytes and checksums(address, row, self._factors)[0] == record["checksum"]:
                return row.reshape(-1)
            self._fetched.drop(name)
        raise CacheError(
            f"{remote.url_of(self._origin)}: row {number} is damaged on the storage; delete this file and its .index "
            f"there, and {self.index_path} here, and start `mezzotint cache`, which makes the rows again",
            code="E1845",
        )

    def _rows_on_disk(self) -> int:
        return self._bytes // self._row_bytes


def shard_at(folder: Path, name: str, row_bytes: int) -> Shard:
    """The reader of a shard, here or on object storage."""
    is_here = (folder / f"{name}.rows").is_file() or not (folder / f"{name}{ORIGIN}").is_file()
    return Shard(folder, name, row_bytes) if is_here else RemoteShard(folder, name, row_bytes)


class ShardWriter:
    """The one writer of a shard. Made by `open_writer`."""

    def __init__(self, folder: Path, name: str, row_bytes: int, rows_fd: int, index_fd: int) -> None:
        self.name = name
        self._row_bytes = row_bytes
        self._rows_fd = rows_fd
        self._index_fd = index_fd
        size = os.fstat(index_fd).st_size
        size -= size % RECORD.itemsize
        os.ftruncate(index_fd, size)
        records = np.frombuffer(os.pread(index_fd, size, 0), dtype=RECORD)
        records = records[whole(records)]
        self._index_end = size
        self._waiting: list[_Named] = []
        self._synced = time.monotonic()
        self.next_row = int(records["row"].max()) + 1 if len(records) else 0

    def append(
        self, addresses: NDArray[np.uint8], rows: NDArray[np.uint8], checksums: NDArray[np.uint64], *, at_once: bool
    ) -> int:
        """Writes rows (n, row_bytes) and returns the place of the first one. They are synced, and the index told, every
        few megabytes or seconds, or at once. Raises OSError when the disk is full; what waits is not indexed then."""
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

    def _sync(self, waiting: Sequence[_Named]) -> None:
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
        """Syncs what waits and gives the lock back; another writer may go on with this shard. Raises OSError."""
        try:
            if self._waiting:
                self._sync(self._waiting)
        finally:
            os.close(self._rows_fd)
            os.close(self._index_fd)


def open_writer(folder: Path, row_bytes: int, max_bytes: int) -> ShardWriter:
    """A shard of this folder that no living process writes and that has room, else a new one. Raises OSError when the
    folder cannot be written."""
    for index_path in sorted(folder.glob("*.index")):
        rows_path = index_path.with_suffix(".rows")
        is_begun = _is_begun(index_path)
        if is_begun or (rows_path.is_file() and rows_path.stat().st_size < max_bytes):
            writer = _take(folder, index_path.stem, row_bytes, os.O_RDWR | (os.O_CREAT if is_begun else 0))
            if writer is not None:
                if is_begun:
                    durable.sync_folder(folder)
                return writer
    while True:
        writer = _take(folder, secrets.token_hex(8), row_bytes, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        if writer is not None:
            durable.sync_folder(folder)
            return writer


def _is_begun(index_path: Path) -> bool:
    """Whether a shard has an index that names nothing and no rows yet: its writer was ended between the two."""
    others = (index_path.with_suffix(".rows"), index_path.with_suffix(ORIGIN))
    return not any(map(os.path.lexists, others)) and index_path.stat().st_size < RECORD.itemsize


def _take(folder: Path, name: str, row_bytes: int, flags: int) -> ShardWriter | None:
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

    Any change within one word is noticed for certain, any other with a chance of about 1 − 2⁻⁶⁴. It is several times
    faster than a cryptographic hash, and is no defence against someone who wants it to fit.
    """
    if rows.shape[1] % 8:
        rows = np.pad(rows, ((0, 0), (0, -rows.shape[1] % 8)))
    words = np.ascontiguousarray(rows).view("<u8")
    mixed = words >> np.uint64(32)
    mixed ^= words  # else two changed top bits would cancel each other
    of_row = np.einsum("ij,j->i", mixed, factors[4:])
    of_address = np.einsum("ij,j->i", np.ascontiguousarray(addresses).view("<u8"), factors[:4])
    return np.asarray(of_row + of_address, dtype=np.uint64)


def checksum_factors(row_bytes: int) -> NDArray[np.uint64]:
    """Odd factors for the four words of an address and those of a row; the same on every machine."""
    return draws.keys(0, "cache-checksum", np.arange(4 + -(-row_bytes // 8))) | np.uint64(1)
