"""The layers of the format `everydream`: the values that one file sets for its images, and how layers are merged.

A layer is read from a mapping (YAML, an entry of a manifest), a caption text, a number, or a file's name. Later layers
override earlier ones: a folder's global files, its local file, an image's own files. Malformed files are collected with
file and line and reported together.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from mezzotint import outside
from mezzotint.data.formats.base import Noted
from mezzotint.errors import DatasetError, RecipeError, did_you_mean
from mezzotint.settings.counting import format_names
from mezzotint.settings.reading import yaml_rules

KeyPath = tuple[str | int, ...]
"""The path of a value in its mapping: ("tags", 0, "weight")."""

NAMELESS = "default_batch"
"""EveryDream2's name of the batch of images without a batch name."""

MAX_BYTES = 1_000_000
CAPTIONS = (".txt", ".caption")
_SHOWN = 10
_BOOLEANS = {"yes": True, "on": True, "no": False, "off": False}


class Malformed(Exception):
    """The reason why a layer cannot be read. key_path: of the value, in its mapping."""

    def __init__(self, message: str, key_path: KeyPath = ()) -> None:
        super().__init__(message)
        self.key_path = key_path


@dataclass(frozen=True, slots=True)
class Layer:
    """The values that a file sets; None or empty if it does not set one. prompts: main prompts, of which the first is
    used. tags: (text, weight)."""

    prompts: tuple[str, ...] = ()
    tags: tuple[tuple[str, float], ...] = ()
    multiply: float | None = None
    cond_dropout: float | None = None
    flip_p: float | None = None
    loss_scale: float | None = None
    rating: float | None = None
    max_caption_length: int | None = None
    batch_id: str | None = None
    shuffle_tags: bool = False

    def merge_over(self, weaker: Layer) -> Layer:
        """Merges this layer over a weaker one: its values override; its prompts and tags come first, without
        duplicates; tags are shuffled if either layer has shuffle_tags."""
        values = {
            field.name: getattr(weaker if getattr(self, field.name) is None else self, field.name)
            for field in dataclasses.fields(Layer)
        }
        values["prompts"] = tuple(dict.fromkeys(self.prompts + weaker.prompts))
        values["tags"] = tuple(dict.fromkeys(self.tags + weaker.tags))
        values["shuffle_tags"] = self.shuffle_tags or weaker.shuffle_tags
        return Layer(**values)

    def with_name(self, name: str) -> Layer:
        """This layer; without a main prompt, merged with the caption in the file's name: the part before the first
        underscore, split at commas."""
        return self if self.prompts else parse_caption(PurePosixPath(name).stem.partition("_")[0]).merge_over(self)


def parse_caption(text: str) -> Layer:
    """The layer of a caption: split at commas, the first part is the main prompt, the others are tags. An empty text
    sets nothing."""
    if not text.strip():
        return Layer()
    main, *tags = (part.strip() for part in text.split(","))
    return Layer((main,) if main else (), tuple((tag, 1.0) for tag in tags))


def parse_mapping(
    mapping: Mapping[str, Any], *, caption: Callable[[str], str], key_path: KeyPath = (), also: tuple[str, ...] = ()
) -> Layer:
    """The layer of a mapping. caption: returns the text for a value of `caption`. also: keys that the caller handles.
    Raises Malformed for the first error."""
    values: dict[str, Any] = {}
    inner = Layer()
    for key, value in mapping.items():
        value_path = (*key_path, key)
        if key in also or value is None:
            continue
        if key == "caption":
            inner = (
                parse_mapping(value, caption=caption, key_path=value_path)
                if isinstance(value, Mapping)
                else parse_caption(caption(_text(value, value_path)))
            )
        elif key == "main_prompt":
            texts = value if isinstance(value, list) else [value]
            values["prompts"] = tuple(dict.fromkeys(text for text in (_text(one, value_path) for one in texts) if text))
        elif key in _READERS:
            values[key] = _READERS[key](value, value_path)
        else:
            raise Malformed(_unknown(key, also), value_path)
    return inner.merge_over(Layer(**values))


def number(text: str) -> float:
    """The number in a text file. Raises Malformed."""
    try:
        return _finite(float(text), ())
    except ValueError as error:
        raise Malformed(f"must contain one number, got {text.strip()[:40]!r}") from error


def check_number(key: str, value: float) -> Layer:
    """A layer of one number, from a file named after it. Raises Malformed for one out of range."""
    return Layer(**{key: _READERS[key](value, ())})


_LARGEST = 1_000_000_000


def _finite(value: Any, key_path: KeyPath) -> float:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or (isinstance(value, float) and not math.isfinite(value)):
        raise Malformed(f"must be a number, got {value!r}", key_path)
    if abs(value) > _LARGEST:
        raise Malformed(f"must be at most {_LARGEST:,}, got {value!r:.40}", key_path)
    return float(value)


def _share(value: Any, key_path: KeyPath) -> float:
    if not 0 <= (share := _finite(value, key_path)) <= 1:
        raise Malformed(f"must be between 0 and 1, got {value!r}", key_path)
    return share


def _above_0(value: Any, key_path: KeyPath) -> float | None:
    if (number := _finite(value, key_path)) < 0:
        raise Malformed(f"must not be below 0, got {value!r}", key_path)
    return number or None  # EveryDream2 takes 0 for "not set"


def _length(value: Any, key_path: KeyPath) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise Malformed(f"must be an integer number of characters, got {value!r}", key_path)
    return value or None


def _switch(value: Any, key_path: KeyPath) -> bool:
    switch = _BOOLEANS.get(value.lower(), value) if isinstance(value, str) else value
    if not isinstance(switch, bool):
        raise Malformed(f"must be true or false, got {value!r}", key_path)
    return switch


def _text(value: Any, key_path: KeyPath) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise Malformed(f"must be a text, got {value!r}", key_path)
    return str(value).strip()


def _name(value: Any, key_path: KeyPath) -> str | None:
    return _text(value, key_path) or None


def _tags(value: Any, key_path: KeyPath) -> tuple[tuple[str, float], ...]:
    if not isinstance(value, list):
        raise Malformed(f"must be a list, got {value!r}", key_path)
    return tuple(dict.fromkeys(_tag(tag, (*key_path, number)) for number, tag in enumerate(value)))


def _tag(value: Any, key_path: KeyPath) -> tuple[str, float]:
    if not isinstance(value, Mapping):
        return _text(value, key_path), 1.0
    if unknown := value.keys() - {"tag", "weight"}:
        raise Malformed(f"{sorted(unknown)[0]!r} is not a key of a tag; its keys are `tag` and `weight`", key_path)
    if value.get("tag") is None:
        raise Malformed("a tag without its text; write `- tag: TEXT`", key_path)
    weight = value.get("weight")
    if weight is not None and _finite(weight, (*key_path, "weight")) < 0:
        raise Malformed(f"must not be below 0, got {weight!r}", (*key_path, "weight"))
    return _text(value["tag"], (*key_path, "tag")), 1.0 if weight is None else float(weight)


_READERS: Mapping[str, Callable[[Any, KeyPath], Any]] = {
    "tags": _tags,
    "multiply": _above_0,
    "cond_dropout": _share,
    "flip_p": _share,
    "loss_scale": _finite,
    "rating": _above_0,
    "max_caption_length": _length,
    "batch_id": _name,
    "shuffle_tags": _switch,
}


def _unknown(key: str, also: tuple[str, ...]) -> str:
    keys = ["main_prompt", "caption", *_READERS, *also]
    return f"unknown key; {did_you_mean(key, keys, 'the keys are ' + ', '.join(keys))}"


# --- files ------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class LayerFiles:
    """Reads the files below a root. find: (file, text) → the caption file that the file names by the text, or None.
    problems: `name:line: problem`. notes: further remarks."""

    root: Path
    find: Callable[[str, str], str | None]
    problems: list[str] = field(default_factory=list)
    notes: list[Noted] = field(default_factory=list)

    def text(self, name: str) -> Layer:
        """A caption file."""
        return parse_caption(self._read(name) or "")

    def yaml(self, name: str) -> Layer:
        """The layer of a YAML file; an empty file sets nothing."""
        text = self._read(name)
        if text is None or all(not line.strip() or line.lstrip().startswith("#") for line in text.splitlines()):
            return Layer()
        try:
            document = yaml_rules.load(text, name)
        except RecipeError as error:
            self._add_problems(name, error)
            return Layer()
        if document.problems:
            self._add_problems(name, RecipeError(name, problems=document.problems))
            return Layer()
        return self.mapping(document.tree, name, where=functools.partial(_line, document.lines))

    def mapping(
        self, values: Mapping[str, Any], name: str, *, where: Callable[[KeyPath], str], also: tuple[str, ...] = ()
    ) -> Layer:
        """The layer of a parsed mapping. where: returns the suffix of the file's name in messages for a key path, such
        as `:12`."""

        def caption(text: str) -> str:
            return self._caption(text, name)

        try:
            return parse_mapping(values, caption=caption, also=also)
        except Malformed as error:
            dotted = ".".join(map(str, error.key_path))
            self.problems.append(f"{name}{where(error.key_path)}: {f'{dotted}: ' if dotted else ''}{error}")
            return Layer()

    def number(self, name: str, key: str) -> Layer:
        """The layer of a text file with one number, the value of `key`."""
        text = self._read(name)
        try:
            return Layer() if text is None else check_number(key, number(text))
        except Malformed as error:
            self.problems.append(f"{name}:1: {error}")
            return Layer()

    def name(self, name: str) -> Layer:
        """The layer of a text file with a batch name."""
        return Layer(batch_id=(self._read(name) or "").strip() or None)

    def require(self) -> None:
        """Raises DatasetError E1217 with all malformed files."""
        if self.problems:
            objects = "it, or remove the file" if len(self.problems) == 1 else "them, or remove the files"
            shown = format_names(self.problems, _SHOWN, separator="; ")
            raise DatasetError(f"{self.root}: {shown}; correct {objects}", code="E1217")

    def _caption(self, text: str, name: str) -> str:
        """The text of a caption in a mapping: the text itself, or the content of the file that it names."""
        if "\n" in text or not text.endswith(CAPTIONS):
            return text
        path = self.find(name, text)
        if path is None:
            raise Malformed(f"there is no file {text!r} in the data set's folder", ("caption",))
        return self._read(path) or ""

    def _read(self, name: str) -> str | None:
        """The text of a file; None, and a problem, if it is not text."""
        try:
            data = outside.read_bytes(self.root / name, limit=MAX_BYTES)
        except OSError as error:
            self.problems.append(f"{name}: {error.strerror}")
            return None
        if b"\0" in data:
            self.problems.append(f"{name}: contains NUL, so it is not text; save it as UTF-8")
            return None
        try:
            return data.decode("utf-8-sig")
        except UnicodeDecodeError:
            self.notes.append(Noted(name, "not UTF-8; read as ISO-8859-1"))
            return data.decode("latin-1")

    def _add_problems(self, name: str, error: RecipeError) -> None:
        for problem in error.problems:
            line = f":{problem.line}" if problem.line else ""
            message = problem.message
            if message.startswith("the top of a recipe "):
                message = "has no keys such as main_prompt and tags"
            hint = f" ({problem.remedy})" if problem.remedy else ""
            self.problems.append(f"{name}{line}: {re.sub('recipes?', 'this file', message)}{hint}")


def _line(lines: Mapping[KeyPath, int], key_path: KeyPath) -> str:
    """The line of a key path, or of the nearest path that contains it."""
    return f":{next((lines[key_path[:end]] for end in range(len(key_path), -1, -1) if key_path[:end] in lines), 1)}"
