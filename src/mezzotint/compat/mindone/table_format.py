"""The format `mindone`: tables of MindONE's SDXL example, .csv files with the columns `dir` and `text`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from mezzotint.data.files.listing import Listing, walk
from mezzotint.data.formats.base import Format, Item, Source
from mezzotint.data.formats.shared.table_files import is_table, remove_files
from mezzotint.data.formats.shared.table_samples import RowKind, samples
from mezzotint.data.formats.shared.tables import ColumnNames
from mezzotint.data.media import decoding
from mezzotint.errors import DatasetError
from mezzotint.settings.sections.data import DataSettings

SUFFIXES = decoding.SUFFIXES | {".csv"}

_COLUMNS = ColumnNames(("dir",), "text", "the first line of the table reads dir,text")
_IMAGES = RowKind(decoding.SUFFIXES, "image", "dir", fixed=_COLUMNS, has_doubles=True)


def list_files(path: Path, _settings: DataSettings) -> Listing:
    """The images below a folder and the tables directly in it. Raises DatasetError E1201 for a folder that cannot be
    read, E1210 without a table."""
    listing = walk(path, SUFFIXES)
    tables = [name for name in listing.names if is_table(name)]
    direct = [name for name in tables if "/" not in name]
    if not direct:
        deeper = f"{', '.join(tables[:5])} is deeper: give that folder as data.path" if tables else "put one into it"
        raise DatasetError(
            f"{listing.root}: no .csv file with the columns dir and text directly in it; {deeper}, or set "
            "data.format=image-folder for captions next to the images",
            code="E1210",
        )
    return remove_files(listing, set(tables) - set(direct))


def read_samples(source: Source) -> Iterator[Item]:
    """Yields one sample for each row of each table, tables in the order of their names; as the format `metadata`,
    except that repeated rows are separate samples, and an empty caption stays empty.

    `dir` is a path relative to the folder of the table. Raises DatasetError E1211, E1212, E1213.
    """
    return samples(source, _IMAGES)


FORMAT = Format(
    read_samples=read_samples, suffixes=SUFFIXES, list_files=list_files, manifests=frozenset({".csv"})
)  # fmt: skip
