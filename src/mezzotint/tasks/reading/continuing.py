"""A run folder in place of a recipe or a model: the run is resumed, or forked. Does not import torch.

`mezzotint train runs/fox` resumes with the recipe in that folder; with another `run.name` or `run.folder` it starts a
new run there, from the newest checkpoint of the old one (a fork). A recipe whose `model.path` is a run folder, or, with
a stamp, the newest run of a name, resumes that run, in its folder and with the model it started from.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from mezzotint.errors import CheckpointError
from mezzotint.run_folder import refuse_older_run
from mezzotint.settings.base import with_values
from mezzotint.settings.reading.read import COMMAND_LINE, Reading, read, resolve_path
from mezzotint.settings.recipe import LIVE, Recipe, live_values, with_live
from mezzotint.tasks.reading import stamps


def read_source(source: str, overrides: Sequence[str]) -> Reading:
    """Reads a recipe from a file, by its name, or from a run folder. Raises as `read`, and CheckpointError E1521 for a
    run of an older version."""
    run = Path(source).expanduser()
    if not is_run(run):
        return read(source, overrides)
    refuse_older_run(run)
    return _as_fork_if_moved(read(run / "recipe.yaml", overrides), run)


def is_run(path: Path) -> bool:
    """Whether a path is the folder of a run."""
    return (path / "recipe.yaml").is_file() and (path / "checkpoints").is_dir()


def linked_folders(reading: Reading, recipe: Recipe) -> tuple[Path, ...]:
    """`run.linked_folders`, unless it comes from the recipe.yaml of a run folder: whoever made the links may have made
    that file."""
    is_of_run = reading.path is not None and is_run(reading.path.parent)
    is_typed = reading.origin.get("run.linked_folders") == COMMAND_LINE
    return recipe.run.linked_folders if is_typed or not is_of_run else ()


def folder_of(reading: Reading, recipe: Recipe, base: Path = Path()) -> Path:
    """The run folder: as written, with its stamp filled in; the folder of a recipe inside a run folder; or runs/NAME.
    base: the folder that a relative path starts from, by default the current one. Raises CheckpointError E1507 for
    `run.resume: latest` if no stamp has a run."""
    if (
        reading.fork is None
        and reading.path is not None
        and reading.path.name == "recipe.yaml"
        and (reading.path.parent / "checkpoints").is_dir()
    ):
        return reading.path.parent
    folder = base / (recipe.run.folder or Path("runs") / recipe.run.name).expanduser()
    return stamps.choose_folder(folder, recipe.run.resume)


def _as_fork_if_moved(reading: Reading, run: Path) -> Reading:
    """The reading of a run's recipe, as a fork of that run if the command line names another folder."""
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
    is_started = any(folder.glob("checkpoints/step-*/manifest.json"))
    values = {"run.folder": folder, "run.resume": "auto" if is_started else str(run.absolute())}
    start = "its newest checkpoint"
    if "run.resume" in typed:  # such as an earlier checkpoint of that run
        values, start = {"run.folder": folder}, settings.resume
    recipe = with_values(reading.recipe, values)
    note = f"{folder} is a fork of {run}: it starts from {start}, and {run} is not changed"
    return replace(reading, recipe=recipe, fork=run, notes=reading.notes if is_started else (*reading.notes, note))


def with_run(reading: Reading) -> Reading:
    """The reading with every path resolved that refers to a run or to an export of a run.

    Raises CheckpointError E1507 if a stamp matches no run, RecipeError for a run whose recipe cannot be read.
    """
    reading = _resolve_ema_start(reading)
    model = reading.recipe.model
    base = reading.path.parent if reading.path else None
    path = resolve_path(model.path, base)
    if stamps.is_open(model.path):
        newest = stamps.newest_run(model.path.expanduser())
        if newest is None:
            raise stamps.no_run_to_resume(model.path)
        return _of_run(reading, newest, "latest")
    if is_run(path):
        return _of_run(reading, path, "auto")
    return reading


def _of_run(reading: Reading, run: Path, resume: str) -> Reading:
    """Resumes a run: its folder, and the model that it started from. The run's recipe provides the steps before a
    foreign start."""
    refuse_older_run(run)
    recipe = read(run / "recipe.yaml").recipe
    first_model = recipe.model
    resumed = _with_model(
        reading, first_model.path, first_model.config, f"resuming {run}; its model is {first_model.path}"
    )
    values = {"run.folder": run, "run.resume": resume, "run.start": recipe.run.start, "model.over": first_model.over}
    values["model.vae"] = reading.recipe.model.vae or first_model.vae
    resumed = replace(resumed, recipe=with_values(resumed.recipe, values))
    return _remove_live(_with_schedules(resumed, recipe), recipe)


def _remove_live(reading: Reading, first_recipe: Recipe) -> Reading:
    """The reading with the live settings that the run started with: later values of the file take effect at the next
    epoch."""
    if reading.recipe.run.live.path is None or first_recipe.run.live.path is None:
        return reading
    written = {path for path in LIVE if " in " in reading.origin.get(path, "")}
    values = {path: value for path, value in live_values(first_recipe).items() if path in written}
    return replace(reading, recipe=with_live(reading.recipe, values))


def _with_schedules(reading: Reading, first_recipe: Recipe) -> Reading:
    """Without schedules in a foreign command line, the parts keep those that the run started with: the dialect's
    defaults may have changed since."""
    optim = reading.recipe.optim
    is_default = reading.origin.get("optim.schedule.kind", "").startswith("default of")
    mine = {
        part: schedule
        for part, schedule in first_recipe.optim.part_schedule.items()
        if part in reading.recipe.model.train
    }
    if optim.part_schedule or not is_default or optim.schedule != first_recipe.optim.schedule:
        return reading
    return replace(reading, recipe=with_values(reading.recipe, {"optim.part_schedule": mine}))


def _resolve_ema_start(reading: Reading) -> Reading:
    """Resolves `optim.ema.start` with a stamp to the newest exported EMA of a run of that name."""
    optim = reading.recipe.optim
    start = optim.ema.start
    if start is None or not stamps.is_open(start):
        return reading
    exports = [path for run in reversed(stamps.list_runs(start.expanduser())) for path in _exported_emas(run)]
    if not exports:
        raise CheckpointError(
            f"{stamps.with_star(start)}: no run of this name has exported averaged weights; name a model instead",
            code="E1507",
        )
    recipe = with_values(reading.recipe, {"optim.ema.start": exports[0]})
    return replace(reading, recipe=recipe, notes=(*reading.notes, f"the EMA starts from {exports[0]}"))


def _exported_emas(run: Path) -> list[Path]:
    """The exported EMA folders of a run, the latest first, by the numbers in their names."""
    folders = [path for path in (run / "exports").glob("*[-_]ema") if (path / "model_index.json").is_file()]
    return sorted(
        folders, key=lambda path: [int(number) for number in re.findall(r"\d+", path.name)][-2:], reverse=True
    )


def _with_model(reading: Reading, path: Path, config: Path | None, note: str) -> Reading:
    recipe = with_values(reading.recipe, {"model.path": path, "model.config": config})
    return replace(reading, recipe=recipe, notes=(*reading.notes, note))
