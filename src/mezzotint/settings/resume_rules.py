"""What may differ between the recipe of a checkpoint and the recipe that resumes it.

Every setting has a rule (`Change`): free, recorded, allow, never. Comparison goes leaf by leaf over the JSON of both,
so spelling and comments of a file do not matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from mezzotint.errors import Problem
from mezzotint.settings.base import ChangeKind, Every, Section, change_of
from mezzotint.settings.reading.nearest import advice
from mezzotint.settings.reading.paths import Setting, by_path, sections, settings
from mezzotint.settings.reading.wording import format_value
from mezzotint.settings.recipe import Recipe

DEFAULT_STEPS = 1000
"""The length of a run that sets neither `run.steps` nor `run.epochs`."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One setting with two values, as JSON: in the checkpoint's recipe (old) and in the requested one (new). change:
    its rule in this case."""

    path: str
    old: Any
    new: Any
    change: ChangeKind

    def __str__(self) -> str:
        return f"{self.path}: {format_value(self.old)} → {format_value(self.new)}"


def find_differences(old: dict[str, Any], new: Recipe) -> tuple[Difference, ...]:
    """Every setting in which a recorded recipe and a new one differ, in the order of the sections.

    old: `recipe.model_dump(mode="json", by_alias=True)` as recorded in a checkpoint. A setting that the recorded recipe
    lacks, such as one of a package, counts as its default; one that is unknown here counts as recorded. A longer run
    with a constant rate is free, because no earlier step would differ. A `run.seed` of -1 equals any drawn seed.
    """
    now = new.model_dump(mode="json", by_alias=True)
    differing = []
    for setting in settings():
        before, after = _at(old, setting), _at(now, setting)
        if before != after and not (setting.path == "run.seed" and after == -1):
            is_free = _only_extends(setting.path, old, now) or _only_moves(setting, before, after)
            change: ChangeKind = "free" if is_free else setting.change
            differing.append(Difference(setting.path, before, after, change))
    unknown = sorted(set(_leaves(old)) - set(by_path()))
    return (*differing, *(Difference(path, _walk(old, path), None, "recorded") for path in unknown))


def sort_differences(
    differing: Iterable[Difference], allow_change: Sequence[str]
) -> tuple[list[Difference], list[Problem]]:
    """Sorts differences into those that the history records and those that are refused.

    allow_change: `run.allow_change` of the new recipe: settings (`optim.lr`) or sections (`optim`). The word `data` is
    reserved for the content of the data set and allows no setting; `data.captions` does. Problems: E1510 for what
    `run.allow_change` could allow, E1511 for what it cannot.
    """
    recorded: list[Difference] = []
    problems: list[Problem] = []
    for difference in differing:
        path, values = difference.path, _describe_values(difference.old, difference.new)
        match difference.change:
            case "free":
                continue
            case "recorded":
                recorded.append(difference)
            case "allow":
                if _is_allowed(path, allow_change):
                    recorded.append(difference)
                else:
                    remedy = f"restore it, or accept a run that is not bit-exact with run.allow_change=[{path}]"
                    problems.append(Problem(path, values, remedy, "E1510"))
            case "never":
                problems.append(Problem(path, values, "restore it", "E1511"))
            case _:
                raise AssertionError(difference.change)
    return recorded, problems


def _describe_values(old: Any, new: Any) -> str:
    """`is NEW, but OLD in the checkpoint`; for lists of settings only what differs."""
    entries = [*old, *new] if isinstance(old, list) and isinstance(new, list) else []
    if entries and all(isinstance(entry, dict) for entry in entries):
        if len(old) != len(new):
            return f"has {len(new)} entries, but {len(old)} in the checkpoint"
        for number, (before, after) in enumerate(zip(old, new, strict=True)):
            changed = [key for key in {**before, **after} if before.get(key) != after.get(key)]
            old, new = (({key: one[key] for key in changed if key in one}) for one in (before, after))
            if changed:
                return f"entry {number} has {format_value(new)}, but {format_value(old)} in the checkpoint"
    return f"is {format_value(new)}, but {format_value(old)} in the checkpoint"


def data_change_problems(allow_change: Sequence[str]) -> list[Problem]:
    """The problem of a data set that is not the one that the checkpoint was trained on: E1513, unless
    `run.allow_change` contains `data`."""
    if "data" in allow_change:
        return []
    message = "images, captions or repeats are not those that the checkpoint was trained on"
    remedy = "restore them, or write run.allow_change=[data] to continue with these"
    return [Problem("data.path", message, remedy, "E1513")]


def find_unknown_allowances(allow_change: Sequence[str]) -> list[Problem]:
    """E1001 for each entry of `run.allow_change` that is not a setting, a section, `data`, `model` or `code`."""
    allowed = {"data", "model", "code", *by_path(), *sections()}
    return [
        Problem("run.allow_change", f"{name!r} is not a setting", advice(name), "E1001")
        for name in allow_change
        if name not in allowed
    ]


def _is_allowed(path: str, allow_change: Sequence[str]) -> bool:
    return any(path == name or (name not in ("data", "code") and path.startswith(name + ".")) for name in allow_change)


def _only_moves(setting: Setting, before: Any, after: Any) -> bool:
    """Whether entries of a list, such as `data.sets`, differ only in settings that may change."""
    entry = setting.shape.item(0).base if setting.shape.is_list else None
    if not (isinstance(entry, type) and issubclass(entry, Section) and isinstance(before, list)):
        return False
    free = {name for name in entry.model_fields if change_of(entry, name) == "free"}
    old, new = ([{key: one[key] for key in one.keys() - free} for one in entries] for entries in (before, after))
    return old == new


def _only_extends(path: str, old: dict[str, Any], new: dict[str, Any]) -> bool:
    if path not in ("run.steps", "run.epochs", "run.extend"):
        return False
    if any(depends_on_length(tree) for tree in (old, new)):
        return False
    before, after = _length(old), _length(new)
    return before[0] == after[0] and after[1] >= before[1] and _is_longer(old, new)


def depends_on_length(tree: dict[str, Any]) -> bool:
    """Whether a recipe's rates or its average depend on the length of the run."""
    schedules = [_section(tree, "optim.schedule"), *_value(tree, "optim.part_schedule").values()]
    for schedule in schedules:
        if schedule.get("kind", "constant") != "constant" or schedule.get("decay_steps") is not None:
            return True
        if schedule.get("warmup_ratio"):
            return True
    return _value(tree, "optim.ema.strength") is not None


def _section(tree: dict[str, Any], path: str) -> dict[str, Any]:
    section = _walk(tree, path)
    return section if isinstance(section, dict) else {}


def _length(tree: dict[str, Any]) -> tuple[str, float]:
    """The (unit, number) of a run's length."""
    epochs = _value(tree, "run.epochs")
    if epochs is not None:
        return "epochs", float(epochs)
    return "steps", float(_value(tree, "run.steps") or DEFAULT_STEPS)


def _is_longer(old: dict[str, Any], new: dict[str, Any]) -> bool:
    """Whether `run.extend` stayed, or grew in the same unit."""
    before, after = (_value(tree, "run.extend") for tree in (old, new))
    if before is None or before == after:
        return True
    if after is None:
        return False
    first, then = Every.parse(before), Every.parse(after)
    return first.unit == then.unit and then.count >= first.count


def _value(tree: dict[str, Any], path: str) -> Any:
    return _at(tree, by_path()[path])


def _at(tree: dict[str, Any], setting: Setting) -> Any:
    value = _walk(tree, setting.path)
    return setting.default if value is _ABSENT else value


_ABSENT = object()


def _walk(tree: Any, path: str) -> Any:
    for word in path.split("."):
        if not isinstance(tree, dict) or word not in tree:
            return _ABSENT
        tree = tree[word]
    return tree


def _leaves(tree: Any, prefix: str = "") -> list[str]:
    """Dotted paths of everything in a recorded recipe that is not a section; a setting that is a mapping counts as
    one."""
    paths: list[str] = []
    for key, value in tree.items():
        path = prefix + key
        if isinstance(value, dict) and path not in by_path():
            paths += _leaves(value, path + ".")
        else:
            paths.append(path)
    return paths
