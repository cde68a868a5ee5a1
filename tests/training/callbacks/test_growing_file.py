"""A file of appended records: one message per failure, and a retry at each record."""

from __future__ import annotations

from pathlib import Path
from typing import IO

import pytest

from mezzotint.errors import StorageError
from mezzotint.training.callbacks._growing_file import GrowingFile


class Numbered(GrowingFile):
    noun = "numbers"

    def open(self) -> IO[bytes]:
        return open(self.path, "ab", buffering=0)

    def head(self) -> list[bytes]:
        return [b"head "]


def test_write_failure_is_reported_once_and_file_reopened(tmp_path: Path) -> None:
    file = Numbered(tmp_path / "gone" / "numbers")
    with pytest.raises(StorageError, match="numbers cannot be written") as failed:
        file.write(b"1 ")
    assert failed.value.code == "E1705"
    file.write(b"2 ")
    file.path.parent.mkdir()
    for record in (b"3 ", b"4 "):
        file.write(record)
    file.sync()
    file.close()
    file.write(b"5")
    assert file.path.read_bytes() == b"head 3 4 head 5"
