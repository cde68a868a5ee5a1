"""The format `metadata`: captions in a table. metadata.jsonl, .csv or .parquet name images in their folder; parquet and
arrow files may contain the images themselves, as data sets of the Hugging Face hub do."""

from __future__ import annotations

from collections.abc import Iterator

from mezzotint.data.formats.base import Format, Item, Source
from mezzotint.data.formats.shared.table_files import MANIFESTS, SUFFIXES, list_files
from mezzotint.data.formats.shared.table_samples import RowKind, samples
from mezzotint.data.media import decoding

IMAGES = RowKind(decoding.SUFFIXES, "image", "image")


def read_samples(source: Source) -> Iterator[Item]:
    """The samples of `table_samples.samples`, for images."""
    return samples(source, IMAGES)


FORMAT = Format(
    read_samples=read_samples,
    suffixes=SUFFIXES,
    list_files=list_files,
    manifests=MANIFESTS,
    captions=("tables",),
    reads_remote=True,
)
