"""What `train` does for its trainer: checkpoints, exports, live settings, lines for the user and the history."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mezzotint import durable
from mezzotint.data.catalogue.catalogue import ALWAYS_LET_PASS
from mezzotint.data.schedule import schedule_file
from mezzotint.errors import DatasetError, StorageError
from mezzotint.run_folder import RunFolder
from mezzotint.runtimes.base import Runtime
from mezzotint.settings.recipe import Recipe, effective
from mezzotint.settings.resolved import Resolved
from mezzotint.stages import StepReport
from mezzotint.tasks import assemble
from mezzotint.tasks.assemble import Caches
from mezzotint.tasks.prompts.previews import PreviewPrompts
from mezzotint.tasks.train import exports, external_start, held_out
from mezzotint.tasks.train._live_settings import LiveSettings
from mezzotint.tasks.train.resume import Identity
from mezzotint.training import requests
from mezzotint.training.callbacks.base import Callback, Setup, open_callbacks
from mezzotint.training.callbacks.progress_line import LiveLine
from mezzotint.training.callbacks.validation import Validation
from mezzotint.training.checkpoints.background_save import Saves
from mezzotint.training.interrupts import Interrupts
from mezzotint.training.loop import RunHost, Trainer
from mezzotint.training.model import TrainableModel
from mezzotint.training.peers import PeerSignals


@dataclass(frozen=True, slots=True)
class TrainHost(RunHost[Trainer]):
    """The owner of a run in a folder. digest: of the recipe. recorded: what was chosen at the start, for history and
    checkpoints. changes: settings that are replaced while the run goes. saves: the checkpoints written. say: prints in
    the first process. files: those that ask for something. replaces: exports may take the place of others' files."""

    resolved: Resolved
    digest: str
    runtime: Runtime
    folder: RunFolder
    interrupts: Interrupts
    dataset: assemble.Dataset
    model: TrainableModel
    identity: Identity
    recorded: Mapping[str, Any]
    changes: LiveSettings
    saves: Saves
    say: Callable[[str], None]
    files: requests.Requests
    replaces: bool = False

    @property
    def recipe(self) -> Recipe:
        """As the run settled it."""
        return self.resolved.recipe

    def requests(self) -> PeerSignals:
        for name in self.files.take() if self.runtime.is_first else ():
            if name == "draw" and self.changes.now.run.preview.every is None:
                self.warn("pictures were asked for, and this run draws none (run.preview.every=null)")
            else:
                self.say(f"a file asks for it: {name}")
                self.interrupts.ask(requests.FLAGS[name])
        return self.interrupts.requests()

    def warn(self, text: str) -> None:
        self.say(f"warning: {text}")

    def loss_of_folder(self) -> str:
        return self.folder.loss() if self.runtime.is_first else ""

    def save(self, trainer: Trainer, *, at_once: bool = True) -> None:
        is_of_all = self.saves.is_of_all  # which all processes ask together
        if not (self.runtime.is_first or is_of_all):
            return
        values = trainer.state() | {"recipe": effective(self.recipe), "identity": self.identity.values()}
        values["resolved"] = dict(self.recorded)
        self.saves.begin(
            step=trainer.progress.step,
            tensors=trainer.tensors(),
            values=values,
            recipe_digest=self.digest,
            at_once=at_once,
            losses=self._losses(trainer),
        )
        if self.runtime.is_first:
            external_start.write_optimizer(self.folder.path, self.recipe, self.model, self.resolved)

    def _losses(self, trainer: Trainer) -> Mapping[int, float]:
        return next((one.measured for one in trainer.callbacks if isinstance(one, Validation)), {})

    def choose_best(self, trainer: Trainer) -> None:
        """Gives the best of the checkpoints that are there its second name, where `run.save.best` says so."""
        self.saves.choose_best(self._losses(trainer))

    def is_saving(self) -> bool:
        return self.saves.is_writing

    def hold_save(self) -> None:
        self.saves.hold()

    def end_save(self) -> None:
        self.saves.end()

    def give_up_save(self) -> None:
        self.saves.give_up()

    def export(self, trainer: Trainer) -> None:
        """An export in the run. The history knows when it is whole, so that it is not made again."""
        self.write_exports(trainer)
        if self.runtime.is_first:
            self.folder.record("exported", step=trainer.progress.step)

    def write_exports(self, trainer: Trainer) -> list[Path]:
        """The model as a folder: the trained weights, and beside them their average when there is one. All processes
        come here; the first writes."""
        written, ema = self._export_one(trainer, self.model.update.masters, ""), self.model.update.ema
        if ema is not None:
            written += self._export_one(trainer, ema.weights, "_ema")
        return written

    def export_if_owed(self, trainer: Trainer) -> None:
        """Makes an export that was due at the step gone on from, where the process died before it was whole. The one of
        the run's end is made anyway."""
        is_due = trainer.owes_export and not trainer.progress.is_done
        if self.runtime.share("due" if is_due and not exports.is_made(self.folder, trainer.progress.step) else ""):
            self.say(f"the export of step {trainer.progress.step:,} was due and is missing: it is made now")
            try:
                self.export(trainer)
            except StorageError as error:
                self.warn(f"it could not be written: {error.message}")
            self.runtime.barrier()
        trainer.owes_export = False

    def epoch_begins(self, trainer: Trainer, epoch: int) -> None:
        if self.recipe.run.schedule_file and self.runtime.is_first:
            data = self.dataset
            place = self.folder.logs if self.recipe.run.schedule_place == "logs" else self.folder.path
            try:
                schedule_file.write(data.timeline.epoch(epoch), data.rows, data.catalogue, self.recipe.data, place)
            except StorageError as error:
                self.warn(f"{error.message}; training goes on without it")
        if self.changes.begin(epoch):
            self._apply_live(trainer)

    def restore_live(self, trainer: Trainer) -> None:
        """Gives the settings that a checkpoint says had been replaced to what holds them."""
        self.changes.values = dict(trainer.progress.live)
        if self.changes.values:
            self._apply_live(trainer)

    def _apply_live(self, trainer: Trainer) -> None:
        recipe = self.changes.now
        self.model.objective.take(recipe.objective)
        if recipe.model.clip_skip != self.recipe.model.clip_skip or "model.clip_skip" in trainer.progress.live:
            self.model.family.skip_layers(recipe.model.clip_skip)
        for callback in trainer.callbacks:
            callback.replaced(recipe.run, recipe.sample)
        trainer.progress.live = dict(self.changes.values)

    def broken(self, samples: Sequence[str], so_far: int) -> None:
        """Says them. Raises DatasetError E1820 where there are more than a start would let pass."""
        for key in samples:
            self.warn(f"sample {key!r} is damaged, which its header did not show; its place counts nothing")
        share = self.recipe.data.max_skipped
        if so_far > max(ALWAYS_LET_PASS, share * len(self.dataset.rows)):
            raise DatasetError(
                f"{so_far:,} of {len(self.dataset.rows):,} samples have proved damaged, more than "
                f"data.max_skipped={share:g} allows; their names are in run.log; mend or remove them, or raise it",
                code="E1820",
            )

    def bad_step(self, report: StepReport) -> None:
        # each process names its own samples: the one that spoilt the step may be anywhere
        what = self._spoilt() or ("gradient" if math.isfinite(report.loss) else "loss")
        try:
            durable.append_line(self.folder.bad_steps, {
                "step": report.step + 1, "rank": self.runtime.rank, "what": what, "keys": report.keys,
                "timesteps": report.timesteps, "losses": [str(x) for x in report.losses], "norm": str(report.norm),
            })  # fmt: skip
            where = "its samples are in bad_steps.jsonl"
        except StorageError as error:
            where = f"its samples could not be written down: {error.message}"
        self.warn(f"step {report.step + 1} was not finite and moved nothing; {where} (what was spoilt: {what})")

    def _spoilt(self) -> str:
        """The first trained weight of this process that is not finite, "" where the numbers of the step alone are."""
        masters = self.model.update.masters.items()
        return next((f"weight {name}" for name, master in masters if not torch.isfinite(master).all()), "")

    def _export_one(self, trainer: Trainer, weights: Mapping[str, Tensor], ema: str) -> list[Path]:
        whole, settings = self.runtime.whole(weights), self.changes.now.run.export
        if not self.runtime.is_first:
            return []
        names = {
            "name": exports.name_of(self.recipe, trainer, ema),
            "name_alone": exports.name_of(self.recipe, trainer, ema, alone=True),
        }
        facts = exports.facts(self.recipe, trainer)
        return exports.write(
            self.model, self.recipe, settings, self.folder.exports, whole, facts=facts, say=self.say,
            free=partial(exports.free_place, self.folder, replaces=self.replaces, say=self.say), **names,
        )  # fmt: skip


def callbacks(
    host: TrainHost, caches: Caches, line: LiveLine, of_user: Sequence[Callback], *, start_step: int
) -> list[Callback]:
    """Every callback of a run, in the same order on every process; which there are, `training/callbacks/` says.
    of_user: those that a start from Python brings."""
    recipe, runtime, dataset, model = host.recipe, host.runtime, host.dataset, host.model
    measures = held_out.is_measured(recipe, dataset)
    if measures and runtime.is_first:
        held_out.warn_of_trained(dataset, host.warn)
    return open_callbacks(
        Setup(
            run=recipe.run,
            recipe=effective(recipe),
            runtime=runtime,
            folder=host.folder,
            model=model,
            line=line,
            say=line.say,
            warn=host.warn,
            start_step=start_step,
            measures=measures,
            held_out=lambda: held_out.batches(recipe, dataset, caches),
            previews=lambda: PreviewPrompts(recipe, runtime, dataset, caches, model, host.warn),
            decode=_decoder(recipe, model, runtime.device),
        ),
        of_user,
    )


def _decoder(recipe: Recipe, model: TrainableModel, device: torch.device) -> Callable[[Tensor], Tensor]:
    """Latents → pixels: by the family's own VAE, or, in a cached run, by one that is loaded at the first preview."""
    if "vae" in model.family.parts():
        return model.family.decode_media
    family = cache(lambda: assemble.encoders(recipe, model.files, device)("media"))
    return lambda latents: family().decode_media(latents)
