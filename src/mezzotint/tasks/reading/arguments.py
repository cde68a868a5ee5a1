"""What verbs share: `RECIPE key=value …` with a verb's own switches, or `--as NAME -- …` with the command line of
another trainer, read into a recipe.

Switches are one word each, `--json` or `--out=FILE`, so that recipe and settings stand in any order around them; only
the dialect may follow its switch, `--as NAME`. After a lone `--` every word belongs to the foreign line.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from mezzotint import registry
from mezzotint.errors import Problem, RecipeError
from mezzotint.recipe.reading.read import Reading
from mezzotint.runtimes.shared.launch import Launch
from mezzotint.tasks.reading import _switch_hints, continuing, foreign, hub

FOREIGN = "mezzotint {} --as NAME -- THE LINE AS IT IS"
"""How a foreign line is written; the braces take the verb."""

ALLOW = "--allow-package"
"""The switch of every verb that reads a recipe: a package that may be imported for an optimizer's class. Importing runs
it, so that no recipe can say it."""

PACKAGES = ("torch", "bitsandbytes", "pytorch_optimizer")
"""Packages that are imported for an optimizer's class without being asked."""


@dataclass(slots=True)
class Asked:
    """The words after a verb, parted. words: recipe and settings. given: switches with their values, None without one.
    followed: the word behind each switch without one. dialect: what follows `--as`. foreign: what follows `--`.
    packages: what `--allow-package` names."""

    words: list[str] = field(default_factory=list)
    given: dict[str, str | None] = field(default_factory=dict)
    followed: dict[str, str] = field(default_factory=dict)
    dialect: str | None = None
    foreign: tuple[str, ...] = ()
    packages: list[str] = field(default_factory=list)

    def after(self, flag: str) -> str | None:
        """The word behind a switch when that is its value, not the recipe."""
        word = self.followed.get(flag)
        plain = [one for one in self.words if "=" not in one]
        return None if word is None or "=" in word or plain == [word] else word


def parse(arguments: Sequence[str], verb: str) -> Reading:
    """Reads `RECIPE key=value …`, or `--as NAME [key=value …] -- …`, of a verb without switches.

    arguments: the words after the verb. Raises RecipeError: E1012 for a missing recipe or an unknown switch, E1015 for
    an unknown dialect, and whatever `read` or the dialect finds.
    """
    return parse_with(arguments, verb, {})[0]


def parse_with(arguments: Sequence[str], verb: str, flags: Mapping[str, str]) -> tuple[Reading, dict[str, str]]:
    """Reads what `parse` does, and the switches of a verb.

    flags: what the verb knows: `{"--json": "one JSON document", "--out=FILE": "where to write"}`. Returns the reading,
    and the switches given with their values ("" without one): `{"--json": "", "--out": "a.txt"}`. A foreign line is
    translated for as many processes as `--processes=N` says, otherwise for those that run. Raises as `parse`.
    """
    asked = take(arguments, verb)
    _require_known(asked, arguments, verb, flags)
    known = {flag.partition("=")[0]: "=" in flag for flag in flags}
    for flag, value in asked.given.items():
        if known[flag] != (value is not None):
            form = next(f for f in flags if f.partition("=")[0] == flag)
            raise RecipeError(f"mezzotint {verb}: the switch is written {form}", code="E1012")
    return _reading(asked, verb), {flag: value or "" for flag, value in asked.given.items()}


def preflight(arguments: Sequence[str], verb: str, flags: Mapping[str, str]) -> Mapping[str, str]:
    """Reads the recipe of a verb before the verb's module, and with it torch, is imported: a mistyped recipe answers
    at once. flags: what the verb knows. Returns the flag that each setting comes from, of a foreign line. Raises as
    `parse_with`, apart from the form of switches."""
    asked = take(arguments, verb)
    _require_known(asked, arguments, verb, flags)
    reading = _reading(asked, verb)
    return reading.origin if asked.dialect is not None else {}


def take(arguments: Sequence[str], verb: str) -> Asked:
    """Parts the words after a verb. Raises RecipeError E1012 for `--as` without a name or without `--`, and the other
    way round."""
    asked, rest = Asked(), list(arguments)
    foreign = "--" in rest
    if foreign:
        at = rest.index("--")
        asked.foreign = tuple(rest[at + 1 :])
        del rest[at:]
    while rest:
        word = rest.pop(0)
        flag, sign, value = word.partition("=")
        if flag == "--as":
            asked.dialect = value if sign else rest.pop(0) if rest else ""
        elif flag == ALLOW:
            asked.packages += [one for one in value.split(",") if one]
            if not value:
                raise RecipeError(f"mezzotint {verb}: {ALLOW} needs a name; write {ALLOW}=NAME", code="E1012")
        elif word.startswith("-") and len(word) > 1:
            asked.given[flag] = value if sign else None
            if not sign and rest and not rest[0].startswith("-"):
                asked.followed[flag] = rest[0]
        else:
            asked.words.append(word)
    if foreign != (asked.dialect is not None) or asked.dialect == "":
        what = "--as needs a name and the foreign line after --" if asked.dialect is not None else "-- needs --as NAME"
        raise RecipeError(f"mezzotint {verb}: {what}; write {FOREIGN.format(verb)}{_known()}", code="E1012")
    return asked


def translated(arguments: Sequence[str], verb: str) -> tuple[list[str], Mapping[str, str]]:
    """The words of a verb that reads no recipe: a foreign line, `--as NAME -- …`, as what it amounts to, others as they
    are; and the flags of that line by our switches and settings. Raises as `take`, and as the dialect."""
    if not any(word == "--as" or word.startswith("--as=") for word in arguments):
        return list(arguments), {}
    asked = take(arguments, verb)
    assert asked.dialect is not None
    ours = [flag if value is None else f"{flag}={value}" for flag, value in asked.given.items()]
    return foreign.words(verb, asked.dialect, asked.foreign, [*asked.words, *ours])


def process_count(asked: Asked, verb: str) -> int | None:
    """What `--processes=N` says, None without it. Raises RecipeError E1012 for anything but a number above 0."""
    if "--processes" not in asked.given:
        return None
    text = asked.given["--processes"]
    if text is None or not text.isdecimal() or int(text) < 1:
        raise RecipeError(f"mezzotint {verb}: --processes is a whole number above 0, got {text or ''!r}", code="E1012")
    return int(text)


def _reading(asked: Asked, verb: str) -> Reading:
    reading = replace(_read(asked, verb), packages=tuple(dict.fromkeys(asked.packages)))
    problems = list(_strange_packages(reading))
    if problems:
        raise RecipeError(reading.name, problems=reading.placed(problems))
    return reading


def _strange_packages(reading: Reading) -> Iterator[Problem]:
    """Classes of packages that nobody at the keyboard has named."""
    optim = reading.recipe.optim
    named = {f"optim.part_optimizer.{part}": rule for part, rule in optim.part_optimizer.items()}
    for where, rule in ({"optim.optimizer": optim.optimizer} | named).items():
        if rule.imported_class is None:
            continue
        package = rule.imported_class.partition(".")[0]
        if package not in (*PACKAGES, *reading.packages):
            what = f"{rule.imported_class} is of the package {package}, which is not imported because a recipe says so"
            remedy = f"where you trust it, add {ALLOW} {package} to the command line"
            yield Problem(f"{where}.class_name", what, remedy, "E1161")


def _read(asked: Asked, verb: str) -> Reading:
    if asked.dialect is not None:
        place = foreign.launched(Launch.read(), process_count(asked, verb))
        translated = foreign.reading(asked.dialect, asked.foreign, asked.words, place)
        return hub.found(continuing.found(translated), insist=True)
    words = asked.words
    if not words or "=" in words[0]:
        what = f"{words[0]!r} stands where the recipe belongs" if words else "no recipe is given"
        raise RecipeError(f"mezzotint {verb}: {what}; write mezzotint {verb} RECIPE.yaml [key=value …]", code="E1012")
    return hub.found(continuing.found(continuing.read_source(words[0], words[1:])), insist=False)


def _known() -> str:
    return f" (dialects: {', '.join(registry.names('dialects'))})"


def _require_known(asked: Asked, arguments: Sequence[str], verb: str, flags: Mapping[str, str]) -> None:
    known = {flag.partition("=")[0] for flag in flags}
    for flag, value in asked.given.items():
        if flag not in known:
            _switch_hints.refuse(flag, value if value is not None else asked.after(flag), arguments, verb, known)
