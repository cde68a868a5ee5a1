"""Text embeddings that another trainer has made: which file belongs to a sample. Between the formats, which know their
names, and the text cache, which takes them over.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Marked:
    """A file of an embedding as it was when the data set was indexed. mark: its size and time, a part of the address
    under which it is taken over, so that a file that is made anew is taken over anew."""

    path: Path
    mark: str

    @classmethod
    def of(cls, path: Path) -> Marked:
        """The file as it is now. Raises OSError."""
        found = os.stat(path)
        return cls(path, f"{found.st_size}-{found.st_mtime_ns}")

    @property
    def encoded(self) -> str:
        """As text, for a column."""
        return f"{self.mark} {self.path}"

    @classmethod
    def decoded(cls, text: str) -> Marked:
        """The reverse of `encoded`."""
        mark, _, path = text.partition(" ")
        return cls(Path(path), mark)
