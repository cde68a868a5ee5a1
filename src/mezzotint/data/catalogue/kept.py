"""What was worked out of an index at length, kept in its folder so that another start need not work it out again.

A file has the SHA-256 of its content in front. What does not fit, is no plain file or cannot be read counts as not
there; what cannot be written is not kept. It goes with its index."""

from __future__ import annotations

import hashlib
import io
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import IO

from mezzotint import durable, outside

MANY = 50_000
"""Samples from which it is worth a file: what is said of fewer takes a tenth of a second."""

_HEAD = 64  # hexadecimal digits
_AT_ONCE = 1 << 20


def place(index: Path, what: str, depends_on: object) -> Path:
    """The file of an index for a thing that was worked out. what: a word, part of the file's name. depends_on: all that
    the thing depends on besides the index; its `repr` counts."""
    return index / f"{what}-{hashlib.sha256(repr(depends_on).encode()).hexdigest()[:32]}"


def copy_out(kept: Path, out: IO[bytes]) -> bool:
    """Writes what is kept into a file; False where nothing whole is there: `out` then has any part of it."""
    with suppress(OSError), outside.open_plain(kept) as file:
        digest, before = hashlib.sha256(), file.read(_HEAD)
        while chunk := file.read(_AT_ONCE):
            digest.update(chunk)
            out.write(chunk)
        return digest.hexdigest().encode("ascii") == before
    return False


def keep(content: io.BufferedIOBase, kept: Path) -> None:
    """Keeps what a file has, from its beginning, in the place of what was kept under that word before."""
    what = kept.name.rpartition("-")[0]
    with suppress(OSError):
        durable.sweep(kept.parent)
        with durable.swapped_in(kept, durably=False) as aside, open(aside, "wb") as out:
            content.seek(0)
            out.write(hashlib.file_digest(content, "sha256").hexdigest().encode("ascii"))
            content.seek(0)
            shutil.copyfileobj(content, out, _AT_ONCE)
        for before in kept.parent.glob(f"{what}-*"):
            if before != kept:
                os.unlink(before)
