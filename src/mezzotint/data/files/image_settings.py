"""Settings of single images in `mezzotint.jsonl` beside them: whether they are used. The images themselves are never
changed.

One JSON object a line, one line an image of the same folder:

    {"file": "cat.png", "exclude": true}
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from mezzotint import outside
from mezzotint.errors import DatasetError

FILE = "mezzotint.jsonl"
"""Name of the file in each folder of images."""

_KEYS = ("file", "exclude")


@dataclass(frozen=True, slots=True)
class ImageSettings:
    """exclude: the image is not used."""

    exclude: bool = False


PLAIN = ImageSettings()


@dataclass(slots=True)
class FolderSettings:
    """The settings of the images below a root. of_names: by name relative to the root. digest: SHA-256 of all files,
    hexadecimal; "" if there are none. used: names of images that were asked for."""

    root: Path
    of_names: Mapping[str, ImageSettings] = field(default_factory=dict)
    digest: str = ""
    used: set[str] = field(default_factory=set)

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
    state = hashlib.sha256()
    for folder in folders:
        path = root / folder / FILE
        if os.path.lexists(path):
            text = _read(path, root)
            state.update(f"{folder}\0{text}\0".encode("utf-8", "surrogateescape"))
            of_names |= {f"{folder}/{name}" if folder else name: one for name, one in parse(text, path)}
    return FolderSettings(root, of_names, state.hexdigest() if of_names else "")


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
    name, exclude = value.get("file"), value.get("exclude", False)
    if not isinstance(name, str) or not name or "/" in name or "\0" in name:
        raise ValueError("file must be the name of an image in the same folder")
    if not isinstance(exclude, bool):
        raise ValueError("exclude must be true or false")
    return name, ImageSettings(exclude)


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
    return json.dumps({"file": name, "exclude": settings.exclude})
