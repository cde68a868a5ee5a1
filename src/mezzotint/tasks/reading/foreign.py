"""What stands behind `--as NAME -- …`: a foreign command line as a reading, like that of a recipe file. The translation
goes through the same YAML that `mezzotint translate` prints, so that both doors lead to the same recipe. No torch here.
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
from mezzotint.settings.reading.foreign_names import unread
from mezzotint.settings.reading.read import COMMAND_LINE, Reading, read_text
from mezzotint.settings.reading.translation import Launched, Translation, Translator
from mezzotint.settings.reading.writing import as_yaml
from mezzotint.settings.recipe import Recipe
from mezzotint.tasks.reading.commands import REPLACE


def dialect(name: str) -> Translator:
    """The dialect of a name. Raises RecipeError E1015 with the nearest."""
    sentence = unread(name)
    if sentence is not None:
        raise RecipeError(sentence, code="E1015")
    if name.replace("_", "-") not in registry.names("dialects"):
        raise RecipeError(registry.unknown("dialects", name), code="E1015")
    module = registry.find("dialects", name)
    known: Translator = module.DIALECTS[name.replace("_", "-")] if hasattr(module, "DIALECTS") else module.DIALECT
    return known


def launched(launch: Launch, processes: int | None = None) -> Launched:
    """What a dialect has to know of a launch. processes: another number of them, for looking ahead."""
    launcher = "accelerate" if launch.launcher == "none" and launch.mixed_precision else launch.launcher
    return Launched(processes or launch.world_size, launch.mixed_precision, launcher)


def translation(name: str, arguments: Sequence[str], place: Launched) -> Translation:
    """Translates a foreign line, and proves that its recipe reads; one that starts several processes as if they were
    there. Raises RecipeError in the words of the line."""
    translated = dialect(name).translate(arguments, place, ahead=True)
    _read(name, translated, ())
    return translated


def words(verb: str, name: str, arguments: Sequence[str], ours: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """What stands behind a verb of ours to do what a foreign line says, and the flags of that line by our switches,
    settings and names of files; the notes are printed. ours: words and switches that are laid over it. Raises
    RecipeError in the words of the line."""
    theirs, notes, flags = dialect(name).words(verb, arguments)
    laid = {word.partition("=")[0].removesuffix("+") for word in ours}
    theirs = [word for word in theirs if not (word.startswith("--") and word.partition("=")[0] in laid)]
    for note in notes:
        print(f"note: {note}", flush=True)
    print(f"mezzotint {shlex.join([verb, *theirs, *ours])}", flush=True)
    return [*theirs, *ours], {mine: flag for mine, flag in flags.items() if mine not in laid}


def their_flags(sentence: str, origin: Mapping[str, str]) -> str:
    """The flags behind the switches, settings and files of ours that a sentence names, and what to write before the
    lone `--`: `of this line: data.path is --data_path`, "" where there is nothing to say. origin: by switch, setting
    or file, the flag it comes from."""
    places: dict[str, int] = {}
    for ours, words in origin.items():
        flag = words.removeprefix("default of ")
        at = _named(ours).search(sentence)
        if at and _is_flag(flag) and flag not in sentence:
            places[f"{ours} is {flag}"] = at.start()
    to_write = [REPLACE.name] if f"add {REPLACE.name}" in sentence else []
    for advice in _ADVICE.findall(sentence):
        to_write += [word for word in advice.split() if "=" in word]
    before = f"write {' '.join(to_write)} before the lone `--`" if to_write else ""
    flags = f"of this line: {', '.join(sorted(places, key=places.__getitem__))}" if places else ""
    return "; ".join(filter(None, (flags, before)))


_ADVICE = re.compile(r"\b(?:set|write) ((?:(?:(?:and|or) )?[a-z_0-9]+(?:\.\w+)+=[^\s;,]*[^\s;,.] ?)+)")
"""The settings that a sentence advises."""


def _is_flag(origin: str) -> bool:
    """Whether an origin is a flag, or a key of a file: `key in train.json`."""
    return origin.startswith("--") or " in " in origin


def _named(ours: str) -> re.Pattern[str]:
    """Where a sentence names a switch, a setting or a file. A file's name that is a word like others, such as `model`,
    counts at the beginning alone, and none counts as the heading of a list of problems."""
    name = os.path.normpath(ours)
    before = r"(?<![\w./-])" if re.search(r"[./-]", name) else r"^(?:error\[\w+\]: )?"
    return re.compile(rf"{before}(?:{re.escape(os.getcwd())}/|\./)?{re.escape(name)}(?![\w-]|\.\w| has \d+ problem)")


def reading(name: str, arguments: Sequence[str], overrides: Sequence[str], place: Launched) -> Reading:
    """A foreign line, with `key=value` laid over it, as a recipe. Each value's origin is its flag. Raises RecipeError
    in the words of the line."""
    translated = dialect(name).translate(arguments, place)
    read = _read(name, translated, overrides)
    typed = {path: words for path, words in read.origin.items() if words == COMMAND_LINE}
    notes = tuple(str(note) for note in translated.notes)
    recipe = _with_fixed(read.recipe, tuple(typed))
    origin = {**translated.origin, **typed}
    return replace(read, recipe=recipe, origin=origin, notes=notes, verb=translated.command)


def _with_fixed(recipe: Recipe, typed: tuple[str, ...]) -> Recipe:
    """The recipe with what was laid over the line kept from a file that is read while the run goes."""
    live = recipe.run.live
    if live.path is None or not typed:
        return recipe
    return with_values(recipe, {"run.live.fixed": (*live.fixed, *typed)})


def _read(name: str, translated: Translation, overrides: Sequence[str]) -> Reading:
    try:
        return read_text(as_yaml(translated.settings, translated.origin), f"--as {name}", overrides)
    except RecipeError as error:
        problems = [_in_their_words(problem, translated.origin) for problem in error.problems]
        raise RecipeError(f"the line of {name}", code=error.code, problems=problems) from error


def _in_their_words(problem: Problem, origin: Mapping[str, str]) -> Problem:
    """A problem of the recipe as one of the flag that it comes from. What the command line laid over it stays."""
    if problem.line is None:
        return problem
    words = origin.get(re.sub(r"(\.\d+)+$", "", problem.where), "")  # of a list, the setting
    flag = words.removeprefix("default of ")
    return problem._replace(where=flag, line=None) if _is_flag(flag) else problem._replace(line=None)
