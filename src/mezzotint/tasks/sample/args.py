"""The command line of `sample`: which model, which images, and how.

Every option for how images are generated is a setting of the recipe's section `sample` under a shorter name, and is
read, checked and explained as any other. Parsing does not import torch: a mistyped command line is refused at once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from mezzotint.errors import RecipeError
from mezzotint.sampling import prompt_file
from mezzotint.sampling.prompt_file import Line, PromptFile
from mezzotint.settings.sections.sample import parse_size
from mezzotint.tasks.reading import command_line
from mezzotint.tasks.reading.command_line import CommandLine
from mezzotint.tasks.reading.commands import REPLACE

_MOST_SEEDS = 1000
_ENDINGS = (".png", ".jpg", ".jpeg", ".webp", ".gif", ".mp4")
"""Endings that a folder for images is unlikely to have."""

Weights = Literal["raw", "ema"]


@dataclass(frozen=True, slots=True)
class SampleArgs:
    """A command line. source: the model, run or recipe, as written. overrides: `key=value`, including those of prompt
    files and options, in this order. lines: the prompts; empty takes the recipe's. sizes, seeds: empty takes the
    recipe's. weights, out: None if not given. notes: sentences about the files. numbered: images are named by numbers,
    after existing ones. adapters: files that are applied to the model, with their strengths. replaces: existing files
    are overwritten."""

    source: str
    overrides: tuple[str, ...] = ()
    lines: tuple[Line, ...] = ()
    negative: str | None = None
    sizes: tuple[tuple[int, int], ...] = ()
    seeds: tuple[int, ...] = ()
    index: int = 0
    weights: Weights | None = None
    out: Path | None = None
    notes: tuple[str, ...] = ()
    numbered: bool = False
    adapters: tuple[tuple[Path, float], ...] = ()
    replaces: bool = False


def parse(arguments: Sequence[str]) -> SampleArgs:
    """Reads a command line. Raises RecipeError: E1012 for what cannot be understood, E1073 for a prompt file."""
    line = command_line.parse(arguments, "sample")
    sources = [argument for argument in line.plain if not command_line.is_setting(argument)]
    if len(sources) != 1:
        problem = f"got two models, {sources[0]!r} and {sources[1]!r}" if sources else "no model is given"
        raise line.usage_error(f"{problem}; write mezzotint sample MODEL --prompt='a red fox'")
    prompts: list[Line] = []
    files: list[PromptFile] = []
    for switch, value in line.options:
        if switch.name == "--prompt":
            prompts.append(Line(value))
        elif switch.name == "--file":
            files.append(read_file(Path(value).expanduser()))
            prompts += files[-1].lines
    overrides = [f"sample.{name}={_as_word(value)}" for file in files for name, value in file.settings.items()]
    overrides += [argument for argument in line.plain if command_line.is_setting(argument)]
    for switch in line.command.options:
        text = line.get(switch.name) if switch.setting else None
        if text is not None:
            several = switch.name == "--guidance" and "," in text
            overrides.append(f"{switch.setting}=[{text}]" if several else f"{switch.setting}={text}")
    embeddings = dict(_embedding(line, text) for text in line.get_all("--embedding"))
    overrides += [f"model.tokens.files={json.dumps(embeddings, ensure_ascii=False)}"] if embeddings else []
    conditions = _conditions(line)
    overrides += [f"sample.conditions={json.dumps(conditions, ensure_ascii=False)}"] if conditions else []
    return SampleArgs(
        source=sources[0],
        overrides=tuple(overrides),
        lines=tuple(prompts),
        negative=line.get("--negative"),
        sizes=tuple(_size(line, text) for value in line.get_all("--size") for text in value.split(",")),
        seeds=tuple(
            seed for value in line.get_all("--seed") for text in value.split(",") for seed in _seeds(line, text)
        ),
        index=_parse_integer(line, "--index", line.get("--index") or "0"),
        weights=_weights(line),
        out=_folder(line),
        notes=tuple(note for file in files for note in file.notes),
        numbered="--numbered" in line,
        adapters=tuple(_adapter(line, text) for text in line.get_all("--adapter")),
        replaces=REPLACE.name in line,
    )


def read_file(path: Path) -> PromptFile:
    """The prompts of a file. Raises RecipeError E1073 naming file and line, also for random captions, which need a data
    set."""
    file = prompt_file.read(path)
    if not file.lines:
        raise RecipeError(f"{path}: has no prompt; write one a line", code="E1073")
    if any(line.random_caption and not line.prompt for line in file.lines):
        raise RecipeError(
            f"{path}: random_caption takes captions of a data set, only during training; add a prompt", code="E1073"
        )
    return file


def _folder(line: CommandLine) -> Path | None:
    out = line.get_path("--out")
    if out is not None and out.suffix.lower() in _ENDINGS and not out.is_dir():
        raise line.usage_error(
            f"--out is the folder for images and contact sheet, got {out}; write --out={out.with_suffix('')}"
        )
    return out


def _as_word(value: object) -> str:
    return json.dumps(list(value) if isinstance(value, tuple) else value, ensure_ascii=False)


def _size(line: CommandLine, text: str) -> tuple[int, int]:
    sides = re.fullmatch(r"\s*(\d{1,5})(?:\s*[x×X]\s*(\d{1,5}))?\s*", text)
    if sides is not None:
        return int(sides[1]), int(sides[2] or sides[1])
    try:
        named: tuple[int, int] | str = parse_size(text.strip())
    except ValueError as error:
        raise line.usage_error(f"--size: {error}") from None
    if isinstance(named, str):
        raise line.usage_error(f"--size is WIDTHxHEIGHT, such as 512x768, 512 for a square, or sdxl-1.46, got {text!r}")
    return named


def _seeds(line: CommandLine, text: str) -> Sequence[int]:
    """One seed, or those of a range such as `1-4`."""
    ends = re.fullmatch(r"\s*(\d{1,19})\s*-\s*(\d{1,19})\s*", text)
    if ends is None:
        return (_parse_integer(line, "--seed", text),)
    first, last = int(ends[1]), int(ends[2])
    if not 0 <= last - first < _MOST_SEEDS:
        raise line.usage_error(f"--seed={first}-{last} must be a rising range of at most {_MOST_SEEDS} seeds")
    return range(first, last + 1)


def _parse_integer(line: CommandLine, name: str, text: str) -> int:
    if re.fullmatch(r"\s*-?\d{1,19}\s*", text) is None:
        raise line.usage_error(f"{name} is a whole number, got {text!r}")
    return int(text)


def _adapter(line: CommandLine, text: str) -> tuple[Path, float]:
    path, strength = command_line.parse_weighted(text)
    if not path.exists():
        raise line.usage_error(f"--adapter: {path} does not exist; write --adapter=FILE, or FILE:0.8 with a strength")
    return path, 1.0 if strength is None else strength


def _embedding(line: CommandLine, text: str) -> tuple[str, str]:
    token, equals, name = text.partition("=")
    path = Path(name).expanduser()
    if not (token and equals and path.exists()):
        raise line.usage_error(f"--embedding: {text!r} is not a token and an existing file; write '<toy>=FILE'")
    return token, str(path.resolve())


def _conditions(line: CommandLine) -> dict[str, list[str]]:
    """The files of `--condition`, by name."""
    conditions: dict[str, list[str]] = {}
    for text in line.get_all("--condition"):
        name, _, file = text.partition("=")
        if not (name and file):
            raise line.usage_error(f"--condition: {text!r} is not a name and a file; write source=cat.png")
        conditions.setdefault(name, []).append(file)
    return conditions


def _weights(line: CommandLine) -> Weights | None:
    match text := line.get("--weights"):
        case None | "raw" | "ema":
            return text
        case _:
            raise line.usage_error(f"--weights is raw, or ema for averaged weights, got {text!r}")
