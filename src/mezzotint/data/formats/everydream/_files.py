"""Reading the files of the format `everydream` into layers: captions, yaml, numbers, manifests. What is malformed is
gathered with file and line, and told together.
"""

from __future__ import annotations

import functools
import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mezzotint.data.formats.base import Noted
from mezzotint.data.formats.everydream import _layers as layers
from mezzotint.data.formats.everydream._layers import Layer, Malformed, Place
from mezzotint.errors import DatasetError, RecipeError
from mezzotint.recipe.reading import yaml_rules

MAX_BYTES = 1_000_000
MAX_MANIFEST_BYTES = 2_000_000_000
CAPTIONS = (".txt", ".caption")
_SHOWN = 10


@dataclass(slots=True)
class Files:
    """The files below a root, read once each. find: the caption file that another file (its name first) names, None
    where there is none. problems: `name:line: what`. notes: what else should be known."""

    root: Path
    find: Callable[[str, str], str | None]
    problems: list[str] = field(default_factory=list)
    notes: list[Noted] = field(default_factory=list)

    def text(self, name: str) -> Layer:
        """A caption file."""
        return layers.of_text(self._read(name) or "")

    def yaml(self, name: str) -> Layer:
        """A mapping in yaml; an empty file says nothing."""
        text = self._read(name)
        if text is None or all(not line.strip() or line.lstrip().startswith("#") for line in text.splitlines()):
            return Layer()
        try:
            document = yaml_rules.load(text, name)
        except RecipeError as error:
            self._keep(name, error)
            return Layer()
        if document.problems:
            self._keep(name, RecipeError(name, problems=document.problems))
            return Layer()
        return self.mapping(document.tree, name, where=functools.partial(_line, document.lines))

    def mapping(
        self, values: Mapping[str, Any], name: str, *, where: Callable[[Place], str], also: tuple[str, ...] = ()
    ) -> Layer:
        """A mapping that is read already. where: what is put behind the file's name for a place in it, `:12`."""

        def caption(text: str) -> str:
            return self._caption(text, name)

        try:
            return layers.of_mapping(values, caption=caption, also=also)
        except Malformed as error:
            dotted = ".".join(map(str, error.place))
            self.problems.append(f"{name}{where(error.place)}: {f'{dotted}: ' if dotted else ''}{error}")
            return Layer()

    def number(self, name: str, key: str) -> Layer:
        """A text file that holds one number, the value of `key`."""
        text = self._read(name)
        try:
            return Layer() if text is None else layers.checked(key, layers.number(text))
        except Malformed as error:
            self.problems.append(f"{name}:1: {error}")
            return Layer()

    def name(self, name: str) -> Layer:
        """A text file that holds a name for batches."""
        return Layer(batch_id=(self._read(name) or "").strip() or None)

    def require(self) -> None:
        """Raises E1217 for everything that was malformed."""
        if self.problems:
            count = len(self.problems)
            more = f"; and {count - _SHOWN} more" if count > _SHOWN else ""
            raise DatasetError(
                f"{self.root}: {'; '.join(self.problems[:_SHOWN])}{more}; mend "
                f"{'it' if count == 1 else 'them'}, or take the file{'' if count == 1 else 's'} away",
                code="E1217",
            )

    def _caption(self, text: str, name: str) -> str:
        """A caption as a mapping gives it: the text itself, or the file that it names."""
        if "\n" in text or not text.endswith(CAPTIONS):
            return text
        path = self.find(name, text)
        if path is None:
            raise Malformed(f"there is no file {text!r} below the data set's folder", ("caption",))
        return self._read(path) or ""

    def _read(self, name: str) -> str | None:
        """The text of a file, None (and a problem) where it holds none."""
        try:
            handle = os.open(self.root / name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            with open(handle, "rb") as file:
                data = file.read(MAX_BYTES + 1)
        except OSError as error:
            self.problems.append(f"{name}: {error.strerror}")
            return None
        if len(data) > MAX_BYTES:
            self.problems.append(f"{name}: more than {MAX_BYTES:,} bytes")
            return None
        if b"\0" in data:
            self.problems.append(f"{name}: holds NUL, so it is not text; save it as UTF-8")
            return None
        try:
            return data.decode("utf-8-sig")
        except UnicodeDecodeError:
            self.notes.append(Noted(name, "not UTF-8; read as ISO-8859-1"))
            return data.decode("latin-1")

    def _keep(self, name: str, error: RecipeError) -> None:
        for problem in error.problems:
            line = f":{problem.line}" if problem.line else ""
            what = problem.what
            if what.startswith("the top of a recipe is"):
                what = "holds no keys such as main_prompt and tags"
            hint = f" ({problem.remedy})" if problem.remedy else ""
            self.problems.append(f"{name}{line}: {re.sub('recipes?', 'this file', what)}{hint}")


def manifest(path: Path) -> list[dict[str, Any]]:
    """The entries of a manifest. Raises DatasetError E1217 with the line where it is not a list of objects."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_MANIFEST_BYTES + 1)
        if len(data) > MAX_MANIFEST_BYTES:
            raise DatasetError(
                f"{path}: more than {MAX_MANIFEST_BYTES:,} bytes; give several manifests in data.path", code="E1217"
            )
        entries = json.loads(data.decode("utf-8-sig"))
    except OSError as error:
        raise DatasetError(f"{path}: {error.strerror}; data.path names the manifest", code="E1201") from error
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise DatasetError(f"{path}:{line}: not UTF-8; save the manifest as UTF-8", code="E1217") from error
    except (json.JSONDecodeError, RecursionError) as error:
        line = getattr(error, "lineno", 1)
        raise DatasetError(
            f"{path}:{line}: not JSON ({error}); mend this line or the one above", code="E1217"
        ) from None
    if not isinstance(entries, list):
        raise DatasetError(f"{path}:1: a manifest is a list of objects with `image`, got {entries!r:.40}", code="E1217")
    for count, entry in enumerate(entries, start=1):
        if not isinstance(entry, dict) or not isinstance(entry.get("image"), str) or not entry["image"].strip():
            raise DatasetError(
                f"{path}: entry {count} is to be an object with `image`, the path of a picture, got {entry!r:.60}",
                code="E1217",
            )
    return entries


def _line(lines: Mapping[Place, int], place: Place) -> str:
    """The line of a place, or of what is around it."""
    return f":{next((lines[place[:end]] for end in range(len(place), -1, -1) if place[:end] in lines), 1)}"
