"""The command line of `sample`: what to draw from, what to draw, and how.

Every switch that says how pictures are drawn is a setting of the recipe's section `sample` under a shorter name, so
that it is read, checked and explained as any other. Reading imports no torch: a mistyped line is answered at once.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from mezzotint.errors import RecipeError, did_you_mean
from mezzotint.recipe.sections.sample import size_named
from mezzotint.sampling import prompt_file
from mezzotint.sampling.prompt_file import Line, PromptFile

FLAGS = {
    "--prompt=TEXT": "what to draw; more texts may follow it",
    "--file=FILE": "prompts: .txt, one a line, options behind them (--n --w --h --s --d --l), or .json",
    "--negative=TEXT": "what guidance moves away from",
    "--size=WxH": "in pixels, 512 for a square, or one of SDXL's sizes by name; several with commas between",
    "--seed=N": "of the noise, -1 a new one; several with commas between, or 1-4",
    "--index=N": "number of the first prompt, which addresses its noise; 0 without",
    "--steps=N": "sample.steps",
    "--guidance=G": "sample.guidance, also --cfg; several with commas between",
    "--rescale=SHARE": "sample.guidance_rescale",
    "--solver=NAME": "sample.solver",
    "--spacing=NAME": "sample.spacing",
    "--batch=N": "sample.batch_size",
    "--weights=KIND": "of a run: raw, or shadow for its average (EMA), which is usual where there is one",
    "--frames=N": "sample.clip.frames, of models that draw clips",
    "--rate=FPS": "sample.clip.rate, frames a second of a clip's file",
    "--out=FOLDER": "where the pictures go; without it a new folder in samples/",
    "--numbered": "calls pictures 000000000.png and so on, after those that are there",
}
_SETTINGS = {
    "--steps": "sample.steps",
    "--guidance": "sample.guidance",
    "--rescale": "sample.guidance_rescale",
    "--solver": "sample.solver",
    "--spacing": "sample.spacing",
    "--batch": "sample.batch_size",
    "--frames": "sample.clip.frames",
    "--rate": "sample.clip.rate",
}
_ALSO = {
    "--cfg": "--guidance", "--cfg-scale": "--guidance", "--guidance-scale": "--guidance", "--sampler": "--solver",
    "--scheduler": "--solver", "--negative-prompt": "--negative", "--num-inference-steps": "--steps",
    "--batch-size": "--batch", "--seeds": "--seed", "--prompts": "--prompt",
}  # fmt: skip
"""What user interfaces and other programs call our switches."""
_AS_SETTING = {
    "--image": "sample.image", "--init-image": "sample.image", "--init-img": "sample.image", "--img": "sample.image",
    "--strength": "sample.strength", "--denoise": "sample.strength", "--denoising-strength": "sample.strength",
    "--refiner": "sample.refiner.path", "--precision": "run.precision", "--device": "run.device",
    "--clip-skip": "model.clip_skip", "--vae": "model.vae",
}  # fmt: skip
"""What is a setting here, and has no switch."""
_MOST_SEEDS = 1000
_KNOWN = tuple(flag.partition("=")[0] for flag in FLAGS)
_OVERRIDE = re.compile(r"[a-z_]+(\.[A-Za-z0-9_-]+)+\+?=")

Weights = Literal["raw", "shadow"]


@dataclass(frozen=True, slots=True)
class Asked:
    """A command line. place: what is drawn from, as written. overrides: `key=value`, those of prompt files and switches
    included, in this order. lines: the prompts; empty takes the recipe's. sizes, seeds: empty takes the recipe's.
    weights, out: None where nothing is said. notes: sentences about the files. numbered: pictures have numbers for
    names, after those that are there."""

    place: str
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


def parse(arguments: Sequence[str]) -> Asked:
    """Reads a command line. Values stand behind `=` or as the next word.

    Raises RecipeError: E1012 for what cannot be understood, E1073 for a prompt file.
    """
    places, overrides, lines = [], [], []
    files: list[PromptFile] = []
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
                files.append(read_file(Path(value).expanduser()))
                lines += files[-1].lines
            case _ if flag in said:
                raise _wrong(f"{flag} is given twice")
            case _:
                said[flag] = value
    if len(places) != 1:
        what = f"{places[1]!r} stands beside {places[0]!r}" if places else "nothing is named to draw from"
        raise _wrong(f"{what}; write mezzotint sample MODEL --prompt='a red fox'")
    of_files = [f"sample.{name}={_as_word(value)}" for file in files for name, value in file.settings.items()]
    overrides = of_files + overrides
    overrides += [f"{path}={said[flag]}" for flag, path in _SETTINGS.items() if flag in said]
    if "," in said.get("--guidance", ""):
        overrides[overrides.index(f"sample.guidance={said['--guidance']}")] = f"sample.guidance=[{said['--guidance']}]"
    return Asked(
        place=places[0],
        overrides=tuple(overrides),
        lines=tuple(lines),
        negative=said.get("--negative"),
        sizes=tuple(_size(text) for text in _several(said, "--size")),
        seeds=tuple(seed for text in _several(said, "--seed") for seed in _seeds(text)),
        index=_whole("--index", said.get("--index", "0")),
        weights=_weights(said.get("--weights")),
        out=Path(said["--out"]).expanduser() if "--out" in said else None,
        notes=tuple(note for file in files for note in file.notes),
        numbered="--numbered" in said,
    )


def read_file(path: Path) -> PromptFile:
    """The prompts of a file. Raises RecipeError E1073 naming file and line, also for what only a data set can fill."""
    found = prompt_file.read(path)
    if not found.lines:
        raise RecipeError(f"{path}: has no prompt; write one a line", code="E1073")
    if any(line.random_caption and not line.prompt for line in found.lines):
        raise RecipeError(
            f"{path}: random_caption draws from a data set, during training alone; add a prompt beside it", code="E1073"
        )
    return found


def _as_word(value: object) -> str:
    """A setting as a word of the command line."""
    return json.dumps(list(value) if isinstance(value, tuple) else value, ensure_ascii=False)


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
        flag = _ALSO.get(flag.replace("_", "-"), flag)
        if flag not in _KNOWN:
            raise _unknown(flag, value if sign else rest[0] if rest else "")
        if flag in FLAGS:  # it has no value
            if sign:
                raise _wrong(f"{flag} stands alone, without {word.removeprefix(flag)!r}")
            value = ""
        elif not sign:
            if not rest or rest[0].startswith("--"):
                raise _wrong(f"{flag} needs a value; write {flag}=…")
            value = rest.pop(0)
        prompting = flag == "--prompt"
        yield flag, value


def _unknown(flag: str, value: str) -> RecipeError:
    """What to write instead of a switch that there is not. value: what stands behind it, "" for nothing."""
    spelled = flag.replace("_", "-").lower()
    if spelled in ("--width", "--height", "-w", "-h"):
        number = value if value.isdecimal() else "512"
        sides = f"{number}xHEIGHT" if "w" in spelled else f"WIDTHx{number}"
        hint = f"write --size={sides}, or --size={number} for a square"
    elif spelled in _AS_SETTING:
        hint = f"write {_AS_SETTING[spelled]}={shlex.quote(value) if value else 'VALUE'}"
        if _AS_SETTING[spelled] == "sample.image":
            hint += ", and sample.strength=0.75 for how much of it is drawn anew"
    else:
        hint = did_you_mean(flag, _KNOWN, "`mezzotint sample --help` lists what it takes")
    return RecipeError(f"mezzotint sample has no switch {flag}; {hint}", code="E1012")


def _several(said: dict[str, str], flag: str) -> list[str]:
    return said[flag].split(",") if flag in said else []


def _size(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"\s*(\d{1,5})(?:\s*[x×X]\s*(\d{1,5}))?\s*", text)
    if found is None:
        try:
            named: tuple[int, int] | str = size_named(text.strip())
        except ValueError as error:
            raise _wrong(f"--size: {error}") from None
        if isinstance(named, tuple):
            return named
        raise _wrong(f"--size is WIDTHxHEIGHT, such as 512x768, 512 for a square, or sdxl-1.46, got {text!r}")
    return int(found[1]), int(found[2] or found[1])


def _seeds(text: str) -> Sequence[int]:
    """One seed, or those of a range such as `1-4`."""
    found = re.fullmatch(r"\s*(\d{1,19})\s*-\s*(\d{1,19})\s*", text)
    if found is None:
        return (_whole("--seed", text),)
    first, last = int(found[1]), int(found[2])
    if not 0 <= last - first < _MOST_SEEDS:
        raise _wrong(f"--seed={first}-{last} is no range that rises by less than {_MOST_SEEDS}")
    return range(first, last + 1)


def _whole(flag: str, text: str) -> int:
    if re.fullmatch(r"\s*-?\d{1,19}\s*", text) is None:
        raise _wrong(f"{flag} is a whole number, got {text!r}")
    return int(text)


def _weights(text: str | None) -> Weights | None:
    match text:
        case None | "raw" | "shadow":
            return text
        case "ema" | "average":
            return "shadow"
        case _:
            raise _wrong(f"--weights is raw, or shadow for the average (EMA), got {text!r}")


def _wrong(what: str) -> RecipeError:
    return RecipeError(f"mezzotint sample: {what}", code="E1012")
