"""The end of a log that may be of any length, as text that can be shown."""

from __future__ import annotations

from pathlib import Path

from mezzotint import outside

TAIL = 64_000
"""Bytes from the end."""


def tail(path: Path, *, limit: int = TAIL, within: Path | None = None) -> str:
    """The last whole lines of a file, at most `limit` bytes of them; "" without one, and for one that a link leads to
    outside of `within`, by default the file's folder. Signs that steer a terminal, and
    those that turn the direction of text, are shown as escapes."""
    try:
        with outside.open_plain(path, within=within or path.parent) as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - limit))
            block = file.read(limit)
    except OSError:
        return ""
    if size > limit:
        block = block[block.find(b"\n") + 1 :]
    return shown(block.decode("utf-8", "replace"))


def shown(text: str) -> str:
    """Text whose every sign is seen."""
    return "".join(sign if sign.isprintable() or sign in "\n\t" else _escape(sign) for sign in text)


def _escape(sign: str) -> str:
    return sign.encode("unicode_escape").decode("ascii") if sign != "\r" else "\n"
