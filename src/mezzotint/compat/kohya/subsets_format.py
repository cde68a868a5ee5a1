"""The format `kohya-subsets`: the images directly in a folder, with class tokens for images without a caption file, or
the images, captions and tags of a metadata file (JSON)."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from mezzotint import outside
from mezzotint.compat.kohya.subsets_format_spec import FolderRules, KohyaSubsetsSettings
from mezzotint.data.files.listing import Listing, Unusable, walk
from mezzotint.data.formats.base import Format, Item, Noted, Skipped, Source
from mezzotint.data.formats.shared.captions import captions_of, lines_of
from mezzotint.data.formats.shared.folder_repeats import FolderRepeats
from mezzotint.data.formats.shared.sidecars import SIDECARS, samples
from mezzotint.data.media import decoding
from mezzotint.errors import DatasetError
from mezzotint.settings.counting import format_count
from mezzotint.settings.sections.data import DataSettings
from mezzotint.stages import Sample

MAX_METADATA_BYTES = 2_000_000_000
_SUFFIXES = decoding.SUFFIXES | set(SIDECARS)
_TOO_DEEP = "in a subfolder, which kohya's scripts do not read"


def _rules_of(settings: DataSettings) -> FolderRules:
    return settings.get_section(KohyaSubsetsSettings).of(settings.path)


def list_files(path: Path, settings: DataSettings) -> Listing:
    """The images and caption files below a folder, or those that a metadata file names. Raises DatasetError E1201, and
    E1217 for an invalid metadata file."""
    metadata_file = _rules_of(settings).metadata_file
    return walk(path, _SUFFIXES) if metadata_file is None else _list_named(path, metadata_file)


def read_samples(source: Source) -> Iterator[Item]:
    """Yields one sample for each image of the folder, in order, or the reason why it is skipped. Raises DatasetError
    E1203 and E1204 (`sidecars.samples`)."""
    rules = _rules_of(source.settings)
    if rules.metadata_file is not None:
        yield from _read_named(source, rules.metadata_file)
        return
    names = source.listing.names
    is_direct = np.array(["/" not in name for name in names], np.bool_)
    deeper = [name for name in names if "/" in name and _is_image(name)]
    yield from (Skipped(source.prefix + name, _TOO_DEEP, is_wanted=True) for name in deeper)
    for folder, count in sorted(Counter(name.partition("/")[0] for name in deeper).items()):
        yield Noted(source.prefix + folder, f"{format_count(count, 'image')} left out: {_TOO_DEEP}")
    direct = [name for name in names if "/" not in name]
    listing = replace(source.listing, names=direct, stats=source.listing.stats[is_direct])
    words = FolderRepeats(1, rules.class_tokens)
    yield from samples(replace(source, listing=listing), word="image", folder_of=lambda _: words, by_name=False)


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


def _read_named(source: Source, path: Path) -> Iterator[Item]:
    """The images of a metadata file; tags are joined to the caption with a comma."""
    for key, reason in source.listing.refused:
        yield Skipped(source.prefix + key, reason)
    for key, entry in _read_metadata(path).items():
        image = _find_image(source.root, key)
        if image is None:
            continue  # reported by the listing
        try:
            texts = [captions_of(lines_of(text), source.settings.captions) for text in _texts(entry)]
        except Unusable as error:
            yield Skipped(source.prefix + key, str(error))
            continue
        first, *tags = texts or [("",)]
        captions = tuple(",".join(filter(None, (text, *(one[0] for one in tags)))) for text in first)
        yield Sample(source.prefix + key, image, captions, repeats=source.repeats)


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
