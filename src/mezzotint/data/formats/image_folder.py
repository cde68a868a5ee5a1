"""The format `image-folder`: all images below a folder, captions in sidecar files or file names."""

from __future__ import annotations

from collections.abc import Iterator

from mezzotint.data.formats.base import Format, Item, Source
from mezzotint.data.formats.shared.sidecars import SIDECARS, samples
from mezzotint.data.media import decoding


def read_samples(source: Source) -> Iterator[Item]:
    """The samples of `sidecars.samples`, for images."""
    return samples(source, word="image")


FORMAT = Format(read_samples=read_samples, suffixes=decoding.SUFFIXES | set(SIDECARS), captions=("sidecars",))
