"""A recipe whose model is a run of ours: `model.path` names its folder, or, with a stamp, the newest run of a name.
That run is gone on with, in its own folder and from the model it began with. No torch here.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from mezzotint.errors import CheckpointError
from mezzotint.recipe.live import LIVE, live_values, with_live
from mezzotint.recipe.read import Reading, locate, read
from mezzotint.recipe.recipe import Recipe
from mezzotint.tasks import _stamps

_CONVERTED = Path("ckpt_cache")
"""Where EveryDream2 keeps models that it has converted, by name."""


def found(reading: Reading) -> Reading:
    """The reading with everything settled that stands for a run or for what a run has left.

    Raises CheckpointError E1507 where a stamp stands for no run, RecipeError for a run whose recipe cannot be read.
    """
    reading = _average(reading)
    model = reading.recipe.model
    beside = reading.path.parent if reading.path else None
    path = locate(model.path, beside)
    if _stamps.is_open(model.path):
        newest = _stamps.newest(model.path.expanduser())
        if newest is None:
            raise _stamps.nothing_to_go_on_with(model.path)
        return _of_run(reading, newest, "latest")
    if (path / "recipe.yaml").is_file() and (path / "checkpoints").is_dir():
        return _of_run(reading, path, "auto")
    converted = Path(_CONVERTED, model.path.name)
    if not path.exists() and converted.is_dir():
        return _with_model(reading, converted, None, f"{model.path} is {converted}")
    return reading


def _of_run(reading: Reading, run: Path, resume: str) -> Reading:
    """Goes on with a run: its folder, and the model that it began with. What it knows itself need not be said: after
    how many steps a foreign line takes it up."""
    recipe = read(run / "recipe.yaml").recipe
    began = recipe.model
    made = _with_model(reading, began.path, began.config, f"{run} is gone on with; its model is {began.path}")
    update = {"folder": run, "resume": resume, "start": recipe.run.start}
    settings = made.recipe.run.model_copy(update=update)
    model = made.recipe.model.model_copy(update={"over": began.over})
    made = replace(made, recipe=made.recipe.model_copy(update={"model": model, "run": settings}))
    return _without_live(_with_schedules(made, recipe), recipe)


def _without_live(reading: Reading, began: Recipe) -> Reading:
    """What a file says that is read anew at each epoch acts from the next one on; for the rest the run is the one that
    began, whatever the file has come to say since."""
    if reading.recipe.run.live.path is None or began.run.live.path is None:
        return reading
    said = {path for path in LIVE if " in " in reading.origin.get(path, "")}
    values = {path: value for path, value in live_values(began).items() if path in said}
    return replace(reading, recipe=with_live(reading.recipe, values))


def _with_schedules(reading: Reading, began: Recipe) -> Reading:
    """A foreign line that says nothing of schedules leaves the parts those that its run began with: the default of
    EveryDream2's text encoder has been another one."""
    optim = reading.recipe.optim
    is_default = reading.origin.get("optim.schedule.kind", "").startswith("default of")
    mine = {part: one for part, one in began.optim.part_schedule.items() if part in reading.recipe.model.train}
    if optim.part_schedule or not is_default or optim.schedule != began.optim.schedule:
        return reading
    optim = optim.model_copy(update={"part_schedule": mine})
    return replace(reading, recipe=reading.recipe.model_copy(update={"optim": optim}))


def _average(reading: Reading) -> Reading:
    """`optim.ema.start` with a stamp: the newest average that a run of that name has exported."""
    optim = reading.recipe.optim
    start = optim.ema.start
    if start is None or not _stamps.is_open(start):
        return reading
    exports = [path for run in reversed(_stamps.stamped(start.expanduser())) for path in _averages(run)]
    if not exports:
        raise CheckpointError(
            f"{_stamps.starred(start)}: no run of this name has exported an average; name a model instead",
            code="E1507",
        )
    ema = optim.ema.model_copy(update={"start": exports[0]})
    recipe = reading.recipe.model_copy(update={"optim": optim.model_copy(update={"ema": ema})})
    return replace(reading, recipe=recipe, notes=(*reading.notes, f"the average starts from {exports[0]}"))


def _averages(run: Path) -> list[Path]:
    """The exported averages of a run, the furthest first, by the numbers in their names."""
    there = [path for path in (run / "exports").glob("*[-_]ema") if (path / "model_index.json").is_file()]
    return sorted(there, key=lambda path: [int(number) for number in re.findall(r"\d+", path.name)][-2:], reverse=True)


def _with_model(reading: Reading, path: Path, config: Path | None, note: str) -> Reading:
    model = reading.recipe.model.model_copy(update={"path": path, "config": config})
    recipe = reading.recipe.model_copy(update={"model": model})
    return replace(reading, recipe=recipe, notes=(*reading.notes, note))
