"""The format `mindone-cache`: latents and texts that MindONE's example for SDXL has encoded, in its three folders."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from mezzotint.compat.mindone import encoded_files
from mezzotint.compat.mindone.encoded_files import FOLDERS, SUFFIX
from mezzotint.data.files.listing import Listing, walk
from mezzotint.data.formats.base import Format, Item, Noted, Skipped, Source
from mezzotint.data.formats.shared.table_files import without
from mezzotint.data.formats.shared.tables import ColumnNames, csv_rows
from mezzotint.errors import DatasetError
from mezzotint.settings.counting import listed
from mezzotint.settings.sections.data import DataSettings
from mezzotint.stages import Sample

SUFFIXES = frozenset({SUFFIX, ".csv"})

_COLUMNS = ColumnNames(("dir",), "text", "the first line of the table reads dir,text")


def list_files(path: Path, _settings: DataSettings) -> Listing:
    """The arrays in the three folders and the tables beside them. Raises DatasetError E1201, and E1210 where one of the
    three is not there."""
    listing = walk(path, SUFFIXES)
    kept = [name for name in listing.names if name.endswith(SUFFIX) or "/" not in name]
    lost = [folder for folder in FOLDERS if not (listing.root / folder).is_dir()]
    if lost:
        raise DatasetError(
            f"{listing.root}: no {', no '.join(lost)}: MindONE's cache is the folders {', '.join(FOLDERS)}, made with "
            "--cache_latent True --cache_text_embedding True; write their folder as data.path",
            code="E1210",
        )
    return without(listing, set(listing.names) - set(kept))


def read_samples(source: Source) -> Iterator[Item]:
    """One sample for each row of the tables, or, where there is no table, for each file of latents.

    A row's `dir` names a file by its last part up to the first dot. What has no three files is left out. Captions are
    not in the cache: what stands for one is the name and, so that a changed file is another caption, a digest.
    Raises DatasetError E1211 and E1212 for a table.
    """
    there = {name for name in source.listing.names if name.endswith(SUFFIX)}
    tables = [name for name in source.listing.names if name.endswith(".csv")]
    names = _named(source, tables) if tables else _all(there)
    seen: dict[str, int] = {}
    for place, name in names:
        lost = [f"{folder}/{name}{SUFFIX}" for folder in FOLDERS if f"{folder}/{name}{SUFFIX}" not in there]
        if lost:
            yield Skipped(source.prefix + place, f"no {', no '.join(lost)}")
            continue
        seen[name] = seen.get(name, 0) + 1
        try:
            yield _sample(source, name, seen[name])
        except DatasetError as error:
            yield Skipped(source.prefix + place, error.message)
    doubles = [name for name, count in seen.items() if count > 1]
    if doubles:
        shown = listed(sorted(doubles), 10)
        reason = f"{len(doubles)} names stand in several rows, a sample each, of one and the same file: {shown}"
        yield Noted(source.prefix + FOLDERS[0], reason)


def _named(source: Source, tables: list[str]) -> Iterator[tuple[str, str]]:
    for table in tables:
        for row in csv_rows(source.root / table, _COLUMNS):
            last = str(row.picture or "").replace("\\", "/").rpartition("/")[2]
            yield f"{table}:{row.number}", last.partition(".")[0]


def _all(there: set[str]) -> Iterator[tuple[str, str]]:
    for path in sorted(there):
        folder, _, name = path.partition("/")
        if folder == FOLDERS[0] and "/" not in name:
            yield path, name.removesuffix(SUFFIX)


def _sample(source: Source, name: str, number: int) -> Sample:
    path = source.root / FOLDERS[0] / f"{name}{SUFFIX}"
    try:
        digest = encoded_files.text_digest_of(path)
    except OSError as error:
        raise DatasetError(f"{path}: {error.strerror}", code="E1370") from error
    sizes = ",".join(map(str, encoded_files.sizes_of(path)))
    key = source.prefix + (name if number == 1 else f"{name}#{number}")
    return Sample(key, path, (f"{name} {digest}",), repeats=source.repeats, overrides=(("sizes", sizes),))


FORMAT = Format(
    read_samples=read_samples, suffixes=SUFFIXES, list_files=list_files, manifests=frozenset({".csv"}), is_encoded=True
)
