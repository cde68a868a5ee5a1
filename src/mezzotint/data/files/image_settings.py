"""Settings of single images in `mezzotint.jsonl` beside them: whether they are used, and which part. The images
themselves are never changed.

One JSON object a line, one line an image of the same folder; all keys but `file` may be absent:

    {"file": "cat.png", "exclude": true}
    {"file": "fox.png", "crop": [0.1, 0, 0.9, 1], "rotate": 90, "review": true}
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mezzotint import outside
from mezzotint.data.files.regions import TURNS, WHOLE, Region
from mezzotint.errors import DatasetError

FILE = "mezzotint.jsonl"
"""Name of the file in each folder of images."""

EXCLUDED = f"excluded in {FILE}"
"""Why an excluded image is left out."""

_KEYS = ("file", "exclude", "crop", "rotate", "review")


@dataclass(frozen=True, slots=True)
class ImageSettings:
    """exclude: the image is not used. region: the part of it that is used, None for the whole image. review: a program
    has written its caption, and nobody has accepted it yet; it changes nothing in training."""

    exclude: bool = False
    region: Region | None = None
    review: bool = False


PLAIN = ImageSettings()


@dataclass(slots=True)
class FolderSettings:
    """The settings of the images below a root. of_names: by name relative to the root. digest: a hash of those that
    change what is trained, hexadecimal; "" if there are none. used: names of images that were asked for.
    folders: that can have such a file, relative to the root."""

    root: Path
    of_names: Mapping[str, ImageSettings] = field(default_factory=dict)
    digest: str = ""
    used: set[str] = field(default_factory=set)
    folders: tuple[str, ...] = ()

    def of(self, name: str) -> ImageSettings:
        """The settings of an image, by its name relative to the root."""
        if name in self.of_names:
            self.used.add(name)
        return self.of_names.get(name, PLAIN)

    def list_unused(self) -> list[str]:
        """Names that no image has, sorted."""
        return sorted(self.of_names.keys() - self.used)


def read_below(root: Path, names: Iterable[str]) -> FolderSettings:
    """The settings in the folders of some files. names: relative to the root. Raises DatasetError E1264."""
    folders = sorted({name.rpartition("/")[0] for name in names} | {""})
    of_names: dict[str, ImageSettings] = {}
    for folder in folders:
        path = root / folder / FILE
        if os.path.lexists(path):
            text = _read(path, root)
            of_names |= {f"{folder}/{name}" if folder else name: one for name, one in parse(text, path)}
    trained = {name: replace(one, review=False) for name, one in of_names.items()}
    digest = digest_of({name: one for name, one in trained.items() if one != PLAIN})
    return FolderSettings(root, of_names, digest, folders=tuple(folders))


def digest_of(settings: Mapping[str, ImageSettings]) -> str:
    """A hash of settings by name; "" for none."""
    lines = "\n".join(_line_of(name, one) for name, one in sorted(settings.items()))
    return hashlib.sha256(lines.encode("ascii")).hexdigest() if settings else ""


def _read(path: Path, root: Path) -> str:
    try:
        return outside.read_text(path, limit=outside.LISTED, errors="surrogateescape", within=root)
    except OSError as error:
        raise DatasetError(
            f"{path}: cannot be read: {error.strerror or error}; repair or remove it", code="E1264"
        ) from error


def parse(text: str, path: Path) -> Iterator[tuple[str, ImageSettings]]:
    """The images of a file with their settings. path: for messages. Raises DatasetError E1264 with the line."""
    seen: set[str] = set()
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            try:
                name, settings = _parse_line(line)
            except ValueError as error:
                raise DatasetError(f"{path}:{number}: {error}", code="E1264") from error
            if name in seen:
                raise DatasetError(f"{path}:{number}: {name!a} has two lines; keep one of them", code="E1264")
            seen.add(name)
            yield name, settings


def _parse_line(line: str) -> tuple[str, ImageSettings]:
    value = outside.parse_json(line)
    if not isinstance(value, dict):
        raise ValueError("is not a JSON object")
    unknown = [key for key in value if key not in _KEYS]
    if unknown:
        raise ValueError(f"{unknown[0][:80]!a} is not one of {', '.join(_KEYS)}")
    name = value.get("file")
    if not isinstance(name, str) or not name or "/" in name or "\0" in name:
        raise ValueError("file must be the name of an image in the same folder")
    flags = {key: value.get(key, False) for key in ("exclude", "review")}
    for key, flag in flags.items():
        if not isinstance(flag, bool):
            raise ValueError(f"{key} must be true or false")
    return name, ImageSettings(region=parse_region(value), **flags)


def parse_region(value: Mapping[str, Any]) -> Region | None:
    """The region of `{"crop": …, "rotate": …}`; None for the whole image. Raises ValueError."""
    crop, rotate = value.get("crop", list(WHOLE)), value.get("rotate", 0)
    is_crop = isinstance(crop, list) and len(crop) == 4 and all(type(edge) in (int, float) for edge in crop)
    if not is_crop or not (0 <= crop[0] < crop[2] <= 1 and 0 <= crop[1] < crop[3] <= 1):
        raise ValueError("crop must be [left, top, right, bottom] as shares of the image, from 0 to 1")
    if type(rotate) is not int or rotate not in TURNS:
        raise ValueError("rotate must be 0, 90, 180 or 270, degrees clockwise")
    left, top, right, bottom = map(float, crop)
    region = Region((left, top, right, bottom), rotate)
    return None if region == Region() else region


def change_text(text: str, path: Path, changes: Mapping[str, ImageSettings]) -> str:
    """The text of a file after changes of some images, each by name; other lines stay as they are. Raises DatasetError
    E1264."""
    lines, pending = [], dict(changes)
    for line in text.split("\n"):
        if not line.strip():
            continue
        [(name, _)] = parse(line, path)
        if name not in changes:
            lines.append(line)
        elif (settings := pending.pop(name)) != PLAIN:
            lines.append(_line_of(name, settings))
    lines += [_line_of(name, settings) for name, settings in sorted(pending.items()) if settings != PLAIN]
    return "".join(f"{line}\n" for line in lines)


def _line_of(name: str, settings: ImageSettings) -> str:
    line: dict[str, Any] = {"file": name}
    if settings.exclude:
        line["exclude"] = True
    if settings.region is not None:
        line |= {"crop": settings.region.crop, "rotate": settings.region.rotate}
    if settings.review:
        line["review"] = True
    return json.dumps(line)
