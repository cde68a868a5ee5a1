"""Results that take long to compute and can be computed again, kept by what they depend on: `FOLDER/memo.sqlite`.

One SQLite file in each folder that has such results: beside the indexes of a data set (reports, hashes, thumbnails),
and in a cache (what is complete, what the last filling saw). Nothing in it is the only copy, so the rules are short:

- A result is addressed by a kind and the SHA-256 of everything that it depends on, and comes back only if the SHA-256
  of its bytes fits. What is missing, damaged, or locked by another process for too long is computed again.
- What cannot be written is not kept. A damaged file is reported, deleted and begun anew by the next `put`.
- SQLite's rollback journal (not WAL, whose shared memory needs one machine) makes a `put` whole or undone, whenever
  the process or the power goes. Locks are the file system's; several processes and machines may read and write.
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
"""Of files that SQLite has beside a database. Ours have a journal only."""

_SUPER_JOURNAL = bytes.fromhex("d9d505f920a163d7")
"""The end of a journal that names a journal over several databases, which SQLite would read and delete."""

_CANNOT_NOW = frozenset({
    sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_NOMEM,
})  # fmt: skip
"""Errors that say nothing about a file's content: it is locked, the disk is full, the folder is read-only."""

_PART_BYTES = 1 << 20
_BUSY_SECONDS = 10.0
_MOST_SECONDS = 60.0
"""After which a query is given up: a crafted file can make SQLite go round its pages for ever."""


class Memo:
    """The results kept in a folder. Each call opens the file anew, so a Memo can be used in threads and forks."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE

    def get(self, kind: str, key: object) -> bytes | None:
        """A result, or None. key: everything that it depends on; its `repr` counts."""
        content = io.BytesIO()
        return content.getvalue() if self.copy_to(content, kind, key) else None

    def get_json(self, kind: str, key: object) -> Any:
        """What a result that is JSON says; None where there is none, or no JSON."""
        try:
            return outside.parse_json((self.get(kind, key) or b"null").decode())
        except ValueError:
            return None

    def copy_to(self, out: IO[bytes], kind: str, key: object) -> bool:
        """Writes a result into a file; False if there is none: `out` may then have a part of it."""
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
        """Keeps a result, as bytes or as a file that is read from its beginning. keep: so many results of this kind,
        the newest, and no others. In a folder that is missing or cannot be written nothing is kept."""
        file = io.BytesIO(content) if isinstance(content, bytes) else content
        for is_last in (False, True):
            try:
                with self._open("rwc") as database:
                    _write(database, kind, _address(key), file, keep)
                return
            except sqlite3.DatabaseError as error:
                if is_last or not _is_damage(error) or not self._delete():
                    return
                print(f"{self.path}: was damaged ({error}); deleted, and begun anew", file=sys.stderr)

    @contextmanager
    def _open(self, mode: str) -> Iterator[sqlite3.Connection]:
        """A connection to a file of ours. Raises sqlite3.DatabaseError, see `_is_damage`."""
        try:
            self._require_ours()
        except outside.NoPlainFile as error:
            raise sqlite3.DatabaseError(str(error.strerror)) from error
        except OSError as error:
            if mode != "rwc" or not isinstance(error, FileNotFoundError):
                raise sqlite3.OperationalError(str(error)) from error
        uri = f"{self.path.absolute().as_uri()}?mode={mode}"
        with closing(sqlite3.connect(uri, uri=True, timeout=_BUSY_SECONDS, isolation_level=None)) as database:
            database.text_factory = bytes  # which may be no UTF-8
            until = time.monotonic() + _MOST_SECONDS
            database.set_progress_handler(lambda: time.monotonic() > until, 1_000_000)
            database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 2 * _PART_BYTES)
            try:
                database.execute("PRAGMA trusted_schema = OFF")
                database.execute("PRAGMA cell_size_check = ON")
                yield database
            except UnicodeDecodeError as error:  # of a message that repeats what the file says
                raise sqlite3.DatabaseError("its table cannot be read") from error

    def _require_ours(self) -> None:
        """Looks at the file and its journal before SQLite does. Raises sqlite3.DatabaseError for what another program
        made or a stranger crafted, and OSError. An empty file is what a kill leaves of the first `put`."""
        with outside.open_plain(self.path) as file:
            header = file.read(100)
        expected = _VERSION.to_bytes(4, "big"), _APPLICATION.to_bytes(4, "big")
        is_ours = header[:16] == b"SQLite format 3\0" and header[18:20] == b"\1\1"
        if header and not (is_ours and (header[60:64], header[68:72]) == expected):
            raise sqlite3.DatabaseError("it has another header")
        journal, *others = (self._beside(ending) for ending in _ENDINGS)
        if any(map(os.path.lexists, others)):
            raise sqlite3.DatabaseError("it has a write-ahead log")
        with suppress(FileNotFoundError):  # it is gone as soon as its writer is done
            if not stat.S_ISREG(os.lstat(journal).st_mode):
                raise sqlite3.DatabaseError("its journal is no plain file")
            if _tail(journal) == _SUPER_JOURNAL:
                raise sqlite3.DatabaseError("its journal names another")

    def _beside(self, ending: str) -> Path:
        return self.path.with_name(f"{FILE}{ending}")

    def _delete(self) -> bool:
        """Whether it could be deleted."""
        try:
            for path in (*map(self._beside, _ENDINGS), self.path):
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
        _require_table(database)  # at once, so that others see whose file it is
    with database:
        database.execute("BEGIN IMMEDIATE")
        database.execute("DELETE FROM parts WHERE kind = ? AND key = ?", (kind, address))
        if keep is not None:  # first, so that the pages of the older ones are used again
            newest = "SELECT key FROM parts WHERE kind = ? AND part = 0 ORDER BY rowid DESC LIMIT ?"
            database.execute(f"DELETE FROM parts WHERE kind = ? AND key NOT IN ({newest})", (kind, kind, keep - 1))
        database.execute("INSERT INTO parts VALUES (?, ?, 0, ?)", (kind, address, digest.digest()))
        file.seek(0)
        number = 0
        while chunk := file.read(_PART_BYTES):
            number += 1
            database.execute("INSERT INTO parts VALUES (?, ?, ?, ?)", (kind, address, number, chunk))


def _require_table(database: sqlite3.Connection) -> None:
    """Makes the table in a new file. Raises sqlite3.DatabaseError where there are other tables, triggers or views."""
    schema = [text for (text,) in database.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")]
    if not schema:
        database.execute(f"PRAGMA application_id = {_APPLICATION}")
        database.execute(f"PRAGMA user_version = {_VERSION}")
        database.execute(_TABLE)
    elif schema != [_TABLE.encode()]:
        raise sqlite3.DatabaseError("it has other tables")


def _is_damage(error: sqlite3.DatabaseError) -> bool:
    """Whether an error says that the file is damaged or none of ours, and not that it cannot be used now."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_BUSY)
    return not isinstance(error, sqlite3.OperationalError) or code & 0xFF not in _CANNOT_NOW


def _tail(path: Path) -> bytes:
    with outside.open_plain(path) as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - len(_SUPER_JOURNAL)))
        return file.read()


def _address(key: object) -> bytes:
    return hashlib.sha256(repr(key).encode("utf-8", "surrogatepass")).digest()


def _digest(kind: str, address: bytes) -> Any:
    return hashlib.sha256(kind.encode() + address)
