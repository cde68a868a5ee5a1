"""Edits one data folder: captions, settings of images, masks. What the page and the command `caption` use."""

from __future__ import annotations

import hashlib
import os
import posixpath
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mezzotint.data.editing import operations
from mezzotint.data.editing.caption_files import (
    CaptionFiles,
    Contents,
    caption_files_of,
    digest_of,
    read_content,
    require_inside,
)
from mezzotint.data.editing.journal import Journal, RecordedEdit
from mezzotint.data.editing.operations import KEEP, Operation, count_tags
from mezzotint.data.files import image_settings
from mezzotint.data.files.image_settings import ImageSettings
from mezzotint.data.files.masks import ENDING
from mezzotint.errors import DatasetError
from mezzotint.settings.counting import format_count
from mezzotint.settings.sections.data import DataSettings

EXAMPLES = 3


@dataclass(frozen=True, slots=True)
class Preview:
    """What an operation would do. count: changed captions. digest: of all selected captions as they are now, for
    `DataEditor.apply`. examples: key, caption before and after, of the first changed ones."""

    count: int
    digest: str
    examples: tuple[tuple[str, str, str], ...]


class DataEditor:
    """The editor of a data folder. Every method that changes something is one transaction in the folder's journal.

    Keys are names of images below the folder, as in the catalogue without the number of the set. All methods raise
    DatasetError E1260 for a key or a caption that cannot be edited, E1261 if what was shown has changed since, E1263
    for a damaged journal; and StorageError.
    """

    def __init__(self, root: Path, settings: DataSettings) -> None:
        self.root = root.resolve()
        self.settings = settings
        self.journal = Journal(self.root)

    def captions(self, keys: Sequence[str]) -> dict[str, str | None]:
        """The captions of images as they are edited; None without one."""
        return self._files().edit(dict.fromkeys(keys, KEEP)).before

    def count_tags(self, keys: Sequence[str]) -> Counter[str]:
        """In how many captions each tag occurs."""
        return count_tags(filter(None, self.captions(keys).values()))

    def preview(self, keys: Sequence[str], operation: Operation) -> Preview:
        """What an operation would change."""
        edited = self._files().edit(dict.fromkeys(keys, operation))
        changed = edited.changed()
        examples = [(key, edited.before[key] or "", edited.after[key] or "") for key in changed[:EXAMPLES]]
        return Preview(len(changed), digest_of(edited.before), tuple(examples))

    def apply(self, keys: Sequence[str], operation: Operation, *, shown: str | None = None, group: str = "") -> int:
        """Changes captions and returns the number of changed files. shown: `Preview.digest` of these keys, or
        `digest_of` the captions that were shown; None does not compare."""
        with self.journal.lock():
            edited = self._files().edit(dict.fromkeys(keys, operation))
            if shown is not None and digest_of(edited.before) != shown:
                raise self._stale()
            return self._commit(f"{operation.label} ({format_count(len(keys), 'image')})", edited.contents, group)

    def write_captions(
        self, texts: Mapping[str, str], *, shown: Mapping[str, str | None], label: str, group: str = ""
    ) -> list[str]:
        """Replaces captions by those that a program has written, and marks their images for review. shown: the captions
        that it started from. Returns the keys whose caption is no longer that one, which are left as they are."""
        with self.journal.lock():
            now = self._files().edit(dict.fromkeys(texts, KEEP)).before
            new = {key: text for key, text in texts.items() if now[key] == shown[key]}
            edited = self._files().edit({key: operations.set_caption(text) for key, text in new.items()})
            contents = edited.contents | self._changed_settings(list(new), lambda one: replace(one, review=True))
            self._commit(f"{label} ({format_count(len(new), 'image')})", contents, group)
        return [key for key in texts if key not in new]

    def change_settings(
        self, keys: Sequence[str], change: Callable[[ImageSettings], ImageSettings], *, label: str,
        shown: str | None = None, group: str = "",
    ) -> int:  # fmt: skip
        """Changes the settings of images in the `mezzotint.jsonl` beside them. Returns the number of changed files.
        shown: `settings_digest` of these keys as they were shown; None does not compare. Raises DatasetError E1264 for
        such a file that is not valid."""
        with self.journal.lock():
            if shown is not None and self.settings_digest(keys) != shown:
                raise self._stale()
            contents = self._changed_settings(keys, change)
            return self._commit(f"{label} ({format_count(len(keys), 'image')})", contents, group)

    def _changed_settings(self, keys: Sequence[str], change: Callable[[ImageSettings], ImageSettings]) -> Contents:
        by_folder: dict[str, list[str]] = {}
        for key in keys:
            require_inside(self.root, _file_of(key))
            folder, _, name = _file_of(key).rpartition("/")
            by_folder.setdefault(folder, []).append(name)
        contents: Contents = {}
        for folder, names in by_folder.items():
            file = posixpath.join(folder, image_settings.FILE)
            before = read_content(self.root, file)
            text = (before or b"").decode("utf-8", "surrogateescape")
            present = dict(image_settings.parse(text, self.root / file))
            changes = {name: change(present.get(name, image_settings.PLAIN)) for name in names}
            after = image_settings.change_text(text, self.root / file, changes).encode("utf-8", "surrogateescape")
            if after != (before or b""):
                contents[file] = before, after or None
        return contents

    def exclude(self, keys: Sequence[str], *, exclude: bool = True, group: str = "") -> int:
        """Excludes images from training, or includes them again."""
        label = "exclude" if exclude else "include"
        return self.change_settings(keys, lambda one: replace(one, exclude=exclude), label=label, group=group)

    def settings_digest(self, keys: Sequence[str]) -> str:
        """A hash of the settings of images, to find out whether they are still those that were shown."""
        return image_settings.digest_of(self.settings_of(keys))

    def settings_of(self, keys: Sequence[str]) -> dict[str, ImageSettings]:
        """The settings of images."""
        below = image_settings.read_below(self.root, map(_file_of, keys))
        return {key: below.of(_file_of(key)) for key in keys}

    def read_mask(self, key: str) -> bytes | None:
        """The content of the mask beside an image; None without one."""
        return read_content(self.root, self._mask_name(key))

    def _mask_name(self, key: str) -> str:
        require_inside(self.root, _file_of(key))
        return f"{os.path.splitext(_file_of(key))[0]}{ENDING}.png"

    def write_mask(self, key: str, png: bytes | None, *, shown: str | None = None, group: str = "") -> int:
        """Writes the mask of an image beside it, as `NAME-masklabel.png`; None removes it. Returns the number of
        changed files. png: the content of the file. shown: SHA-256 of the mask that was shown, "" for none; None does
        not compare."""
        name = self._mask_name(key)
        with self.journal.lock():
            before = read_content(self.root, name)
            if shown is not None and shown != ("" if before is None else hashlib.sha256(before).hexdigest()):
                raise self._stale()
            contents: Contents = {} if before == png else {name: (before, png)}
            return self._commit(f"mask of {key}", contents, group)

    def undo(self, *, shown: float | None = None) -> str:
        """Undoes the last change and returns what it was; "" if there is none. shown: `RecordedEdit.at` of the change
        that is expected to be the last. Raises DatasetError E1261 if it is not, E1262 if a file was changed since by
        somebody else."""
        with self.journal.lock():
            self._require(self.journal.undoable(), shown)
            done = self.journal.undo()
        return "" if done is None else done.label

    def redo(self, *, shown: float | None = None) -> str:
        """Makes the change that was undone last again, as `undo`."""
        with self.journal.lock():
            self._require(self.journal.redoable(), shown)
            done = self.journal.redo()
        return "" if done is None else done.label

    def _require(self, edit: RecordedEdit | None, shown: float | None) -> None:
        if shown is not None and (edit is None or edit.at != shown):
            raise self._stale()

    def _stale(self) -> DatasetError:
        return DatasetError(
            f"{self.root}: captions or settings changed since they were shown, in another window or outside of the "
            "editor; nothing was written: reload the page and repeat the change",
            code="E1261",
        )

    def _files(self) -> CaptionFiles:
        return caption_files_of(self.root, self.settings)

    def _commit(self, label: str, contents: Contents, group: str) -> int:
        if contents:
            self.journal.commit(label, contents, group=group)
        return len(contents)


def _file_of(key: str) -> str:
    """The image's file of a key: without the number of a further row of a table."""
    name, sign, number = key.rpartition("#")
    return name if sign and number.isdecimal() and os.path.splitext(name)[1] else key
