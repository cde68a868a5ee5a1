"""Converts rows of tables to samples, for the formats `metadata` and `videofolder`: the file of a row, its captions, or
the reason why it is skipped."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mezzotint.data.files.listing import Unusable
from mezzotint.data.formats.base import Item, Noted, Skipped, Source
from mezzotint.data.formats.shared.captions import captions_in, is_absent, kind_of
from mezzotint.data.formats.shared.table_files import is_manifest, is_table
from mezzotint.data.formats.shared.tables import ColumnNames, TableRow, csv_rows, jsonl
from mezzotint.errors import DatasetError
from mezzotint.settings.counting import format_names
from mezzotint.settings.sections.conditions import condition_columns
from mezzotint.stages import Sample

_OUTSIDE = re.compile(r"/|\\|[A-Za-z]:[\\/]|[A-Za-z][A-Za-z0-9+.-]*://|(file|data):", re.IGNORECASE)
_SHOWN = 10


@dataclass(frozen=True, slots=True)
class RowKind:
    """The kind of files that rows refer to. endings: their extensions. word: their name in messages. column: the column
    for `data.columns.image=image`. fixed: for tables that are all .csv, fixed columns that replace `data.columns`; an
    empty caption then counts as a caption. has_doubles: whether a row that repeats an earlier one is a separate
    sample."""

    endings: Collection[str]
    word: str
    column: str
    fixed: ColumnNames | None = None
    has_doubles: bool = False


def samples(source: Source, kind: RowKind) -> Iterator[Item]:
    """One sample for each row, in the order of tables and rows, or the reason why it is skipped.

    Rows are named `table:number`: number of the first line, from 1, in .jsonl and .csv; from 0 in .parquet and .arrow.
    A sample's key is its image's path, with `#2`, `#3`, … if later rows have the same image with other captions; for an
    image inside a table it is `table:number`. A row is skipped if its image is missing, if a value has another type, or
    if it repeats image and captions of an earlier row. Images without a row count as excluded. A caption is a string,
    or a list of alternatives; None and NaN count as missing.

    Raises DatasetError, after all rows were read: E1213 if rows refer to files outside the table's folder, E1203 if
    captions are missing and `captions.missing=error`. E1211, E1212 and E1214 for a table that cannot be read.
    """
    reader = _RowReader(source, kind)
    for name in source.listing.names:
        if is_table(name):
            yield from reader.table(name)
    reader.require()
    yield from reader.list_unnamed()


class _Outside(Exception):
    pass


class _RowReader:
    """State of the rows read so far."""

    def __init__(self, source: Source, kind: RowKind) -> None:
        self._source = source
        self._kind = kind
        self._images = {name for name in source.listing.names if not is_table(name)}
        self._refused = dict(source.listing.refused)
        self._named: dict[str, dict[tuple[str, ...], str]] = {}  # image → captions → the row that has them
        self._times: dict[str, int] = {}
        self._missing: list[str] = []
        self._outside: list[str] = []

    def table(self, name: str) -> Iterator[Item]:
        repeated: list[str] = []
        for row in _rows(self._source, name, self._kind):
            item = self._item(name, row, repeated)
            if item is not None:
                yield item
        if repeated:
            word, other = self._kind.word, "" if self._kind.has_doubles else " with other captions"
            many = f"rows name {word}s" if len(repeated) > 1 else f"row names a {word}"
            reason = (
                f"{len(repeated)} {many} of an earlier row{other}: a separate sample: {format_names(repeated, _SHOWN)}"
            )
            yield Noted(self._source.prefix + name, reason)

    def require(self) -> None:
        """Raises E1213 and E1203 for the rows of all tables."""
        root = self._source.root
        if self._outside:
            raise DatasetError(
                f"{root}: {_count_rows(self._outside, 'names', 'name')} a file outside the folder of the table: "
                f"{format_names(self._outside, _SHOWN)}; use names relative to that folder, without .., and move the "
                f"{self._kind.word}s below it",
                code="E1213",
            )
        if self._missing:
            raise DatasetError(
                f"{root}: {_count_rows(self._missing, 'has', 'have')} no caption: "
                f"{format_names(self._missing, _SHOWN)}; add "
                "them, or set data.captions.missing=empty (or skip)",
                code="E1203",
            )

    def list_unnamed(self) -> Iterator[Skipped]:
        prefix = self._source.prefix
        for path, reason in self._refused.items():
            if path not in self._named:
                yield Skipped(prefix + path, reason)
        for name in self._source.listing.names:
            if name in self._images and name not in self._named:
                yield Skipped(prefix + name, "not named in any row of a table", is_wanted=True)

    def _item(self, table: str, row: TableRow, repeated: list[str]) -> Sample | Skipped | None:
        position = f"{table}:{row.number}"
        where = self._source.prefix + position
        try:
            if row.fault:
                raise Unusable(row.fault)
            name, path = self._image(table, row)
            captions = captions_in(row.caption, self._source.settings.captions)
            mask = self._mask(table, row)
            self._count_as_named(table, row)
            item: Sample | Skipped | None
            if captions:
                item = self._sample(name or position, path, captions, position, repeated if name else None)
            else:
                item = self._without_caption(name or position, path, position)
            if self._source.condition and isinstance(item, Sample):
                return self._of_condition(item, table, row)
            return _with_mask(item, mask)
        except _Outside as error:
            self._outside.append(f"{position} ({error})")
        except Unusable as error:
            return Skipped(where, str(error))
        return None

    def _without_caption(self, name: str, path: Path, position: str) -> Sample | Skipped | None:
        match self._source.settings.captions.missing:
            case "skip":
                return Skipped(self._source.prefix + position, "no caption", is_wanted=True)
            case "empty":
                return self._sample(name, path, ("",), position, None)
            case "error":
                self._missing.append(position)
                return None
            case _:
                raise AssertionError(self._source.settings.captions.missing)

    def _sample(
        self, name: str, path: Path, captions: tuple[str, ...], position: str, repeated: list[str] | None
    ) -> Sample | Skipped:
        before = self._named.setdefault(name, {})
        if captions in before and not self._kind.has_doubles:
            reason = f"the same {self._kind.word} and caption as {before[captions]}"
            return Skipped(self._source.prefix + position, reason)
        before.setdefault(captions, position)
        number = self._times[name] = self._times.get(name, 0) + 1
        key = name
        if number > 1:
            key = f"{name}#{number}"
            if repeated is not None:
                repeated.append(f"{position} ({key})")
        return Sample(self._source.prefix + key, path, captions, repeats=self._source.repeats)

    def _image(self, table: str, row: TableRow) -> tuple[str, Path]:
        """The name below the root and the path of a row's image; the name is empty for an image inside the table, of
        which nothing is stored while a condition is read."""
        content = self._content(row.image, table, self._kind.word)
        if isinstance(content, str):
            return content, self._source.root / content
        return "", self._source.root if self._source.condition else self._put(content)

    def _of_condition(self, item: Sample, table: str, row: TableRow) -> Sample | Skipped:
        """A row's condition image in place of its sample, with the sample's key."""
        [value], word = row.conditions, f"{self._source.condition} image"
        if is_absent(_bytes_or_path(value)):
            return Skipped(item.key, f"no {word}", is_wanted=True)
        content = self._content(value, table, word)
        path = self._source.root / content if isinstance(content, str) else self._put(content)
        return replace(item, media=path)

    def _content(self, raw: Any, table: str, word: str) -> str | bytes:
        """The name below the root of an image, or the content of one inside the table. Raises _Outside and Unusable."""
        value = _bytes_or_path(raw)
        if isinstance(value, (bytes, bytearray)):
            return bytes(value)
        if is_absent(value):
            raise Unusable(f"no {word}")
        if not isinstance(value, str):
            raise Unusable(f"its {word} is {kind_of(value)}, not a file name")
        if isinstance(raw, dict) and value.startswith("/"):
            cached = _of_library_cache(value, self._source)
            if cached is not None:
                return cached
        return self._inside(value, table)

    def _count_as_named(self, table: str, row: TableRow) -> None:
        """Condition images do not count as images without a row."""
        for value in map(_bytes_or_path, row.conditions):
            if isinstance(value, str) and not _is_outside(value):
                self._named.setdefault(self._below(value, table), {})

    def _mask(self, table: str, row: TableRow) -> Path | None:
        """The file of a row's mask; None without one. Raises _Outside and Unusable."""
        value = _bytes_or_path(row.mask)
        if is_absent(value):
            return None
        if isinstance(value, (bytes, bytearray)):
            return self._put(bytes(value))
        if not isinstance(value, str):
            raise Unusable(f"its mask is {kind_of(value)}, not a file name")
        name = self._below(value, table)
        self._named.setdefault(name, {})  # so it does not count as an image without a row
        path = self._source.root / name
        if not path.is_file():
            raise Unusable(f"its mask {value[:100]!a}: no such file below the folder of the table")
        return path

    def _put(self, data: bytes) -> Path:
        assert self._source.images is not None, "set whenever samples are read"
        return self._source.images.put(data)

    def _below(self, written: str, table: str) -> str:
        """The name below the root for a name relative to the table's folder. Raises _Outside."""
        if _is_outside(written):
            raise _Outside(ascii(written[:100]))
        return posixpath.normpath(posixpath.join(posixpath.dirname(table), written))

    def _inside(self, written: str, table: str) -> str:
        """The listed file that a row refers to. Raises _Outside and Unusable."""
        text, name = ascii(written[:100]), self._below(written, table)
        self._named.setdefault(name, {})
        if name in self._images:
            return name
        if name in self._refused:
            raise Unusable(f"{text}: {self._refused[name]}")
        suffix = os.path.splitext(name)[1].lower()
        if suffix not in self._kind.endings:
            ending = ascii(suffix) if suffix else "no extension"
            raise Unusable(f"{text}: {ending} is not an extension of {self._kind.word}s")
        hint = "; use / in names" if "\\" in written else ""
        raise Unusable(f"{text}: no such file below the folder of the table{hint}")


def _bytes_or_path(value: Any) -> Any:
    """What an image of a table is: a struct of the library `datasets` has one of bytes and path."""
    return value.get("bytes") or value.get("path") if isinstance(value, dict) else value


def _is_outside(written: str) -> bool:
    return bool(_OUTSIDE.match(written)) or ".." in re.split(r"[/\\]", written)


def _with_mask(item: Sample | Skipped | None, mask: Path | None) -> Sample | Skipped | None:
    if mask is None or not isinstance(item, Sample):
        return item
    return replace(item, overrides=(*item.overrides, ("mask", os.fspath(mask))))


def _rows(source: Source, name: str, kind: RowKind) -> Iterator[TableRow]:
    path, columns = source.file(name), source.settings.columns
    if kind.fixed is not None:
        return (row if row.fault else replace(row, caption=row.caption or "") for row in csv_rows(path, kind.fixed))
    image = kind.column if columns.image == "image" else columns.image
    of_names = (f"{image}_file_name", image)
    mask = "mask" if source.settings.mask.source == "files" and image != "mask" else ""
    read = (source.condition,) if source.condition else condition_columns(source.settings.conditions)
    names = ColumnNames(
        ("file_name", *of_names) if columns.image == "image" else of_names,
        columns.caption,
        mask=mask,
        conditions=tuple((f"{column}_file_name", column) for column in read),
    )
    if not is_manifest(name):  # with images inside: those of conditions are read in a pass of their own
        inside = ((source.condition,),) if source.condition else ()
        names = ColumnNames((image,), columns.caption, mask=mask, conditions=inside)
    match path.suffix:
        case ".jsonl":
            return jsonl(path, names)
        case ".csv":
            return csv_rows(path, names)
        case _:
            return _arrow_rows(path, names)


def _arrow_rows(path: Path, columns: ColumnNames) -> Iterator[TableRow]:
    try:
        from mezzotint.data.formats.shared import _arrow
    except ImportError as error:
        raise DatasetError(
            f"{path}: {path.suffix} files need the package {error.name}: pip install 'mezzotint[data]'", code="E1214"
        ) from error
    return _arrow.rows(path, columns)


def _of_library_cache(path: str, source: Source) -> bytes | None:
    """An image of a hub data set in the caches of the library `datasets`, if that is installed."""
    try:
        from mezzotint.data.formats.shared import _hub
    except ImportError:
        return None
    return _hub.cached_file(path, source.root, source.settings.hub_cache)


def _count_rows(rows: Sequence[str], one: str, many: str) -> str:
    return f"{len(rows)} rows {many}" if len(rows) > 1 else f"a row {one}"
