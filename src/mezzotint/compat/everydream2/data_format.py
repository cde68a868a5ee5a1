"""The format `everydream`: folders and manifests as EveryDream2 reads them.

An image's caption and settings are merged from files that apply to its folder and the folders below (`global.yaml`),
only to its folder (`local.yaml`, `multiply.txt`, …), and to itself (`NAME.txt`, `.caption`, `.yaml`); if none of them
has a main prompt, it comes from the image's name. A manifest is a .json file in `data.path`.
"""

from __future__ import annotations

import functools
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from mezzotint import outside
from mezzotint.compat.everydream2._layers import CAPTIONS, NAMELESS, KeyPath, Layer, LayerFiles
from mezzotint.data.files.listing import Listing, walk
from mezzotint.data.files.tags import NO_LIMIT, Tags
from mezzotint.data.formats.base import Format, Item, Noted, Skipped, Source
from mezzotint.data.formats.shared.captions import with_captions
from mezzotint.data.media import decoding
from mezzotint.errors import DatasetError
from mezzotint.settings.counting import format_names
from mezzotint.settings.sections.data import DataSettings
from mezzotint.stages import Sample

IMAGES = frozenset((".jpg", ".jpeg", ".png", ".bmp", ".webp", ".jfif"))
SIDECARS = (*CAPTIONS, ".yml", ".yaml")
SUFFIXES = IMAGES | set(SIDECARS)

NUMBERS = ("multiply", "cond_dropout", "flip_p", "loss_scale")
GLOBALS, LOCALS = ("global.yml", "global.yaml"), ("local.yml", "local.yaml")
MANIFESTS = frozenset((*GLOBALS, *LOCALS, *(f"{key}.txt" for key in NUMBERS), "batch_id.txt", "shuffle_tags.txt"))

MAX_MANIFEST_BYTES = 2_000_000_000
_SHOWN = 5


def list_files(path: Path, settings: DataSettings) -> Listing:
    """The files below a folder, or those that a manifest names. Raises DatasetError E1201, and E1217 for an invalid
    manifest."""
    if path.suffix.lower() != ".json" or not path.is_file():
        return walk(path, SUFFIXES)
    real = path.expanduser().resolve()
    names = {real.name}
    refused: dict[str, str] = {}
    for entry in read_manifest(real):
        caption = entry.get("caption")
        for text in (entry["image"], caption if isinstance(caption, str) and caption.endswith(CAPTIONS) else None):
            if text is None:
                continue
            file = _find(real.parent, text)
            if file is not None:
                names.add(_below(real.parent, file))
            elif text == entry["image"]:
                refused[text] = "no such file, neither next to the manifest nor in the current folder"
    return Listing.of_files(real.parent, sorted(names, key=os.fsencode), refused.items())


def read_manifest(path: Path) -> list[dict[str, Any]]:
    """The entries of a manifest. Raises DatasetError E1201 if it cannot be read, E1217 with the line if it is not a
    list of objects."""
    try:
        data = outside.read_bytes(path, limit=MAX_MANIFEST_BYTES)
        entries = outside.parse_json(data.decode("utf-8-sig"))
    except outside.NotRegularFile as error:
        raise DatasetError(f"{path}: {error.strerror}; give several manifests in data.path", code="E1217") from error
    except OSError as error:
        raise DatasetError(f"{path}: {error.strerror}; data.path names the manifest", code="E1201") from error
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise DatasetError(f"{path}:{line}: not UTF-8; save the manifest as UTF-8", code="E1217") from error
    except ValueError as error:
        line = getattr(error, "lineno", 1)
        message = f"{path}:{line}: not JSON ({error}); correct this line or the one above"
        raise DatasetError(message, code="E1217") from None
    if not isinstance(entries, list):
        raise DatasetError(f"{path}:1: a manifest is a list of objects with `image`, got {entries!r:.40}", code="E1217")
    for count, entry in enumerate(entries, start=1):
        if not isinstance(entry, dict) or not isinstance(entry.get("image"), str) or not entry["image"].strip():
            raise DatasetError(
                f"{path}: entry {count} must be an object with `image`, the path of an image, got {entry!r:.60}",
                code="E1217",
            )
    return entries


def read_samples(source: Source) -> Iterator[Item]:
    """Yields one sample for each image of a folder, or for each entry of a manifest, in order, or the reason why it is
    skipped.

    The key of a manifest's sample is its path as written, with `#2`, `#3`, … if an earlier entry names the same image.
    Raises DatasetError after all files have been read: E1217 with all malformed files, and E1203
    (`captions.with_captions`).
    """
    return with_captions(_LayeredReader(source).items(), source, _without_captions)


def _without_captions(names: Sequence[str]) -> str:
    return (
        f"{len(names)} image{'s have' if len(names) > 1 else ' has'} no caption: {format_names(names, _SHOWN)}; a name "
        "that starts with an underscore is not a caption: add a .txt file next to each, or set "
        "data.captions.missing=empty (or skip)"
    )


class _LayeredReader:
    """Reads a source. inherited: by folder, the layer for the folders below it; whole: by folder, the layer for its
    files."""

    def __init__(self, source: Source) -> None:
        self.source = source
        names = frozenset(source.listing.names)
        self.files = LayerFiles(source.root, functools.partial(_caption_file, source.root, names))
        self.inherited: dict[str, Layer] = {}
        self.whole: dict[str, Layer] = {}
        self.many_prompts: list[str] = []

    def items(self) -> Iterator[Item]:
        source = self.source
        yield from (Skipped(source.prefix + path, reason) for path, reason in source.listing.refused)
        manifest = next((name for name in source.listing.names if name.lower().endswith(".json")), None)
        yield from self.folder() if manifest is None else self.manifest(manifest)
        self.files.require()
        for note in self.files.notes:
            yield Noted(source.prefix + note.path, note.reason)
        if self.many_prompts:
            reason = f"{len(self.many_prompts)} images have several main prompts; the first one of the strongest file"
            shown = format_names(self.many_prompts, _SHOWN)
            yield Noted(source.prefix + self.many_prompts[0], f"{reason} is used: {shown}")

    def folder(self) -> Iterator[Item]:
        listed = set(self.source.listing.names)
        for name in self.source.listing.names:
            stem, suffix = os.path.splitext(name)
            if suffix.lower() not in IMAGES:
                continue
            layer = self._of_folder(name.rpartition("/")[0], listed)
            for end in SIDECARS:
                for sidecar in (stem + end, stem + end.upper()):
                    if sidecar in listed and sidecar.rpartition("/")[2] not in MANIFESTS:
                        read = self.files.text if end in CAPTIONS else self.files.yaml
                        layer = read(sidecar).merge_over(layer)
            yield self._sample(name, name, self.source.root / name, layer)

    def manifest(self, manifest: str) -> Iterator[Item]:
        root, seen = self.source.root, Counter[str]()
        for count, entry in enumerate(read_manifest(root / manifest), start=1):
            where = functools.partial(_entry, count)
            layer = self.files.mapping(entry, manifest, where=where, also=("image",))
            written = entry["image"]
            image = _find(root, written)
            if image is None:
                continue  # reported by the listing
            if image.suffix.lower() not in decoding.SUFFIXES:
                yield Skipped(self.source.prefix + written, f"{image.suffix or 'no suffix'} is not an image suffix")
                continue
            seen[written] += 1
            key = written if seen[written] == 1 else f"{written}#{seen[written]}"
            yield self._sample(key, written, image, layer)

    def _of_folder(self, folder: str, listed: set[str]) -> Layer:
        if folder in self.whole:
            return self.whole[folder]
        inside = f"{folder}/" if folder else ""
        below = Layer()
        if folder:
            above = folder.rpartition("/")[0]
            self._of_folder(above, listed)
            below = self.inherited[above]
        files = self.files
        for name in (inside + one for one in GLOBALS if inside + one in listed):
            below = files.yaml(name).merge_over(below)
        self.inherited[folder] = layer = below
        # local.yaml overrides numbers in txt files, but not batch names and the loss scale
        of_folder: list[tuple[str, Callable[[str], Layer]]] = [
            *(
                (f"{key}.txt", functools.partial(files.number, key=key))
                for key in ("multiply", "cond_dropout", "flip_p")
            ),
            *((one, files.yaml) for one in LOCALS),
            ("batch_id.txt", files.name),
            ("loss_scale.txt", functools.partial(files.number, key="loss_scale")),
            ("shuffle_tags.txt", lambda name: Layer(shuffle_tags=True)),
        ]
        for name, read in of_folder:
            if inside + name in listed:
                layer = read(inside + name).merge_over(layer)
        self.whole[folder] = layer
        return layer

    def _sample(self, key: str, name: str, path: Path, layer: Layer) -> Sample:
        layer = layer.with_name(name)
        if len(layer.prompts) > 1:
            self.many_prompts.append(key)
        tags = sorted(layer.tags, key=lambda tag: -tag[1])
        caption = Tags(
            layer.prompts[0] if layer.prompts else "",
            tuple(tag for tag, _ in tags),
            tuple(weight for _, weight in tags),
            layer.max_caption_length or NO_LIMIT,
        )
        return Sample(
            self.source.prefix + key,
            path,
            (caption.text,) if layer.prompts or self.source.settings.captions.missing == "empty" else (),
            repeats=self.source.repeats * (layer.multiply or 1.0),
            weight=1.0 if layer.loss_scale is None else layer.loss_scale,
            group="" if layer.batch_id in (None, NAMELESS) else layer.batch_id,
            overrides=tuple(_overrides(layer, caption)),
        )


def _overrides(layer: Layer, caption: Tags) -> Iterator[tuple[str, str]]:
    for name, value in (("flip", layer.flip_p), ("caption_dropout", layer.cond_dropout), ("rating", layer.rating)):
        if value is not None:
            yield name, repr(value)
    if layer.shuffle_tags:
        yield "shuffle_tags", "true"
    if not caption.is_plain:
        yield "tags", caption.encoded()


def _find(root: Path, written: str) -> Path | None:
    """The file that a manifest names: next to it, or in the current folder."""
    text = written.replace("\\", "/") if os.sep == "/" and "\\" in written and "/" not in written else written
    for path in (root / text, Path.cwd() / text):
        try:
            if path.is_file():
                return Path(os.path.normpath(path))
        except (OSError, ValueError):
            continue
    return None


def _below(root: Path, path: Path) -> str:
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else os.fspath(path)


def _caption_file(root: Path, listed: Collection[str], name: str, text: str) -> str | None:
    """The caption file that the file `name` names by `text`, if it is in `format_names`: next to it, below the root,
    or in the current folder."""
    for folder in (root / name).parent, root:
        file = _find(folder, text)
        if file is not None and (listed_name := _below(root, file)) in listed:
            return listed_name
    return None


def _entry(count: int, _key_path: KeyPath) -> str:
    return f": entry {count}"


FORMAT = Format(
    read_samples=read_samples, suffixes=SUFFIXES, list_files=list_files, manifests=MANIFESTS, own_flips=True
)  # fmt: skip
