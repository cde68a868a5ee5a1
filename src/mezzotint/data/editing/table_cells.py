"""The captions in a metadata file: changes single cells and leaves every other byte as it is."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from mezzotint import outside
from mezzotint.data.formats.shared.tables import ColumnNames, csv_delimiter, require_columns
from mezzotint.errors import DatasetError

Change = Callable[[Any, Any], Any]
"""(image, caption) of a row → the caption afterwards, of the same kind; the same object if it stays."""

_BOM = "\ufeff"


def change_table(path: Path, data: bytes, columns: ColumnNames, change: Change) -> bytes:
    """The content of a .jsonl, .csv or .parquet file after `change` of each row, in order. Rows that cannot be read
    are left as they are. Raises DatasetError E1211 for another kind of content, E1212 for a missing column, E1214 if a
    package is missing."""
    if path.suffix == ".parquet":
        return _change_parquet(path, data, columns, change)
    text = data.decode("utf-8", "surrogateescape")
    start = _BOM if text.startswith(_BOM) else ""
    changed = (_change_jsonl if path.suffix == ".jsonl" else _change_csv)(
        path, text.removeprefix(_BOM), columns, change
    )
    return f"{start}{changed}".encode("utf-8", "surrogateescape")


# --- JSON lines -------------------------------------------------------------------------------------------------------


def _change_jsonl(path: Path, text: str, columns: ColumnNames, change: Change) -> str:
    return "".join(_change_line(line, columns, change) for line in io.StringIO(text, newline="\n"))


def _change_line(line: str, columns: ColumnNames, change: Change) -> str:
    try:
        row = outside.parse_json(line)
    except ValueError:
        return line
    if not isinstance(row, dict):
        return line
    image = next((row[name] for name in columns.images if row.get(name) is not None), None)
    before = row.get(columns.caption)
    after = change(image, before)
    if after is before:
        return line
    written = json.dumps(after, ensure_ascii=line.isascii() and "\\u" in line)
    span = _span_of_value(line, columns.caption)
    if span is not None:
        return line[: span[0]] + written + line[span[1] :]
    end = line.rindex("}")
    comma = ", " if row else ""
    return f"{line[:end].rstrip()}{comma}{json.dumps(columns.caption, ensure_ascii=False)}: {written}{line[end:]}"


def _span_of_value(line: str, name: str) -> tuple[int, int] | None:
    """Where the value of a key of a valid JSON object begins and ends; None if the key is absent."""
    decoder = json.JSONDecoder()
    at = line.index("{") + 1
    while (at := _skip_space(line, at)) < len(line) and line[at] == '"':
        key, at = decoder.raw_decode(line, at)
        begin = _skip_space(line, _skip_space(line, at) + 1)
        _, at = decoder.raw_decode(line, begin)
        if key == name:
            return begin, at
        at = _skip_space(line, at) + 1
    return None


def _skip_space(line: str, at: int) -> int:
    while at < len(line) and line[at] in " \t\r\n":
        at += 1
    return at


# --- CSV --------------------------------------------------------------------------------------------------------------


def _change_csv(path: Path, text: str, columns: ColumnNames, change: Change) -> str:
    lines = list(io.StringIO(text, newline=""))
    delimiter = csv_delimiter(lines[0] if lines else "", columns)
    try:
        records = list(_records(lines, delimiter))
    except csv.Error as error:
        raise DatasetError(f"{path}: {error}", code="E1211") from error
    header = [name.strip() for name in records[0][0]] if records else []
    image, caption = require_columns(path, columns, header)
    parts = [records[0][1]]
    for fields, written in records[1:]:
        if len(fields) == len(header):
            before = fields[caption] or None
            after = change(fields[image] or None, before)
            if after is not before:
                written = _write_record([*fields[:caption], after or "", *fields[caption + 1 :]], written, delimiter)
        parts.append(written)
    return "".join(parts)


def _records(lines: Sequence[str], delimiter: str) -> Iterator[tuple[list[str], str]]:
    """The fields of each record, and its text."""
    reader = csv.reader(lines, delimiter=delimiter, strict=True, skipinitialspace=True)
    begin = 0
    for fields in reader:
        yield fields, "".join(lines[begin : reader.line_num])
        begin = reader.line_num


def _write_record(fields: Sequence[str], written: str, delimiter: str) -> str:
    content = written.rstrip("\r\n")
    out = io.StringIO(newline="")
    csv.writer(out, delimiter=delimiter, lineterminator=written[len(content) :]).writerow(fields)
    return out.getvalue()


# --- parquet ----------------------------------------------------------------------------------------------------------


def _change_parquet(path: Path, data: bytes, columns: ColumnNames, change: Change) -> bytes:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise DatasetError(
            f"{path}: .parquet files need the package {error.name}: pip install 'mezzotint[data]'", code="E1214"
        ) from error
    try:
        table = pq.read_table(io.BytesIO(data))
        image, caption = require_columns(path, columns, table.schema.names)
        before = table.column(caption).to_pylist()
        after = [change(name, text) for name, text in zip(table.column(image).to_pylist(), before, strict=True)]
        if all(new is old for new, old in zip(after, before, strict=True)):
            return data
        field = table.schema.field(caption)
        field = field.with_type(pa.string()) if pa.types.is_null(field.type) else field
        out = io.BytesIO()
        pq.write_table(table.set_column(caption, field, pa.array(after, field.type)), out)
    except pa.ArrowException as error:
        raise DatasetError(
            f"{path}: cannot be read as parquet: {' '.join(str(error).split())[:200]}", code="E1211"
        ) from error
    return out.getvalue()
