"""What to write instead of a switch that a verb does not have: the setting it stands for, the switch that was meant, or
the dialect whose line this is."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from mezzotint import registry
from mezzotint.dialects.base import Dialect
from mezzotint.errors import RecipeError, did_you_mean
from mezzotint.recipe.reading.foreign_names import foreign, value_of
from mezzotint.recipe.reading.nearest import nearest
from mezzotint.recipe.reading.paths import by_path
from mezzotint.tasks.reading.verbs import Verb

_SHORT = {
    "o": "run.folder", "out": "run.folder", "output": "run.folder", "data": "data.path", "images": "data.path",
    "model": "model.path", "name": "run.name", "n": "run.name", "size": "data.resolution", "batch": "data.batch_size",
    "steps": "run.steps", "epoch": "run.epochs", "device": "run.device",
    "prompt": "sample.prompts",
}  # fmt: skip
"""What people write short."""


def refuse(flag: str, value: str | None, words: Sequence[str], verb: Verb) -> NoReturn:
    """Raises RecipeError E1012 for a switch that a verb does not know.

    value: what stands behind it, None without. words: all that stands behind the verb.
    """
    raise RecipeError(f"mezzotint {verb.name}{_sentence(flag, value, words, verb)}", code="E1012")


def _sentence(flag: str, value: str | None, words: Sequence[str], verb: Verb) -> str:
    known = [switch.name for switch in verb.known()]
    otherwise = f"`mezzotint {verb.name} --help` lists what it takes"
    if not verb.reads_recipe:
        instead = verb.instead.get(flag.replace("_", "-").lower())
        hint = instead and "write " + instead.replace("{}", shlex.quote(value) if value else "VALUE")
        return f" has no switch {flag}; {hint or did_you_mean(flag, known, otherwise)}"
    dialect = _dialect_of(words)
    if dialect is not None:
        line = shlex.join(words)
        return f" reads a recipe; for a line of {dialect} write mezzotint {verb.name} --as {dialect} -- {line}"
    if flag == "--resume":
        return f": {_going_on(value, words, verb.name)}"
    hint = did_you_mean(flag, known, cutoff=0.8)
    setting = _SHORT.get(flag.lstrip("-")) or nearest(flag.lstrip("-"))
    if not hint and setting is not None:
        hint = _setting_hint(flag, setting, value)
    return f" has no switch {flag}; {hint or f'{otherwise}; settings are written key=value, without dashes'}"


def _setting_hint(flag: str, setting: str, value: str | None) -> str:
    if setting not in by_path():
        return f"did you mean a setting of {setting}? `mezzotint explain {setting}` lists them"
    is_switch = by_path()[setting].shape.base is bool
    said = value if value is not None else "true" if is_switch else "VALUE"
    said = value_of(setting, said) or said
    known = foreign(flag)
    note = f" ({known.note})" if known is not None and known.note else ""
    return f"write {setting}={shlex.quote(said)}{note}"


def _going_on(value: str | None, words: Sequence[str], verb: str) -> str:
    """`--resume` of trainers that do not go on by themselves."""
    if value is not None and not Path(value).exists():
        value = None  # `--resume latest`
    rest = [word for word in words if not word.startswith("--resume") and word not in (value, "latest", "auto")]
    line = shlex.join(["mezzotint", verb, value, *rest[1:]] if value is not None else ["mezzotint", verb, *rest])
    return f"a run goes on by itself where it stopped; write {line}"


def _dialect_of(words: Sequence[str]) -> str | None:
    """The dialect of a line without a recipe that names its model as that dialect does; of several the one that knows
    most of its switches."""
    if not words or not words[0].startswith("--") or "--" in words:
        return None
    flags = {word.partition("=")[0].removeprefix("--") for word in words if word.startswith("--")}
    best, most = None, 0
    for name in registry.names("dialects", at_hand=True):
        dialect: Dialect = registry.find("dialects", name).DIALECT
        names_model = any("model.path" in row.to and row.flag in flags for row in dialect.rows)
        count = sum(row.flag in flags for row in dialect.rows)
        if names_model and count > most:
            best, most = name, count
    return best
