"""Rows of parquet and arrow files; the only file that needs pyarrow (extra `data`)."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from mezzotint.data.formats.shared.tables import ColumnNames, TableRow, condition_names, require_columns, require_data
from mezzotint.errors import DatasetError

_ROWS, _BATCH_BYTES = 64, 512 << 20  # rows at a time, because each may contain an image; fewer if a column is large
_LARGE, _PACKED = 64 << 20, 200  # unpacked size allowed for any file, and the maximum ratio above it


def rows(path: Path, columns: ColumnNames) -> Iterator[TableRow]:
    """The rows of a parquet file, or of an arrow file (stream or file layout), counted from 0.

    An image is a string (a path), bytes, or a struct of `bytes` and `path`, as a dict. Raises DatasetError E1211 for a
    file that cannot be read according to its extension, or that unpacks to far more than its size, E1212 for columns
    that are missing or have another type.
    """
    require_data(path)
    try:
        number, unpacked, size = 0, 0, path.stat().st_size
        for batch in _parquet(path, columns) if path.suffix.lower() == ".parquet" else _arrow(path, columns):
            has_mask = batch.num_columns > 2 + len(columns.conditions)
            for image, caption, *others in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                unpacked += sum(map(_bytes_of, (image, caption, *others)))
                _require_room(path, unpacked, size)
                mask = others.pop() if has_mask else None
                yield TableRow(number, image, caption, mask=mask, conditions=tuple(others))
                number += 1
                if number > size:
                    raise DatasetError(f"{path}: has more rows than bytes ({size:,}); {_OTHER_COPY}", code="E1211")
    except (pa.ArrowException, OSError, UnicodeDecodeError, MemoryError, struct.error) as error:
        reason = " ".join(str(error).split())[:200] or "not enough memory"
        raise DatasetError(f"{path}: cannot be read as {path.suffix[1:]}: {reason}", code="E1211") from error


_OTHER_COPY = "no valid table of images does; use another copy"


def _require_room(path: Path, unpacked: int, packed: int) -> None:
    """Raises DatasetError E1211 if the unpacked size is suspiciously large."""
    if unpacked > _LARGE and unpacked > _PACKED * packed:
        raise DatasetError(f"{path}: {packed:,} bytes unpack to {unpacked:,} or more; {_OTHER_COPY}", code="E1211")


def _bytes_of(value: Any) -> int:
    match value:
        case str() | bytes():
            return len(value)
        case dict():
            return sum(map(_bytes_of, value.values()))
        case list():
            return sum(map(_bytes_of, value))
        case _:
            return 0


def _rows_at_once(column_bytes: int) -> int:
    # a row can be as large as its column: a value may be stored once and repeated
    return max(1, min(_ROWS, _BATCH_BYTES // max(column_bytes, 1)))


def _parquet(path: Path, columns: ColumnNames) -> Iterator[Any]:
    with pq.ParquetFile(path) as file:
        names = _check_columns(path, file.schema_arrow, columns)
        largest = 0
        for number in range(file.metadata.num_row_groups):
            group = file.metadata.row_group(number)
            for column in (group.column(i) for i in range(group.num_columns)):
                _require_room(path, column.total_uncompressed_size, column.total_compressed_size)
                largest = max(largest, column.total_uncompressed_size)
        for batch in file.iter_batches(_rows_at_once(largest), columns=names):
            yield batch.select(names)


def _arrow(path: Path, columns: ColumnNames) -> Iterator[Any]:
    with pa.memory_map(str(path)) as file:
        # the file layout is the stream layout between a magic number and an index
        begin = 8 if file.read(6) == b"ARROW1" else 0
        file.seek(begin)
        for message in pa.ipc.MessageReader.open_stream(file):
            _require_room(path, _unpacked_bytes(message), message.body.size if message.body else 0)
        file.seek(begin)
        reader = pa.ipc.open_stream(file)
        names = _check_columns(path, reader.schema, columns)
        for batch in reader:
            chosen = batch.select(names)
            chosen.validate(full=True)  # otherwise offsets outside the file would be followed
            step = _rows_at_once(chosen.nbytes)
            for start in range(0, batch.num_rows, step):
                yield chosen.slice(start, step)


def _unpacked_bytes(message: Any) -> int:
    """The unpacked size of a message's buffers according to its header, 0 if they are not compressed (arrow's
    Message.fbs and Schema.fbs). pyarrow unpacks any size."""
    if message.type not in ("record batch", "dictionary"):
        return 0
    data, body = message.metadata.to_pybytes(), message.body
    batch = _child(data, _child(data, 0), 2)
    if message.type == "dictionary":
        batch = _child(data, batch, 1)
    if not _field(data, batch, 3):
        return 0
    buffers = _child(data, batch, 2)
    [count] = struct.unpack_from("<I", data, buffers)
    ranges = [struct.unpack_from("<qq", data, buffers + 4 + 16 * i) for i in range(count)]
    return sum(max(0, *struct.unpack_from("<q", body, offset)) for offset, length in ranges if length)


def _field(data: bytes, table: int, number: int) -> int:
    """The position of a field of a flatbuffers table, 0 if it is absent."""
    fields = table - struct.unpack_from("<i", data, table)[0]
    if 4 + 2 * number >= struct.unpack_from("<H", data, fields)[0]:
        return 0
    [offset] = struct.unpack_from("<H", data, fields + 4 + 2 * number)
    return table + int(offset) if offset else 0


def _child(data: bytes, table: int, number: int = -1) -> int:
    """The target of a field: another table, or a list."""
    at = _field(data, table, number) if number >= 0 else table
    return at + int(struct.unpack_from("<I", data, at)[0])


def _check_columns(path: Path, schema: Any, columns: ColumnNames) -> list[str]:
    """The names of the columns of images, captions and conditions, and of masks if it exists and is used; checks their
    types."""
    image, caption = require_columns(path, columns, schema.names)
    if not _is_image(schema.types[image]):
        raise DatasetError(
            f"{path}: the column {schema.names[image]!r} contains {schema.types[image]}, not images (a struct of "
            "bytes and path, bytes, or file names); set data.columns.image",
            code="E1212",
        )
    if not _is_caption(schema.types[caption]):
        raise DatasetError(
            f"{path}: the column {schema.names[caption]!r} contains {schema.types[caption]}, not strings; "
            "set data.columns.caption",
            code="E1212",
        )
    names = [schema.names[image], schema.names[caption], *condition_names(columns, schema.names)]
    for name in names[2:]:
        if not (_is_image(kind := schema.types[schema.names.index(name)]) or pa.types.is_null(kind)):
            raise DatasetError(
                f"{path}: the column {name!r} contains {kind}, not images (a struct of bytes and path, bytes, or file "
                "names); set data.conditions.NAME.column",
                code="E1212",
            )
    if columns.mask not in schema.names:
        return names
    kind = schema.types[schema.names.index(columns.mask)]
    if not (_is_image(kind) or pa.types.is_null(kind)):
        raise DatasetError(
            f"{path}: the column {columns.mask!r} contains {kind}, not masks (images, or file names); rename it, or "
            "remove data.mask.source=files",
            code="E1447",
        )
    return [*names, columns.mask]


def _is_image(kind: Any) -> bool:
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
