"""What to write instead of an option that a command does not have: a similar option, a setting, or a whole line."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from mezzotint import registry
from mezzotint.dialects.base import Dialect
from mezzotint.errors import RecipeError, did_you_mean
from mezzotint.recipe.reading.foreign_names import foreign, value_of
from mezzotint.recipe.reading.nearest import nearest
from mezzotint.recipe.reading.paths import by_path
from mezzotint.tasks.reading.parser import Command

_SHORT = {
    "o": "run.folder", "out": "run.folder", "output": "run.folder", "data": "data.path", "images": "data.path",
    "model": "model.path", "name": "run.name", "n": "run.name", "size": "data.resolution", "batch": "data.batch_size",
    "steps": "run.steps", "epoch": "run.epochs", "device": "run.device",
    "prompt": "sample.prompts",
}  # fmt: skip
"""Short names that people try, and the settings."""


def unknown_option(flag: str, value: str | None, words: Sequence[str], command: Command) -> RecipeError:
    """The error E1012 for an option that a command does not have. value: what follows it, None without. words: all
    words after the command."""
    otherwise = f"`mezzotint {command.name} --help` lists what it takes"
    known = [option.name for option in command.all_options()]
    if not command.reads_recipe:
        instead = command.instead.get(flag.replace("_", "-").lower())
        hint = instead and "write " + instead.replace("{}", shlex.quote(value) if value else "VALUE")
        hint = hint or did_you_mean(flag, known, otherwise)
    elif (dialect := _dialect_of(words)) is not None:
        line = f"mezzotint {command.name} --as {dialect} -- {shlex.join(words)}"
        sentence = f"mezzotint {command.name} reads a recipe; for a line of {dialect} write {line}"
        return RecipeError(sentence, code="E1012")
    elif flag == "--resume":
        return command.wrong(f"a run resumes by itself where it stopped; write {_resume(value, words, command.name)}")
    else:
        hint = did_you_mean(flag, known, cutoff=0.8) or _setting_hint(flag, value)
        hint = hint or f"{otherwise}; settings are written key=value, without dashes"
    return RecipeError(f"mezzotint {command.name} has no option {flag}; {hint}", code="E1012")


def _setting_hint(flag: str, value: str | None) -> str:
    """The setting that is meant, with its value; "" for none."""
    setting = _SHORT.get(flag.lstrip("-")) or nearest(flag.lstrip("-"))
    if setting is None:
        return ""
    if setting not in by_path():
        return f"did you mean a setting of {setting}? `mezzotint explain {setting}` lists them"
    text = value if value is not None else "true" if by_path()[setting].shape.base is bool else "VALUE"
    text = value_of(setting, text) or text
    known = foreign(flag)
    note = f" ({known.note})" if known is not None and known.note else ""
    return f"write {setting}={shlex.quote(text)}{note}"


def _resume(value: str | None, words: Sequence[str], command: str) -> str:
    """The line for `--resume` of trainers that do not resume by themselves."""
    if value is not None and not Path(value).exists():
        value = None  # `--resume latest`
    rest = [word for word in words if not word.startswith("--resume") and word not in (value, "latest", "auto")]
    return shlex.join(["mezzotint", command, *(rest if value is None else [value, *rest[1:]])])


def _dialect_of(words: Sequence[str]) -> str | None:
    """The dialect of a line without a recipe that names its model as that dialect does; of several the one that knows
    most of its flags, and of those the one with the shortest name, the plainest of its project's scripts."""
    if not words or not words[0].startswith("--") or "--" in words:
        return None
    flags = {word.partition("=")[0].removeprefix("--") for word in words if word.startswith("--")}
    best, most = None, 0
    for name in sorted(registry.names("dialects", at_hand=True), key=len):
        dialect: Dialect = registry.find("dialects", name).DIALECT
        names_model = any("model.path" in row.to and row.flag in flags for row in dialect.rows)
        count = sum(row.flag in flags for row in dialect.rows)
        if names_model and count > most:
            best, most = name, count
    return best
