"""The verb `train`: recipe → data → model → loop → export. Starting the same command again goes on where it stopped."""

from __future__ import annotations

import io
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mezzotint import durable
from mezzotint.data.loading.loader import Loader
from mezzotint.data.loading.prefetch import Prefetched
from mezzotint.data.schedule import schedule_file
from mezzotint.errors import RecipeError, Stopped, StorageError
from mezzotint.recipe.reading.read import Reading, located
from mezzotint.recipe.recipe import Recipe
from mezzotint.recipe.resume_rules import unknown_allowances
from mezzotint.reports.run_report import run_report
from mezzotint.run_folder import RunFolder
from mezzotint.runtimes.base import Launch, Runtime, open_runtime
from mezzotint.stages import StepReport
from mezzotint.tasks import assemble, places
from mezzotint.tasks.cache import cache, text_files
from mezzotint.tasks.long_captions import LostWords, lost_words
from mezzotint.tasks.reading import stamps
from mezzotint.tasks.reading.arguments import parse
from mezzotint.tasks.train import (
    _callbacks,
    _foreign_start,
    _live_settings,
    _run_files,
    _settling,
    announce,
    ema_start,
    exports,
    resume,
)
from mezzotint.tasks.train._export_name import name_of
from mezzotint.tasks.train._failures import named_failures
from mezzotint.tasks.train._live_settings import LiveSettings
from mezzotint.tasks.train.environment import environment
from mezzotint.training import sharding, shared_state, state
from mezzotint.training.callbacks import metrics_log, wandb_log
from mezzotint.training.callbacks.base import Exporter, Saver
from mezzotint.training.callbacks.previews import PreviewsElsewhere
from mezzotint.training.callbacks.progress_line import LiveLine
from mezzotint.training.interrupts import Interrupts
from mezzotint.training.trainable import MovementWatch
from mezzotint.training.trainer import Trainer
from mezzotint.weights.folder import publishing
from mezzotint.weights.model_files import ModelFiles


def run(arguments: Sequence[str]) -> int:
    """`mezzotint train RECIPE key=value …`. Returns 0; what goes wrong is raised as a MezzotintError. A foreign line
    that asks for the cache alone fills it."""
    reading = parse(arguments, "train")
    if reading.verb == "cache":
        print("the line encodes and does not train: mezzotint cache", flush=True)
        return cache.encode(reading)
    text_files.require(located(reading), arguments)
    return train(reading, arguments)


def train(reading: Reading, words: Sequence[str] = ()) -> int:
    """Trains a recipe from wherever its run folder stands. words: those behind the verb, for lines that are printed."""
    recipe = located(reading)
    problems = unknown_allowances(recipe.run.allow_change)
    if problems:
        raise RecipeError(reading.name, problems=problems)
    exports.require_possible(recipe)
    launch = Launch.read()
    if recipe.run.wandb.mode != "off" and not launch.rank:
        wandb_log.package(recipe.run.wandb)  # before anything that takes long
    if recipe.run.export.folder is not None:
        publishing.refuse_others(recipe.run.export.folder)
    with ExitStack() as stack:
        interrupts = stack.enter_context(Interrupts())
        runtime = open_runtime(recipe.run, launch)
        stack.callback(runtime.close)
        folder = RunFolder(Path(runtime.share(str(folder_of(reading, recipe)))))
        stack.enter_context(named_failures(runtime, folder, announce.command(folder, launch, reading.packages), recipe))
        places.refuse_foreign_recipe(folder)
        _take(folder, runtime, stack)
        job = Job(reading, recipe, launch, runtime, folder, interrupts, tuple(words) or (reading.name,))
        stack.callback(job.close)
        job.prepare()
        job.train()
        job.finish()
    return 0


def folder_of(reading: Reading, recipe: Recipe) -> Path:
    """The run folder: as written, a stamp in it settled; beside a recipe that lies in a run folder; or runs/NAME.
    Raises CheckpointError E1507 for `run.resume: latest` where no stamp has a run."""
    if (
        reading.fork is None
        and reading.path is not None
        and reading.path.name == "recipe.yaml"
        and (reading.path.parent / "checkpoints").is_dir()
    ):
        return reading.path.parent
    folder = (recipe.run.folder or Path("runs") / recipe.run.name).expanduser()
    return stamps.settled(folder, recipe.run.resume)


def _take(folder: RunFolder, runtime: Runtime, stack: ExitStack) -> None:
    """The first process makes the folder, locks it and sweeps it; the others wait, so that all see the same."""
    if runtime.is_first:
        folder.open()
        stack.callback(folder.lock().release)
        # only now: the folder of a start that is refused here is another run's
        stack.callback(folder.discard_if_unused)
        folder.sweep()
    runtime.barrier()


@dataclass(slots=True)
class Job:
    """One attempt at a run, from its folder to its end."""

    reading: Reading
    recipe: Recipe
    launch: Launch
    runtime: Runtime
    folder: RunFolder
    interrupts: Interrupts
    words: tuple[str, ...] = ()
    live: LiveLine = field(init=False)
    dataset: assemble.Dataset = field(init=False)
    caches: assemble.Caches = field(init=False)
    model: assemble.Model = field(init=False)
    identity: resume.Identity = field(init=False)
    trainer: Trainer = field(init=False)
    changes: LiveSettings = field(init=False)
    loader: Loader = field(init=False)
    prefetched: Prefetched | None = None
    lost: LostWords | None = None
    steps: int = 0
    _optimizers: dict[str, str] = field(default_factory=dict)

    def prepare(self) -> None:
        """Everything before the first step; nothing of it changes what a checkpoint holds."""
        first = self.runtime.is_first
        self.live = LiveLine(sys.stdout if first else _Silence(), self.folder.log if first else None)
        start = self._start()
        self.recipe, self._optimizers = _settling.settled(
            self.recipe, start, self.runtime, self.reading.origin, self.live.say
        )
        self.dataset = assemble.open_dataset(
            self.recipe, self.runtime, announce.progress(self.live, "looking at pictures")
        )
        self.steps = assemble.length_in_steps(self.recipe, self.dataset.timeline)
        self._check_shares()
        files = assemble.open_files(self.recipe)
        self.identity = self._identify(files)
        restored = state.read(start.checkpoint, tensors=False) if start.checkpoint else None
        changes = resume.compare(restored, self.reading, self.recipe, self.identity, self._line) if restored else []
        self._fill_caches(files)
        self.model = assemble.open_model(self.recipe, files, self.runtime, steps=self.steps)
        _foreign_start.check(self.recipe, self.model, self.steps)
        self._build_trainer(restored.step if restored else self.recipe.run.start.step)
        if restored:
            self._restore(restored, changes)
        else:
            self._start_shadow()
            for sentence in _foreign_start.begin(self.recipe, self.model):
                self.live.say(sentence)
        if first:
            if not assemble.only_texts_of_files(self.recipe):
                self.lost = lost_words(self.model.family, self.dataset.catalogue)
            self._write_papers(restored, changes)
            for note in self.reading.notes:
                self.live.say(f"note       {note}")
            for line in announce.before_step_one(
                self.recipe, self.launch, self.runtime, self.dataset, self.model, self.steps, self.folder,
                lost=self.lost,
            ):  # fmt: skip
                self.live.say(line)
            behind = self.recipe.run.start.step
            longer = announce.further(self.reading, self.recipe, self.words, self.launch)
            self.live.say(
                announce.start_line(restored, self.steps, changes, self.command, behind=behind, longer=longer)
            )

    def train(self) -> None:
        """The loop. Raises Stopped when a signal ended it."""
        self.interrupts.running = True
        self._settle_what_is_owed()
        self.trainer.run()
        for observer in self.trainer.observers:
            observer.close()
        if self.trainer.stopped:
            if self.recipe.run.export.when_stopped:
                for path in self._export(self.trainer) if self.runtime.is_first else ():
                    self.live.say(f"the model as it stands: {path}")
            number = self._agreed_signal()
            self._note_stop(number)
            self.runtime.barrier()  # whoever leaves early is why the launcher ends the others
            raise Stopped(f"stopped at step {self.trainer.progress.step}, saved", signal_number=number)

    def _note_stop(self, signal_number: int) -> None:
        """The report as it stands, and the history's line. Only these may fail: the checkpoint is written."""
        if not self.runtime.is_first:
            return
        try:
            report = run_report(self.folder)
            self.folder.record("stopped", step=self.trainer.progress.step, signal=signal_number)
            self.live.say(f"the report as it stands: {', '.join(str(path) for path in report)}")
        except StorageError as error:
            self.live.say(f"warning: the report could not be written: {error.message}")

    def finish(self) -> None:
        """The export and the report; made again when an earlier attempt was killed here."""
        exports = self._export(self.trainer)
        if self.runtime.is_first:
            if self.recipe.run.export.folder is not None:
                exports.append(publishing.publish(exports[-1], self.recipe.run.export.folder))
            report = run_report(self.folder)
            self.folder.record("finished", step=self.trainer.progress.step)
            for line in announce.at_the_end(self.folder, self.recipe, exports, report):
                self.live.say(line)
        self.runtime.barrier()

    def close(self) -> None:
        """Whatever happened: workers and files are let go."""
        if self.prefetched is not None:
            self.prefetched.close()
        if hasattr(self, "loader"):
            self.loader.close()
        if hasattr(self, "live"):
            self.live.close()

    @property
    def command(self) -> str:
        """The line that goes on with this run."""
        return announce.command(self.folder, self.launch, self.reading.packages)

    def _line(self, allowed: Sequence[str]) -> str:
        return announce.allowing(self.recipe, allowed, self.words, self.launch)

    def _start(self) -> resume.Start:
        """The first process decides, the others hear: a checkpoint may go bad between two looks."""
        start = resume.Start(None)
        if self.runtime.is_first:
            start = resume.choose(self.recipe.run.resume, self.folder, self.command)
            for sentence in start.said:
                self.live.say(f"warning: {sentence}")
        path = self.runtime.share(str(start.checkpoint or ""))
        return replace(start, checkpoint=Path(path) if path else None)

    def _start_shadow(self) -> None:
        shares = self.runtime.shares
        shapes = {name: sharding.whole_shape(f"w/{name}", m, shares) for name, m in self.model.update.masters.items()}
        weights = ema_start.weights(self.recipe, type(self.model.family), shapes)
        if weights is not None:
            assert self.model.update.shadow is not None
            self.model.update.shadow.start_from(sharding.cut(weights, shares))

    def _check_shares(self) -> None:
        if self.recipe.data.batch_size < self.runtime.world_size:
            raise RecipeError(
                f"data.batch_size is {self.recipe.data.batch_size}, but "
                f"{self.runtime.world_size} processes were started; "
                f"write data.batch_size={self.runtime.world_size} or more, or start fewer",
                code="E1803",
            )

    def _identify(self, files: ModelFiles) -> resume.Identity:
        return resume.Identity(
            data=self.dataset.catalogue.fingerprint,
            parts=assemble.identities(self.recipe, files, assemble.from_the_folder(files)),
            world_size=self.runtime.world_size,
            device=self.runtime.device.type,
            torch=torch.__version__,
            threads=torch.get_num_threads() if self.runtime.device.type == "cpu" else 0,
        )

    def _fill_caches(self, files: ModelFiles) -> None:
        self.caches = assemble.open_caches(self.recipe, files)
        if self.caches.latents is None and self.caches.text is None:
            return
        cache.fill_for(self.recipe, files, self.runtime, self.dataset, self.caches, self.live.say, checks=False)

    def _build_trainer(self, start_step: int) -> None:
        recipe, runtime = self.recipe, self.runtime
        self.loader = Loader(
            self.dataset.catalogue,
            self.dataset.rows,
            recipe.data,
            accumulation=recipe.optim.accumulation,
            seed=recipe.run.seed,
            start_step=start_step,
            last_step=self.steps,
            rank=runtime.rank,
            world_size=runtime.world_size,
            micro_batch=recipe.run.micro_batch,
            device=runtime.device,
            latents=self.caches.latents,
            text=self.caches.text,
            keeps_company=bool(runtime.shares),
        )
        self.prefetched = Prefetched.of(self.loader, recipe.run.device_prefetch, runtime.device)
        self.changes = LiveSettings(recipe, runtime, self.folder, self._take, self._require, self.live.say)
        observers = _callbacks.observers(
            recipe, runtime, self.folder, self.dataset, self.caches, self.model, self.live, start_step=start_step
        )
        self.trainer = Trainer(
            family=self.model.family,
            objective=self.model.objective,
            batches=self.prefetched or self.loader,
            update=self.model.update,
            runtime=runtime,
            precision=self.model.precision,
            scale=self.model.scale,
            trained=self.model.trained,
            optim=self.model.optim,
            rate_factor=assemble.rate_factor(recipe),
            run_settings=recipe.run,
            attention=recipe.model.attention,
            observers=observers,
            progress=_foreign_start.progress(recipe, self.dataset.timeline, self.steps),
            epoch_ends=self._epoch_ends,
            epoch_begins=self._begin_epoch,
            save=self._save,
            export=self._export_due,
            asked=self.interrupts.asked,
            bad_step=self._note_bad_step,
            warn=lambda text: self.live.say(f"warning: {text}"),
            watch=MovementWatch(self.model.update.masters),
        )

    def _begin_epoch(self, number: int) -> None:
        if self.recipe.run.schedule_file and self.runtime.is_first:
            data = self.dataset
            epoch = data.timeline.epoch(number)
            place = self.folder.logs if self.recipe.run.schedule_place == "logs" else self.folder.path
            try:
                schedule_file.write(epoch, data.rows, data.catalogue, self.recipe.data, place)
            except StorageError as error:
                self.live.say(f"warning: {error.message}; training goes on without it")
        self.changes.begin(number)

    def _take(self, recipe: Recipe) -> None:
        """Settings that were replaced, given to what holds them."""
        self.model.objective.take(recipe.objective)
        if recipe.model.clip_skip != self.recipe.model.clip_skip or "model.clip_skip" in self.trainer.progress.live:
            self.model.family.skip_layers(recipe.model.clip_skip)
        for observer in self.trainer.observers:
            match observer:
                case Saver():
                    observer.intervals = recipe.run.save.every
                case PreviewsElsewhere():
                    observer.guidance_rescale = recipe.sample.guidance_rescale
                case Exporter():
                    observer.intervals = recipe.run.export.every
                    observer.from_epoch = recipe.run.export.from_epoch
        self.trainer.progress.live = dict(self.changes.values)

    def _require(self, recipe: Recipe) -> None:
        _live_settings.require_possible(recipe, self.changes.now, self.model, self.caches)

    def _epoch_ends(self, step: int) -> bool:
        timeline = self.dataset.timeline
        return timeline.locate(step + 1)[0] > timeline.locate(step)[0]

    def _restore(self, restored: state.Restored, changes: list[str]) -> None:
        shares = self.runtime.shares
        state.fits(restored, self.trainer.tensors(), shares)
        self.trainer.load(state.tensors_of(restored.path, shares), restored.values)
        self.changes.take_back(self.trainer.progress.live)
        is_own = restored.path.resolve().parent == self.folder.checkpoints.resolve()
        if self.runtime.is_first:
            moved = resume.set_aside_later(self.folder, restored.step if is_own else restored.step - 1)
            metrics_log.truncate(self.folder, restored.step)
            self.folder.record("resumed", step=restored.step, changes=changes, set_aside=moved)
        if not is_own:
            # from here on this folder alone says where the run stands
            self.trainer.owes_export = False  # the other run owes it
            self._save(self.trainer)

    def _write_papers(self, restored: state.Restored | None, changes: list[str]) -> None:
        if restored is None:
            metrics_log.truncate(self.folder, 0)
        _run_files.write(self.recipe, self.folder, self.dataset, self.lost, environment(self.runtime, self.launch))
        if self.recipe.run.export.link is not None:
            _run_files.link(self.folder, self.recipe.run.export.link, self.live.say)
        begin = restored.step if restored else self.recipe.run.start.step
        self.folder.record(
            "started", step=begin, steps=self.steps, recipe=self.reading.digest,
            processes=self.runtime.world_size, batch=self.recipe.data.batch_size, changes=changes, **self._resolved(),
        )  # fmt: skip

    def _resolved(self) -> dict[str, Any]:
        """What the recipe leaves to be worked out or drawn, for the history and the checkpoint."""
        found: dict[str, Any] = {"seed": self.recipe.run.seed}
        if self.recipe.optim.ema.strength is not None:
            found["ema_decay"] = self.model.optim.ema.decay
        return found | self._optimizers

    def _save(self, trainer: Trainer) -> None:
        if not (self.runtime.is_first or self.runtime.shares):
            return
        values = trainer.state() | {"recipe": assemble.effective(self.recipe), "identity": self.identity.values()}
        values["resolved"] = self._resolved()
        write = partial(shared_state.write, runtime=self.runtime) if self.runtime.shares else state.write
        write(
            self.folder.checkpoints,
            step=trainer.progress.step,
            tensors=trainer.tensors(),
            values=values,
            recipe_digest=self.reading.digest,
        )
        if not self.runtime.is_first:
            return
        _foreign_start.write_when_asked(self.recipe, self.folder.path, self.model, self.steps)
        try:
            state.prune(self.folder.checkpoints, self.recipe.run.save.keep)
        except OSError as error:  # what is written stays written
            self.live.say(f"warning: an old checkpoint could not be removed ({error}); training goes on")

    def _export(self, trainer: Trainer) -> list[Path]:
        """The model as a folder: the trained weights, and beside them their average when there is one. All processes
        come here; the first writes."""
        written, shadow = self._export_one(trainer, trainer.update.masters, ""), trainer.update.shadow
        if shadow is not None:
            written += self._export_one(trainer, shadow.weights, "_ema")
        return written

    def _export_due(self, trainer: Trainer) -> None:
        """An export in the run. The history knows when it is whole, so that it is not made again."""
        self._export(trainer)
        if self.runtime.is_first:
            self.folder.record("exported", step=trainer.progress.step)

    def _settle_what_is_owed(self) -> None:
        """Makes an export that was due at the step gone on from, where the process died before it was whole. The one of
        the run's end is made anyway."""
        trainer = self.trainer
        is_due = trainer.owes_export and not trainer.progress.is_done
        if self.runtime.share("due" if is_due and not exports.is_made(self.folder, trainer.progress.step) else ""):
            self.live.say(f"the export of step {trainer.progress.step:,} was due and is missing: it is made now")
            try:
                self._export_due(trainer)
            except StorageError as error:
                self.live.say(f"warning: it could not be written: {error.message}")
            self.runtime.barrier()
        trainer.owes_export = False

    def _export_one(self, trainer: Trainer, weights: Mapping[str, Tensor], ema: str) -> list[Path]:
        whole, asked = self.runtime.whole(weights), self.changes.now.run.export
        if not self.runtime.is_first:
            return []
        place, alone = self.folder.exports, name_of(self.recipe, trainer, ema, alone=True)
        written = exports.write(self.model, self.recipe, asked, place, name_of(self.recipe, trainer, ema), whole)
        beside = exports.write_trained(self.model, self.recipe, asked, place, alone, whole)
        return [*beside, written]

    def _note_bad_step(self, report: StepReport) -> None:
        # each process names its own samples: the one that spoilt the step may be anywhere
        try:
            durable.append_line(self.folder.bad_steps, {
                "step": report.step + 1, "rank": self.runtime.rank, "keys": report.keys, "timesteps": report.timesteps,
                "losses": [str(x) for x in report.losses], "norm": str(report.norm),
            })  # fmt: skip
            where = "its samples are in bad_steps.jsonl"
        except StorageError as error:
            where = f"its samples could not be written down: {error.message}"
        self.live.say(f"warning: step {report.step + 1} was not finite and moved nothing; {where}")

    def _agreed_signal(self) -> int:
        return self.runtime.agree(self.interrupts.stop_signal) & 0x1F


class _Silence(io.StringIO):
    """Where the other processes' words go."""

    def write(self, text: str) -> int:
        return len(text)
