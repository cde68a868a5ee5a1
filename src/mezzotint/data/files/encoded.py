"""Samples encoded by another program: files with latents and text embeddings.

A module of the group `mezzotint.files.encoded` reads one kind of such files and implements `EncodedFiles`; a data set
format with `is_encoded` uses them as its samples. They are recognised by their extension.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Protocol, cast

import numpy as np
from numpy.typing import NDArray

from mezzotint import registry
from mezzotint.shapes import Size

FOLDER = "data/files/encoded"


@dataclass(frozen=True, slots=True)
class EncodedSample:
    """Content of the files of a sample, float32. latents: (C, h, w), not scaled. states: (L, D). pooled: (P,)."""

    latents: NDArray[np.float32]
    states: NDArray[np.float32]
    pooled: NDArray[np.float32]


class EncodedFiles(Protocol):
    """Reads files of one kind. A sample has one path; its other files are found by name."""

    SUFFIX: str
    PIXELS: int
    """Pixels per latent."""

    def probe(self, path: Path) -> tuple[Size, bytes]:
        """The size of the encoded image in pixels, and SHA-256 of its files. Raises DatasetError."""

    def read(self, path: Path) -> EncodedSample:
        """Reads a sample. Raises DatasetError with the file and the reason why it cannot be used."""

    def digest_of(self, path: Path) -> bytes:
        """SHA-256 of all files of a sample. Raises OSError."""

    def stats_of(self, path: Path) -> tuple[int, int, int]:
        """Bytes of all files of a sample, their latest times of modification and change in nanoseconds. Raises
        OSError."""


def files_of(path: str | Path) -> EncodedFiles | None:
    """The reader for the extension of this path; None for everything else, such as images."""
    name = str(path)
    return next((files for suffix, files in _by_suffix().items() if name.endswith(suffix)), None)


@cache
def _by_suffix() -> Mapping[str, EncodedFiles]:
    modules = [cast(EncodedFiles, registry.find(FOLDER, name)) for name in registry.names(FOLDER)]
    return {files.SUFFIX: files for files in modules}
