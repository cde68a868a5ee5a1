"""Prompts in a file: a text with one prompt a line, or JSON with settings for all and for each.

Text: options may stand behind a prompt, as kohya's scripts write them: `a red fox --w 512 --h 768 --d 1`. JSON: the
keys of EveryDream2's sample_prompts.json, and our own words for the same. Imports no torch.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NoReturn, cast, get_args

from mezzotint import outside
from mezzotint.errors import RecipeError, did_you_mean
from mezzotint.recipe.reading import yaml_rules
from mezzotint.recipe.reading.yaml_rules import Place
from mezzotint.recipe.sections.sample import SOLVER_CLASSES, SolverName

NEW_EACH_TIME = -1
"""A seed that stands for another one at each drawing."""

_SIDES = 8  # pixels; sides of pictures are multiples of it
_LIMIT = 16_000_000  # bytes; a hundred thousand long prompts
_OPTION = re.compile(r"\s--(?=[A-Za-z]+(?:\s|$))")
_LINE_OPTIONS = {
    "n": "negative prompt",
    "w": "width",
    "h": "height",
    "s": "steps",
    "d": "seed",
    "l": "guidance scale",
}
_SHAPES: dict[str, SolverName] = {
    "euler_a": "euler-a",
    "kdpm2": "dpm2",
    "dpm++_2m": "dpm++",
    "dpm++_2m_sde": "dpm++-sde",
    "dpm++_2s": "dpm++-single",
}
"""EveryDream2's names for solvers that we have under another one."""
_NEAR: dict[str, SolverName] = {"dpm++_sde": "dpm++-sde"}
"""Its name for a solver that we have not, with that which is taken instead, which is said."""


@dataclass(frozen=True, slots=True)
class Line:
    """One prompt and what it says of itself; None, or nothing, takes what holds for all. aspect: width over height.
    seed: −1 is another one each time. random_caption: a caption of the data set is drawn instead of the prompt. where:
    the file and line it was read from, "" for none."""

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
        """Width and height of its picture, where others have those given."""
        if self.aspect is not None:
            return size_of(self.aspect, math.sqrt(width * height))
        return self.width or width, self.height or height


@dataclass(frozen=True, slots=True)
class PromptFile:
    """What a file says. lines: its prompts; none for an empty file. settings: for all of them, by the names of the
    recipe's section `sample`. at_start: whether previews begin before the first step; batches: how many there are
    between two previews; None where it does not say. notes: sentences about what is drawn otherwise than it says."""

    lines: tuple[Line, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    at_start: bool | None = None
    batches: int | None = None
    notes: tuple[str, ...] = ()


def read(path: Path) -> PromptFile:
    """A `.json` file by its keys, any other as text. Raises RecipeError E1073 that names file and line."""
    try:
        text = outside.read_text(path, limit=_LIMIT, encoding="utf-8-sig")
    except outside.NoPlainFile as error:
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
    by two squares of that step, at most. For 512 these are EveryDream2's own sizes.
    """
    step = 64 if resolution >= 256 else 8
    side = max(step, round(resolution / step) * step)
    sides = range(-(-side // 2 // step) * step, side * 15 // 8 + 1, step)
    off = max(side * side / 32, 2 * step * step)
    fitting = [(w, h) for w in sides for h in sides if abs(w * h - side * side) <= off]
    return min(fitting, key=lambda size: abs(1 - aspect / (size[0] / size[1])))


# --- a line of text ---------------------------------------------------------------------------------------------------


def read_line(text: str, where: str) -> Line:
    """A prompt with options behind it. Raises RecipeError E1073."""
    prompt, *options = _OPTION.split(" " + text)
    values: dict[str, str] = {}
    for option in options:
        name, _, value = option.strip().partition(" ")
        if name not in _LINE_OPTIONS:
            known = ", ".join(f"--{word} {meaning}" for word, meaning in _LINE_OPTIONS.items())
            raise RecipeError(f"{where}: --{name} is no option of a prompt; there are {known}", code="E1073")
        if name in values or (not value.strip() and name != "n"):
            raise RecipeError(f"{where}: --{name} is written once, with its value behind it", code="E1073")
        values[name] = value.strip()
    return Line(
        prompt.strip(),
        negative=values.get("n"),
        width=_side(values, "w", where),
        height=_side(values, "h", where),
        steps=_above_0(values, "s", where),
        seed=_number(values, "d", where),
        guidance=_scale(values, where),
        where=where,
    )


def _number(options: dict[str, str], name: str, where: str) -> int | None:
    text = options.get(name)
    if text is not None and re.fullmatch(r"-?\d{1,19}", text) is None:
        raise RecipeError(f"{where}: --{name} is a whole number, got {text!r}", code="E1073")
    return None if text is None else int(text)


def _above_0(options: dict[str, str], name: str, where: str) -> int | None:
    number = _number(options, name, where)
    if number is not None and number < 1:
        raise RecipeError(f"{where}: --{name} must be above 0, got {number}", code="E1073")
    return number


def _side(options: dict[str, str], name: str, where: str) -> int | None:
    number = _above_0(options, name, where)
    if number is not None and number % _SIDES:
        near = max(_SIDES, round(number / _SIDES) * _SIDES)
        raise RecipeError(
            f"{where}: --{name} is a multiple of {_SIDES}, got {number}; write --{name} {near}", code="E1073"
        )
    return number


def _scale(options: dict[str, str], where: str) -> tuple[float, ...]:
    text = options.get("l")
    if text is None:
        return ()
    if re.fullmatch(r"\d{1,6}(\.\d{1,6})?", text) is None:
        raise RecipeError(f"{where}: --l is a number of at least 0, got {text!r}", code="E1073")
    return (float(text),)


# --- JSON -------------------------------------------------------------------------------------------------------------

_Name = Literal["guidance", "solver", "steps"]

_WORDS: dict[str, _Name] = {"cfgs": "guidance", "scheduler": "solver", "num_inference_steps": "steps"}
"""EveryDream2's keys for settings of ours."""
_BOTH = ("negative_prompt", "seed", "size", "guidance", "solver", "steps", *_WORDS)
_OF_ALL = (
    *_BOTH, "resolution", "batch_size", "show_progress_bars", "generate_pretrain_samples",
    "generate_samples_every_n_steps", "samples",
)  # fmt: skip
_OF_ONE = (*_BOTH, "prompt", "aspect_ratio", "random_caption")


class _Document:
    """A JSON file while it is read."""

    def __init__(self, text: str, path: Path) -> None:
        self._text = text
        self._path = path
        self._notes: list[str] = []

    def read(self) -> PromptFile:
        if not self._text.strip():
            return PromptFile(())
        try:
            tree = outside.parse_json(self._text)
        except json.JSONDecodeError as error:
            raise RecipeError(
                f"{self._path} line {error.lineno}: is no JSON ({error.msg}); mend it there or just before",
                code="E1073",
            ) from None
        except ValueError:
            raise RecipeError(f"{self._path}: is no JSON that can be read; write it anew", code="E1073") from None
        top = self._mapping(tree, (), _OF_ALL)
        settings = self._settings(top, ())
        seed = settings.get("seed")
        if seed == NEW_EACH_TIME:
            del settings["seed"]
        samples = self._list(top.get("samples", []), ("samples",))
        lines = [self._line(sample, ("samples", number), seed) for number, sample in enumerate(samples)]
        if "show_progress_bars" in top:
            self._flag(top["show_progress_bars"], ("show_progress_bars",))
        first, batches = top.get("generate_pretrain_samples"), top.get("generate_samples_every_n_steps")
        return PromptFile(
            tuple(lines),
            settings,
            at_start=None if first is None else self._flag(first, ("generate_pretrain_samples",)),
            batches=None if batches is None else self._whole(batches, ("generate_samples_every_n_steps",), least=1),
            notes=tuple(dict.fromkeys(self._notes)),
        )

    def _settings(self, top: Mapping[str, Any], place: Place) -> dict[str, Any]:
        """What is said for all, or of one, by the names of the section `sample`."""
        readers: dict[str, Callable[[Any, Place], Any]] = {
            "negative_prompt": self._text_of,
            "seed": self._whole,
            "size": self._size,
            "guidance": self._scales,
            "solver": self._solver,
            "steps": lambda value, at: self._whole(value, at, least=1, most=1000),
            "batch_size": lambda value, at: self._whole(value, at, least=1),
        }
        settings = {}
        if "resolution" in top:
            side = self._whole(top["resolution"], (*place, "resolution"), least=8, multiple=8)
            settings["size"] = (side, side)
        for key, value in top.items():
            name = _WORDS.get(key, key)
            if name in readers:
                settings[name] = readers[name](value, (*place, key))
        return settings

    def _line(self, sample: Any, place: Place, seed: int | None) -> Line:
        options = self._mapping(sample, place, _OF_ONE)
        said = self._settings(options, place)
        random = self._flag(options.get("random_caption", False), (*place, "random_caption"))
        if "prompt" not in options and not random:
            self._refuse(place, "has no prompt", 'write "prompt": "…", or "random_caption": true')
        aspect = None
        if "aspect_ratio" in options and "size" not in said:
            aspect = self._number(options["aspect_ratio"], (*place, "aspect_ratio"), least=0.1, most=10.0)
        width, height = said.get("size", (None, None))
        return Line(
            self._text_of(options.get("prompt", ""), (*place, "prompt")),
            negative=said.get("negative_prompt"),
            width=width,
            height=height,
            aspect=aspect,
            steps=said.get("steps"),
            seed=said.get("seed", NEW_EACH_TIME if seed == NEW_EACH_TIME else None),
            guidance=said.get("guidance", ()),
            solver=said.get("solver"),
            random_caption=random,
            where=f"{self._path} {_words_of(place)}",
        )

    def _solver(self, value: Any, place: Place) -> SolverName:
        name = self._text_of(value, place)
        plain = name.removesuffix("_k")
        known = {solver: solver for solver in get_args(SolverName)} | SOLVER_CLASSES | _SHAPES | _NEAR
        if plain not in known:
            self._refuse(place, f"there is no solver {name!r}", did_you_mean(name, known, _all(known)))
        if plain in _NEAR:
            self._notes.append(f"{self._path}: {plain} is not offered; {known[plain]} draws instead")
        if plain != name:
            self._notes.append(f"{self._path}: {name} is drawn with timesteps spaced as sample.spacing says")
        return cast(SolverName, known[plain])

    def _scales(self, value: Any, place: Place) -> tuple[float, ...]:
        values = value if isinstance(value, list) else [value]
        if not values:
            self._refuse(place, "is empty", "write a scale, or leave the key out")
        return tuple(self._number(one, place, least=0.0, most=1e6) for one in values)

    def _size(self, value: Any, place: Place) -> tuple[int, int]:
        if not isinstance(value, list) or len(value) != 2:
            self._refuse(place, f"is {_shown(value)}", "write [width, height] in pixels, multiples of 8")
        width, height = (self._whole(one, place, least=8, multiple=8) for one in value)
        return width, height

    def _text_of(self, value: Any, place: Place) -> str:
        if not isinstance(value, str):
            self._refuse(place, f"is {_shown(value)}", "write a text in double quotes")
        return value

    def _flag(self, value: Any, place: Place) -> bool:
        if not isinstance(value, bool):
            self._refuse(place, f"is {_shown(value)}", "write true or false")
        return value

    def _whole(self, value: Any, place: Place, least: int = -(2**63), most: int = 2**63 - 1, multiple: int = 1) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most or value % multiple:
            kind = f"a multiple of {multiple}" if multiple > 1 else "a whole number"
            limits = f" of at least {least}" if least > -(2**63) else ""
            limits += f" and at most {most}" if most < 2**63 - 1 else ""
            self._refuse(place, f"is {_shown(value)}", f"write {kind}{limits}")
        return value

    def _number(self, value: Any, place: Place, *, least: float, most: float) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:
            self._refuse(place, f"is {_shown(value)}", f"write a number from {least:g} to {most:g}")
        return float(value)

    def _list(self, value: Any, place: Place) -> list[Any]:
        if not isinstance(value, list):
            self._refuse(place, f"is {_shown(value)}", "write a list, [ … ]")
        return value

    def _mapping(self, value: Any, place: Place, known: Collection[str]) -> dict[str, Any]:
        if not isinstance(value, dict):
            self._refuse(place, f"is {_shown(value)}", 'write { "key": value, … }')
        for key in value:
            if key not in known:
                self._refuse((*place, key), "unknown key", did_you_mean(key, known, _all(known)))
        return cast(dict[str, Any], value)

    def _refuse(self, place: Place, what: str, remedy: str) -> NoReturn:
        line = yaml_rules.line_of(self._text, place)
        where = f"{self._path} line {line}" if line else f"{self._path}"
        words = _words_of(place)
        raise RecipeError(f"{where}: {words + ' ' if words else ''}{what}; {remedy}", code="E1073")


def _words_of(place: Place) -> str:
    return "".join(f"[{one}]" if isinstance(one, int) else f".{one}" for one in place).removeprefix(".")


def _all(known: Collection[str]) -> str:
    return f"there are {', '.join(sorted(known))}"


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 40 else text[:40] + "…"
