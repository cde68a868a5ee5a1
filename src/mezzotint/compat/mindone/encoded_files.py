"""Files of MindONE's cache for SDXL: three .npy files per image, with its latents, its text, and a vector of pooled
text and sizes. They are read without pickle, header first; shapes and values are checked, the age of the files cannot
be.

    latent_cache/NAME.npy     one sample of the latents, not scaled, (1, C, h, w)
    crossattn_cache/NAME.npy  states of both text encoders, concatenated, (1, L, D)
    vector_cache/NAME.npy     pooled text (1280), then six numbers, each as a sinusoidal embedding of 256: (1, 2816)
"""

from __future__ import annotations

import hashlib
import os
import stat
import tokenize
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mezzotint.data.files.encoded import EncodedSample
from mezzotint.errors import DatasetError
from mezzotint.shapes import Size

SUFFIX = ".npy"
FOLDERS = ("latent_cache", "vector_cache", "crossattn_cache")
PIXELS = 8
"""Pixels per latent of SDXL's autoencoder."""

NUMBERS = 6
"""Original height and width, crop top and left, target height and width."""

_WIDTHS = (256, 128, 64, 32, 16, 8)
_PERIOD = 10_000.0
_NEAR = 0.05  # embeddings of large numbers differ by hundredths if frequencies are float32

_Floats = NDArray[np.float32]


def files_of(latents: Path) -> tuple[Path, ...]:
    """The three files of an entry, from the path of its latents."""
    root = latents.parent.parent
    return tuple(root / folder / latents.name for folder in FOLDERS)


def stats_of(latents: Path) -> tuple[int, int, int]:
    """Total bytes of the three files, their newest mtime and ctime in nanoseconds. Raises OSError."""
    stat_results = [os.stat(path) for path in files_of(latents)]
    return (
        sum(one.st_size for one in stat_results),
        max(one.st_mtime_ns for one in stat_results),
        max(one.st_ctime_ns for one in stat_results),
    )


def digest_of(latents: Path) -> bytes:
    """SHA-256 of the digests of the three files. Raises OSError."""
    return _digest(files_of(latents))


def text_digest_of(latents: Path) -> str:
    """16 hexadecimal digits of the digest of the entry's text files. Raises OSError."""
    return _digest(files_of(latents)[1:]).hex()[:16]


def _digest(paths: Sequence[Path]) -> bytes:
    state = hashlib.sha256()
    for path in paths:
        with open(path, "rb") as file:
            state.update(hashlib.file_digest(file, "sha256").digest())
    return state.digest()


def probe(latents: Path) -> tuple[Size, bytes]:
    """The size of the encoded image in pixels, and the digest of its files; reads all of them. Raises DatasetError
    E1370."""
    arrays = read(latents)
    height, width = (side * PIXELS for side in arrays.latents.shape[1:])
    try:
        return Size(width, height), digest_of(latents)
    except OSError as error:
        raise _unusable(latents, error.strerror or str(error)) from error


def read(latents: Path) -> EncodedSample:
    """The three files of an entry. Raises DatasetError E1370 with the file and the reason it cannot be used."""
    of_latents, of_vector, of_states = files_of(latents)
    vector = _array(of_vector, 1)
    pooled, _ = split(vector, of_vector)
    return EncodedSample(_array(of_latents, 3), _array(of_states, 2), pooled)


def sizes_of(latents: Path) -> tuple[int, ...]:
    """The six numbers of an entry; reads only its vector. Raises DatasetError E1370."""
    path = files_of(latents)[1]
    return split(_array(path, 1), path)[1]


def split(vector: _Floats, path: Path) -> tuple[_Floats, tuple[int, ...]]:
    """Pooled text, and the six numbers whose embeddings follow it, recovered exactly. The width of an embedding is the
    largest for which all six are valid. Raises DatasetError E1370."""
    for width in _WIDTHS:
        if len(vector) > NUMBERS * width:
            cut = len(vector) - NUMBERS * width
            numbers = [number_of(one) for one in vector[cut:].reshape(NUMBERS, width)]
            if None not in numbers:
                return vector[:cut], tuple(number for number in numbers if number is not None)
    raise _unusable(
        path, f"its {len(vector)} numbers do not end in six sizes as sinusoidal embeddings, as those of a base model do"
    )


def sinusoid(number: float, width: int) -> _Floats:
    """The sinusoidal embedding of a number in SDXL: cosines, then sines, of periods from 2π to 2π · 10000. Returns
    (width,)."""
    angles = number * _frequencies(width)
    return np.concatenate((np.cos(angles), np.sin(angles))).astype(np.float32)


def number_of(embedded: _Floats) -> int | None:
    """The integer of a sinusoidal embedding; None if it is not one."""
    half = len(embedded) // 2
    cosines, sines = embedded[:half].astype(np.float64), embedded[half:].astype(np.float64)
    if np.abs(cosines**2 + sines**2 - 1).max() > _NEAR:
        return None
    angles, frequencies = np.arctan2(sines, cosines), _frequencies(len(embedded))
    estimate = (angles[-1] % (2 * np.pi)) / frequencies[-1]
    for angle, frequency in zip(
        angles[-2::-1], frequencies[-2::-1], strict=True
    ):  # from slow to fast, increasingly precise
        turns = np.rint((estimate * frequency - angle) / (2 * np.pi))
        estimate = (angle + 2 * np.pi * turns) / frequency
    number = round(estimate)
    return number if number >= 0 and np.abs(sinusoid(number, len(embedded)) - embedded).max() < _NEAR else None


def _frequencies(width: int) -> NDArray[np.float64]:
    half = width // 2
    return np.asarray(_PERIOD ** (-np.arange(half) / half))


def _array(path: Path, dims: int) -> _Floats:
    """A float array without its leading axis of 1."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise _unusable(path, "is not a regular file")
        # memory-mapped: a header cannot allocate more memory than the file has bytes; objects are refused
        mapped: NDArray[Any] = np.lib.format.open_memmap(path, mode="r")
    except OSError as error:
        raise _unusable(path, error.strerror or str(error)) from error
    except (
        ValueError, EOFError, SyntaxError, OverflowError, TypeError, RecursionError, tokenize.TokenError
    ) as error:  # fmt: skip
        raise _unusable(path, f"is not an array of numbers ({' '.join(str(error).split())[:100]})") from error
    if mapped.dtype.kind != "f" or mapped.ndim != dims + 1 or mapped.shape[0] != 1 or not mapped.size:
        shape_text = "(1, C, h, w)" if dims == 3 else "(1, L, D)" if dims == 2 else "(1, V)"
        raise _unusable(path, f"has {mapped.dtype} {mapped.shape}; floats {shape_text} are needed")
    array = np.asarray(mapped[0], dtype=np.float32)
    if not np.isfinite(array).all():
        raise _unusable(path, "has non-finite numbers")
    return array


def _unusable(path: Path, reason: str) -> DatasetError:
    return DatasetError(
        f"{path}: {reason}; write the cache again, or train from the images (data.format=mindone)", code="E1370"
    )
