"""One attempt at a run: its start, its loop, and what it writes at its end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from mezzotint import errors
from mezzotint.errors import Stopped, StorageError
from mezzotint.reports.overfit_report import write_overfit_report
from mezzotint.reports.run_report import write_run_report
from mezzotint.run_folder import RunFolder
from mezzotint.runtimes.base import Launch, Runtime
from mezzotint.settings.reading.read import Reading
from mezzotint.settings.recipe import Recipe
from mezzotint.settings.resolved import Resolved
from mezzotint.tasks import assemble
from mezzotint.tasks.train import announce, held_out
from mezzotint.tasks.train.host import TrainHost
from mezzotint.training.interrupts import Interrupts
from mezzotint.training.loop import Trainer
from mezzotint.training.model import TrainableModel
from mezzotint.training.user_code import NO_CODE, UserCode
from mezzotint.weights.folder import publishing


@dataclass(frozen=True, slots=True)
class RunStart:
    """What every attempt at a run starts from. recipe: located. arguments: those after the command. code: callbacks and
    loss function of the user."""

    reading: Reading
    recipe: Recipe
    launch: Launch
    runtime: Runtime
    folder: RunFolder
    interrupts: Interrupts
    arguments: tuple[str, ...] = ()
    code: UserCode = NO_CODE

    @property
    def command(self) -> str:
        """The command line that resumes the run."""
        if self.code.describe_sources():
            return "mezzotint.train(recipe, …) in Python, with the same callbacks and loss function"
        return announce.command(self.folder, self.launch, self.reading.packages)


@dataclass(frozen=True, slots=True)
class Job:
    """One attempt at a run, ready for its next step. `close` ends workers and closes files."""

    start: RunStart
    resolved: Resolved
    dataset: assemble.Dataset
    caches: assemble.Caches
    model: TrainableModel
    host: TrainHost
    trainer: Trainer
    say: Callable[[str], None]
    close: Callable[[], None]

    def train(self) -> None:
        """Runs the loop. Raises Stopped when a signal ended it."""
        self.start.interrupts.running = True
        self.host.export_if_owed(self.trainer)
        self.trainer.run()
        for callback in self.trainer.callbacks:
            callback.close()
        if self.trainer.stopped:
            self.stop()

    def stop(self) -> None:
        """Ends a run after a signal: the export that `run.export.when_stopped` asks for, the report. Raises Stopped."""
        if self.resolved.recipe.run.export.when_stopped:
            for path in self.host.write_exports(self.trainer) if self.start.runtime.is_first else ():
                self.say(f"the model at this step: {path}")
        number = self.start.runtime.agree(self.start.interrupts.stop_signal) & 0x1F
        self._note_stop(number)
        self.start.runtime.barrier()  # a process that leaves early makes the launcher end the others
        raise Stopped(f"stopped at step {self.trainer.progress.step}, saved", signal_number=number)

    def _note_stop(self, signal_number: int) -> None:
        """Writes the report and a line of the history. Only these may fail: the checkpoint is already written."""
        if not self.start.runtime.is_first:
            return
        try:
            self.start.folder.record("stopped", step=self.trainer.progress.step, signal=signal_number)
            report = write_run_report(self.start.folder)
            self.say(f"the report so far: {', '.join(str(path) for path in report)}")
        except (StorageError, errors.CheckpointError) as error:
            self.say(f"warning: the report could not be written: {error.message}")

    def finish(self) -> None:
        """Writes the export and the report, again if an earlier attempt was killed here."""
        exports = self.host.write_exports(self.trainer)
        if self.start.runtime.is_first:
            if self.resolved.recipe.run.export.folder is not None:
                exports.append(publishing.publish(exports[-1], self.resolved.recipe.run.export.folder))
            report: tuple[Path, ...] = ()
            try:
                report = write_run_report(self.start.folder) + self._overfit_report()
            except errors.CheckpointError as error:  # a file that it reads was replaced by something else
                self.say(f"warning: the report could not be written: {error.message}")
            self.start.folder.record("finished", step=self.trainer.progress.step)
            for line in announce.closing_lines(self.start.folder, self.resolved.recipe, exports, report):
                self.say(line)
        self.start.runtime.barrier()

    def _overfit_report(self) -> tuple[Path, ...]:
        """Written where images are held out."""
        if not held_out.is_measured(self.resolved.recipe, self.dataset):
            return ()
        existing = tuple(self.start.folder.logs / f"overfit.{ending}" for ending in ("txt", "json", "png"))
        ends = {event["step"] for event in self.start.folder.events() if event["event"] == "finished"}
        if self.trainer.progress.step in ends and all(path.exists() for path in existing):
            return existing  # a finished run is started again
        return write_overfit_report(self.start.folder)
