"""The format `clip-list` of Open-Sora-Plan's data sets: a list of folders, each with an annotation in JSON.

A list has a line for each data set: `media folder,annotation`, or, with precomputed text embeddings
(`data.clip_list.text_embeddings`), `media folder,folder of embeddings,annotation`, without quotes; empty lines are
ignored. An annotation is a list of objects with `path`, `cap` and, for clips, `frame_idx` (`start:end`, of which only
the start is used).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mezzotint import outside
from mezzotint.compat.open_sora_plan import text_files
from mezzotint.compat.open_sora_plan.clip_list_spec import ClipListSettings
from mezzotint.data.buckets.clip_buckets import out_of_limits
from mezzotint.data.files.listing import Listing, Unusable
from mezzotint.data.files.overrides import Marked
from mezzotint.data.formats.base import Format, Item, Skipped, Source
from mezzotint.data.formats.shared.captions import kind_of
from mezzotint.data.media import clip_files, decoding
from mezzotint.errors import DatasetError
from mezzotint.settings.counting import format_count, format_names
from mezzotint.settings.sections.clips import ClipsSettings
from mezzotint.settings.sections.data import DataSettings
from mezzotint.shapes import Size
from mezzotint.stages import Sample

MAX_LIST_BYTES = 1_000_000
MAX_ANNOTATION_BYTES = 4 << 30
_SHOWN = 10
_OUTSIDE = re.compile(r"[/\\]|[A-Za-z]:[\\/]|[A-Za-z][A-Za-z0-9+.-]*://")
_START = re.compile(r"\s*([0-9]{1,9})\s*:\s*[0-9]{0,9}\s*")
_LARGER = "_resize_1080p.mp4"


@dataclass(frozen=True, slots=True)
class ListedSet:
    """One line of a list. number: of the line, from 1. texts: the folder of embeddings, or None."""

    number: int
    media: Path
    annotation: Path
    texts: Path | None = None


@dataclass(frozen=True, slots=True)
class Annotated:
    """One entry of an annotation. path: relative to the media folder, with slashes. start: its first frame, or None.
    resolution: its size, if given. others: all keys except `path` and `cap`, in order, as text."""

    number: int
    path: str
    caption: str
    start: int | None = None
    resolution: Size | None = None
    others: tuple[tuple[str, str], ...] = ()

    def media_in(self, folder: Path) -> Path:
        """Its file, or the larger one next to it."""
        path = folder / self.path
        larger = path.with_name(path.name.replace(".mp4", _LARGER))
        return larger if self.path.endswith(".mp4") and os.path.isfile(larger) else path

    def mask_in(self, folder: Path) -> Path | None:
        """The file of its mask, from its key `mask`. Raises Unusable for a path outside of the media folder."""
        written = dict(self.others).get("mask", "").replace("\\", "/").removeprefix("./")
        if not written:
            return None
        if _OUTSIDE.match(written) or ".." in written.split("/") or "\0" in written:
            raise Unusable(f"its mask {written[:100]!a} must be inside the media folder")
        return folder / written

    def texts_in(self, folder: Path | None) -> Path | None:
        """The file of its embedding."""
        return None if folder is None else folder / text_files.name_of(self.path, self.others)


# --- reading ----------------------------------------------------------------------------------------------------------


def read_list(path: Path, *, has_texts: bool, may_lack_texts: bool = False) -> tuple[ListedSet, ...]:
    """The data sets of a list file. has_texts: lines have three paths (`text_embed_cache`) instead of two.
    may_lack_texts: a missing folder of embeddings is resolved relative to the list.

    Paths are relative to the list, or else to the current folder. Raises DatasetError E1231 with every line that is
    malformed or names a missing file, and for a list that is empty or not text.
    """
    text = _text(path, MAX_LIST_BYTES, "E1231", "a list of clips")
    lines_read, faults = [], []
    for number, written in enumerate(text.splitlines(), start=1):
        if not written.strip():
            continue
        parts = [part.strip() for part in written.split(",")]
        fault = _count_fault(parts, has_texts)
        paths = [] if fault else [_resolve_path(path.parent, part) for part in parts]
        if may_lack_texts and has_texts and paths and paths[1] is None:
            paths[1] = path.parent.resolve() / Path(parts[1]).expanduser()
        missing = [part for part, file in zip(parts, paths, strict=False) if file is None]
        if missing:
            fault = f"no such file or folder: {', '.join(map(ascii, missing))}"
        if fault:
            faults.append(f"line {number}: {fault}")
            continue
        existing = [file for file in paths if file is not None]
        lines_read.append(ListedSet(number, existing[0], existing[-1], existing[1] if has_texts else None))
    if faults:
        raise DatasetError(f"{path}: {format_names(faults, _SHOWN, separator='; ')}", code="E1231")
    if not lines_read:
        raise DatasetError(f"{path}: is empty; write a line for each data set: {_form(has_texts)}", code="E1231")
    return tuple(lines_read)


def read_annotation(path: Path, *, has_texts: bool = False) -> tuple[Annotated, ...]:
    """The entries of an annotation file, in order. has_texts: each has a file with an embedding. Raises DatasetError
    E1232 with every malformed entry: not an object, no `path` or `cap`, a path or a name of its embedding outside of
    its folder, a `frame_idx` that is not `start:end`."""
    try:
        values = outside.parse_json(_text(path, MAX_ANNOTATION_BYTES, "E1232", "an annotation"))
    except ValueError as error:
        raise DatasetError(f"{path}: is not JSON: {error}", code="E1232") from error
    if not isinstance(values, list):
        raise DatasetError(
            f"{path}: contains {kind_of(values)} instead of a list of objects with path and cap", code="E1232"
        )
    entries, faults = [], []
    for number, value in enumerate(values, start=1):
        try:
            entries.append(_entry(number, value))
            if has_texts and ".." in text_files.name_of(entries[-1].path, entries[-1].others).split("/"):
                raise ValueError("the name of its embedding, built from its other keys, leads out of their folder")
        except ValueError as error:
            faults.append(f"entry {number}: {error}")
    if faults:
        raise DatasetError(f"{path}: {format_names(faults, _SHOWN, separator='; ')}", code="E1232")
    return tuple(entries)


def _entry(number: int, value: Any) -> Annotated:
    """Raises ValueError with the reason if it is malformed."""
    if not isinstance(value, dict):
        raise ValueError(f"{kind_of(value)} where an object with path and cap is needed")
    for key in ("path", "cap"):
        if key not in value:
            raise ValueError(f"no {key!r}; it has {', '.join(map(repr, value)) or 'no keys'}")
        if not isinstance(value[key], str):
            raise ValueError(f"its {key!r} is {kind_of(value[key])}, not a text")
    written = value["path"].replace("\\", "/").removeprefix("./")
    if not written or _OUTSIDE.match(written) or ".." in written.split("/") or "\0" in written:
        raise ValueError(f"its path {value['path'][:100]!a} must be inside the media folder")
    start = None
    if "frame_idx" in value:
        match = _START.fullmatch(value["frame_idx"]) if isinstance(value["frame_idx"], str) else None
        if match is None:
            raise ValueError(f"its frame_idx is {value['frame_idx']!a}; write 'start:end' in integers")
        start = int(match[1])
    others = tuple((key, str(other)) for key, other in value.items() if key not in ("path", "cap"))
    return Annotated(number, written, value["cap"], start, _resolution(value.get("resolution")), others)


def _resolution(value: Any) -> Size | None:
    """The size of `{"height": 720, "width": 1280}`; anything else is ignored."""
    if not isinstance(value, Mapping):
        return None
    width, height = value.get("width"), value.get("height")
    if isinstance(width, int) and isinstance(height, int) and width > 0 and height > 0:
        return Size(width, height)
    return None


def _count_fault(parts: list[str], has_texts: bool) -> str:
    expected = 3 if has_texts else 2
    if len(parts) == expected and all(parts):
        return ""
    hint = "; with a folder of embeddings set data.clip_list.text_embeddings=true"
    if has_texts:
        hint = "; name the folder where mezzotint cache writes embeddings, or set data.clip_list.text_embeddings=false"
    count = format_count(len([part for part in parts if part]), "path")
    return f"{count} where {expected} are needed: {_form(has_texts)}{hint if len(parts) == 5 - expected else ''}"


def _form(has_texts: bool) -> str:
    return "media folder,folder of embeddings,annotation.json" if has_texts else "media folder,annotation.json"


def _resolve_path(beside: Path, written: str) -> Path | None:
    for candidate in (beside / Path(written).expanduser(), Path(written).expanduser()):
        try:
            return candidate.resolve(strict=True)
        except (OSError, RuntimeError, ValueError):
            continue
    return None


def _text(path: Path, most: int, code: str, noun: str) -> str:
    try:
        return outside.read_text(path, limit=most, encoding="utf-8-sig")
    except OSError as error:
        raise DatasetError(f"{path}: {error.strerror}, where {noun} is needed", code=code) from error
    except UnicodeDecodeError as error:
        raise DatasetError(f"{path}: is not UTF-8 at byte {error.start}; save it as UTF-8", code=code) from error


# --- samples ----------------------------------------------------------------------------------------------------------


def named_files(path: Path, *, has_texts: bool = False, masks: bool = False) -> Iterator[Path]:
    """Yields all files that a list names, existing or not: annotations, clips, images, embeddings, and on request
    masks. Raises DatasetError E1231 and E1232."""
    for line in read_list(path, has_texts=has_texts):
        yield line.annotation
        for entry in read_annotation(line.annotation, has_texts=has_texts):
            yield entry.media_in(line.media)
            texts = entry.texts_in(line.texts)
            if texts is not None:
                yield texts
            with suppress(Unusable):  # reported where samples are read
                if masks and (mask := entry.mask_in(line.media)) is not None:
                    yield mask


def embeddings(path: Path) -> Iterator[tuple[Path, str]]:
    """Yields, for every entry whose clip or image exists, the file of its embedding, existing or not, and its caption
    as written. Raises DatasetError E1231 and E1232."""
    for line in read_list(path, has_texts=True, may_lack_texts=True):
        for entry in read_annotation(line.annotation, has_texts=True):
            texts = entry.texts_in(line.texts)
            assert texts is not None
            if os.path.isfile(entry.media_in(line.media)):
                yield texts, entry.caption


def samples(
    path: Path,
    clips: ClipsSettings,
    list_settings: ClipListSettings,
    *,
    prefix: str = "",
    repeats: float = 1.0,
    masks: bool = False,
) -> Iterator[Item]:
    """Yields the samples of a list file, in the order of its lines and their entries, or the reasons why they are
    skipped.

    A key is the path in the annotation; with several lines, preceded by the index of the line, from 0 (`1/a.mp4`);
    followed by `@start` if the entry has a first frame, and by `#2`, `#3`, … if an earlier entry has the same key. An
    entry with the key and caption of an earlier one is skipped. The first frame, the embedding and, on request, the
    mask are the sample's overrides `start`, `embedding` and `mask`. Raises DatasetError E1231 and E1232.
    """
    lines, is_skipped = read_list(path, has_texts=list_settings.text_embeddings), list_settings.missing == "skip"
    for index, line in enumerate(lines):
        before = f"{prefix}{index}/" if len(lines) > 1 else prefix
        yield from _samples_of_line(line, clips, before, repeats, masks=masks, skips_missing=is_skipped)


def _samples_of_line(
    line: ListedSet, clips: ClipsSettings, prefix: str, repeats: float, *, masks: bool, skips_missing: bool
) -> Iterator[Item]:
    seen: dict[str, dict[str, int]] = {}
    for entry in read_annotation(line.annotation, has_texts=line.texts is not None):
        where = f"{prefix}{entry.path}"
        reason = out_of_limits(entry.resolution, clips) if entry.resolution else None
        if reason is not None:
            yield Skipped(where, reason, is_wanted=True)
            continue
        media, texts = entry.media_in(line.media), entry.texts_in(line.texts)
        absent = next((file for file in (media, texts) if file is not None and not os.path.isfile(file)), None)
        if absent is not None and (skips_missing or absent == texts):
            yield Skipped(where, f"{absent} does not exist", is_wanted=skips_missing)
            continue
        key = where if entry.start is None else f"{where}@{entry.start}"
        before = seen.setdefault(key, {})
        if entry.caption in before:
            reason = f"entry {entry.number} has path, start and caption of entry {before[entry.caption]}"
            yield Skipped(key, reason, is_wanted=False)
            continue
        before[entry.caption] = entry.number
        key = key if len(before) == 1 else f"{key}#{len(before)}"
        try:
            mask = entry.mask_in(line.media) if masks else None
            if mask is not None and not mask.is_file():
                raise Unusable(f"its mask {mask} does not exist")
        except Unusable as error:
            yield Skipped(key, str(error))
            continue
        yield Sample(key, media, (entry.caption,), repeats=repeats, overrides=_overrides(entry, texts, mask))


def _overrides(entry: Annotated, texts: Path | None, mask: Path | None) -> tuple[tuple[str, str], ...]:
    start = () if entry.start is None else (("start", str(entry.start)),)
    embedding = () if texts is None else (("embedding", Marked.of(texts).encoded),)
    return (*start, *embedding, *(() if mask is None else (("mask", os.fspath(mask)),)))


def list_files(path: Path, settings: DataSettings) -> Listing:
    """The list itself, and then the existing files that its entries name, in order. Names are relative to the list's
    folder if they are inside it, otherwise absolute. Raises DatasetError E1231 and E1232 for a malformed list or
    annotation."""
    real = path.expanduser().resolve()
    has_texts = settings.get_section(ClipListSettings).text_embeddings
    paths = (real, *named_files(real, has_texts=has_texts, masks=settings.mask.source == "files"))
    existing = (os.fspath(file) for file in paths if os.path.exists(file))
    names = (name.removeprefix(os.fspath(real.parent) + os.sep) for name in existing)
    return Listing.of_files(real.parent, list(dict.fromkeys(names)))


def read_samples(source: Source) -> Iterator[Item]:
    """As `samples`. Raises DatasetError E1231, E1232; E1290 if clips cannot be decoded."""
    if any(clip_files.is_clip(name) for name in source.listing.names):
        clip_files.decoder()
    path = source.root / source.listing.names[0]
    settings, masks = source.settings, source.settings.mask.source == "files"
    list_settings = settings.get_section(ClipListSettings)
    return samples(path, settings.clips, list_settings, prefix=source.prefix, repeats=source.repeats, masks=masks)


FORMAT = Format(
    read_samples=read_samples,
    suffixes=clip_files.SUFFIXES | decoding.SUFFIXES,  # images are single frames
    list_files=list_files,
    read_embedding=text_files.read,
)
