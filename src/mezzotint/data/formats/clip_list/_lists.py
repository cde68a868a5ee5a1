"""The files in which Open-Sora-Plan writes its data sets down: a list of folders, and for each an annotation in JSON.
Nothing that they name is opened here.

A list has a line for each data set: `media folder,annotation`, or, with text embeddings made beforehand, `media
folder,folder of embeddings,annotation`; no quotes, empty lines left out. An annotation is a list of objects with
`path`, `cap` and, for clips, `frame_idx` (`start:end`, of which only the start counts).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mezzotint.errors import DatasetError
from mezzotint.shapes import Size

MAX_LIST_BYTES = 1_000_000
MAX_ANNOTATION_BYTES = 4 << 30
_SHOWN = 10
_OUTSIDE = re.compile(r"[/\\]|[A-Za-z]:[\\/]|[A-Za-z][A-Za-z0-9+.-]*://")
_START = re.compile(r"\s*([0-9]{1,9})\s*:\s*[0-9]{0,9}\s*")


@dataclass(frozen=True, slots=True)
class Line:
    """One data set of a list. number: of its line, from 1. texts: the folder of embeddings, or None."""

    number: int
    media: Path
    annotation: Path
    texts: Path | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of an annotation. path: below the media folder, with slashes. start: its first frame, or None.
    resolution: what it says of its own size. others: all keys but `path` and `cap`, in its order, as text."""

    number: int
    path: str
    caption: str
    start: int | None = None
    resolution: Size | None = None
    others: tuple[tuple[str, str], ...] = ()


def read_list(path: Path, *, has_texts: bool, may_lack_texts: bool = False) -> tuple[Line, ...]:
    """The data sets of a list file. has_texts: lines have three paths (`text_embed_cache`) and not two. may_lack_texts:
    a folder of embeddings that is not there is taken to belong beside the list.

    What a line names is looked up beside the list, then in the current folder. Raises DatasetError E1231 with every
    line that is malformed or names nothing, and for a list that is empty or no text.
    """
    text = _text(path, MAX_LIST_BYTES, "E1231", "a list of clips").removeprefix("\ufeff")
    lines_read, faults = [], []
    for number, written in enumerate(text.splitlines(), start=1):
        if not written.strip():
            continue
        parts = [part.strip() for part in written.split(",")]
        fault = _count_fault(parts, has_texts)
        places = [] if fault else [_found(path.parent, part) for part in parts]
        if may_lack_texts and has_texts and places and places[1] is None:
            places[1] = path.parent.resolve() / Path(parts[1]).expanduser()
        missing = [part for part, place in zip(parts, places, strict=False) if place is None]
        if missing:
            fault = f"no such file or folder: {', '.join(map(ascii, missing))}"
        if fault:
            faults.append(f"line {number}: {fault}")
            continue
        there = [place for place in places if place is not None]
        lines_read.append(Line(number, there[0], there[-1], there[1] if has_texts else None))
    if faults:
        raise DatasetError(f"{path}: {_shown(faults)}", code="E1231")
    if not lines_read:
        raise DatasetError(f"{path}: is empty; write a line for each data set: {_form(has_texts)}", code="E1231")
    return tuple(lines_read)


def read_annotation(path: Path) -> tuple[Entry, ...]:
    """The entries of an annotation file, in order. Raises DatasetError E1232 with every entry that is malformed: no
    object, no `path` or `cap`, a path that leads out of its folder, another `frame_idx` than `start:end`."""
    try:
        values = json.loads(_text(path, MAX_ANNOTATION_BYTES, "E1232", "an annotation"), object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise DatasetError(f"{path}: is no JSON: {error}", code="E1232") from error
    if not isinstance(values, list):
        raise DatasetError(f"{path}: holds {_kind(values)} and no list of objects with path and cap", code="E1232")
    entries, faults = [], []
    for number, value in enumerate(values, start=1):
        try:
            entries.append(_entry(number, value))
        except ValueError as error:
            faults.append(f"entry {number}: {error}")
    if faults:
        raise DatasetError(f"{path}: {_shown(faults)}", code="E1232")
    return tuple(entries)


def _entry(number: int, value: Any) -> Entry:
    """Raises ValueError with what is wrong."""
    if not isinstance(value, dict):
        raise ValueError(f"{_kind(value)} where an object with path and cap is needed")
    for key in ("path", "cap"):
        if key not in value:
            raise ValueError(f"no {key!r}; it has {', '.join(map(repr, value)) or 'no keys'}")
        if not isinstance(value[key], str):
            raise ValueError(f"its {key!r} is {_kind(value[key])}, not a text")
    written = value["path"].replace("\\", "/").removeprefix("./")
    if not written or _OUTSIDE.match(written) or ".." in written.split("/") or "\0" in written:
        raise ValueError(f"its path {value['path'][:100]!a} is none below the media folder")
    start = None
    if "frame_idx" in value:
        match = _START.fullmatch(value["frame_idx"]) if isinstance(value["frame_idx"], str) else None
        if match is None:
            raise ValueError(f"its frame_idx is {value['frame_idx']!a}; write 'start:end' in whole numbers")
        start = int(match[1])
    others = tuple((key, str(other)) for key, other in value.items() if key not in ("path", "cap"))
    return Entry(number, written, value["cap"], start, _resolution(value.get("resolution")), others)


def _resolution(value: Any) -> Size | None:
    """`{"height": 720, "width": 1280}`; what is written in another way is no help and no fault."""
    if not isinstance(value, Mapping):
        return None
    width, height = value.get("width"), value.get("height")
    if isinstance(width, int) and isinstance(height, int) and width > 0 and height > 0:
        return Size(width, height)
    return None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        raise ValueError(f"a key stands twice among {', '.join(repr(key) for key, _ in pairs)}")
    return value


def _count_fault(parts: list[str], has_texts: bool) -> str:
    expected = 3 if has_texts else 2
    if len(parts) == expected and all(parts):
        return ""
    other = 5 - expected
    hint = ""
    if len(parts) == other:
        hint = (
            "; name the folder into which mezzotint cache shall write embeddings, or set data.clips.texts=false"
            if has_texts
            else "; with a folder of embeddings set data.clips.texts=true"
        )
    count = len([part for part in parts if part])
    return f"{count} path{'s' if count != 1 else ''} where {expected} are needed: {_form(has_texts)}{hint}"


def _form(has_texts: bool) -> str:
    return "media folder,folder of embeddings,annotation.json" if has_texts else "media folder,annotation.json"


def _found(beside: Path, written: str) -> Path | None:
    for place in (beside / Path(written).expanduser(), Path(written).expanduser()):
        try:
            return place.resolve(strict=True)
        except (OSError, RuntimeError, ValueError):
            continue
    return None


def _text(path: Path, most: int, code: str, what: str) -> str:
    try:
        if not path.is_file():
            reason = "is a folder" if path.is_dir() else "does not exist, or is no regular file"
            raise DatasetError(f"{path}: {reason}, where {what} is needed", code=code)
        with open(path, "rb") as file:
            data = file.read(most + 1)
    except OSError as error:
        raise DatasetError(f"{path}: {error.strerror}", code=code) from error
    if len(data) > most:
        raise DatasetError(f"{path}: has more than {most:,} bytes; it is no {what.split(' ', 1)[1]}", code=code)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DatasetError(f"{path}: is not UTF-8 at byte {error.start}; save it as UTF-8", code=code) from error


def _shown(faults: list[str]) -> str:
    more = f" and {len(faults) - _SHOWN} more" if len(faults) > _SHOWN else ""
    return "; ".join(faults[:_SHOWN]) + more


def _kind(value: Any) -> str:
    kinds = {dict: "an object", list: "a list", str: "a text", bool: "true or false", type(None): "null"}
    return kinds.get(type(value), "a number")
