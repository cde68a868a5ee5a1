"""A file to which a run appends records, and the error when the disk rejects a write."""

from __future__ import annotations

import contextlib
import os
from abc import ABC, abstractmethod
from pathlib import Path
from typing import IO

from mezzotint import durable
from mezzotint.errors import CheckpointError, StorageError


class GrowingFile(ABC):
    """Appends one complete record at a time, unbuffered; opened at the first record, and again after a failure.

    The first write that fails raises StorageError E1705; later failures are silent. path: the file, or the folder in
    which it is created. noun: what cannot be written, for the error message.
    """

    noun = ""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: IO[bytes] | None = None
        self._has_failed = self._is_named = False

    @abstractmethod
    def open(self) -> IO[bytes]:
        """Opens the file, unbuffered, at its end."""

    def head(self) -> list[bytes]:
        """Records to write first after the file has been opened."""
        return []

    def write(self, record: bytes) -> None:
        """Appends a record. Raises StorageError E1705 at the first failure."""
        try:
            records = [record]
            if self._file is None:
                self._file = self.open()
                records = [*self.head(), record]
            for item in records:
                if self._file.write(item) != len(item):
                    raise OSError("only a part was written")
        except CheckpointError:  # not a regular file
            if not self._has_failed:  # at the first record: the run folder cannot be used
                raise
        except OSError as error:
            self.close()
            if not self._has_failed:
                self._has_failed = True
                raise write_refused(self.path, self.noun, error) from error

    def sync(self) -> None:
        """Syncs the content to disk, and once the file's name, as far as the disk allows."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                os.fsync(self._file.fileno())
                if not self._is_named:
                    durable.sync_folder(self.path if self.path.is_dir() else self.path.parent)
                    self._is_named = True

    def close(self) -> None:
        """Closes the file; the next record opens it again."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
            self._file = None


def write_refused(path: Path, noun: str, error: OSError) -> StorageError:
    """The error for output that a run can continue without."""
    problem = f"{noun} cannot be written".strip()
    return StorageError(f"{path}: {problem} ({error.strerror or error}); free space on this disk", code="E1705")
