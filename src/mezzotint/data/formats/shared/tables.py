"""Rows of metadata.jsonl and metadata.csv, with values that are not checked yet.

A row that cannot be read becomes a row with a fault, so one bad line costs one sample; a file that is unreadable as a
whole is an error.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, TextIO

from mezzotint import outside
from mezzotint.data.formats.shared.captions import kind_of
from mezzotint.errors import DatasetError
from mezzotint.settings.counting import format_count, format_names

MAX_LINE = 16 << 20
"""Maximum number of characters of a line of metadata.jsonl or metadata.csv."""

_SHOWN_COLUMNS = 30


@dataclass(frozen=True, slots=True)
class ColumnNames:
    """The columns to read. images: possible names of the image column; the first existing one is used. caption: name
    of the caption column. remedy: advice if one is missing, instead of setting another in the recipe. mask: name of the
    optional mask column, or "" for none. conditions: possible names of each column of condition images."""

    images: tuple[str, ...]
    caption: str
    remedy: str = ""
    mask: str = ""
    conditions: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class TableRow:
    """One row. number: of its first line, from 1, in text files; from 0 in others. image, caption, mask, conditions:
    raw values, None if absent. fault: why the row cannot be read, otherwise ""."""

    number: int
    image: Any = None
    caption: Any = None
    fault: str = ""
    mask: Any = None
    conditions: tuple[Any, ...] = ()


def jsonl(path: Path, columns: ColumnNames) -> Iterator[TableRow]:
    """The rows of a JSON lines file, UTF-8, without empty lines. Raises DatasetError E1211 for another kind of file,
    and E1212, after the last line, if no line has a required column."""
    seen: set[str] = set()
    with _text(path) as file:
        for number, line in enumerate(_lines(path, file), start=1):
            if line.strip():
                if not seen and line.lstrip().startswith("["):
                    raise DatasetError(f"{path}: is a JSON array; write one object per line", code="E1211")
                yield _parse(line, number, columns, seen)
    if seen:
        require_columns(path, columns, sorted(seen))


def csv_rows(path: Path, columns: ColumnNames) -> Iterator[TableRow]:
    """The rows of a CSV table, UTF-8, with a header line. The separator is a comma, semicolon or tab, depending on
    which gives a header with the image column; quotes inside quotes are doubled; line ends may be inside quotes. An
    empty field is None. Raises DatasetError E1211 for another kind of file, E1212 for a column that is missing or
    exists twice."""
    with _text(path) as file:
        lines = _lines(path, file)
        begin = 1
        try:
            first = next(lines, "")
            whole = chain((first,), lines) if first else iter(())
            reader = csv.reader(whole, delimiter=csv_delimiter(first, columns), strict=True, skipinitialspace=True)
            header = [name.strip() for name in next(reader, [])]
            image, caption = require_columns(path, columns, header)
            mask = header.index(columns.mask) if columns.mask in header else -1
            others = [header.index(name) for name in condition_names(columns, header)]
            begin = reader.line_num + 1
            for fields in reader:
                if len(fields) == len(header):
                    row_mask = fields[mask] or None if mask >= 0 else None
                    of_row = tuple(fields[i] or None for i in others)
                    yield TableRow(
                        begin, fields[image] or None, fields[caption] or None, mask=row_mask, conditions=of_row
                    )
                elif fields:
                    many = f"{format_count(len(fields), 'field')}, but the header has {len(header)}"
                    yield TableRow(begin, fault=f"{many}; put texts that contain the separator in quotes")
                begin = reader.line_num + 1
        except csv.Error as error:
            raise DatasetError(f"{path}: the record that starts in line {begin}: {error}", code="E1211") from error


def require_columns(path: Path, columns: ColumnNames, header: Sequence[str]) -> tuple[int, int]:
    """The indexes of the image and caption columns in `header`. Raises DatasetError E1212, which lists the columns."""
    names_text = format_names([repr(name[:80]) for name in header], _SHOWN_COLUMNS)
    listing = f"its columns are {names_text}" if header else "it is empty"
    image = next((name for name in columns.images if name in header), None)
    for name, names, word in ((image, columns.images, "image"), (columns.caption, [columns.caption], "caption")):
        if name not in header:
            remedy = columns.remedy or f"set data.columns.{'image' if word == 'image' else word}"
            raise DatasetError(
                f"{path}: no column {' or '.join(map(repr, names))} for the {word}; {listing}; {remedy}", code="E1212"
            )
    assert image is not None
    for name in (image, columns.caption):
        if list(header).count(name) > 1:
            raise DatasetError(f"{path}: the column {name!r} exists twice; {listing}", code="E1212")
    if len(condition_names(columns, header)) < len(columns.conditions):
        names = next(names for names in columns.conditions if not set(names) & set(header))
        raise DatasetError(
            f"{path}: no column {' or '.join(map(repr, names))} for a condition; {listing}; set "
            "data.conditions.NAME.column",
            code="E1212",
        )
    return list(header).index(image), list(header).index(columns.caption)


def condition_names(columns: ColumnNames, header: Sequence[str]) -> list[str]:
    """The existing columns of condition images, in order."""
    existing = (next((name for name in names if name in header), None) for names in columns.conditions)
    return [name for name in existing if name is not None]


def require_data(path: Path) -> None:
    """Raises DatasetError E1211 for a file without readable data: a Git LFS pointer, UTF-16, or one that cannot be
    opened."""
    try:
        with open(path, "rb") as file:
            head = file.read(64)
    except OSError as error:
        raise DatasetError(f"{path}: {error.strerror}", code="E1211") from error
    if head.startswith(b"version https://git-lfs"):
        raise DatasetError(f"{path}: is a Git LFS pointer, not the data; fetch it with git lfs pull", code="E1211")
    if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise DatasetError(f"{path}: is UTF-16; save it as UTF-8", code="E1211")


@contextmanager
def _text(path: Path) -> Iterator[TextIO]:
    require_data(path)
    # bytes that are not UTF-8 become lone surrogates: valid in a file name, otherwise the row is skipped
    with open(
        path, encoding="utf-8-sig", errors="surrogateescape", newline="\n" if path.suffix == ".jsonl" else ""
    ) as f:
        yield f


def _lines(path: Path, file: TextIO) -> Iterator[str]:
    """The lines of a table. Raises DatasetError E1211 for a line that is too long."""
    number = 0
    while line := file.readline(MAX_LINE + 1):
        number += 1
        if len(line) > MAX_LINE:
            raise DatasetError(f"{path}: line {number} has more than {MAX_LINE:,} characters", code="E1211")
        yield line


def _parse(line: str, number: int, columns: ColumnNames, seen: set[str]) -> TableRow:
    try:
        value = outside.parse_json(line)
    except ValueError as error:
        return TableRow(number, fault=f"not JSON: {getattr(error, 'msg', str(error))}")
    if not isinstance(value, dict):
        return TableRow(number, fault=f"{kind_of(value)}, not an object")
    seen.update(value)
    image = _first(value, columns.images)
    mask = value.get(columns.mask) if columns.mask else None
    conditions = tuple(_first(value, names) for names in columns.conditions)
    return TableRow(number, image, value.get(columns.caption), mask=mask, conditions=conditions)


def _first(values: dict[str, Any], names: Sequence[str]) -> Any:
    return next((values[name] for name in names if values.get(name) is not None), None)


def csv_delimiter(header: str, columns: ColumnNames) -> str:
    """The separator of a table, by its header line: the one that gives an image column, otherwise a comma."""
    for delimiter in (",", ";", "\t"):
        names = {name.strip() for name in next(csv.reader([header], delimiter=delimiter), [])}
        if names & set(columns.images):
            return delimiter
    return ","
