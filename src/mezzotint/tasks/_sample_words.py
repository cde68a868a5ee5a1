"""The command line of `sample`: what to draw from, what to draw, and how; and the lines of a prompt file.

Every switch that says how pictures are drawn is a setting of the recipe's section `sample` under a shorter name, so
that it is read, checked and explained as any other. Reading imports no torch: a mistyped line is answered at once.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from mezzotint.errors import RecipeError

FLAGS = {
    "--prompt=TEXT": "what to draw; more texts may follow it",
    "--file=FILE": "prompts, one a line, options behind them: --n --w --h --s --d --l",
    "--negative=TEXT": "what guidance moves away from",
    "--size=WxH": "in pixels; several with commas between",
    "--seed=N": "of the noise; several with commas between",
    "--index=N": "number of the first prompt, which addresses its noise; 0 without",
    "--steps=N": "sample.steps",
    "--guidance=G": "sample.guidance; several with commas between",
    "--rescale=SHARE": "sample.guidance_rescale",
    "--solver=NAME": "sample.solver",
    "--spacing=NAME": "sample.spacing",
    "--batch=N": "sample.batch_size",
    "--weights=KIND": "raw or shadow, of a run; without it the shadow where there is one",
    "--out=FOLDER": "where the pictures go; without it a new folder in samples/",
}
_SETTINGS = {
    "--steps": "sample.steps",
    "--guidance": "sample.guidance",
    "--rescale": "sample.guidance_rescale",
    "--solver": "sample.solver",
    "--spacing": "sample.spacing",
    "--batch": "sample.batch_size",
}
_KNOWN = tuple(flag.partition("=")[0] for flag in FLAGS)
_OVERRIDE = re.compile(r"[a-z_]+(\.[A-Za-z0-9_-]+)+\+?=")
_OPTION = re.compile(r"\s--(?=[A-Za-z]+(?:\s|$))")
_LINE_OPTIONS = {
    "n": "negative prompt",
    "w": "width",
    "h": "height",
    "s": "steps",
    "d": "seed",
    "l": "guidance scale",
}
_FILE_LIMIT = 16_000_000  # bytes; a hundred thousand long prompts

Weights = Literal["raw", "shadow"]


@dataclass(frozen=True, slots=True)
class Line:
    """One prompt and what it says of itself; None takes what holds for all."""

    prompt: str
    negative: str | None = None
    width: int | None = None
    height: int | None = None
    steps: int | None = None
    seed: int | None = None
    guidance: float | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """A command line. place: what is drawn from, as written. overrides: `key=value`, those of switches included.
    lines: the prompts; empty takes the recipe's. sizes, seeds: empty takes the recipe's. weights, out: None where
    nothing is said."""

    place: str
    overrides: tuple[str, ...] = ()
    lines: tuple[Line, ...] = ()
    negative: str | None = None
    sizes: tuple[tuple[int, int], ...] = ()
    seeds: tuple[int, ...] = ()
    index: int = 0
    weights: Weights | None = None
    out: Path | None = None


def parse(arguments: Sequence[str]) -> Asked:
    """Reads a command line. Values stand behind `=` or as the next word.

    Raises RecipeError: E1012 for what cannot be understood, E1073 for a prompt file.
    """
    places, overrides, lines = [], [], []
    said: dict[str, str] = {}
    for flag, value in _words(arguments):
        match flag:
            case "":
                places.append(value)
            case "key=value":
                overrides.append(value)
            case "--prompt":
                lines.append(Line(value))
            case "--file":
                lines += read_lines(Path(value).expanduser())
            case _ if flag in said:
                raise _wrong(f"{flag} is given twice")
            case _:
                said[flag] = value
    if len(places) != 1:
        what = f"{places[1]!r} stands beside {places[0]!r}" if places else "nothing is named to draw from"
        raise _wrong(f"{what}; write mezzotint sample MODEL --prompt='a red fox'")
    overrides += [f"{path}={said[flag]}" for flag, path in _SETTINGS.items() if flag in said]
    if "," in said.get("--guidance", ""):
        overrides[overrides.index(f"sample.guidance={said['--guidance']}")] = f"sample.guidance=[{said['--guidance']}]"
    return Asked(
        place=places[0],
        overrides=tuple(overrides),
        lines=tuple(lines),
        negative=said.get("--negative"),
        sizes=tuple(_size(text) for text in _several(said, "--size")),
        seeds=tuple(_whole("--seed", text) for text in _several(said, "--seed")),
        index=_whole("--index", said.get("--index", "0")),
        weights=_weights(said.get("--weights")),
        out=Path(said["--out"]).expanduser() if "--out" in said else None,
    )


def read_lines(path: Path) -> list[Line]:
    """The prompts of a file: UTF-8, one a line; empty lines and those that begin with # are passed over. Raises
    RecipeError E1073 naming file and line."""
    try:
        if path.stat().st_size > _FILE_LIMIT:
            raise RecipeError(f"{path}: larger than {_FILE_LIMIT:,} bytes, so not a list of prompts", code="E1073")
        text = path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise RecipeError(
            f"{path}: cannot be read ({reason}); give a text file, one prompt a line", code="E1073"
        ) from None
    numbered = [(number, line.strip()) for number, line in enumerate(text.splitlines(), 1)]
    found = [read_line(line, f"{path} line {number}") for number, line in numbered if line and not line.startswith("#")]
    if not found:
        raise RecipeError(f"{path}: has no prompt; write one a line", code="E1073")
    return found


def read_line(text: str, where: str) -> Line:
    """A prompt with options behind it, as kohya's scripts write them: `a red fox --w 512 --h 768 --d 1`. Raises
    RecipeError E1073."""
    prompt, *options = _OPTION.split(" " + text)
    given: dict[str, str] = {}
    for option in options:
        name, _, value = option.strip().partition(" ")
        if name not in _LINE_OPTIONS:
            known = ", ".join(f"--{word} {meaning}" for word, meaning in _LINE_OPTIONS.items())
            raise RecipeError(f"{where}: --{name} is no option of a prompt; there are {known}", code="E1073")
        if name in given or (not value.strip() and name != "n"):
            raise RecipeError(f"{where}: --{name} is written once, with its value behind it", code="E1073")
        given[name] = value.strip()
    return Line(
        prompt.strip(),
        negative=given.get("n"),
        width=_above_0(given, "w", where),
        height=_above_0(given, "h", where),
        steps=_above_0(given, "s", where),
        seed=_number(given, "d", where),
        guidance=_scale(given, where),
    )


def _words(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """(switch, value) in order; the switch is "" for what is drawn from and "key=value" for a setting. Words behind
    --prompt are further prompts."""
    rest = list(arguments)
    prompting = False
    while rest:
        word = rest.pop(0)
        if not word.startswith("-") or word == "-":
            is_setting = _OVERRIDE.match(word) is not None
            yield ("key=value" if is_setting else "--prompt" if prompting else ""), word
            continue
        flag, sign, value = word.partition("=")
        if flag not in _KNOWN:
            near = difflib.get_close_matches(flag, _KNOWN, n=1)
            hint = f"did you mean {near[0]}?" if near else "`mezzotint sample --help` lists what it takes"
            raise _wrong(f"it has no switch {flag}; {hint}")
        if not sign:
            if not rest or rest[0].startswith("--"):
                raise _wrong(f"{flag} needs a value; write {flag}=…")
            value = rest.pop(0)
        prompting = flag == "--prompt"
        yield flag, value


def _several(said: dict[str, str], flag: str) -> list[str]:
    return said[flag].split(",") if flag in said else []


def _size(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"\s*(\d{1,5})\s*[x×X]\s*(\d{1,5})\s*", text)
    if found is None:
        raise _wrong(f"--size is written WIDTHxHEIGHT, such as 512x768, got {text!r}")
    return int(found[1]), int(found[2])


def _whole(flag: str, text: str) -> int:
    if re.fullmatch(r"\s*-?\d{1,19}\s*", text) is None:
        raise _wrong(f"{flag} is a whole number, got {text!r}")
    return int(text)


def _weights(text: str | None) -> Weights | None:
    if text is None or text == "raw" or text == "shadow":
        return text  # type: ignore[return-value]
    raise _wrong(f"--weights is raw or shadow, got {text!r}")


def _number(given: dict[str, str], name: str, where: str) -> int | None:
    text = given.get(name)
    if text is not None and re.fullmatch(r"-?\d{1,19}", text) is None:
        raise RecipeError(f"{where}: --{name} is a whole number, got {text!r}", code="E1073")
    return None if text is None else int(text)


def _above_0(given: dict[str, str], name: str, where: str) -> int | None:
    number = _number(given, name, where)
    if number is not None and number < 1:
        raise RecipeError(f"{where}: --{name} must be above 0, got {number}", code="E1073")
    return number


def _scale(given: dict[str, str], where: str) -> float | None:
    text = given.get("l")
    if text is None:
        return None
    if re.fullmatch(r"\d{1,6}(\.\d{1,6})?", text) is None:
        raise RecipeError(f"{where}: --l is a number of at least 0, got {text!r}", code="E1073")
    return float(text)


def _wrong(what: str) -> RecipeError:
    return RecipeError(f"mezzotint sample: {what}", code="E1012")
