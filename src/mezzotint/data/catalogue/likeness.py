"""Pictures that look alike: a perceptual hash and some shades of each, and pairs of them, found by bands and never by
comparing all with all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from mezzotint.data.catalogue.catalogue import Catalogue
from mezzotint.data.media import clip_files, decoding
from mezzotint.errors import DatasetError
from mezzotint.settings.sections.data import DataSettings

APART = 7
"""Bits of 64 in which the hashes of near duplicates differ at most."""

SHADES_APART = 24.0
"""And the mean difference of their shades, of 255: hashes tell structure, and not colour."""

_BANDS = 4
_WIDE = 16  # bits of a band
_MOST = 200
"""Hashes with one band in common of which each is compared with the next: of a film of 100,000 frames not all with
all."""

_PLAIN = 4.0


@dataclass(frozen=True, slots=True)
class Looks:
    """How n pictures look. hashes: (n,) uint64. shades: (n, 8, 8, 3) uint8."""

    hashes: NDArray[np.uint64]
    shades: NDArray[np.uint8]

    @classmethod
    def empty(cls, count: int) -> Looks:
        """Of pictures that are looked at later, by `put`."""
        return cls(np.zeros(count, np.uint64), np.zeros((count, 8, 8, 3), np.uint8))

    def put(self, row: int, image: Image.Image) -> None:
        """Notes a picture, small or whole, in RGB."""
        self.shades[row] = shades_of(image)
        self.hashes[row] = _colour(self.shades[row]) if is_plain(image) else hash_of(image)


def require_library() -> None:
    """Raises DatasetError E1970 without the library that makes the hashes."""
    try:
        import imagehash  # noqa: F401
    except ImportError as error:
        raise DatasetError(
            "near duplicates are found by the package ImageHash, which is not installed: pip install "
            "'mezzotint[doctor]'",
            code="E1970",
        ) from error


def hash_of(image: Image.Image) -> int:
    """64 bits that hardly change when a picture is resized, compressed again or made lighter: pHash."""
    import imagehash

    bits = imagehash.phash(image).hash.ravel()
    return int.from_bytes(np.packbits(bits).tobytes(), "big")


def shades_of(image: Image.Image) -> NDArray[np.uint8]:
    """8×8×3 shades of a picture."""
    return np.asarray(image.convert("RGB").resize((8, 8), Image.Resampling.BOX), np.uint8)


def _colour(shades: NDArray[np.uint8]) -> int:
    """A hash of a plain picture, which has no structure: of red, green and blue 21 bits each, one for every 12 shades,
    so that near colours differ in few bits."""
    hashed = 1 << 63
    for channel, mean in enumerate(shades.reshape(-1, 3).mean(axis=0).tolist()):
        hashed |= ((1 << round(mean / 255 * 21)) - 1) << (21 * channel)
    return hashed


def image_of(catalogue: Catalogue, row: int, settings: DataSettings, side: int) -> Image.Image:
    """The whole picture of a row, of a clip its first frame, no larger than `side` × `side`. Raises DatasetError."""
    path = catalogue.local_path(row, keep_gb=settings.cache.fetched_gb)
    if int(catalogue.frames[row]) == 1 and not clip_files.is_clip(os.fspath(path)):
        return decoding.small(path, side, background=settings.background, max_pixels=settings.max_pixels)
    frames: NDArray[np.uint8] = clip_files.decoder().frames(path, [float(catalogue.begin[row])])
    image = Image.fromarray(np.ascontiguousarray(frames[0].transpose(1, 2, 0)))
    image.thumbnail((side, side))
    return image


def near_pairs(looks: Looks, most: int | None = None) -> list[tuple[int, int, float]]:
    """Pairs that look alike: (row, later row, mean difference of the shades of 255), the nearest first, at most so
    many. Of rows with the same hash each is paired with the first alone.

    Hashes that differ in at most `APART` bits of 64 have a band of 16 bits in which they differ in one at most, so that
    each band is sorted once for each of its bits, without that bit, and only what is then equal is compared.
    """
    kept, first = np.unique(looks.hashes, return_index=True)
    own = first[np.searchsorted(kept, looks.hashes)]
    again = np.flatnonzero(own != np.arange(len(own)))
    places = [np.stack([own[again], again], axis=1)]
    places.append(first[_alike(kept)])
    pairs = np.sort(np.concatenate(places), axis=1)
    shades = looks.shades.reshape(len(looks.shades), 192)
    apart = np.concatenate([
        np.sqrt(((shades[part[:, 0]].astype(np.float32) - shades[part[:, 1]]) ** 2).mean(axis=1))
        for part in np.array_split(pairs, len(pairs) // 100_000 + 1)
    ])  # fmt: skip
    pairs, apart = pairs[apart <= SHADES_APART], apart[apart <= SHADES_APART]
    order = np.lexsort((pairs[:, 1], pairs[:, 0], apart))[:most]
    return [(a, b, round(float(d), 2)) for (a, b), d in zip(pairs[order].tolist(), apart[order], strict=True)]


def _alike(hashes: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Pairs of places of different hashes, ascending, whose difference is at most `APART` bits, (m, 2), each pair
    once."""
    every = [np.zeros(0, np.uint64)]
    for band in range(_BANDS):
        part = (hashes >> np.uint64(_WIDE * band)).astype(np.uint16)
        for bit in range(_WIDE):
            key = part & np.uint16(0xFFFF ^ 1 << bit)
            order = np.argsort(key, kind="stable")
            every += _in_runs(hashes, key[order], order)
    pairs = np.unique(np.concatenate(every))
    return np.stack([pairs >> np.uint64(32), pairs & np.uint64(0xFFFFFFFF)], axis=1).astype(np.int64)


def _in_runs(
    hashes: NDArray[np.uint64], keys: NDArray[np.uint16], order: NDArray[np.int64]
) -> Iterator[NDArray[np.uint64]]:
    """Of places in the order of their keys, the pairs with equal keys that differ little, as one number each."""
    left = np.arange(len(keys) - 1)
    step = 1
    while len(left) and step <= _MOST:
        left = left[left + step < len(keys)]
        left = left[keys[left] == keys[left + step]]
        one, other = order[left], order[left + step]
        near = np.bitwise_count(hashes[one] ^ hashes[other]) <= APART
        low, high = np.minimum(one[near], other[near]), np.maximum(one[near], other[near])
        yield low.astype(np.uint64) << np.uint64(32) | high.astype(np.uint64)
        step += 1


def is_plain(image: Image.Image) -> bool:
    """Whether a picture is of one colour, but for a dot or some noise."""
    small = np.asarray(image.convert("RGB").resize((32, 32), Image.Resampling.BOX))
    return float(small.reshape(-1, 3).std(axis=0).max()) < _PLAIN
