"""The format `everydream`: folders and manifests as EveryDream2 reads them.

A picture's caption and settings are merged from files that hold for its folder and what lies below (`global.yaml`), for
its folder alone (`local.yaml`, `multiply.txt`, …), and for itself (`NAME.txt`, `.caption`, `.yaml`); where none of them
has a main prompt, its name has. A manifest is a .json file in `data.path`.
"""

from __future__ import annotations

import functools
import os
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from mezzotint.data.files.listing import Listing, walk
from mezzotint.data.files.tags import NO_LIMIT, Tags
from mezzotint.data.formats.base import Format, Noted, Skipped, Source
from mezzotint.data.formats.everydream._files import CAPTIONS, Files, manifest
from mezzotint.data.formats.everydream._layers import NAMELESS, Layer, Place
from mezzotint.data.media import decoding
from mezzotint.errors import DatasetError
from mezzotint.recipe.sections.data import DataSettings
from mezzotint.stages import Sample

PICTURES = frozenset((".jpg", ".jpeg", ".png", ".bmp", ".webp", ".jfif"))
SIDECARS = (*CAPTIONS, ".yml", ".yaml")
SUFFIXES = PICTURES | set(SIDECARS)

NUMBERS = ("multiply", "cond_dropout", "flip_p", "loss_scale")
GLOBALS, LOCALS = ("global.yml", "global.yaml"), ("local.yml", "local.yaml")
MANIFESTS = frozenset((*GLOBALS, *LOCALS, *(f"{key}.txt" for key in NUMBERS), "batch_id.txt", "shuffle_tags.txt"))

_SHOWN = 5


def list_files(path: Path, settings: DataSettings) -> Listing:
    """The files below a folder, or those that a manifest names. Raises DatasetError E1201, and E1217 for a manifest
    that is not one."""
    if path.suffix.lower() != ".json" or not path.is_file():
        return walk(path, SUFFIXES)
    real = path.expanduser().resolve()
    names = {real.name}
    refused: dict[str, str] = {}
    for entry in manifest(real):
        caption = entry.get("caption")
        for text in (entry["image"], caption if isinstance(caption, str) and caption.endswith(CAPTIONS) else None):
            if text is None:
                continue
            path_found = _find(real.parent, text)
            if path_found is not None:
                names.add(_below(real.parent, path_found))
            elif text == entry["image"]:
                refused[text] = "no such file, neither beside the manifest nor in the current folder"
    ordered = sorted(names, key=os.fsencode)
    stats = [(real.parent / name).stat() for name in ordered]
    numbers = [(path_found.st_size, path_found.st_mtime_ns, path_found.st_ctime_ns) for path_found in stats]
    return Listing(real.parent, ordered, np.array(numbers, dtype=np.int64), tuple(sorted(refused.items())), {})


def read_samples(source: Source) -> Iterator[Sample | Skipped | Noted]:
    """One sample for each picture of a folder, or for each entry of a manifest, in order, or why there is none.

    A manifest's samples have the path as it is written there for their key, with `#2`, `#3`, … where an entry names the
    picture of an earlier one. Raises DatasetError, after all files were looked at: E1217 with everything that is
    malformed, and E1203 when captions are missing and `captions.missing=error`.
    """
    names = source.listing.names
    listed = next((name for name in names if name.lower().endswith(".json")), None)
    reading = _Reading(source, Files(source.root, functools.partial(_caption_file, source.root, frozenset(names))))
    yield from (Skipped(source.prefix + path, reason) for path, reason in source.listing.refused)
    if listed is not None:
        yield from reading.manifest(listed)
    else:
        yield from reading.folder()
    reading.files.require()
    reading.require_captions()
    yield from reading.notes()


@dataclass(slots=True)
class _Reading:
    """What is known of a source so far. inherited, whole: layers of folders, for what lies below and for what lies in
    them."""

    source: Source
    files: Files
    inherited: dict[str, Layer] = field(default_factory=dict)
    whole: dict[str, Layer] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    many_prompts: list[str] = field(default_factory=list)

    def folder(self) -> Iterator[Sample | Skipped]:
        """The pictures of a folder and below it."""
        there = set(self.source.listing.names)
        for name in self.source.listing.names:
            stem, suffix = os.path.splitext(name)
            if suffix.lower() not in PICTURES:
                continue
            layer = self._of_folder(name.rpartition("/")[0], there)
            for end in SIDECARS:
                for sidecar in (stem + end, stem + end.upper()):
                    if sidecar in there and sidecar.rpartition("/")[2] not in MANIFESTS:
                        read = self.files.text if end in CAPTIONS else self.files.yaml
                        layer = read(sidecar).over(layer)
            yield from self._sample(name, name, self.source.root / name, layer)

    def manifest(self, listed: str) -> Iterator[Sample | Skipped]:
        """The entries of a manifest."""
        root, seen = self.source.root, Counter[str]()
        for count, entry in enumerate(manifest(root / listed), start=1):
            where = functools.partial(_entry, count)
            layer = self.files.mapping(entry, listed, where=where, also=("image",))
            written = entry["image"]
            picture = _find(root, written)
            if picture is None:
                continue  # among the listing's refused
            if picture.suffix.lower() not in decoding.SUFFIXES:
                yield Skipped(self.source.prefix + written, f"{picture.suffix or 'no ending'} is no ending of pictures")
                continue
            seen[written] += 1
            key = written if seen[written] == 1 else f"{written}#{seen[written]}"
            yield from self._sample(key, written, picture, layer)

    def require_captions(self) -> None:
        """Raises E1203 for pictures without a main prompt."""
        if self.missing:
            count, root = len(self.missing), self.source.root
            raise DatasetError(
                f"{root}: {count} picture{'s have' if count > 1 else ' has'} no caption: {_some(self.missing)}; a name "
                "that begins with an underscore says nothing: add a .txt file beside each, or set "
                "data.captions.missing=empty (or skip)",
                code="E1203",
            )

    def notes(self) -> Iterator[Noted]:
        """What the report should tell."""
        for note in self.files.notes:
            yield Noted(self.source.prefix + note.path, note.reason)
        if self.many_prompts:
            reason = f"{len(self.many_prompts)} pictures have several main prompts, of which the strongest file's first"
            yield Noted(self.source.prefix + self.many_prompts[0], f"{reason} is used: {_some(self.many_prompts)}")

    def _of_folder(self, folder: str, there: set[str]) -> Layer:
        """What holds for the pictures of a folder."""
        if folder in self.whole:
            return self.whole[folder]
        inside = f"{folder}/" if folder else ""
        below = Layer()
        if folder:
            above = folder.rpartition("/")[0]
            self._of_folder(above, there)
            below = self.inherited[above]
        for name in (inside + one for one in GLOBALS if inside + one in there):
            below = self.files.yaml(name).over(below)
        self.inherited[folder] = here = below
        # a number in a txt file gives way to local.yaml; the names of batches and the scale of the loss do not
        for key in ("multiply", "cond_dropout", "flip_p"):
            if f"{inside}{key}.txt" in there:
                here = self.files.number(f"{inside}{key}.txt", key).over(here)
        for name in (inside + one for one in LOCALS if inside + one in there):
            here = self.files.yaml(name).over(here)
        if f"{inside}batch_id.txt" in there:
            here = self.files.name(f"{inside}batch_id.txt").over(here)
        if f"{inside}loss_scale.txt" in there:
            here = self.files.number(f"{inside}loss_scale.txt", "loss_scale").over(here)
        if f"{inside}shuffle_tags.txt" in there:
            here = Layer(shuffle_tags=True).over(here)
        self.whole[folder] = here
        return here

    def _sample(self, key: str, name: str, path: Path, layer: Layer) -> Iterator[Sample | Skipped]:
        layer = layer.with_name(name)
        if len(layer.prompts) > 1:
            self.many_prompts.append(key)
        if not layer.prompts:
            match self.source.settings.captions.missing:
                case "skip":
                    yield Skipped(self.source.prefix + key, "no caption", is_wanted=True)
                    return
                case "error":
                    self.missing.append(key)
                    return
                case "empty":
                    pass
                case _:
                    raise AssertionError(self.source.settings.captions.missing)
        tags = sorted(layer.tags, key=lambda tag: -tag[1])
        caption = Tags(
            layer.prompts[0] if layer.prompts else "",
            tuple(tag for tag, _ in tags),
            tuple(weight for _, weight in tags),
            layer.max_caption_length or NO_LIMIT,
        )
        yield Sample(
            self.source.prefix + key,
            path,
            (caption.text,),
            repeats=self.source.repeats * (layer.multiply or 1.0),
            weight=1.0 if layer.loss_scale is None else layer.loss_scale,
            group="" if layer.batch_id in (None, NAMELESS) else layer.batch_id,
            overrides=tuple(_overrides(layer, caption)),
        )


def _overrides(layer: Layer, caption: Tags) -> Iterator[tuple[str, str]]:
    if layer.flip_p is not None:
        yield "flip", repr(layer.flip_p)
    if layer.cond_dropout is not None:
        yield "caption_dropout", repr(layer.cond_dropout)
    if layer.shuffle_tags:
        yield "shuffle_tags", "true"
    if layer.rating is not None:
        yield "rating", repr(layer.rating)
    if not caption.is_plain:
        yield "tags", caption.encoded()


def _find(root: Path, written: str) -> Path | None:
    """The file that a manifest names: beside it, else in the current folder."""
    text = written.replace("\\", "/") if os.sep == "/" and "\\" in written and "/" not in written else written
    for place in (root / text, Path.cwd() / text):
        try:
            if place.is_file():
                return Path(os.path.normpath(place))
        except (OSError, ValueError):
            continue
    return None


def _below(root: Path, path: Path) -> str:
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else os.fspath(path)


def _caption_file(root: Path, listed: Collection[str], name: str, text: str) -> str | None:
    """The caption file that the file `name` means by `text`, when it is one of the listed: beside it, below the root,
    or in the current folder."""
    for place in (root / name).parent, root:
        file = _find(place, text)
        if file is not None and (here := _below(root, file)) in listed:
            return here
    return None


def _entry(count: int, _place: Place) -> str:
    return f": entry {count}"


def _some(names: list[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")


FORMAT = Format(
    read_samples=read_samples, suffixes=SUFFIXES, list_files=list_files, manifests=MANIFESTS, own_flips=True
)  # fmt: skip
