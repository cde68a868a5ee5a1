"""A file sent as it is, whole or the part that a browser asks for, a block at a time."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from starlette.responses import PlainTextResponse, Response, StreamingResponse

from mezzotint import outside

_BLOCK = 1 << 18


def send(path: Path, kind: str, range_header: str = "") -> Response:
    """The file, or the part that a Range header names."""
    try:
        with outside.open_plain(path) as file:
            size = file.seek(0, 2)
    except OSError:
        return PlainTextResponse("This file is gone.\n", 404)
    part = re.fullmatch(r"bytes=(\d{1,18})-(\d{0,18})", range_header)
    first, last = 0, size - 1
    if part is not None:
        first, last = int(part[1]), min(size - 1, int(part[2]) if part[2] else size - 1)
        if first > last:
            return Response(status_code=416, headers={"content-range": f"bytes */{size}"})
    headers = {"content-length": f"{last - first + 1}", "accept-ranges": "bytes", "cache-control": "private, max-age=5"}
    if part is not None:
        headers["content-range"] = f"bytes {first}-{last}/{size}"
    status = 200 if part is None else 206
    return StreamingResponse(_blocks(path, first, last), status, media_type=kind, headers=headers)


def _blocks(path: Path, first: int, last: int) -> Iterator[bytes]:
    with outside.open_plain(path) as file:
        file.seek(first)
        left = last - first + 1
        while left > 0 and (block := file.read(min(_BLOCK, left))):
            left -= len(block)
            yield block
