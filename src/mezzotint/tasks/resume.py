"""Where a run begins: which checkpoint it goes on from, and whether recipe, data and model still are what they were."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mezzotint import durable
from mezzotint.errors import CheckpointError, Problem, RecipeError
from mezzotint.recipe.read import Reading
from mezzotint.recipe.recipe import Recipe
from mezzotint.recipe.resume_rules import differences, judge
from mezzotint.run_folder import RunFolder
from mezzotint.training import state


@dataclass(frozen=True, slots=True)
class Start:
    """checkpoint: what the run goes on from, or None for a new one. said: sentences for the reader."""

    checkpoint: Path | None
    said: tuple[str, ...] = ()

    @property
    def recipe(self) -> dict[str, Any]:
        """The recipe that the checkpoint was trained with, as it keeps it."""
        assert self.checkpoint is not None
        found: dict[str, Any] = json.loads((self.checkpoint / "state.json").read_text("utf-8"))["recipe"]
        return found

    @property
    def seed(self) -> int:
        """The seed that the checkpoint was trained with."""
        return int(self.recipe["run"]["seed"])


def choose(resume: str, folder: RunFolder, command: str) -> Start:
    """Decides by `run.resume`. command: the line that goes on, for messages.

    Raises CheckpointError: E1505 `never` where checkpoints are, E1506 all are damaged, E1507 nothing where one was
    asked for.
    """
    match resume:
        case "never":
            there = state.listed(folder.checkpoints)
            if there:
                raise CheckpointError(
                    f"{folder.path}: run.resume is never, but here {'are' if len(there) > 1 else 'is'} "
                    f"{_names(there)}; go on "
                    f"with `{command} run.resume=auto`, "
                    "or choose another folder (run.name, or run.folder where that is set)",
                    code="E1505",
                )
            return Start(None)
        case "auto":
            return _newest(folder.checkpoints, insist=False)
        case "latest":
            return _newest(folder.checkpoints, insist=True)
        case _:
            return _at(Path(resume).expanduser(), folder)


def _newest(checkpoints: Path, *, insist: bool) -> Start:
    found = state.newest(checkpoints)
    said = tuple(f"passed over {path.name}: {reason}" for path, reason in found.passed_over)
    if found.path is not None:
        return Start(found.path, said)
    if found.passed_over:
        listing = "; ".join(f"{path.name}: {reason}" for path, reason in found.passed_over)
        raise CheckpointError(
            f"{checkpoints}: no checkpoint can be trusted ({listing}); restore one from a "
            "backup, or start anew with another run.name",
            code="E1506",
        )
    if insist:
        raise CheckpointError(
            f"{checkpoints}: run.resume is latest, but no checkpoint is here; write run.resume=auto to start",
            code="E1507",
        )
    return Start(None)


def _at(path: Path, folder: RunFolder) -> Start:
    if not path.is_absolute() and not path.exists() and (folder.checkpoints / path).exists():
        path = folder.checkpoints / path
    if (path / "checkpoints").is_dir():
        return _newest(path / "checkpoints", insist=True)
    if not (path / "manifest.json").is_file():
        there = state.listed(folder.checkpoints) or state.listed(path.parent)
        listing = f"here are {_names(there)}" if there else f"none is in {folder.checkpoints} either"
        raise CheckpointError(f"{path}: is no checkpoint and no run folder; {listing}", code="E1507")
    return Start(path)


def _names(paths: list[Path]) -> str:
    return ", ".join(path.name for path in paths[:5]) + (", …" if len(paths) > 5 else "")


def set_aside_later(folder: RunFolder, step: int) -> list[str]:
    """Renames checkpoints beyond the step that is gone back to, so that they are not taken for the run's own; returns
    their new names."""
    moved = []
    for path in state.listed(folder.checkpoints):
        if state.step_of(path) > step:
            number = 1
            while (target := path.with_name(f"set-aside-{number}-{path.name}")).exists():
                number += 1
            path.rename(target)
            moved.append(target.name)
    if moved:  # before anything is taken back that belongs to them
        durable.sync_folder(folder.checkpoints)
    return moved


@dataclass(frozen=True, slots=True)
class Identity:
    """What a run is made of besides its recipe: data content, frozen weights, and where it computes."""

    data: str
    parts: Mapping[str, str]
    world_size: int
    device: str
    torch: str
    threads: int

    def values(self) -> dict[str, Any]:
        """As JSON, for the checkpoint."""
        return {
            "data": self.data,
            "parts": dict(self.parts),
            "world_size": self.world_size,
            "device": self.device,
            "torch": self.torch,
            "threads": self.threads,
        }


def compare(restored: state.Restored, reading: Reading, recipe: Recipe, identity: Identity) -> list[str]:
    """Holds a checkpoint against what is asked for now. Returns sentences for the history: each means "not bit-exact
    from here". reading: where the recipe's settings were written.

    Raises RecipeError with every refused change at once (E1510 and E1511 settings, E1513 data, E1514 model).
    """
    values = restored.values
    found = differences(values["recipe"], recipe)
    recorded, problems = judge(found, recipe.run.allow_change)
    sentences = [f"{d.path}: {d.old} → {d.new}" for d in recorded]
    before = values["identity"]
    allowed = set(recipe.run.allow_change)
    if before["data"] != identity.data:
        sentences.append("the data set's content has changed")
        if "data" not in allowed:
            problems.append(
                Problem(
                    "data.path",
                    "pictures, captions or repeats are not those that the checkpoint was trained on",
                    "put them back, or write run.allow_change=[data] to go on with these",
                    "E1513",
                )
            )
    drawn_anew = recipe.model.weights == "random" and any(one.path == "run.seed" for one in found)
    for part, old in before["parts"].items() if not drawn_anew else ():
        new = identity.parts.get(part)
        if new is not None and new != old:
            sentences.append(f"the weights of the frozen {part} have changed")
            if "model" not in allowed:
                problems.append(
                    Problem(
                        "model.path",
                        f"the frozen {part} is not the one that the checkpoint was trained with",
                        "put it back, or write run.allow_change=[model] to go on with this one",
                        "E1514",
                    )
                )
    for name in ("world_size", "device", "torch", "threads"):
        if before[name] != identity.values()[name]:
            sentences.append(f"{name.replace('_', ' ')}: {before[name]} → {identity.values()[name]}")
    if problems:
        raise RecipeError(
            f"{restored.path.name} cannot be continued with this recipe: it", problems=reading.placed(problems)
        )
    return sentences
