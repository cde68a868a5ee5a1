"""Rows of parquet and arrow files; the one file that needs pyarrow (extra `data`)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from mezzotint.data.formats.shared.tables import ColumnNames, TableRow, require_columns, require_data
from mezzotint.errors import DatasetError

_ROWS = 64  # at a time, since each may hold a picture
_LARGE, _PACKED = 64 << 20, 200  # bytes of a column, and how many times fewer they may be where they are packed


def rows(path: Path, columns: ColumnNames) -> Iterator[TableRow]:
    """The rows of a parquet file, or of an arrow file (stream or file layout), counted from 0.

    A picture is a text (a path), bytes, or a struct of `bytes` and `path`, as a dict. Raises DatasetError E1211 for a
    file that cannot be read as its ending says, E1212 for columns that are missing or of another type.
    """
    require_data(path)
    try:
        number = 0
        for batch in _parquet(path, columns) if path.suffix.lower() == ".parquet" else _arrow(path, columns):
            masks = batch.column(2).to_pylist() if batch.num_columns > 2 else [None] * batch.num_rows
            values = zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), masks, strict=True)
            for picture, caption, mask in values:
                yield TableRow(number, picture, caption, mask=mask)
                number += 1
    except (pa.ArrowException, OSError, UnicodeDecodeError, MemoryError) as error:
        words = " ".join(str(error).split())[:200] or "it needs more memory than there is"
        raise DatasetError(f"{path}: cannot be read as {path.suffix[1:]}: {words}", code="E1211") from error


def _parquet(path: Path, columns: ColumnNames) -> Iterator[Any]:
    with pq.ParquetFile(path) as file:
        names = _checked(path, file.schema_arrow, columns)
        _require_room(path, file.metadata)
        for batch in file.iter_batches(_ROWS, columns=names):
            yield batch.select(names)


def _require_room(path: Path, metadata: Any) -> None:
    """Raises DatasetError E1211 for a file of few bytes that unpack to many."""
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        for column in (group.column(i) for i in range(group.num_columns)):
            packed, size = column.total_compressed_size, column.total_uncompressed_size
            if size > _LARGE and size > _PACKED * packed:
                what = f"{column.path_in_schema} has {packed:,} bytes, which unpack to {size:,}"
                raise DatasetError(f"{path}: {what}; no pictures do, take another copy", code="E1211")


def _arrow(path: Path, columns: ColumnNames) -> Iterator[Any]:
    with pa.memory_map(str(path)) as file:
        is_file = file.read(6) == b"ARROW1"
        file.seek(0)
        if is_file:
            reader = pa.ipc.open_file(file)
            batches = (reader.get_batch(i) for i in range(reader.num_record_batches))
        else:
            batches = reader = pa.ipc.open_stream(file)
        names = _checked(path, reader.schema, columns)
        for batch in batches:
            chosen = batch.select(names)
            chosen.validate(full=True)  # places in the file that lead out of it would be followed
            for start in range(0, batch.num_rows, _ROWS):
                yield chosen.slice(start, _ROWS)


def _checked(path: Path, schema: Any, columns: ColumnNames) -> list[str]:
    """The names of the picture's and the caption's column, and of that of masks where it is there and asked for; their
    types are such."""
    picture, caption = require_columns(path, columns, schema.names)
    if not _is_picture(schema.types[picture]):
        raise DatasetError(
            f"{path}: the column {schema.names[picture]!r} holds {schema.types[picture]}, not pictures (a struct of "
            "bytes and path, bytes, or names of files); set data.columns.image",
            code="E1212",
        )
    if not _is_caption(schema.types[caption]):
        raise DatasetError(
            f"{path}: the column {schema.names[caption]!r} holds {schema.types[caption]}, not texts; "
            "set data.columns.caption",
            code="E1212",
        )
    if columns.mask not in schema.names:
        return [schema.names[picture], schema.names[caption]]
    kind = schema.types[schema.names.index(columns.mask)]
    if not (_is_picture(kind) or pa.types.is_null(kind)):
        raise DatasetError(
            f"{path}: the column {columns.mask!r} holds {kind}, not masks (pictures, or names of files); rename it, or "
            "leave out data.mask.source=files",
            code="E1447",
        )
    return [schema.names[picture], schema.names[caption], columns.mask]


def _is_picture(kind: Any) -> bool:
    if pa.types.is_struct(kind):
        return bool(kind.get_field_index("bytes") >= 0 or kind.get_field_index("path") >= 0)
    return _is_bytes(kind) or _is_text(kind)


def _is_bytes(kind: Any) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind))


def _is_text(kind: Any) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_caption(kind: Any) -> bool:
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    return bool(_is_text(kind.value_type if is_list else kind) or pa.types.is_null(kind))
