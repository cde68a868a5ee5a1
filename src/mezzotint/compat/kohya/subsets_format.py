"""The format `kohya-subsets`: the images directly in a folder, with the caption rules of kohya's scripts.

Captions come from files with one extension, from class tokens for images without a file, or from a metadata file (JSON)
that names the images.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from mezzotint import outside
from mezzotint.compat.kohya.subsets_format_spec import FolderRules, KohyaSubsetsSettings
from mezzotint.data.files.listing import Listing, Unusable, walk
from mezzotint.data.files.remembered_texts import RememberedTexts, TextFiles
from mezzotint.data.files.tags import NO_LIMIT, Tags
from mezzotint.data.formats.base import Format, Item, Noted, Skipped, Source
from mezzotint.data.formats.shared.captions import captions_of, lines_of, read_text, with_captions
from mezzotint.data.formats.shared.folder_repeats import FolderRepeats, parse_folder_name
from mezzotint.data.media import decoding
from mezzotint.errors import DatasetError
from mezzotint.settings.counting import format_count, format_names
from mezzotint.settings.sections.data import DataSettings
from mezzotint.stages import Sample

MAX_METADATA_BYTES = 2_000_000_000
_SHOWN = 5
_ONCE = FolderRepeats(1, "")


def rules_of(settings: DataSettings) -> FolderRules:
    """The rules of a set's folder."""
    return settings.get_section(KohyaSubsetsSettings).of(settings.path)


def list_files(path: Path, settings: DataSettings) -> Listing:
    """The images and caption files below a folder, or those that a metadata file names. Raises DatasetError E1201, and
    E1217 for an invalid metadata file."""
    rules = rules_of(settings)
    if rules.metadata_file is not None:
        return _list_named(path, rules.metadata_file)
    ending = os.path.splitext(f"x{rules.caption_extension}")[1].lower()
    return walk(path, decoding.SUFFIXES | {ending})


def read_samples(source: Source) -> Iterator[Item]:
    """Yields one sample for each image of the folder, in order, or the reason why it is skipped. Raises DatasetError
    E1150 without a numbered folder where they are expected, and E1203 (`captions.with_captions`)."""
    rules = rules_of(source.settings)
    for path, reason in source.listing.refused:
        yield Skipped(source.prefix + path, reason)
    reader = _FolderReader(source, rules)
    items = reader.metadata(rules.metadata_file) if rules.metadata_file is not None else reader.folder()
    yield from with_captions(items, source, partial(_without_captions, rules))


def _without_captions(rules: FolderRules, names: Sequence[str]) -> str:
    first = PurePosixPath(names[0]).with_suffix(rules.caption_extension).name
    return (
        f"{len(names)} image{'s have' if len(names) > 1 else ' has'} no caption: {format_names(names, _SHOWN)}; add "
        f"{first} and so on, or set data.kohya_subsets.class_tokens, or data.captions.missing=empty (or skip)"
    )


@dataclass(frozen=True, slots=True)
class _FolderReader:
    """Reads a source."""

    source: Source
    rules: FolderRules

    def folder(self) -> Iterator[Item]:
        source, ending = self.source, self.rules.caption_extension
        places = {name: self._place(name) for name in source.listing.names if _is_image(name)}
        if self.rules.numbered and not any(isinstance(place, FolderRepeats) for place in places.values()):
            raise DatasetError(self._no_folder_message(), code="E1150")
        yield from self._left_out({name: place for name, place in places.items() if isinstance(place, str)})
        texts, unreadable = self._caption_files(ending), dict(source.listing.refused)
        for name, place in places.items():
            if isinstance(place, str):
                continue
            beside = os.path.splitext(name)[0] + ending
            try:
                if beside in unreadable:
                    raise Unusable(f"its caption {PurePosixPath(beside).name} is {unreadable[beside]}")
                captions = self._file_captions(texts, beside)
            except Unusable as error:
                yield Skipped(source.prefix + name, str(error))
                continue
            words = place.caption or self.rules.class_tokens
            if captions is None:
                captions = (words,) if words else ()
            yield self._sample(name, source.root / name, captions, place.repeats)

    def _place(self, name: str) -> FolderRepeats | str:
        """The repeats and words of an image's folder, or why the image is not used."""
        folder, slash, rest = name.partition("/")
        if not self.rules.numbered:
            return _ONCE if not slash else "in a subfolder, which kohya's scripts do not read"
        if not slash:
            return "not in a folder such as 10_name"
        parsed = parse_folder_name(folder)
        if parsed is None:
            return f"{folder} has no number of repeats; name it like 10_name"
        if not parsed.repeats:
            return f"{folder} has 0 repeats"
        return "not directly in its folder such as 10_name" if "/" in rest else parsed

    def _left_out(self, reasons: Mapping[str, str]) -> Iterator[Item]:
        by_folder: dict[str, list[str]] = {}
        for name, reason in reasons.items():
            by_folder.setdefault(name.rpartition("/")[0].partition("/")[0], []).append(reason)
            yield Skipped(self.source.prefix + name, reason, is_wanted=True)
        for folder, inside in sorted(by_folder.items()):
            yield Noted(self.source.prefix + folder, f"{format_count(len(inside), 'image')} left out: {inside[0]}")

    def _caption_files(self, ending: str) -> TextFiles:
        names = self.source.listing.names
        numbers = [number for number, name in enumerate(names) if name.endswith(ending) and not _is_image(name)]
        memory = self.source.texts or RememberedTexts()
        return memory.files(self.source.root, [names[i] for i in numbers], self.source.listing.stats[numbers])

    def _file_captions(self, texts: TextFiles, name: str) -> tuple[str, ...] | None:
        """The captions of a caption file, None if there is none. Raises Unusable."""
        if name not in texts.numbers:
            return None
        lines = lines_of(texts.text(name, partial(read_text, self.source.root / name)))
        return captions_of(lines, self.source.settings.captions)

    def metadata(self, path: Path) -> Iterator[Item]:
        root, lines = self.source.root, self.source.settings.captions
        for key, entry in _read_metadata(path).items():
            image = _find_image(root, key)
            if image is None:
                continue  # reported by the listing
            try:
                texts = [captions_of(lines_of(text), lines) for text in _texts(entry)]
            except Unusable as error:
                yield Skipped(self.source.prefix + key, str(error))
                continue
            first, *tags = texts or [("",)]
            joined = tuple(",".join(filter(None, (text, *(one[0] for one in tags)))) for text in first)
            yield self._sample(key, image, joined, 1)

    def _sample(self, key: str, path: Path, captions: tuple[str, ...], repeats: int) -> Sample:
        rules, settings = self.rules, self.source.settings.captions
        if not captions and (rules.caption_prefix or rules.caption_suffix):
            captions = ("",)
        captions = tuple(
            " ".join(filter(None, (rules.caption_prefix, text, rules.caption_suffix))) for text in captions
        )
        overrides: tuple[tuple[str, str], ...] = ()
        if rules.shuffle_first and not settings.wildcards and captions and captions[0]:
            tags = tuple(tag.strip() for tag in captions[0].split(","))
            overrides = (("tags", Tags("", tags, (1.0,) * len(tags), NO_LIMIT).encoded()),)
        repeated = self.source.repeats * repeats
        return Sample(self.source.prefix + key, path, captions, repeats=repeated, overrides=overrides)

    def _no_folder_message(self) -> str:
        root = self.source.root
        if parse_folder_name(root.name) is not None:
            return f"{root}: is itself a folder with a number; name its parent folder: {root.parent}"
        return (
            f"{root}: contains no folder such as 10_name (a number of repeats, an underscore and words) with images "
            "directly inside; name folders so, or use a data set file"
        )


def _is_image(name: str) -> bool:
    return os.path.splitext(name)[1].lower() in decoding.SUFFIXES


# --- metadata files -------------------------------------------------------------------------------------------------


def _list_named(root: Path, path: Path) -> Listing:
    names, refused = [_below(root, path)], {}
    for key in _read_metadata(path):
        image = _find_image(root, key)
        if image is None:
            refused[key] = f"{path.name} names it, and there is no such image in {root}"
        else:
            names.append(_below(root, image))
    return Listing.of_files(root, list(dict.fromkeys(names)), refused.items())


def _read_metadata(path: Path) -> dict[str, Any]:
    """The entries of a metadata file by image. Raises DatasetError E1201 if it cannot be read, E1217 if it has another
    form."""
    try:
        entries = outside.parse_json(outside.read_bytes(path, limit=MAX_METADATA_BYTES).decode("utf-8-sig"))
    except outside.NotRegularFile as error:
        raise DatasetError(f"{path}: {error.strerror}; name a metadata file", code="E1217") from error
    except OSError as error:
        raise DatasetError(f"{path}: {error.strerror}; name the metadata file", code="E1201") from error
    except UnicodeDecodeError as error:
        raise DatasetError(f"{path}: not UTF-8; save it as UTF-8", code="E1217") from error
    except ValueError as error:
        line = getattr(error, "lineno", 1)
        raise DatasetError(f"{path}:{line}: not JSON; correct this line or the one above", code="E1217") from None
    if not isinstance(entries, dict) or not all(isinstance(entry, dict) for entry in entries.values()):
        message = 'a metadata file is an object of images: {"a.png": {"caption": "…"}}'
        raise DatasetError(f"{path}: {message}; write it so", code="E1217")
    return entries


def _texts(entry: Mapping[str, Any]) -> list[str]:
    """The caption and the tags of an entry, as far as it has them. Raises Unusable."""
    texts = [entry[key] for key in ("caption", "tags") if entry.get(key) is not None]
    if not all(isinstance(text, str) for text in texts):
        raise Unusable("its caption and tags must be texts")
    return texts


def _find_image(root: Path, key: str) -> Path | None:
    """The image of a key: a path, or the name of an image of the folder, with or without extension."""
    written = key.replace("\\", "/") if os.sep == "/" and "/" not in key else key
    try:
        for path in (Path(written), root / written):
            if _is_image(path.name) and path.is_file():
                return Path(os.path.normpath(path if path.is_absolute() else path.absolute()))
        endings = (end for suffix in sorted(decoding.SUFFIXES) for end in (suffix, suffix.upper()))
        return next((path for end in endings if (path := root / f"{written}{end}").is_file()), None)
    except (OSError, ValueError):
        return None


def _below(root: Path, path: Path) -> str:
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else os.fspath(path)


FORMAT = Format(
    read_samples=read_samples, suffixes=decoding.SUFFIXES, list_files=list_files, manifests=frozenset((".json",))
)  # fmt: skip
