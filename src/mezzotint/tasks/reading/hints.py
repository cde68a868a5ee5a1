"""What to write instead of an option that a command does not have: a similar option, a setting, or `--as NAME`."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from mezzotint.errors import RecipeError, did_you_mean
from mezzotint.settings.reading.foreign_names import meaning_of, value_of
from mezzotint.settings.reading.nearest import nearest
from mezzotint.settings.reading.paths import by_path
from mezzotint.tasks.reading.parser import Command

_SHORT = {
    "o": "run.folder", "out": "run.folder", "output": "run.folder", "data": "data.path", "images": "data.path",
    "model": "model.path", "name": "run.name", "n": "run.name", "size": "data.resolution", "batch": "data.batch_size",
    "steps": "run.steps", "epoch": "run.epochs", "device": "run.device",
    "prompt": "sample.prompts",
}  # fmt: skip
"""Short names that people try, and their settings."""


def unknown_option(flag: str, value: str | None, names: Sequence[str], command: Command) -> RecipeError:
    """The error E1012 for an option that a command does not have. value: what follows it, None without one. names: the
    other arguments of the command line."""
    hint = f"`mezzotint {command.name} --help` lists its options"
    option_names = [option.name for option in command.all_options()]
    if not command.reads_recipe:
        instead = command.instead.get(flag.replace("_", "-").lower())
        write = instead and "write " + instead.replace("{}", shlex.quote(value) if value else "VALUE")
        hint = write or did_you_mean(flag, option_names, hint)
    elif flag == "--resume":
        hint = "a run resumes where it stopped; give only the recipe or the folder of the run"
    elif not names:
        hint = f"write mezzotint {command.name} RECIPE.yaml, or mezzotint {command.name} --as NAME -- THE LINE AS IT IS"
        hint = f"no recipe is given; {hint} for the line of another trainer (`mezzotint ls dialects`)"
    else:
        near = did_you_mean(flag, option_names, cutoff=0.8) or _setting(flag, value)
        hint = near or f"{hint}; settings are written key=value, without dashes"
    return RecipeError(f"mezzotint {command.name} has no option {flag}; {hint}", code="E1012")


def _setting(flag: str, value: str | None) -> str:
    """The setting that is probably meant, with its value; "" for none."""
    setting = _SHORT.get(flag.lstrip("-")) or nearest(flag.lstrip("-"))
    if setting is None:
        return ""
    if setting not in by_path():
        return f"did you mean a setting of {setting}? `mezzotint explain {setting}` lists them"
    text = value if value is not None else "true" if by_path()[setting].shape.base is bool else "VALUE"
    meaning = meaning_of(flag)
    note = f" ({meaning.note})" if meaning is not None and meaning.note else ""
    return f"write {setting}={shlex.quote(value_of(setting, text) or text)}{note}"
