"""`--as NAME -- …`: a foreign command line as a reading, like that of a recipe file. The translation goes through the
YAML that `mezzotint translate` prints, so both give the same recipe. Does not import torch.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace

from mezzotint import registry
from mezzotint.errors import Problem, RecipeError
from mezzotint.runtimes.shared.launch import Launch
from mezzotint.settings.base import with_values
from mezzotint.settings.reading.foreign_names import unsupported_trainer
from mezzotint.settings.reading.read import COMMAND_LINE, Reading, read_text
from mezzotint.settings.reading.translation import Launched, Translation, Translator
from mezzotint.settings.reading.writing import as_yaml
from mezzotint.settings.recipe import Recipe
from mezzotint.tasks.reading.commands import REPLACE


def find_dialect(name: str) -> Translator:
    """The dialect of a name. Raises RecipeError E1015 with the nearest."""
    sentence = unsupported_trainer(name)
    if sentence is not None:
        raise RecipeError(sentence, code="E1015")
    if name.replace("_", "-") not in registry.names("dialects"):
        raise RecipeError(registry.unknown_choice("dialects", name), code="E1015")
    module = registry.find("dialects", name)
    dialect: Translator = module.DIALECTS[name.replace("_", "-")] if hasattr(module, "DIALECTS") else module.DIALECT
    return dialect


def launch_facts(launch: Launch, processes: int | None = None) -> Launched:
    """What a dialect needs to know about a launch. processes: another number of processes, for commands that only
    inspect."""
    launcher = "accelerate" if launch.launcher == "none" and launch.mixed_precision else launch.launcher
    return Launched(processes or launch.world_size, launch.mixed_precision, launcher)


def translate(name: str, arguments: Sequence[str], launched: Launched) -> Translation:
    """Translates a foreign command line, and checks that its recipe is valid; a line that starts several processes as
    if they were running. Raises RecipeError with the names of the foreign line."""
    translated = find_dialect(name).translate(arguments, launched, ahead=True)
    _read(name, translated, ())
    return translated


def equivalent_arguments(
    verb: str, name: str, arguments: Sequence[str], ours: Sequence[str]
) -> tuple[list[str], dict[str, str]]:
    """The arguments of our command that do the same as a foreign command line, and the foreign flags by our options,
    settings and file names. Prints the notes. ours: arguments that override it. Raises RecipeError with the
    names of the foreign line."""
    theirs, notes, flags = find_dialect(name).translate_tool(verb, arguments)
    overridden = {argument.partition("=")[0].removesuffix("+") for argument in ours}
    theirs = [
        argument for argument in theirs if not (argument.startswith("--") and argument.partition("=")[0] in overridden)
    ]
    for note in notes:
        print(f"note: {note}", flush=True)
    print(f"mezzotint {shlex.join([verb, *theirs, *ours])}", flush=True)
    return [*theirs, *ours], {mine: flag for mine, flag in flags.items() if mine not in overridden}


def their_flags(sentence: str, origin: Mapping[str, str]) -> str:
    """The foreign flags of the options, settings and files that a sentence names, and what to write before `--`: `in
    this command line: data.path is --data_path`, "" if it names none. origin: the flag that each option, setting or
    file comes from."""
    positions: dict[str, int] = {}
    for ours, source in origin.items():
        flag = source.removeprefix("default of ")
        mention = _mention_of(ours).search(sentence)
        if mention and _is_flag(flag) and flag not in sentence:
            positions[f"{ours} is {flag}"] = mention.start()
    to_write = [REPLACE.name] if f"add {REPLACE.name}" in sentence else []
    for advice in _ADVICE.findall(sentence):
        to_write += [setting for setting in advice.split() if "=" in setting]
    before = f"write {' '.join(to_write)} before the `--`" if to_write else ""
    flags = f"in this command line: {', '.join(sorted(positions, key=positions.__getitem__))}" if positions else ""
    return "; ".join(filter(None, (flags, before)))


_ADVICE = re.compile(r"\b(?:set|write) ((?:(?:(?:and|or) )?[a-z_0-9]+(?:\.\w+)+=[^\s;,]*[^\s;,.] ?)+)")
"""The settings that a sentence suggests."""


def _is_flag(origin: str) -> bool:
    """Whether an origin is a flag, or a key of a file: `key in train.json`."""
    return origin.startswith("--") or " in " in origin


def _mention_of(ours: str) -> re.Pattern[str]:
    """Matches an option, a setting or a file in a sentence. A file name that is also a common word, such as `model`,
    matches only at the beginning, and none matches as the heading of a list of problems."""
    name = os.path.normpath(ours)
    before = r"(?<![\w./-])" if re.search(r"[./-]", name) else r"^(?:error\[\w+\]: )?"
    return re.compile(rf"{before}(?:{re.escape(os.getcwd())}/|\./)?{re.escape(name)}(?![\w-]|\.\w| has \d+ problem)")


def read_command_line(name: str, arguments: Sequence[str], overrides: Sequence[str], launched: Launched) -> Reading:
    """A foreign command line, overridden by `key=value`, as a reading. Each value's origin is its flag. Raises
    RecipeError with the names of the foreign line."""
    translated = find_dialect(name).translate(arguments, launched)
    read = _read(name, translated, overrides)
    typed = {path: source for path, source in read.origin.items() if source == COMMAND_LINE}
    notes = tuple(str(note) for note in translated.notes)
    recipe = _with_fixed(read.recipe, tuple(typed))
    origin = {**translated.origin, **typed}
    return replace(read, recipe=recipe, origin=origin, notes=notes, verb=translated.command)


def _with_fixed(recipe: Recipe, typed: tuple[str, ...]) -> Recipe:
    """The recipe with settings from our command line fixed against a file of live settings."""
    live = recipe.run.live
    if live.path is None or not typed:
        return recipe
    return with_values(recipe, {"run.live.fixed": (*live.fixed, *typed)})


def _read(name: str, translated: Translation, overrides: Sequence[str]) -> Reading:
    try:
        return read_text(as_yaml(translated.settings, translated.origin), f"--as {name}", overrides)
    except RecipeError as error:
        problems = [_with_foreign_names(problem, translated.origin) for problem in error.problems]
        raise RecipeError(f"the line of {name}", code=error.code, problems=problems) from error


def _with_foreign_names(problem: Problem, origin: Mapping[str, str]) -> Problem:
    """A problem of the recipe as one of the flag that it comes from. Problems of our own settings stay as they are."""
    if problem.line is None:
        return problem
    source = origin.get(re.sub(r"(\.\d+)+$", "", problem.where), "")  # of a list, the setting
    flag = source.removeprefix("default of ")
    return problem._replace(where=flag, line=None) if _is_flag(flag) else problem._replace(line=None)
