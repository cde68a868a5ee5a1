"""Captions for formats: texts of files and rows, lines of a text, and samples without captions."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from mezzotint import outside
from mezzotint.data.files.listing import Unusable
from mezzotint.data.formats.base import Item, Skipped, Source
from mezzotint.errors import DatasetError
from mezzotint.settings.sections.data import CaptionSettings
from mezzotint.stages import Sample

MAX_BYTES = 1_000_000
"""Maximum size of a caption."""


def read_text(path: Path) -> str:
    """Reads a caption file: UTF-8, with or without byte order mark. Raises Unusable."""
    try:
        data = outside.read_bytes(path, limit=MAX_BYTES)
    except outside.NotRegularFile as error:
        raise Unusable(f"caption {path.name}: more than {MAX_BYTES:,} bytes, or not a regular file") from error
    except OSError as error:
        raise Unusable(f"caption {path.name}: {error.strerror}") from error
    if b"\0" in data:
        raise Unusable(f"caption {path.name}: contains NUL, so it is not text; save it as UTF-8")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Unusable(f"caption {path.name}: not UTF-8 at byte {error.start}; save it as UTF-8") from error


def lines_of(text: str) -> tuple[str, ...]:
    """The lines of a text, separated by LF, CRLF or CR: stripped, without empty ones."""
    return tuple(line for line in map(str.strip, re.split(r"\r\n|\r|\n", text)) if line)


def captions_of(lines: Sequence[str], settings: CaptionSettings) -> tuple[str, ...]:
    """The captions from the lines of one text, by `captions.lines`; the empty caption if there are no lines."""
    match settings.lines:
        case "join":
            return (" ".join(lines),)
        case "first":
            return (lines[0] if lines else "",)
        case "random":
            return tuple(lines) or ("",)
        case _:
            raise AssertionError(settings.lines)


def captions_in(value: Any, settings: CaptionSettings) -> tuple[str, ...]:
    """The captions from a value of JSON or of a table: a string, or a list of alternatives; empty if it is absent.
    Raises Unusable."""
    if is_absent(value):
        return ()
    captions: list[str] = []
    for text in [text for text in value if not is_absent(text)] if isinstance(value, list) else [value]:
        if not isinstance(text, str):
            among = "among its captions is" if isinstance(value, list) else "its caption is"
            raise Unusable(f"{among} {kind_of(text)}, not a text")
        _require_text(text)
        captions += captions_of(lines_of(text), settings)
    return tuple(captions)


def _require_text(text: str) -> None:
    try:
        size = len(text.encode("utf-8"))
    except UnicodeEncodeError as error:
        raise Unusable("its caption is not UTF-8, or contains half a surrogate pair") from error
    if size > MAX_BYTES:
        raise Unusable(f"its caption has more than {MAX_BYTES:,} bytes")
    if "\0" in text:
        raise Unusable("its caption contains NUL")


def with_captions(items: Iterator[Item], source: Source, sentence: Callable[[Sequence[str]], str]) -> Iterator[Item]:
    """Yields the items of a source and handles samples without a caption according to `captions.missing`.

    sentence: gives the error message for the keys of those samples. Raises DatasetError E1203 with it, after all
    samples, if there are any and `captions.missing=error`.
    """
    missing = []
    for item in items:
        if not isinstance(item, Sample) or item.captions:
            yield item
            continue
        match source.settings.captions.missing:
            case "skip":
                yield Skipped(item.key, "no caption", is_wanted=True)
            case "empty":
                yield replace(item, captions=("",))
            case "error":
                missing.append(item.key.removeprefix(source.prefix))
            case _:
                raise AssertionError(source.settings.captions.missing)
    if missing:
        raise DatasetError(f"{source.root}: {sentence(missing)}", code="E1203")


def is_absent(value: Any) -> bool:
    """Whether a value of a table is absent: None or NaN."""
    return value is None or (isinstance(value, float) and math.isnan(value))


def kind_of(value: object) -> str:
    """A description of a value's type, for messages."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"a number ({value!r:.40})"
    kinds = {
        type(None): "null",
        bool: "true or false",
        str: "a text",
        list: "a list",
        tuple: "a list",
        bytes: "bytes",
    }
    return kinds.get(type(value), "an object")
