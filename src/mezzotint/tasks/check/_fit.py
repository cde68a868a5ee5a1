"""`mezzotint check --fit=12GB [--host=32GB] [--out=FILE]`: the cheapest settings with which a recipe fits on a card,
why, and the recipe with them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from mezzotint import durable
from mezzotint.errors import MezzotintError, OutOfMemory
from mezzotint.runtimes.base import bytes_of
from mezzotint.settings.counting import format_bytes
from mezzotint.settings.reading.read import Reading, digest_of, locate_paths, read_text
from mezzotint.settings.reading.writing import as_yaml, flatten, without_defaults
from mezzotint.settings.recipe import plain_values
from mezzotint.tasks.check.fitting import Search, with_settings
from mezzotint.tasks.check.plans import Plan, Reason, format_settings
from mezzotint.tasks.reading.command_line import CommandLine
from mezzotint.tasks.reading.commands import REPLACE

_SIZE = re.compile(r"\d+(\.\d+)? ?(GB|GiB|MB|MiB)")
_ADAPTER = {"model.adapter.kind": "lora"}


@dataclass(frozen=True, slots=True)
class Card:
    """What a run shall fit into. room: bytes of the card. host: of host memory, None for any amount. out: the file for
    the recipe, None for none. replaces: whether an existing file may be overwritten."""

    room: int
    host: int | None = None
    out: Path | None = None
    replaces: bool = False

    def __str__(self) -> str:
        host = "" if self.host is None else f" with {format_bytes(self.host)} of host memory"
        return f"a card of {format_bytes(self.room)}{host}"


@dataclass(frozen=True, slots=True)
class Fit:
    """The result. before: the recipe as it is. encoders: bytes of frozen autoencoders and text encoders on the card.
    left_out: settings that could not be tried, and why."""

    card: Card
    before: Plan
    plan: Plan
    reasons: Sequence[Reason]
    encoders: int
    left_out: Sequence[str]


def read_card(line: CommandLine) -> Card | None:
    """The card of a command line; None without one. Raises RecipeError E1012 for what is not a size, and E1014 for a
    file that exists."""
    if line.get("--fit") is None:
        without = next((name for name in ("--host", "--out") if line.get(name) is not None), None)
        if without is not None:
            raise line.usage_error(f"{without} belongs to --fit; add the size of the card, such as --fit=12GB")
        return None
    out = line.get_path("--out")
    card = Card(_read_size(line, "--fit"), None, out, REPLACE.name in line)
    if out is not None:
        durable.refuse_taken(out, replaces=card.replaces)
    return card if line.get("--host") is None else Card(card.room, _read_size(line, "--host"), out, card.replaces)


def _read_size(line: CommandLine, name: str) -> int:
    text = line.get(name) or ""
    if not _SIZE.fullmatch(text):
        raise line.usage_error(f"{name} is a size such as 12GB or 11.5GiB, got {text!r}")
    return bytes_of(text)


def find_fit(search: Search, card: Card) -> Fit:
    """The best plan for a card. Raises OutOfMemory E1754 if there is none."""
    plan = search.find(card.room, card.host)
    if plan is None:
        raise _too_small(search, card)
    parts = plan.memory.parts
    frozen = [part.bytes for part in parts if part.loaded and not part.trained and not part.name.startswith("denoiser")]
    left_out = [f"{settings} was not tried: {why}" for settings, why in search.left_out.items()]
    return Fit(card, search.as_it_is(), plan, search.explain(plan), sum(frozen), left_out)


def write_recipe(reading: Reading, fit: Fit) -> None:
    """Writes the recipe with the plan's settings to the card's file. Raises RecipeError E1014 if it exists."""
    assert fit.card.out is not None
    durable.write_new(fit.card.out, format_recipe(reading, fit), replaces=fit.card.replaces)


def format_recipe(reading: Reading, fit: Fit) -> str:
    """The recipe with the plan's settings: what was given, what changed, and why."""
    base = reading.path.parent if reading.path is not None else Path()
    folder = (fit.card.out or Path()).absolute().parent
    is_beside = folder in (base.absolute(), Path().absolute())  # where relative paths are looked up
    located = locate_paths(reading.recipe, base)
    if is_beside and locate_paths(reading.recipe, folder) == located:
        located = reading.recipe
    recipe = with_settings(located, fit.plan.settings)
    why = {path: reason.text for reason in fit.reasons for path in [*reason.settings][:1]}
    tree = without_defaults(recipe, {*reading.origin, *fit.plan.settings})
    why = {leaf: why[path] for leaf, _ in flatten(tree) for path in why if leaf == path or leaf == f"{path}.kind"}
    head = f"# {reading.name} on {fit.card}, by mezzotint check --fit\n"
    head += f"# A step needs {format_bytes(fit.plan.needed)} of the card (computed, not measured).\n"
    text = as_yaml(tree, why)
    if digest_of(read_text(text).recipe) != digest_of(recipe):  # a default of the family was set back
        text = as_yaml(plain_values(recipe), why)
    return head + text


def _too_small(search: Search, card: Card) -> OutOfMemory:
    ways = [f"use {way}" for way in _remedies(search, card)]
    adapter = _describe_adapter(search, card)
    return OutOfMemory(
        f"{card} is too small to train {'this adapter' if search.recipe.model.has_adapter else 'the whole model'}; "
        f"{', or '.join([*ways, *adapter])}"
        + "".join(f"; {settings} was not tried: {why}" for settings, why in search.left_out.items()),
        code="E1754",
    )


def _remedies(search: Search, card: Card) -> list[str]:
    """The smallest card that would do, and how much host memory would do with this one."""
    ways = []
    least = search.smallest(card.host)
    if least is not None:
        ways.append(f"one of {format_bytes(least[0])}{_with_settings(least[1])}")
    with_more = None if card.host is None else search.find(card.room)
    if with_more is not None:
        ways.append(f"this one{_with_settings(with_more)}")
    return ways or ["a smaller data.resolution"]


def _with_settings(plan: Plan) -> str:
    host = [f"{format_bytes(plan.memory.held_on_host)} of host memory"] if plan.memory.held_on_host else []
    needed = [*host, *filter(None, [format_settings(plan.settings)])]
    return f", with {' and '.join(needed)}" if needed else ""


def _describe_adapter(search: Search, card: Card) -> list[str]:
    """Advice to train an adapter, if the recipe does not; with how it fits."""
    if search.recipe.model.has_adapter:
        return []
    advice = "train a LoRA (model.adapter.kind=lora)"
    try:
        recipe = with_settings(search.recipe, _ADAPTER)
        adapter = Search(recipe, search.batches, search.device, search.processes, search.sums)
        plan = adapter.find(card.room, card.host)
    except (MezzotintError, ValidationError):
        return [advice]
    return [f"{advice}, which fits{_with_settings(plan)}" if plan is not None else f"{advice}, which needs less"]
