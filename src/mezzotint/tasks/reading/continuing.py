"""A run of ours where a recipe or a model is expected: it is gone on with, or forked. No torch here.

`mezzotint train runs/fox` goes on with the recipe in that folder; with another `run.name` or `run.folder` it begins a
new run there, from the newest checkpoint of the old one (a fork). A recipe whose `model.path` names a run's folder, or,
with a stamp, the newest run of a name, goes on with that run, in its own folder and from the model it began with.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from mezzotint.errors import CheckpointError
from mezzotint.run_folder import refuse_older_run
from mezzotint.settings.base import with_values
from mezzotint.settings.reading.read import COMMAND_LINE, Reading, locate, read
from mezzotint.settings.recipe import LIVE, Recipe, live_values, with_live
from mezzotint.tasks.reading import stamps


def read_source(source: str, overrides: Sequence[str]) -> Reading:
    """Reads a recipe, of a file, by its name, or of a run folder. Raises as `read`, and
    CheckpointError E1521 for a run of an older version."""
    run = Path(source).expanduser()
    if not is_run(run):
        return read(source, overrides)
    refuse_older_run(run)
    return _forked(read(run / "recipe.yaml", overrides), run)


def is_run(path: Path) -> bool:
    """Whether a path is the folder of a run."""
    return (path / "recipe.yaml").is_file() and (path / "checkpoints").is_dir()


def folder_of(reading: Reading, recipe: Recipe, base: Path = Path()) -> Path:
    """The run folder: as written, a stamp in it settled; beside a recipe that lies in a run folder; or runs/NAME.
    base: the folder that a relative path starts from, by default the current one.
    Raises CheckpointError E1507 for `run.resume: latest` where no stamp has a run."""
    if (
        reading.fork is None
        and reading.path is not None
        and reading.path.name == "recipe.yaml"
        and (reading.path.parent / "checkpoints").is_dir()
    ):
        return reading.path.parent
    folder = base / (recipe.run.folder or Path("runs") / recipe.run.name).expanduser()
    return stamps.settled(folder, recipe.run.resume)


def _forked(reading: Reading, run: Path) -> Reading:
    """A reading of a run's own recipe as it is, or, where the command line names another folder, as a fork of that
    run."""
    typed = {path for path, where in reading.origin.items() if where == COMMAND_LINE}
    settings = reading.recipe.run
    if "run.folder" in typed and settings.folder is not None:
        folder = settings.folder.expanduser()
    elif "run.name" in typed:
        folder = run.with_name(settings.name)
    else:
        return reading
    if folder.absolute().resolve() == run.absolute().resolve():
        return reading
    begun = any(folder.glob("checkpoints/step-*/manifest.json"))
    values = {"run.folder": folder, "run.resume": "auto" if begun else str(run.absolute())}
    start = "its newest checkpoint"
    if "run.resume" in typed:  # such as an earlier checkpoint of that run
        values, start = {"run.folder": folder}, settings.resume
    recipe = with_values(reading.recipe, values)
    note = f"{folder} is a fork of {run}: it begins from {start}, and {run} stays as it is"
    return replace(reading, recipe=recipe, fork=run, notes=reading.notes if begun else (*reading.notes, note))


def with_run(reading: Reading) -> Reading:
    """The reading with everything settled that stands for a run or for what a run has left.

    Raises CheckpointError E1507 where a stamp stands for no run, RecipeError for a run whose recipe cannot be read.
    """
    reading = _average(reading)
    model = reading.recipe.model
    beside = reading.path.parent if reading.path else None
    path = locate(model.path, beside)
    if stamps.is_open(model.path):
        newest = stamps.newest(model.path.expanduser())
        if newest is None:
            raise stamps.nothing_to_go_on_with(model.path)
        return _of_run(reading, newest, "latest")
    if is_run(path):
        return _of_run(reading, path, "auto")
    return reading


def _of_run(reading: Reading, run: Path, resume: str) -> Reading:
    """Goes on with a run: its folder, and the model that it began with. What it knows itself need not be said: after
    how many steps a foreign line takes it up."""
    refuse_older_run(run)
    recipe = read(run / "recipe.yaml").recipe
    began = recipe.model
    again = _with_model(reading, began.path, began.config, f"{run} is gone on with; its model is {began.path}")
    values = {"run.folder": run, "run.resume": resume, "run.start": recipe.run.start, "model.over": began.over}
    values["model.vae"] = reading.recipe.model.vae or began.vae
    again = replace(again, recipe=with_values(again.recipe, values))
    return _without_live(_with_schedules(again, recipe), recipe)


def _without_live(reading: Reading, began: Recipe) -> Reading:
    """What a file says that is read anew at each epoch acts from the next one on; for the rest the run is the one that
    began, whatever the file has come to say since."""
    if reading.recipe.run.live.path is None or began.run.live.path is None:
        return reading
    written = {path for path in LIVE if " in " in reading.origin.get(path, "")}
    values = {path: value for path, value in live_values(began).items() if path in written}
    return replace(reading, recipe=with_live(reading.recipe, values))


def _with_schedules(reading: Reading, began: Recipe) -> Reading:
    """A foreign line that says nothing of schedules leaves the parts those that its run began with: what the
    dialect takes for a part by default may have changed since."""
    optim = reading.recipe.optim
    is_default = reading.origin.get("optim.schedule.kind", "").startswith("default of")
    mine = {part: one for part, one in began.optim.part_schedule.items() if part in reading.recipe.model.train}
    if optim.part_schedule or not is_default or optim.schedule != began.optim.schedule:
        return reading
    return replace(reading, recipe=with_values(reading.recipe, {"optim.part_schedule": mine}))


def _average(reading: Reading) -> Reading:
    """`optim.ema.start` with a stamp: the newest average that a run of that name has exported."""
    optim = reading.recipe.optim
    start = optim.ema.start
    if start is None or not stamps.is_open(start):
        return reading
    exports = [path for run in reversed(stamps.stamped(start.expanduser())) for path in _averages(run)]
    if not exports:
        raise CheckpointError(
            f"{stamps.starred(start)}: no run of this name has exported an average; name a model instead",
            code="E1507",
        )
    recipe = with_values(reading.recipe, {"optim.ema.start": exports[0]})
    return replace(reading, recipe=recipe, notes=(*reading.notes, f"the average starts from {exports[0]}"))


def _averages(run: Path) -> list[Path]:
    """The exported averages of a run, the furthest first, by the numbers in their names."""
    there = [path for path in (run / "exports").glob("*[-_]ema") if (path / "model_index.json").is_file()]
    return sorted(there, key=lambda path: [int(number) for number in re.findall(r"\d+", path.name)][-2:], reverse=True)


def _with_model(reading: Reading, path: Path, config: Path | None, note: str) -> Reading:
    recipe = with_values(reading.recipe, {"model.path": path, "model.config": config})
    return replace(reading, recipe=recipe, notes=(*reading.notes, note))
