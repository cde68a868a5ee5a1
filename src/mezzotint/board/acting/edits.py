"""Edits of an open data set on the page Data: of captions and of the settings of images, across the folders of its
sets. Everything is written by `data.editing` into the files that the command line reads."""

from __future__ import annotations

import base64
import hashlib
import io
import os
import secrets
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote, unquote_to_bytes

from PIL import Image

from mezzotint.board.reading.data_sets import DataSet
from mezzotint.board.reading.root_folders import RootFolders
from mezzotint.board.reading.tails import make_printable
from mezzotint.data.editing.editor import EXAMPLES, DataEditor
from mezzotint.data.editing.journal import RecordedEdit
from mezzotint.data.editing.operations import Operation, parse_operation
from mezzotint.data.files import image_settings
from mezzotint.data.files.image_settings import ImageSettings
from mezzotint.data.files.listing import is_remote
from mezzotint.data.files.masks import is_named_mask
from mezzotint.data.media import decoding
from mezzotint.errors import DatasetError

_MASK_SIDE = 4096
"""Pixels of the longer side of a mask that the page sends, at most."""

SETTINGS: Mapping[str, tuple[str, Callable[[ImageSettings], ImageSettings]]] = {
    "exclude": ("exclude", lambda one: replace(one, exclude=True)),
    "include": ("include", lambda one: replace(one, exclude=False)),
    "accept": ("accept the caption", lambda one: replace(one, review=False)),
    "whole": ("use the whole image", lambda one: replace(one, region=None)),
}
"""Operations on the settings of images by name: label and change."""


def encode_key(key: str) -> str:
    """A key for a page and its scripts, in ASCII: file names may have any bytes."""
    return quote(os.fsencode(key), safe="/")


def decode_key(text: str) -> str:
    """The inverse of `encode_key`."""
    return os.fsdecode(unquote_to_bytes(text))


@dataclass(frozen=True, slots=True)
class DataEdits:
    """The editors of the sets of a data set, in order. is_numbered: whether keys begin with the number of their set."""

    data: DataSet
    editors: tuple[DataEditor, ...]

    @classmethod
    def of(cls, data: DataSet, roots: RootFolders) -> DataEdits:
        """Raises DatasetError E1948 for data outside of the page's folders, E1260 on object storage."""
        for root in data.catalogue.roots:
            if is_remote(root):
                raise DatasetError(f"{root} is not on this machine, so it cannot be edited", code="E1260")
            if roots.name_of(root) is None:
                raise DatasetError(
                    f"{root} is outside of the folders of this page, so it cannot be edited; start the page with that "
                    "folder",
                    code="E1948",
                )
        sets = data.settings.image_sets()
        pairs = zip(data.catalogue.roots, sets, strict=True)
        return cls(data, tuple(DataEditor(root, one.settings) for root, one in pairs))

    # --- keys ---

    def require(self, keys: Sequence[str], *, excluded: bool = False) -> list[str]:
        """The keys of images of the data set, or of the excluded ones beside it. Raises DatasetError E1261 for one that
        is no longer among them."""
        known = self.data.excluded if excluded else self.data.row_of
        for key in keys:
            if key not in known:
                raise DatasetError(
                    f"{key[:200]!a} is no longer in this data set; nothing was written: reload the page", code="E1261"
                )
        return list(keys)

    def _split(self, keys: Sequence[str]) -> list[tuple[DataEditor, list[str]]]:
        """The keys of each editor as it knows them, without editors that have none."""
        if len(self.editors) == 1:
            return [(self.editors[0], list(keys))]
        parts: dict[int, list[str]] = {}
        for key in keys:
            number, _, below = key.partition("/")
            parts.setdefault(int(number), []).append(below)
        return [(self.editors[number], parts[number]) for number in sorted(parts)]

    def _key_of(self, editor: DataEditor, key: str) -> str:
        return key if len(self.editors) == 1 else f"{self.editors.index(editor)}/{key}"

    # --- reading ---

    def captions(self, keys: Sequence[str]) -> dict[str, str | None]:
        """The captions of images as they are edited."""
        captions: dict[str, str | None] = {}
        for editor, own in self._split(keys):
            captions |= {self._key_of(editor, key): text for key, text in editor.captions(own).items()}
        return captions

    def facts(self, key: str) -> dict[str, Any]:
        """What the editor of one image shows, and what its changes are compared with."""
        [(editor, [own])] = self._split(self.require([key]))
        settings, mask = editor.settings_of([own])[own], editor.read_mask(own)
        captions: dict[str, Any] = {"caption": "", "shown": None, "problem": ""}
        try:
            preview = editor.preview([own], parse_operation({"kind": "set", "text": ""}, Counter))
            captions |= {"caption": editor.captions([own])[own] or "", "shown": preview.digest}
        except DatasetError as error:
            captions["problem"] = make_printable(str(error))
        region = settings.region
        return {
            "key": encode_key(key), "name": make_printable(key), "row": self.data.row_of.get(key, -1), **captions,
            "settings": editor.settings_digest([own]), "exclude": settings.exclude, "review": settings.review,
            "crop": list(region.crop) if region else [0, 0, 1, 1], "rotate": region.rotate if region else 0,
            "mask": "" if mask is None else hashlib.sha256(mask).hexdigest(), "masks": self._refuse_masks(editor),
        }  # fmt: skip

    def mask(self, key: str) -> bytes | None:
        """The mask file of an image."""
        [(editor, [own])] = self._split(self.require([key]))
        return editor.read_mask(own)

    def count_tags(self, keys: Sequence[str]) -> Counter[str]:
        """In how many captions each tag occurs."""
        counts: Counter[str] = Counter()
        for editor, own in self._split(keys):
            counts += editor.count_tags(own)
        return counts

    # --- operations ---

    def preview(self, keys: Sequence[str], value: Mapping[str, Any]) -> dict[str, Any]:
        """What an operation would change: {count, shown, examples: [[name, before, after], …]}."""
        kind = str(value.get("kind", ""))
        if kind in SETTINGS:
            return self._preview_settings(keys, SETTINGS[kind][1])
        operation = self._operation(keys, value)
        parts = [(editor, editor.preview(own, operation)) for editor, own in self._split(keys)]
        examples = [
            [make_printable(text) for text in (self._key_of(editor, key), before, after)]
            for editor, part in parts
            for key, before, after in part.examples
        ]
        shown = [part.digest for _, part in parts]
        return {"count": sum(part.count for _, part in parts), "shown": shown, "examples": examples[:EXAMPLES]}

    def _preview_settings(
        self, keys: Sequence[str], change: Callable[[ImageSettings], ImageSettings]
    ) -> dict[str, Any]:  # fmt: skip
        parts = [(editor, own, editor.settings_of(own)) for editor, own in self._split(keys)]
        changed = [
            make_printable(self._key_of(editor, key))
            for editor, _, settings in parts
            for key, one in settings.items()
            if change(one) != one
        ]
        shown = [editor.settings_digest(own) for editor, own, _ in parts]
        return {"count": len(changed), "shown": shown, "examples": [[key, "", ""] for key in changed[:EXAMPLES]]}

    def apply(self, keys: Sequence[str], value: Mapping[str, Any]) -> str:
        """Makes the operation of a form and returns a sentence about it. `value["shown"]`: what `preview` returned.
        Raises DatasetError E1261 if anything of it has changed since."""
        kind, shown = str(value.get("kind", "")), value.get("shown")
        if kind == "exclude" and len(keys) == len(self.data.catalogue):
            raise DatasetError("nothing would be left to train; leave at least one image", code="E1260")
        parts = self._split(keys)
        shown = [shown] if isinstance(shown, str) else shown
        if not isinstance(shown, list) or len(shown) != len(parts) or not all(isinstance(one, str) for one in shown):
            raise DatasetError("the change was not shown before; reload the page", code="E1261")
        group = secrets.token_hex(8) if len(parts) > 1 else ""
        files = 0
        if kind == "region":
            region = _region(value)
            if region is not None and any(self.data.catalogue.rate[self.data.row_of[key]] for key in keys):
                raise DatasetError("crop and rotation are for images, not for clips; nothing was written", code="E1260")
            label, change = "crop and rotate", lambda one: replace(one, region=region)
        elif kind in SETTINGS:
            label, change = SETTINGS[kind]
        else:
            operation = self._operation(keys, value)
            for (editor, own), digest in zip(parts, shown, strict=True):
                files += editor.apply(own, operation, shown=digest, group=group)
            return _written(files)
        for (editor, own), digest in zip(parts, shown, strict=True):
            files += editor.change_settings(own, change, label=label, shown=digest, group=group)
        return _written(files)

    def _operation(self, keys: Sequence[str], value: Mapping[str, Any]) -> Operation:
        return parse_operation(value, lambda: self.count_tags(keys))

    def write_mask(self, key: str, png: Any, shown: Any) -> str:
        """Writes or removes the mask of an image and returns a sentence. png: base64, white where the image is trained,
        None to remove it. shown: `facts["mask"]`."""
        [(editor, [own])] = self._split(self.require([key]))
        if problem := self._refuse_masks(editor):
            raise DatasetError(problem, code="E1260")
        path = self.data.catalogue.path(self.data.row_of[key])
        content = None if png is None else _mask_file(png, decoding.probe_quickly(path, self.data.settings.max_pixels))
        return _written(editor.write_mask(own, content, shown=str(shown)))

    def _refuse_masks(self, editor: DataEditor) -> str:
        """Why masks cannot be painted; "" if they can."""
        mask = editor.settings.mask
        if self.data.is_folder or (mask.source == "files" and mask.path is None):
            return ""
        if mask.source == "files":
            return f"the masks of this recipe are in another folder, {mask.path}; edit them there"
        return (
            "this recipe reads no mask files, so a mask beside an image would be trained as an image; set "
            "data.mask.source=files, or open the folder itself"
        )

    # --- undo ---

    def undoable(self) -> RecordedEdit | None:
        """The change that `undo` would undo."""
        edits = [one for editor in self.editors if (one := editor.journal.undoable()) is not None]
        return max(edits, key=lambda one: one.at, default=None)

    def redoable(self) -> RecordedEdit | None:
        """The change that `redo` would make again: the one that was undone last."""
        edits = [one for editor in self.editors if (one := editor.journal.redoable()) is not None]
        return min(edits, key=lambda one: one.at, default=None)

    def history(self) -> list[tuple[RecordedEdit, bool]]:
        """The newest changes and whether each is applied, the newest first."""
        entries = [entry for editor in self.editors for entry in editor.journal.history()]
        return sorted(entries, key=lambda entry: entry[0].at, reverse=True)

    def step(self, *, shown: Any, redo: bool) -> str:
        """Undoes the last change, or makes it again, in all folders that it changed, and returns a sentence. shown: its
        time. A change that wrote in several steps (`mezzotint caption`) is undone as a whole."""
        first = self.redoable() if redo else self.undoable()
        if first is None:
            return "There is nothing to redo." if redo else "There is nothing to undo."
        if first.at != shown:
            raise DatasetError(
                "another change was made in another window or by a command; nothing was written: reload the page",
                code="E1261",
            )
        for editor in self.editors:
            while (one := editor.journal.redoable() if redo else editor.journal.undoable()) is not None:
                if one.at != first.at and not (first.group and one.group == first.group):
                    break
                (editor.redo if redo else editor.undo)(shown=one.at)
        return f"{'Made again' if redo else 'Undone'}: {make_printable(first.label)}"


def changes_mask(edit: RecordedEdit | None) -> bool:
    """Whether a change is one of masks."""
    return edit is not None and any(is_named_mask(name.rpartition("/")[2]) for name in edit.files)


def _written(files: int) -> str:
    return f"Saved ({files:,} file{'' if files == 1 else 's'})." if files else "Nothing to change."


def _region(value: Mapping[str, Any]) -> Any:
    try:
        return image_settings.parse_region(value)
    except ValueError as error:
        raise DatasetError(f"{error}; nothing was written", code="E1260") from error


def _mask_file(png: Any, probe: decoding.Probe) -> bytes:
    """A mask at the size of its image, 8-bit grey. Raises DatasetError E1260 for anything but a PNG."""
    try:
        with Image.open(io.BytesIO(base64.b64decode(str(png), validate=True)), formats=["PNG"]) as image:
            if max(image.size) > _MASK_SIDE:
                raise ValueError("too large")
            grey = image.convert("L")
    except Exception as error:  # a damaged file can make Pillow raise anything
        raise DatasetError("the page sent a mask that is no PNG; nothing was written", code="E1260") from error
    content = io.BytesIO()
    grey.resize((probe.size.width, probe.size.height), Image.Resampling.BILINEAR).save(content, "PNG", optimize=True)
    return content.getvalue()
