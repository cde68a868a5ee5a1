"""A new run that continues after another program's steps (`run.start`): its progress and the optimizer's state."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from mezzotint.data.schedule.plan import Timeline
from mezzotint.errors import RecipeError
from mezzotint.settings.recipe import Recipe
from mezzotint.settings.resolved import Resolved
from mezzotint.training import lr, optimizer_files
from mezzotint.training.model import TrainableModel
from mezzotint.training.progress import Progress


def check(recipe: Recipe, model: TrainableModel, steps: int) -> None:
    """Checks before the first step. Raises RecipeError E1076 for a start at or after the run's end, and for an
    optimizer file that could not be written."""
    if recipe.run.start.step >= steps:
        raise RecipeError(
            f"run.start.step is {recipe.run.start.step}, and the run ends at step {steps}; raise run.steps, which "
            "includes the steps before the start",
            code="E1076",
        )
    if recipe.run.export.optimizer_file is not None:
        optimizer_files.find_format(recipe.run.export.optimizer_file).check(model.update, model.family)


def progress(recipe: Recipe, timeline: Timeline, steps: int) -> Progress:
    """The progress of a new run: at step 0, or at `run.start.step`."""
    start, step = Progress(last_step=steps), recipe.run.start.step
    if step:
        start.step = start.first_step = step
        start.epoch = timeline.locate(step - 1)[0]
        start.epoch_ends = timeline.locate(step)[0] > start.epoch
        start.samples = step * recipe.data.batch_size * recipe.optim.accumulation
    return start


def restore(recipe: Recipe, model: TrainableModel) -> Iterator[str]:
    """Restores the optimizer's state of `run.start.optimizer`. Yields sentences about what was restored."""
    start = recipe.run.start
    if start.step:
        yield f"continuing from foreign weights after step {start.step}: rates, data and random draws continue"
    if start.optimizer is not None:
        yield from optimizer_files.reader_of(start.optimizer).restore(start.optimizer, model.update, model.family)


def write_optimizer(folder: Path, recipe: Recipe, model: TrainableModel, resolved: Resolved) -> None:
    """With `run.export.optimizer_file`, writes that file into a run folder. Raises RecipeError E1076, StorageError."""
    name, schedule = recipe.run.export.optimizer_file, recipe.optim.schedule
    if name is None:
        return
    rates = None
    if schedule.kind != "constant" or schedule.warmup_steps or schedule.warmup_ratio:
        peak = recipe.optim.lr * resolved.rate_factor
        rates = [peak * lr.factor(schedule, step, resolved.steps) for step in range(resolved.steps)]
    optimizer_files.find_format(name).write(folder, model.update, model.family, rates)
