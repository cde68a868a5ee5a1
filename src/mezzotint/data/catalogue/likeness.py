"""Images that look alike: a perceptual hash and a tiny colour thumbnail of each, and similar pairs, found by bands
instead of comparing all with all."""

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
"""Maximum number of different bits, of 64, between the hashes of near duplicates."""

MAX_COLOUR_DISTANCE = 24.0
"""Maximum mean difference of their thumbnails, of 255: hashes represent structure, not colour."""

_BANDS = 4
_BAND_BITS = 16
_MAX_STEP = 200
"""Number of following hashes with the same band to which each is compared, which limits the cost for 100,000 frames of
one film."""

_PLAIN = 4.0


@dataclass(frozen=True, slots=True)
class Looks:
    """The looks of n images. hashes: (n,) uint64. shades: (n, 8, 8, 3) uint8 thumbnails."""

    hashes: NDArray[np.uint64]
    shades: NDArray[np.uint8]

    @classmethod
    def empty(cls, count: int) -> Looks:
        """Empty arrays, to be filled by `put`."""
        return cls(np.zeros(count, np.uint64), np.zeros((count, 8, 8, 3), np.uint8))

    def put(self, row: int, image: Image.Image) -> None:
        """Stores an image, full or reduced, in RGB."""
        self.shades[row] = shades_of(image)
        self.hashes[row] = _hash_of_colour(self.shades[row]) if is_plain(image) else hash_of(image)


def require_library() -> None:
    """Raises DatasetError E1970 if the library for the hashes is not installed."""
    try:
        import imagehash  # noqa: F401
    except ImportError as error:
        raise DatasetError(
            "finding near duplicates needs the package ImageHash, which is not installed: pip install "
            "'mezzotint[doctor]'",
            code="E1970",
        ) from error


def hash_of(image: Image.Image) -> int:
    """pHash: 64 bits that hardly change when an image is resized, recompressed or brightened."""
    import imagehash

    bits = imagehash.phash(image).hash.ravel()
    return int.from_bytes(np.packbits(bits).tobytes(), "big")


def shades_of(image: Image.Image) -> NDArray[np.uint8]:
    """An 8×8×3 thumbnail of an image."""
    return np.asarray(image.convert("RGB").resize((8, 8), Image.Resampling.BOX), np.uint8)


def _hash_of_colour(shades: NDArray[np.uint8]) -> int:
    """A hash of a plain image, which has no structure: 21 bits each for red, green and blue, one for every 12 levels;
    similar colours differ in few bits."""
    colour_hash = 1 << 63
    for channel, mean in enumerate(shades.reshape(-1, 3).mean(axis=0).tolist()):
        colour_hash |= ((1 << round(mean / 255 * 21)) - 1) << (21 * channel)
    return colour_hash


def image_of(
    catalogue: Catalogue, row: int, settings: DataSettings, side: int, *, is_whole: bool = False
) -> Image.Image:  # fmt: skip
    """The image of a row, or a clip's first frame, at most `side` × `side`. is_whole: without the crop and rotation of
    its `mezzotint.jsonl`. Raises DatasetError."""
    path = catalogue.local_path(row, keep_gb=settings.cache.fetched_gb)
    if int(catalogue.frames[row]) == 1 and not clip_files.is_clip(os.fspath(path)):
        region = None if is_whole else catalogue.overrides.region_of(row)
        return decoding.thumbnail(
            path, side, background=settings.background, max_pixels=settings.max_pixels, region=region
        )
    frames: NDArray[np.uint8] = clip_files.decoder().frames(path, [float(catalogue.begin[row])])
    image = Image.fromarray(np.ascontiguousarray(frames[0].transpose(1, 2, 0)))
    image.thumbnail((side, side))
    return image


def near_pairs(looks: Looks, most: int | None = None) -> list[tuple[int, int, float]]:
    """Pairs that look alike: (row, later row, mean difference of the thumbnails of 255), nearest first, at most `most`.
    Of rows with the same hash each is paired only with the first.

    Hashes that differ in at most `APART` bits of 64 have a band of 16 bits in which they differ in at most one.
    Therefore each band is sorted once for each of its bits, without that bit, and only equal ones are compared.
    """
    distinct, first = np.unique(looks.hashes, return_index=True)
    first_row = first[np.searchsorted(distinct, looks.hashes)]
    again = np.flatnonzero(first_row != np.arange(len(first_row)))
    candidates = [np.stack([first_row[again], again], axis=1)]
    candidates.append(first[_similar_pairs(distinct)])
    pairs = np.sort(np.concatenate(candidates), axis=1)
    shades = looks.shades.reshape(len(looks.shades), 192)
    distance = np.concatenate([
        np.sqrt(((shades[part[:, 0]].astype(np.float32) - shades[part[:, 1]]) ** 2).mean(axis=1))
        for part in np.array_split(pairs, len(pairs) // 100_000 + 1)
    ])  # fmt: skip
    pairs, distance = pairs[distance <= MAX_COLOUR_DISTANCE], distance[distance <= MAX_COLOUR_DISTANCE]
    order = np.lexsort((pairs[:, 1], pairs[:, 0], distance))[:most]
    return [(a, b, round(float(d), 2)) for (a, b), d in zip(pairs[order].tolist(), distance[order], strict=True)]


def _similar_pairs(hashes: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Index pairs of different hashes, ascending, that differ in at most `APART` bits, (m, 2), each pair once."""
    every = [np.zeros(0, np.uint64)]
    for band in range(_BANDS):
        part = (hashes >> np.uint64(_BAND_BITS * band)).astype(np.uint16)
        for bit in range(_BAND_BITS):
            key = part & np.uint16(0xFFFF ^ 1 << bit)
            order = np.argsort(key, kind="stable")
            every += _pairs_in_runs(hashes, key[order], order)
    pairs = np.unique(np.concatenate(every))
    return np.stack([pairs >> np.uint64(32), pairs & np.uint64(0xFFFFFFFF)], axis=1).astype(np.int64)


def _pairs_in_runs(
    hashes: NDArray[np.uint64], keys: NDArray[np.uint16], order: NDArray[np.int64]
) -> Iterator[NDArray[np.uint64]]:
    """Pairs of hashes with equal keys that differ in at most `APART` bits, as one number each. order: by key."""
    left = np.arange(len(keys) - 1)
    step = 1
    while len(left) and step <= _MAX_STEP:
        left = left[left + step < len(keys)]
        left = left[keys[left] == keys[left + step]]
        first, second = order[left], order[left + step]
        near = np.bitwise_count(hashes[first] ^ hashes[second]) <= APART
        low, high = np.minimum(first[near], second[near]), np.maximum(first[near], second[near])
        yield low.astype(np.uint64) << np.uint64(32) | high.astype(np.uint64)
        step += 1


def is_plain(image: Image.Image) -> bool:
    """Whether an image has one colour, except for a dot or some noise."""
    small = np.asarray(image.convert("RGB").resize((32, 32), Image.Resampling.BOX))
    return float(small.reshape(-1, 3).std(axis=0).max()) < _PLAIN
