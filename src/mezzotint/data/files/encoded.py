"""Samples that another program has encoded already: latents and text embeddings in files of their own.

A module of the group `mezzotint.files.encoded` reads one kind of such files and offers what `EncodedFiles` lists; a
data set format with `is_encoded` names them as its samples. They are recognised by their ending.
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
    """What the files of a sample hold, float32. latents: (C, h, w), not scaled. states: (L, D). pooled: (P,)."""

    latents: NDArray[np.float32]
    states: NDArray[np.float32]
    pooled: NDArray[np.float32]


class EncodedFiles(Protocol):
    """Reads files of one kind. A sample has one path; what belongs to it beside that is found by its name."""

    SUFFIX: str
    PIXELS: int
    """Pixels per latent."""

    def probe(self, path: Path) -> tuple[Size, bytes]:
        """The size in pixels of what was encoded, and SHA-256 of its files. Raises DatasetError."""

    def read(self, path: Path) -> EncodedSample:
        """Raises DatasetError with the file and the reason it cannot be used."""

    def digest_of(self, path: Path) -> bytes:
        """SHA-256 of all files of a sample. Raises OSError."""

    def stats_of(self, path: Path) -> tuple[int, int, int]:
        """Bytes of all files of a sample, the newest times of modification and change in nanoseconds. Raises
        OSError."""


def files_of(path: str | Path) -> EncodedFiles | None:
    """What reads the samples with the ending of this path; None for everything else, such as pictures."""
    name = str(path)
    return next((files for suffix, files in _by_suffix().items() if name.endswith(suffix)), None)


@cache
def _by_suffix() -> Mapping[str, EncodedFiles]:
    modules = [cast(EncodedFiles, registry.find(FOLDER, name)) for name in registry.names(FOLDER)]
    return {files.SUFFIX: files for files in modules}
