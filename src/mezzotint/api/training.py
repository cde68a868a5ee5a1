"""`mezzotint.train` and `mezzotint.open_trainer`: the command `train` from Python."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from torch import nn

from mezzotint.api.datasets import ImageDataset, with_dataset
from mezzotint.api.recipes import LoadedRecipe as LoadedRecipe
from mezzotint.api.recipes import as_loaded
from mezzotint.api.runs import Run
from mezzotint.errors import RecipeError, Stopped
from mezzotint.settings.reading.read import resolve_paths
from mezzotint.settings.recipe import Recipe
from mezzotint.stages import StepBatches, StepReport
from mezzotint.tasks.reading.continuing import folder_of
from mezzotint.tasks.train.job import Job
from mezzotint.tasks.train.train import prepare_from_valid_checkpoint, start_run
from mezzotint.tasks.train.train import train as train_run
from mezzotint.training.callbacks.base import Callback
from mezzotint.training.callbacks.progress_line import is_notebook
from mezzotint.training.user_code import LossFunction, UserCode


def train(
    recipe: LoadedRecipe | Recipe,
    *,
    callbacks: Sequence[Callback] = (),
    dataset: ImageDataset | None = None,
    loss: LossFunction | None = None,
) -> Run:
    """Trains to the end, or resumes from the run folder, as `mezzotint train` does, with the same run folder,
    checkpoints and guarantees.

    callbacks: called after steps, see `mezzotint.Callback`; each of a different class. dataset: replaces
    `data.path`, see `mezzotint.ImageDataset`. loss: (predicted, target, batch) → the loss of each sample, (B,);
    replaces `objective.loss`; see `mezzotint.LossBatch`. Callbacks and loss are recorded with the run: resuming without
    them is refused, and with changed ones unless `run.allow_change` has `code`.

    SIGINT (Ctrl-C, interrupting a notebook's kernel) saves at the end of the step. In a notebook the call then returns
    the run; elsewhere KeyboardInterrupt is raised. Signal handlers are set in the main thread only, and restored.

    Raises MezzotintError: RecipeError for the settings, DatasetError, WeightsError, CheckpointError, StorageError,
    Diverged, OutOfMemory, PeerLost; Stopped for another signal.
    """
    loaded, code = as_loaded(recipe), _user_code(callbacks, loss)
    with with_dataset(loaded, dataset) as reading:
        with _interrupt_as_in_python():
            train_run(reading, code=code, owns_process=False)
        folder = folder_of(reading, resolve_paths(reading))
        if not (folder / "recipe.yaml").is_file():
            raise KeyboardInterrupt("interrupted before training began")
        return Run(folder)


class OpenTrainer:
    """A run that is ready for its next step, for a loop of your own. See `open_trainer`.

    batches: of the remaining steps. modules: the networks by part (`denoiser`, `text_encoder`,
    …), without cached parts, which are not loaded.
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self.batches: Iterator[StepBatches] = self._iterate_steps()
        self.modules: dict[str, nn.Module] = dict(job.model.family.parts())

    @property
    def step(self) -> int:
        """Number of completed steps."""
        return self._job.trainer.progress.step

    @property
    def run(self) -> Run:
        """The run folder."""
        return Run(self._job.start.folder.path)

    def train_step(self, step: StepBatches) -> StepReport:
        """Runs a step: forward and backward passes, the update, and actions that are due after it, such as checkpoints
        and previews. Waits for the step's results. Raises as `train`."""
        return self._job.trainer.run_step_and_report(step)

    def save(self) -> None:
        """Writes a checkpoint of the last step, if it has none yet, and waits for it."""
        self._job.trainer.save_now()

    def export(self) -> list[Path]:
        """Writes the trained model or adapter, and its averaged weights, into the run folder; returns the paths."""
        return self._job.host.write_exports(self._job.trainer)

    def _iterate_steps(self) -> Iterator[StepBatches]:
        trainer = self._job.trainer
        for step in trainer.batches:
            yield step
            if trainer.is_over:
                return


@contextmanager
def open_trainer(
    recipe: LoadedRecipe | Recipe,
    *,
    callbacks: Sequence[Callback] = (),
    dataset: ImageDataset | None = None,
    loss: LossFunction | None = None,
) -> Iterator[OpenTrainer]:
    """Opens a run for a loop of your own:

        with mezzotint.open_trainer(recipe) as trainer:
            for step in trainer.batches:
                report = trainer.train_step(step)
            trainer.export()

    Arguments, signals and errors as of `train`. The run resumes from its newest checkpoint. Leaving the block without
    an error writes a checkpoint of the last step, if there is none; models are exported by `export` only. A signal
    ends `batches`.
    """
    code = _user_code(callbacks, loss)
    with (
        with_dataset(as_loaded(recipe), dataset) as reading,
        _interrupt_as_in_python(),
        start_run(reading, code=code, owns_process=False) as start,
        closing(prepare_from_valid_checkpoint(start)) as job,
    ):
        start.interrupts.running = True
        with job.trainer.begin_run():
            yield OpenTrainer(job)
            job.trainer.save_now()
        for callback in job.trainer.callbacks:
            callback.close()
        if job.trainer.stopped:
            job.stop()
        if start.runtime.is_first and job.trainer.progress.is_done:
            start.folder.record("finished", step=job.trainer.progress.step)


@contextmanager
def _interrupt_as_in_python() -> Iterator[None]:
    """Converts Stopped by SIGINT to KeyboardInterrupt; in a notebook it is suppressed."""
    try:
        yield
    except Stopped as error:
        if error.signal_number != signal.SIGINT:
            raise
        if not is_notebook():
            raise KeyboardInterrupt(error.message) from error


def _user_code(callbacks: Sequence[Callback], loss: LossFunction | None) -> UserCode:
    for one in callbacks:
        if not isinstance(one, Callback):
            raise RecipeError(f"callbacks has {one!r}, which is not a mezzotint.Callback", code="E1095")
    kinds = [type(one).__name__ for one in callbacks]
    if len({*kinds}) < len(kinds):
        repeated = next(kind for kind in kinds if kinds.count(kind) > 1)
        raise RecipeError(
            f"callbacks has several of class {repeated}; a checkpoint identifies callbacks by their class: subclass "
            "it for one of them",
            code="E1095",
        )
    if loss is not None and not callable(loss):
        raise RecipeError(f"loss is {loss!r}, which is not callable", code="E1095")
    return UserCode(tuple(callbacks), loss)
