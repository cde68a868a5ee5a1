"""What `convert` was asked: SOURCE, DESTINATION and switches, `--dtype=fp16` or `--dtype fp16`. SOURCE is a path or the
name of a model that ships."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

from mezzotint.errors import RecipeError, did_you_mean
from mezzotint.recipe.reading.read import MODELS, locate
from mezzotint.weights.files import mindspore, pickled
from mezzotint.weights.folder.components import DTypeName

_CHOICES: dict[str, tuple[str, ...]] = {
    "--dtype": ("fp32", "fp16", "bf16"),
    "--ema": ("ignore", "use", "keep"),
    "--prediction": ("epsilon", "v"),
    "--config": (),
}


@dataclass(frozen=True, slots=True)
class Wish:
    """dtype: None keeps every tensor's. ema: what happens to averaged copies in a single file. prediction, config: for
    files that do not say it. store: where a pickled source is kept as safetensors; None is the usual place."""

    source: Path
    destination: Path
    dtype: DTypeName | None = None
    ema: Literal["ignore", "use", "keep"] = "ignore"
    prediction: Literal["epsilon", "v"] | None = None
    config: Path | None = None
    store: Path | None = None


def parse(arguments: Sequence[str]) -> Wish:
    """Reads the words after `convert`. Raises RecipeError E1012 naming what is wrong and what is known."""
    words, given = _split(arguments)
    if len(words) != 2:
        what = f"got {len(words)} name{'s' if len(words) != 1 else ''}"
        raise RecipeError(f"mezzotint convert: write mezzotint convert SOURCE DESTINATION; {what}", code="E1012")
    source, destination = (Path(word).expanduser() for word in words)
    if not source.exists():
        source = locate(source, None, shipped=MODELS)
    if destination.suffix in pickled.SUFFIXES and destination.suffix != mindspore.SUFFIX:
        name = destination.with_suffix(".safetensors").name
        raise RecipeError(
            f"mezzotint convert: {destination.name} would be a pickle, which is never written; write {name}",
            code="E1012",
        )
    return Wish(
        source,
        destination,
        cast("DTypeName | None", given.get("--dtype")),
        cast('Literal["ignore", "use", "keep"]', given.get("--ema", "ignore")),
        cast('Literal["epsilon", "v"] | None', given.get("--prediction")),
        locate(Path(given["--config"]), None, shipped=MODELS) if "--config" in given else None,
    )


def _split(arguments: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    words: list[str] = []
    given: dict[str, str] = {}
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if not word.startswith("-") or word == "-":
            words.append(word)
            continue
        flag, sign, value = word.partition("=")
        if flag not in _CHOICES:
            hint = did_you_mean(flag, _CHOICES, f"it knows {', '.join(_CHOICES)}")
            raise RecipeError(f"mezzotint convert has no switch {flag}; {hint}", code="E1012")
        if not sign:
            value = rest.pop(0) if rest else ""
        if not value or (_CHOICES[flag] and value not in _CHOICES[flag]):
            known = " or ".join(_CHOICES[flag]) or "a folder"
            raise RecipeError(f"mezzotint convert: {flag} is {known}, got {value or 'nothing'}", code="E1012")
        given[flag] = value
    return words, given
