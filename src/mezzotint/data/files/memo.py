"""A persistent cache for results that take long to compute, by everything they depend on: `FOLDER/memo.sqlite`.

One SQLite file in each folder with such results: next to the indexes of a data set (reports, hashes, thumbnails), and
in a cache (which parts are complete, the state after the last fill). Everything in it can be computed again:

- A result is addressed by a kind and the SHA-256 of everything it depends on, and is returned only if the SHA-256 of
  its bytes matches. Results that are missing, damaged, or locked by another process for too long are computed again.
- Results that cannot be written are not stored. A damaged file is reported, deleted and recreated by the next `put`.
- SQLite's rollback journal (not WAL, whose shared memory works on one machine only) makes `put` atomic, also if the
  process is killed or the power fails. Locks are those of the file system; several processes and machines may read and
  write.
"""

from __future__ import annotations

import hashlib
import io
import os
import sqlite3
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from mezzotint import outside

FILE = "memo.sqlite"

_APPLICATION = 0x6D7A746D  # "mztm"
_VERSION = 1  # of the table; a file of another version is replaced
_TABLE = "CREATE TABLE parts (kind TEXT, key BLOB, part INTEGER, value BLOB, PRIMARY KEY (kind, key, part))"
"""Part 0 of a result is its SHA-256, the others are its bytes in order. The newest result has the largest rowids."""

_ENDINGS = ("-journal", "-wal", "-shm")
"""Suffixes of files that SQLite creates next to a database. Ours only have a journal."""

_SUPER_JOURNAL = bytes.fromhex("d9d505f920a163d7")
"""The end of a journal that refers to a super-journal over several databases, which SQLite would read and delete."""

_TEMPORARY_ERRORS = frozenset({
    sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_NOMEM,
})  # fmt: skip
"""Errors that do not depend on the file's content: it is locked, the disk is full, the folder is read-only."""

_PART_BYTES = 1 << 20
_BUSY_SECONDS = 10.0
_MAX_SECONDS = 60.0
"""Timeout of a query: a crafted file can make SQLite loop over its pages forever."""


class Memo:
    """The results stored in a folder. Each call opens the file again, so a Memo can be used in threads and forks."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE

    def get(self, kind: str, key: object) -> bytes | None:
        """A result, or None. key: everything that it depends on, compared by its `repr`."""
        content = io.BytesIO()
        return content.getvalue() if self.copy_to(content, kind, key) else None

    def get_json(self, kind: str, key: object) -> Any:
        """A result parsed as JSON; None if it is missing or not JSON."""
        try:
            return outside.parse_json((self.get(kind, key) or b"null").decode())
        except ValueError:
            return None

    def copy_to(self, out: IO[bytes], kind: str, key: object) -> bool:
        """Writes a result into a file. Returns False if there is none; `out` may then contain a part of it."""
        address = _address(key)
        digest = _digest(kind, address)
        try:
            with self._open("rw") as database:
                rows = database.execute(
                    "SELECT part, value FROM parts WHERE kind = ? AND key = ? ORDER BY part", (kind, address)
                )
                _, expected = next(rows, (0, None))
                for number, (part, value) in enumerate(rows, start=1):
                    if part != number or not isinstance(value, bytes):
                        return False
                    digest.update(value)
                    out.write(value)
                return bool(digest.digest() == expected)
        except sqlite3.Error:
            return False

    def put(self, kind: str, key: object, content: bytes | IO[bytes], *, keep: int | None = None) -> None:
        """Stores a result, as bytes or as a file that is read from its start. keep: keeps only this many results of
        the kind, the newest. Does nothing if the folder is missing or cannot be written."""
        file = io.BytesIO(content) if isinstance(content, bytes) else content
        for is_last in (False, True):
            try:
                with self._open("rwc") as database:
                    _write(database, kind, _address(key), file, keep)
                return
            except sqlite3.DatabaseError as error:
                if is_last or not _is_damage(error) or not self._delete():
                    return
                print(f"{self.path}: was damaged ({error}); deleted and recreated", file=sys.stderr)

    @contextmanager
    def _open(self, mode: str) -> Iterator[sqlite3.Connection]:
        """A connection to a valid file. Raises sqlite3.DatabaseError, see `_is_damage`."""
        try:
            self._require_valid()
        except outside.NotRegularFile as error:
            raise sqlite3.DatabaseError(str(error.strerror)) from error
        except OSError as error:
            if mode != "rwc" or not isinstance(error, FileNotFoundError):
                raise sqlite3.OperationalError(str(error)) from error
        uri = f"{self.path.absolute().as_uri()}?mode={mode}"
        with closing(sqlite3.connect(uri, uri=True, timeout=_BUSY_SECONDS, isolation_level=None)) as database:
            database.text_factory = bytes  # may not be UTF-8
            until = time.monotonic() + _MAX_SECONDS
            database.set_progress_handler(lambda: time.monotonic() > until, 1_000_000)
            database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 2 * _PART_BYTES)
            try:
                database.execute("PRAGMA trusted_schema = OFF")
                database.execute("PRAGMA cell_size_check = ON")
                yield database
            except UnicodeDecodeError as error:  # from an error message that quotes the file
                raise sqlite3.DatabaseError("its table cannot be read") from error

    def _require_valid(self) -> None:
        """Checks the file and its journal before SQLite opens them. Raises sqlite3.DatabaseError for a file of another
        program or a crafted one, and OSError. An empty file is allowed: a killed first `put` leaves one."""
        with outside.open_plain(self.path) as file:
            header = file.read(100)
        expected = _VERSION.to_bytes(4, "big"), _APPLICATION.to_bytes(4, "big")
        is_ours = header[:16] == b"SQLite format 3\0" and header[18:20] == b"\1\1"
        if header and not (is_ours and (header[60:64], header[68:72]) == expected):
            raise sqlite3.DatabaseError("it has another header")
        journal, *others = (self._sibling(ending) for ending in _ENDINGS)
        if any(map(os.path.lexists, others)):
            raise sqlite3.DatabaseError("it has a write-ahead log")
        with suppress(FileNotFoundError):  # it is deleted when its writer is done
            if not stat.S_ISREG(os.lstat(journal).st_mode):
                raise sqlite3.DatabaseError("its journal is not a regular file")
            if _tail(journal) == _SUPER_JOURNAL:
                raise sqlite3.DatabaseError("its journal refers to another one")

    def _sibling(self, ending: str) -> Path:
        return self.path.with_name(f"{FILE}{ending}")

    def _delete(self) -> bool:
        """Deletes the file. Returns whether that succeeded."""
        try:
            for path in (*map(self._sibling, _ENDINGS), self.path):
                path.unlink(missing_ok=True)
        except OSError:
            return False
        return True


def _write(database: sqlite3.Connection, kind: str, address: bytes, file: IO[bytes], keep: int | None) -> None:
    digest = _digest(kind, address)
    file.seek(0)
    while chunk := file.read(_PART_BYTES):
        digest.update(chunk)
    with database:  # commits, or rolls back
        database.execute("BEGIN IMMEDIATE")
        _require_table(database)  # committed first, so other processes recognise the file
    with database:
        database.execute("BEGIN IMMEDIATE")
        database.execute("DELETE FROM parts WHERE kind = ? AND key = ?", (kind, address))
        if keep is not None:  # before the insert, which then reuses the pages of older ones
            newest = "SELECT key FROM parts WHERE kind = ? AND part = 0 ORDER BY rowid DESC LIMIT ?"
            database.execute(f"DELETE FROM parts WHERE kind = ? AND key NOT IN ({newest})", (kind, kind, keep - 1))
        database.execute("INSERT INTO parts VALUES (?, ?, 0, ?)", (kind, address, digest.digest()))
        file.seek(0)
        number = 0
        while chunk := file.read(_PART_BYTES):
            number += 1
            database.execute("INSERT INTO parts VALUES (?, ?, ?, ?)", (kind, address, number, chunk))


def _require_table(database: sqlite3.Connection) -> None:
    """Creates the table in a new file. Raises sqlite3.DatabaseError for other tables, triggers or views."""
    schema = [text for (text,) in database.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")]
    if not schema:
        database.execute(f"PRAGMA application_id = {_APPLICATION}")
        database.execute(f"PRAGMA user_version = {_VERSION}")
        database.execute(_TABLE)
    elif schema != [_TABLE.encode()]:
        raise sqlite3.DatabaseError("it has other tables")


def _is_damage(error: sqlite3.DatabaseError) -> bool:
    """Whether an error means that the file is damaged or foreign, not that it is temporarily unusable."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_BUSY)
    return not isinstance(error, sqlite3.OperationalError) or code & 0xFF not in _TEMPORARY_ERRORS


def _tail(path: Path) -> bytes:
    with outside.open_plain(path) as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - len(_SUPER_JOURNAL)))
        return file.read()


def _address(key: object) -> bytes:
    return hashlib.sha256(repr(key).encode("utf-8", "surrogatepass")).digest()


def _digest(kind: str, address: bytes) -> Any:
    return hashlib.sha256(kind.encode() + address)
