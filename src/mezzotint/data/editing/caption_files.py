"""Where the captions of a folder's images are: sidecar files, or cells of metadata files. Reads them, and computes the
content of the files after an operation; writes nothing."""

from __future__ import annotations

import hashlib
import os
import posixpath
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

from mezzotint import outside
from mezzotint.data.editing import caption_texts
from mezzotint.data.editing.operations import Operation
from mezzotint.data.editing.table_cells import change_table
from mezzotint.data.files.listing import Unusable
from mezzotint.data.formats.base import Format, format_of
from mezzotint.data.formats.shared.captions import MAX_BYTES, captions_in, is_absent
from mezzotint.data.formats.shared.sidecars import SIDECARS
from mezzotint.data.formats.shared.table_files import is_manifest
from mezzotint.data.formats.shared.tables import ColumnNames
from mezzotint.errors import DatasetError
from mezzotint.settings.sections.data import DataSettings

Contents = dict[str, tuple[bytes | None, bytes | None]]
"""Content of files before and after, by name below the folder; None for a file that does not exist."""


@dataclass(slots=True)
class Edited:
    """The result of an operation that is not written yet. contents: of the files that change. before, after: the
    captions of the images as they are edited; None without one."""

    contents: Contents = field(default_factory=dict)
    before: dict[str, str | None] = field(default_factory=dict)
    after: dict[str, str | None] = field(default_factory=dict)

    def changed(self) -> list[str]:
        """The images whose caption changes, in order."""
        return [key for key, text in self.after.items() if text != self.before[key]]


class CaptionFiles(Protocol):
    """The captions of a folder. Keys are names of images below the folder, in tables with `#2` and so on for further
    rows of one image."""

    def edit(self, operations: Mapping[str, Operation]) -> Edited:
        """The captions of images before and after an operation, by key. Raises DatasetError E1260 for a name, a file or
        a caption that cannot be used."""


def caption_files_of(root: Path, settings: DataSettings) -> CaptionFiles:
    """The captions of a folder in its format. root: resolved. Raises DatasetError E1260 for a format whose captions
    cannot be edited."""
    data_format = format_of(settings.format)
    tables = [] if "tables" not in data_format.captions else _find_tables(root, settings, data_format)
    if tables:
        return _Tables(root, settings, tables)
    if settings.captions.source == "filename":
        raise DatasetError(
            f"{root}: captions are the names of files (data.captions.source=filename), which are not changed; set "
            "data.captions.source=either, which reads caption files next to the images first",
            code="E1260",
        )
    if "sidecars" not in data_format.captions:
        reason = "no metadata.jsonl, metadata.csv or metadata.parquet" if data_format.captions else "its captions"
        raise DatasetError(
            f"{root}: data.format={settings.format}: {reason} cannot be edited; edit captions next to the images "
            "(data.format=image-folder) or in metadata files (data.format=metadata)",
            code="E1260",
        )
    return _Sidecars(root, settings)


def require_inside(root: Path, name: str, checked: set[Path] | None = None) -> Path:
    """The path of a file below a folder by its name. checked: folders that are known to be inside, which it adds to.
    Raises DatasetError E1260 if the name leads out of the folder, is hidden, or is a link."""
    parts = name.split("/")
    path = root / name
    try:
        is_bad = "\0" in name or any(part in ("", ".", "..") or part.startswith(".") for part in parts)
        if not is_bad and not path.is_symlink():
            folder = path.parent
            if checked is not None and folder in checked:
                return path
            if not outside.leads_out(folder, root):
                if checked is not None:
                    checked.add(folder)
                return path
    except (OSError, ValueError):
        pass
    raise DatasetError(
        f"{name[:200]!a} is not a file in {root}: it leads out of the folder, or is a link", code="E1260"
    )


def read_content(root: Path, name: str, checked: set[Path] | None = None) -> bytes | None:
    """The content of a file below a folder; None if it does not exist. Raises DatasetError E1260."""
    path = require_inside(root, name, checked)
    try:
        return outside.read_bytes(path, limit=outside.LISTED)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DatasetError(f"{path}: cannot be read: {error.strerror or error}", code="E1260") from error


def _checked(text: str, where: str) -> str:
    """A caption to be written. Raises DatasetError E1260 for one that no format accepts."""
    try:
        size = len(text.encode("utf-8"))
    except UnicodeEncodeError:
        raise DatasetError(
            f"{where}: the caption would contain half a surrogate pair; remove it", code="E1260"
        ) from None
    if "\0" in text or size > MAX_BYTES:
        raise DatasetError(f"{where}: the caption would contain NUL or more than {MAX_BYTES:,} bytes", code="E1260")
    return text


# --- sidecar files ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Sidecars:
    root: Path
    settings: DataSettings
    _checked: set[Path] = field(default_factory=set)

    def edit(self, operations: Mapping[str, Operation]) -> Edited:
        settings, edited = self.settings.captions, Edited()
        for key, operation in operations.items():
            files, texts = self._texts(key)
            after = [_checked(caption_texts.edit_text(text, operation, settings), key) for text in texts]
            for (name, data), text, new in zip(files, texts, after, strict=True):
                if new != text:
                    mark = b"\xef\xbb\xbf" if data.startswith(b"\xef\xbb\xbf") else b""
                    edited.contents[name] = data, mark + new.encode()
            if not files:
                text = self._words_of(key)
                new = _checked(caption_texts.edit_text(text, operation, settings), key)
                if new != text:
                    name = os.path.splitext(key)[0] + (".txt" if settings.extension == "any" else settings.extension)
                    edited.contents[name] = None, f"{new}\n".encode()
                    after = [new]
            edited.before[key] = caption_texts.shown_text(texts[0], settings) if texts else None
            edited.after[key] = caption_texts.shown_text(after[0], settings) if after else None
        return edited

    def _texts(self, key: str) -> tuple[list[tuple[str, bytes]], list[str]]:
        """The caption files of an image with their content, and their texts. Raises DatasetError E1260."""
        require_inside(self.root, key, self._checked)
        stem, usual = os.path.splitext(key)[0], self.settings.captions.extension
        ends = [end for one in (SIDECARS if usual == "any" else (usual,)) for end in (one, one.upper())]
        files = [
            (stem + end, data)
            for end in ends
            if (data := read_content(self.root, stem + end, self._checked)) is not None
        ]
        return files, [_decode(self.root / name, data) for name, data in files]

    def _words_of(self, key: str) -> str:
        """The caption that an image without a caption file has."""
        if self.settings.captions.source == "either":
            return " ".join(PurePosixPath(key).stem.replace("_", " ").split())
        return format_of(self.settings.format).folder_caption(key)


def _decode(path: Path, data: bytes) -> str:
    try:
        if b"\0" in data or len(data) > MAX_BYTES:
            raise ValueError("it contains NUL, or is too large")
        return data.decode("utf-8-sig")
    except ValueError as error:
        raise DatasetError(f"{path}: is not a caption in UTF-8 ({error}); it was not changed", code="E1260") from error


# --- metadata files ---------------------------------------------------------------------------------------------------


def _find_tables(root: Path, settings: DataSettings, data_format: Format) -> list[str]:
    return [name for name in data_format.files_at(root, settings).names if is_manifest(name)]


@dataclass(slots=True)
class _Tables:
    root: Path
    settings: DataSettings
    tables: Sequence[str]
    _times: dict[str, int] = field(default_factory=dict)
    _seen: set[tuple[str, tuple[str, ...]]] = field(default_factory=set)

    def edit(self, operations: Mapping[str, Operation]) -> Edited:
        edited = Edited(before=dict.fromkeys(operations), after=dict.fromkeys(operations))

        def change(key: str, caption: Any) -> Any:
            if key not in edited.before:
                return caption
            after = self._edited(key, caption, operations[key])
            edited.before[key], edited.after[key] = self._shown(caption), self._shown(after)
            return after

        edited.contents = {name: (before, after) for name, before, after in self._each(change) if after != before}
        return edited

    def _each(self, change: Callable[[str, Any], Any]) -> Iterator[tuple[str, bytes, bytes]]:
        """The content of each table before and after a change of captions by key."""
        self._times.clear()
        self._seen.clear()
        for table in self.tables:
            data = read_content(self.root, table)
            if data is not None:
                path = self.root / table
                of_rows = self._by_key(posixpath.dirname(table), change)
                yield table, data, change_table(path, data, self._columns(), of_rows)

    def _columns(self) -> ColumnNames:
        chosen, kind = self.settings.columns, "video" if self.settings.has_clips else "image"
        image = kind if chosen.image == "image" else chosen.image
        of_names = (f"{image}_file_name", image)
        return ColumnNames(("file_name", *of_names) if chosen.image == "image" else of_names, chosen.caption)

    def _by_key(self, folder: str, change: Callable[[str, Any], Any]) -> Callable[[Any, Any], Any]:
        """A change of a row by its key, which is that of `table_samples`: a row that repeats an earlier one has
        none."""

        def of_row(image: Any, caption: Any) -> Any:
            if not isinstance(image, str):
                return caption
            name = posixpath.normpath(posixpath.join(folder, image))
            try:
                captions = captions_in(caption, self.settings.captions)
            except Unusable:
                return caption
            if (name, captions) in self._seen:
                return caption
            self._seen.add((name, captions))
            number = self._times[name] = self._times.get(name, 0) + 1
            return change(name if number == 1 else f"{name}#{number}", caption)

        return of_row

    def _shown(self, caption: Any) -> str | None:
        texts = [text for text in caption if isinstance(text, str)] if isinstance(caption, list) else [caption]
        if is_absent(caption):
            return None
        return "\n".join(caption_texts.shown_text(text, self.settings.captions) for text in texts)

    def _edited(self, key: str, caption: Any, operation: Operation) -> Any:
        if isinstance(caption, list):
            texts = [text for text in caption if isinstance(text, str)]
            after = [
                _checked(text, key)
                for text in caption_texts.edit_alternatives(texts, operation, self.settings.captions)
            ]
            return caption if after == texts else after
        before = "" if is_absent(caption) else caption
        text = _checked(caption_texts.edit_text(before, operation, self.settings.captions), key)
        return caption if text == before else text


def digest_of(captions: Mapping[str, str | None]) -> str:
    """A hash of captions, to find out whether they are still those that were shown."""
    state = hashlib.sha256()
    for key, text in sorted(captions.items()):
        for part in (key, "\1" if text is None else f"\0{text}"):
            data = part.encode("utf-8", "surrogatepass")
            state.update(len(data).to_bytes(8, "little") + data)
    return state.hexdigest()
