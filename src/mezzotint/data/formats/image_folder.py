"""The format `image-folder`: every picture below a folder, captions in a sidecar file or in the picture's own name."""

from __future__ import annotations

from collections.abc import Iterator

from mezzotint.data.formats.base import Format, Item, Source
from mezzotint.data.formats.shared.sidecars import SIDECARS, samples
from mezzotint.data.media import decoding


def read_samples(source: Source) -> Iterator[Item]:
    """The samples of `sidecars.samples`, of pictures."""
    return samples(source, word="picture")


FORMAT = Format(read_samples=read_samples, suffixes=decoding.SUFFIXES | set(SIDECARS))
