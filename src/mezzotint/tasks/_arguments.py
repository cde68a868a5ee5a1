"""What verbs share: `RECIPE key=value …` with a verb's own switches, read into a recipe.

Switches are one word each, `--json` or `--out=FILE`, so that recipe and settings stand in any order around them.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence

from mezzotint import registry
from mezzotint.errors import RecipeError
from mezzotint.recipe.read import Reading, read


def parse(arguments: Sequence[str], verb: str) -> Reading:
    """Reads `RECIPE key=value …` of a verb without switches.

    arguments: the words after the verb. Raises RecipeError: E1012 for a missing recipe or an unknown switch, E1015 for
    `--as`, and whatever `read` finds.
    """
    return parse_with(arguments, verb, {})[0]


def parse_with(arguments: Sequence[str], verb: str, flags: Mapping[str, str]) -> tuple[Reading, dict[str, str]]:
    """Reads `RECIPE key=value …` and the switches of a verb.

    flags: what the verb knows: `{"--json": "one JSON document", "--out=FILE": "where to write"}`. Returns the reading,
    and the switches given with their values ("" without one): `{"--json": "", "--out": "a.txt"}`. Raises as `parse`.
    """
    words, given = split(arguments, verb)
    known = {flag.partition("=")[0]: "=" in flag for flag in flags}
    for flag, value in given.items():
        if flag not in known:
            raise RecipeError(_unknown_flag(flag, verb, known), code="E1012")
        if known[flag] != (value is not None):
            form = next(f for f in flags if f.partition("=")[0] == flag)
            raise RecipeError(f"mezzotint {verb}: the switch is written {form}", code="E1012")
    return read(words[0], words[1:]), {flag: value or "" for flag, value in given.items()}


def preflight(arguments: Sequence[str], verb: str) -> None:
    """Reads the recipe of a verb before the verb's module, and with it torch, is imported: a mistyped recipe answers
    at once. Raises as `parse`, apart from unknown switches, which only the verb can tell."""
    words, _ = split(arguments, verb)
    read(words[0], words[1:])


def split(arguments: Sequence[str], verb: str) -> tuple[list[str], dict[str, str | None]]:
    """Parts words into (recipe and settings) and switches. Raises RecipeError E1012 without a recipe, E1015 for
    `--as`."""
    words: list[str] = []
    given: dict[str, str | None] = {}
    for word in arguments:
        if word == "--as" or word.startswith("--as="):
            raise RecipeError(_no_dialect(verb), code="E1015")
        if word.startswith("-") and len(word) > 1:
            flag, sign, value = word.partition("=")
            given[flag] = value if sign else None
        else:
            words.append(word)
    if not words or "=" in words[0]:
        what = f"{words[0]!r} stands where the recipe belongs" if words else "no recipe is given"
        raise RecipeError(f"mezzotint {verb}: {what}; write mezzotint {verb} RECIPE.yaml [key=value …]", code="E1012")
    return words, given


def _unknown_flag(flag: str, verb: str, known: Mapping[str, bool]) -> str:
    near = difflib.get_close_matches(flag, known, n=1)
    if near:
        hint = f"did you mean {near[0]}?"
    else:
        hint = f"`mezzotint {verb} --help` lists what it takes; settings are written key=value, without dashes"
    return f"mezzotint {verb} has no switch {flag}; {hint}"


def _no_dialect(verb: str) -> str:
    known = registry.names("dialects")
    listed = f"known: {', '.join(known)}" if known else "no dialect is installed yet"
    return f"mezzotint {verb} --as reads the recipes of another trainer; {listed}"
