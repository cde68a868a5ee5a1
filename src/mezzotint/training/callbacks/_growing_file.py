"""A file that grows while a run goes, and what is said when the disk refuses it."""

from __future__ import annotations

import contextlib
import os
from abc import ABC, abstractmethod
from pathlib import Path
from typing import IO

from mezzotint import durable
from mezzotint.errors import CheckpointError, StorageError


class GrowingFile(ABC):
    """Grows by one whole record at a time, handed to the system at once; opened at the first, and anew after a failure.

    A disk that refuses is an error once (StorageError E1705); later records are tried in silence. place: the file, or
    the folder that it comes to lie in. what: what cannot be written there, for that error.
    """

    what = ""

    def __init__(self, place: Path) -> None:
        self.place = place
        self._file: IO[bytes] | None = None
        self._has_failed = self._is_named = False

    @abstractmethod
    def open(self) -> IO[bytes]:
        """Opens the file, unbuffered, at its end."""

    def head(self) -> list[bytes]:
        """Records that a file begins with when it has been opened."""
        return []

    def write(self, record: bytes) -> None:
        """Adds a record. Raises StorageError E1705 at the first failure."""
        try:
            records = [record]
            if self._file is None:
                self._file = self.open()
                records = [*self.head(), record]
            for one in records:
                if self._file.write(one) != len(one):
                    raise OSError("it could only be written in part")
        except CheckpointError:  # no plain file lies there
            if not self._has_failed:  # from the beginning: a run folder that is not to be written
                raise
        except OSError as error:
            self.close()
            if not self._has_failed:
                self._has_failed = True
                raise refused(self.place, self.what, error) from error

    def sync(self) -> None:
        """Makes what is written durable, and once the file's name, as far as the disk allows."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                os.fsync(self._file.fileno())
                if not self._is_named:
                    durable.sync_folder(self.place if self.place.is_dir() else self.place.parent)
                    self._is_named = True

    def close(self) -> None:
        """Lets the file go; the next record opens one again."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
            self._file = None


def refused(place: Path, what: str, error: OSError) -> StorageError:
    """The error for what a run writes for people alone, and goes on without."""
    words = f"{what} cannot be written".strip()
    return StorageError(f"{place}: {words} ({error.strerror or error}); make room there", code="E1705")
