"""The format `mindone-cache`: the cache of latents and text embeddings of MindONE's SDXL example, in three folders."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from mezzotint.compat.mindone import encoded_files
from mezzotint.compat.mindone.encoded_files import FOLDERS, SUFFIX
from mezzotint.data.files.listing import Listing, walk
from mezzotint.data.formats.base import Format, Item, Noted, Skipped, Source
from mezzotint.data.formats.shared.table_files import remove_files
from mezzotint.data.formats.shared.tables import ColumnNames, csv_rows
from mezzotint.errors import DatasetError
from mezzotint.settings.counting import format_names
from mezzotint.settings.sections.data import DataSettings
from mezzotint.stages import Sample

SUFFIXES = frozenset({SUFFIX, ".csv"})

_COLUMNS = ColumnNames(("dir",), "text", "the first line of the table reads dir,text")


def list_files(path: Path, _settings: DataSettings) -> Listing:
    """The arrays in the three folders and the tables next to them. Raises DatasetError E1201, and E1210 if one of the
    three is missing."""
    listing = walk(path, SUFFIXES)
    used_names = [name for name in listing.names if name.endswith(SUFFIX) or "/" not in name]
    missing = [folder for folder in FOLDERS if not (listing.root / folder).is_dir()]
    if missing:
        raise DatasetError(
            f"{listing.root}: no {', no '.join(missing)}: MindONE's cache has the folders {', '.join(FOLDERS)}, "
            "written with --cache_latent True --cache_text_embedding True; give their folder as data.path",
            code="E1210",
        )
    return remove_files(listing, set(listing.names) - set(used_names))


def read_samples(source: Source) -> Iterator[Item]:
    """Yields one sample for each row of the tables, or, without a table, for each file of latents.

    A row's `dir` names a file by its last part up to the first dot. Entries without all three files are skipped.
    Captions are not in the cache; the name and a digest of the file, which changes with the file, are used instead.
    Raises DatasetError E1211 and E1212 for a table.
    """
    existing = {name for name in source.listing.names if name.endswith(SUFFIX)}
    tables = [name for name in source.listing.names if name.endswith(".csv")]
    names = _names_in_tables(source, tables) if tables else _names_of_files(existing)
    seen: dict[str, int] = {}
    for location, name in names:
        missing = [f"{folder}/{name}{SUFFIX}" for folder in FOLDERS if f"{folder}/{name}{SUFFIX}" not in existing]
        if missing:
            yield Skipped(source.prefix + location, f"no {', no '.join(missing)}")
            continue
        seen[name] = seen.get(name, 0) + 1
        try:
            yield _sample(source, name, seen[name])
        except DatasetError as error:
            yield Skipped(source.prefix + location, error.message)
    repeated = [name for name, count in seen.items() if count > 1]
    if repeated:
        shown = format_names(sorted(repeated), 10)
        reason = f"{len(repeated)} names are in several rows, each a sample of the same file: {shown}"
        yield Noted(source.prefix + FOLDERS[0], reason)


def _names_in_tables(source: Source, tables: list[str]) -> Iterator[tuple[str, str]]:
    for table in tables:
        for row in csv_rows(source.root / table, _COLUMNS):
            last = str(row.image or "").replace("\\", "/").rpartition("/")[2]
            yield f"{table}:{row.number}", last.partition(".")[0]


def _names_of_files(existing: set[str]) -> Iterator[tuple[str, str]]:
    for path in sorted(existing):
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
