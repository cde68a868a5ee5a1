"""The format `metadata`: captions in a table. metadata.jsonl, .csv or .parquet name pictures of their folder; parquet
and arrow files may hold the pictures themselves, as data sets of the hub do."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from mezzotint.data.formats._finding import MANIFESTS, SUFFIXES, is_manifest, is_table, list_files
from mezzotint.data.formats._row_samples import Reading
from mezzotint.data.formats._tables import Row, Wanted, csv_rows, jsonl
from mezzotint.data.formats.base import Noted, Skipped, Source
from mezzotint.errors import DatasetError
from mezzotint.stages import Sample

__all__ = ["MANIFESTS", "SUFFIXES", "list_files", "read_samples"]


def read_samples(source: Source) -> Iterator[Sample | Skipped | Noted]:
    """One sample for each row, in the order of tables and rows, or why there is none.

    Rows are named `table:number`: of its first line, from 1, in .jsonl and .csv; from 0 in .parquet and .arrow. A
    sample's key is its picture's path, with `#2`, `#3`, … where later rows name the same picture with other captions;
    that of a picture inside a table is `table:number`. A row whose picture is not there, or whose values are of another
    type, is left out, as is one that repeats picture and captions of an earlier row. Pictures without a row are left
    out as wanted. A caption is a text, or a list of texts to choose from; None and NaN count as missing.

    Raises DatasetError, after all rows were looked at: E1213 when rows name files outside the table's folder, E1203
    when captions are missing and `captions.missing=error`. E1211, E1212 and E1214 for a table that cannot be read.
    """
    reading = Reading(source, is_table=is_table, kept=partial(_of_library_cache, source))
    for name in source.listing.names:
        if is_table(name):
            yield from reading.table(name, _rows(source, name))
    reading.require()
    yield from reading.rest()


def _rows(source: Source, name: str) -> Iterator[Row]:
    path, columns = source.root / name, source.settings.columns
    image = columns.image
    of_names = (f"{image}_file_name", image)
    wanted = Wanted(("file_name", *of_names) if image == "image" else of_names, columns.caption)
    if not is_manifest(name):
        wanted = Wanted((image,), columns.caption)
    match path.suffix:
        case ".jsonl":
            return jsonl(path, wanted)
        case ".csv":
            return csv_rows(path, wanted)
        case _:
            return _arrow_rows(path, wanted)


def _arrow_rows(path: Path, wanted: Wanted) -> Iterator[Row]:
    try:
        from mezzotint.data.formats import _arrow
    except ImportError as error:
        raise DatasetError(
            f"{path}: {path.suffix} files need the package {error.name}: pip install 'mezzotint[data]'", code="E1214"
        ) from error
    return _arrow.rows(path, wanted)


def _of_library_cache(source: Source, path: str) -> bytes | None:
    """A picture that a data set of the hub keeps in the library's caches, where `datasets` is installed."""
    try:
        from mezzotint.data.formats import _hub
    except ImportError:
        return None
    return _hub.cached_file(path, source.root, source.settings.hub_cache)
