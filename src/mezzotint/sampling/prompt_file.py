"""Prompts in a file: a text with one prompt a line, or JSON with settings for all and for each.

Text: options may follow a prompt, as in kohya's scripts: `a red fox --w 512 --h 768 --d 1`. JSON: names
of the section `sample`, and keys that modules of the group `mezzotint.sampling.prompt_keys` translate: `KEYS` maps such
a key to ours, "" for one without effect; `read_solver(name)` returns our name for a solver and sentences about what
differs, or the name unchanged. Imports no torch.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, NoReturn, cast, get_args

from mezzotint import outside, registry
from mezzotint.errors import RecipeError, did_you_mean
from mezzotint.settings.reading import yaml_rules
from mezzotint.settings.reading.yaml_rules import KeyPath
from mezzotint.settings.sections.sample import SolverName, parse_solver

NEW_EACH_TIME = -1
"""A seed that is drawn anew for each generation."""

_LIMIT = 16_000_000  # bytes; a hundred thousand long prompts
_OPTION = re.compile(r"\s--(?=[A-Za-z]+(?:\s|$))")
FOLDER = "sampling/prompt_keys"


class _Rule(NamedTuple):
    """Checks a value; `remedy` is what to write instead."""

    fits: Callable[[Any], bool]
    remedy: str


def _integer_rule(least: int | None = None, most: int | None = None, multiple: int = 1) -> _Rule:
    low, high = -(2**63) if least is None else least, 2**63 - 1 if most is None else most
    limits = [f"{word} {bound}" for word, bound in (("of at least", least), ("at most", most)) if bound is not None]
    kind = f"a multiple of {multiple}" if multiple > 1 else "a whole number"
    return _Rule(
        lambda value: type(value) is int and low <= value <= high and value % multiple == 0,
        f"write {' '.join([kind, ' and '.join(limits)]).strip()}",
    )


def _number(least: float, most: float) -> _Rule:
    return _Rule(
        lambda value: type(value) in (int, float) and least <= value <= most,
        f"write a number from {least:g} to {most:g}",
    )


_TEXT = _Rule(lambda value: isinstance(value, str), "write a text in double quotes")
_FLAG = _Rule(lambda value: isinstance(value, bool), "write true or false")
_TABLE = _Rule(lambda value: isinstance(value, dict), 'write { "key": value, … }')
_SIDE, _STEPS, _SCALE = _integer_rule(8, multiple=8), _integer_rule(1, 1000), _number(0.0, 1e6)
_SIZE = _Rule(
    lambda value: type(value) is int or (isinstance(value, list) and len(value) == 2),
    "write [width, height] in pixels, or one number for a square",
)
_FULL = _Rule(lambda value: value != [], "write a scale, or leave the key out")

_RULES = {
    "prompt": _TEXT,
    "negative_prompt": _TEXT,
    "solver": _TEXT,
    "seed": _integer_rule(),
    "steps": _STEPS,
    "batch_size": _integer_rule(1),
    "size": _SIZE,
    "aspect_ratio": _number(0.1, 10.0),
    "guidance": _FULL,
    "random_caption": _FLAG,
    "at_start": _FLAG,
    "every_batches": _integer_rule(1),
    "samples": _Rule(lambda value: isinstance(value, list), "write a list, [ … ]"),
}
"""The rule for each key's value."""
_OF_ONE = ("prompt", "aspect_ratio", "random_caption")
_OF_ALL = ("batch_size", "at_start", "every_batches", "samples")
_LINE_OPTIONS = {
    "n": ("negative prompt", "negative", _TEXT),
    "w": ("width", "width", _SIDE),
    "h": ("height", "height", _SIDE),
    "s": ("steps", "steps", _integer_rule(1)),
    "d": ("seed", "seed", _integer_rule()),
    "l": ("guidance scale", "guidance", _SCALE),
}
"""For each option after a prompt: what it means, the field of `Line`, the rule for its value."""


@dataclass(frozen=True, slots=True)
class Line:
    """One prompt and its options; None or empty uses the common setting. aspect: width over height. seed: −1 is a new
    one each time. random_caption: uses a random caption of the data set instead of the prompt. where: the file and line
    it was read from, "" for none."""

    prompt: str
    negative: str | None = None
    width: int | None = None
    height: int | None = None
    aspect: float | None = None
    steps: int | None = None
    seed: int | None = None
    guidance: tuple[float, ...] = ()
    solver: SolverName | None = None
    random_caption: bool = False
    where: str = field(default="", compare=False)

    def size(self, width: int, height: int) -> tuple[int, int]:
        """Width and height of its image. width, height: of the other images."""
        if self.aspect is not None:
            return size_of(self.aspect, math.sqrt(width * height))
        return self.width or width, self.height or height


@dataclass(frozen=True, slots=True)
class PromptFile:
    """The content of a file. lines: its prompts, empty for an empty file. settings: for all of them, by the names of
    the recipe's section `sample`. at_start: whether previews begin before the first step. batches: between two
    previews. Both None if not given. notes: sentences about what is generated differently."""

    lines: tuple[Line, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    at_start: bool | None = None
    batches: int | None = None
    notes: tuple[str, ...] = ()


def read(path: Path) -> PromptFile:
    """A `.json` file by its keys, any other as text. Raises RecipeError E1073 that names file and line."""
    try:
        text = outside.read_text(path, limit=_LIMIT, encoding="utf-8-sig")
    except outside.NotRegularFile as error:
        raise RecipeError(f"{path}: {error.strerror}, so not a list of prompts", code="E1073") from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise RecipeError(
            f"{path}: cannot be read ({reason}); give a text file, one prompt a line", code="E1073"
        ) from None
    if path.suffix.lower() == ".json":
        return _Document(text, path).read()
    numbered = [(number, line.strip()) for number, line in enumerate(text.splitlines(), 1)]
    used = [(number, line) for number, line in numbered if line and not line.startswith("#")]
    return PromptFile(tuple(read_line(line, f"{path} line {number}") for number, line in used))


def size_of(aspect: float, resolution: float) -> tuple[int, int]:
    """Width and height nearest to an aspect ratio, width over height, with about resolution² pixels.

    Sides are multiples of 64 (of 8 below 256), from half the resolution to 15/8 of it; the area differs by a 32nd, or
    by two squares of that step, at most. For 512 these are the sizes that EveryDream2 documents.
    """
    step = 64 if resolution >= 256 else 8
    side = max(step, round(resolution / step) * step)
    sides = range(-(-side // 2 // step) * step, side * 15 // 8 + 1, step)
    off = max(side * side / 32, 2 * step * step)
    fitting = [(w, h) for w in sides for h in sides if abs(w * h - side * side) <= off]
    return min(fitting, key=lambda size: abs(1 - aspect / (size[0] / size[1])))


def read_line(text: str, where: str) -> Line:
    """A prompt followed by options. Raises RecipeError E1073."""
    prompt, *options = _OPTION.split(" " + text)
    values: dict[str, Any] = {}
    for option in options:
        name, _, written = option.strip().partition(" ")
        if name not in _LINE_OPTIONS:
            available = ", ".join(f"--{word} {meaning}" for word, (meaning, _, _) in _LINE_OPTIONS.items())
            raise RecipeError(f"{where}: --{name} is not an option of a prompt; options are {available}", code="E1073")
        _, field_, rule = _LINE_OPTIONS[name]
        if field_ in values or (not written.strip() and name != "n"):
            raise RecipeError(f"{where}: --{name} is written once, followed by its value", code="E1073")
        value = written.strip() if rule is _TEXT else _parse_number(written.strip())
        if not rule.fits(value):
            raise RecipeError(f"{where}: --{name} is {_quote_value(value)}; {rule.remedy}", code="E1073")
        values[field_] = (float(value),) if name == "l" else value
    return Line(prompt.strip(), **values, where=where)


def _parse_number(text: str) -> int | float | str:
    """A plain decimal number as int or float; other text unchanged."""
    if re.fullmatch(r"-?\d{1,19}", text) is not None:
        return int(text)
    return float(text) if re.fullmatch(r"\d{1,6}\.\d{1,6}", text) is not None else text


class _Document:
    """The reader of a JSON file."""

    def __init__(self, text: str, path: Path) -> None:
        self._text = text
        self._path = path
        self._notes: list[str] = []
        self._others = _find_formats()
        self._ours = {key: name for other in self._others for key, name in other.KEYS.items()}

    def read(self) -> PromptFile:
        if not self._text.strip():
            return PromptFile(())
        try:
            tree = outside.parse_json(self._text)
        except json.JSONDecodeError as error:
            raise RecipeError(
                f"{self._path} line {error.lineno}: is not valid JSON ({error.msg}); correct it there or just before",
                code="E1073",
            ) from None
        except ValueError:
            raise RecipeError(f"{self._path}: is not valid JSON; write it again", code="E1073") from None
        settings = self._read_settings(tree, (), _OF_ALL)
        at_start = settings.pop("at_start", None)
        batches = settings.pop("every_batches", None)
        samples = settings.pop("samples", [])
        seed = None
        if settings.get("seed") == NEW_EACH_TIME:
            seed = settings.pop("seed")
        lines = tuple(self._read_line(sample, ("samples", number), seed) for number, sample in enumerate(samples))
        return PromptFile(lines, settings, at_start, batches, tuple(dict.fromkeys(self._notes)))

    def _read_line(self, sample: Any, key_path: KeyPath, seed: int | None) -> Line:
        if isinstance(sample, dict) and any(self._ours.get(key, key) == "size" for key in sample):
            sample = {key: value for key, value in sample.items() if key != "aspect_ratio"}
        options = self._read_settings(sample, key_path, _OF_ONE)
        if "prompt" not in options and not options.get("random_caption"):
            self._refuse(key_path, "has no prompt", 'write "prompt": "…", or "random_caption": true')
        width, height = options.get("size", (None, None))
        aspect = options.get("aspect_ratio")
        return Line(
            options.get("prompt", ""),
            negative=options.get("negative_prompt"),
            width=width,
            height=height,
            aspect=None if aspect is None else float(aspect),
            steps=options.get("steps"),
            seed=options.get("seed", seed),
            guidance=options.get("guidance", ()),
            solver=options.get("solver"),
            random_caption=options.get("random_caption", False),
            where=f"{self._path} {_format_key_path(key_path)}",
        )

    def _read_settings(self, tree: Any, key_path: KeyPath, more: Sequence[str]) -> dict[str, Any]:
        """The settings of the file or of one sample, by our names. more: keys that only this level has."""
        ours = [key for key in _RULES if key in more or key not in (*_OF_ONE, *_OF_ALL)]
        known_keys = [
            *ours,
            *(key for key, name in self._ours.items() if name in ours or (not name and more == _OF_ALL)),
        ]
        tree, settings = self._require(tree, key_path, _TABLE), {}
        for key, value in tree.items():
            at = (*key_path, key)
            if key not in known_keys:
                self._refuse(at, "unknown key", did_you_mean(key, known_keys, _list_names(known_keys)))
            name = self._ours.get(key, key)
            if not name or (name != key and name in tree):
                continue
            self._require(value, at, _RULES[name])
            match name:
                case "size":
                    sides = value if isinstance(value, list) else [value, value]
                    value = tuple(self._require(side, at, _SIDE) for side in sides)
                case "guidance":
                    scales = value if isinstance(value, list) else [value]
                    value = tuple(float(self._require(scale, at, _SCALE)) for scale in scales)
                case "solver":
                    value = self._read_solver(value, at)
            settings[name] = value
        return settings

    def _read_solver(self, name: str, key_path: KeyPath) -> SolverName:
        supported, solver = get_args(SolverName), name
        for other in self._others:
            solver, notes = other.read_solver(solver)
            self._notes += [f"{self._path}: {note}" for note in notes]
        if parse_solver(solver) not in supported:
            self._refuse(
                key_path, f"there is no solver {name!r}", did_you_mean(name, supported, _list_names(supported))
            )
        return cast(SolverName, parse_solver(solver))

    def _require(self, value: Any, key_path: KeyPath, rule: _Rule) -> Any:
        if not rule.fits(value):
            self._refuse(key_path, f"is {_quote_value(value)}" if value != [] else "is empty", rule.remedy)
        return value

    def _refuse(self, key_path: KeyPath, problem: str, remedy: str) -> NoReturn:
        line = yaml_rules.line_of(self._text, key_path)
        where = f"{self._path} line {line}" if line else f"{self._path}"
        location = _format_key_path(key_path)
        raise RecipeError(f"{where}: {location + ' ' if location else ''}{problem}; {remedy}", code="E1073")


def _find_formats() -> list[ModuleType]:
    return [registry.find(FOLDER, name) for name in registry.names(FOLDER, skip_unimported=True)]


def _format_key_path(key_path: KeyPath) -> str:
    return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in key_path).removeprefix(".")


def _list_names(names: Collection[str]) -> str:
    return f"choose from {', '.join(sorted(names))}"


def _quote_value(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 40 else text[:40] + "…"
