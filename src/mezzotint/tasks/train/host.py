"""What `train` does for its trainer: checkpoints, exports, live settings, messages and the history."""

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
from mezzotint.settings.recipe import Recipe, plain_values
from mezzotint.settings.resolved import Resolved
from mezzotint.stages import StepReport
from mezzotint.tasks import assemble
from mezzotint.tasks.assemble import Caches
from mezzotint.tasks.prompts import drift
from mezzotint.tasks.prompts.previews import PreviewPrompts
from mezzotint.tasks.train import exports, external_start, held_out
from mezzotint.tasks.train.live_settings import LiveSettings
from mezzotint.tasks.train.model_card import ModelCard
from mezzotint.tasks.train.resume import Identity
from mezzotint.training import requests
from mezzotint.training.callbacks.base import Callback, Setup, open_callbacks
from mezzotint.training.callbacks.metrics_log import MetricsLog
from mezzotint.training.callbacks.progress_line import LiveLine
from mezzotint.training.callbacks.validation import Validation
from mezzotint.training.checkpoints.background_save import Saves
from mezzotint.training.interrupts import Interrupts
from mezzotint.training.loop import RunHost, Trainer
from mezzotint.training.model import TrainableModel
from mezzotint.training.peers import PeerSignals


@dataclass(frozen=True, slots=True)
class TrainHost(RunHost[Trainer]):
    """The owner of a run in a folder. digest: of the recipe. recorded: choices made at the start, for history and
    checkpoints. changes: live settings. saves: writes checkpoints. say: prints in the first process. files: requests by
    files in the run folder. replaces: exports may overwrite files of others."""

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
        """With everything chosen that the recipe leaves open."""
        return self.resolved.recipe

    def requests(self) -> PeerSignals:
        for name in self.files.take() if self.runtime.is_first else ():
            if name == "draw" and self.changes.current_recipe.run.preview.every is None:
                self.warn("previews were requested, but this run has none (run.preview.every=null)")
            else:
                self.say(f"requested by a file: {name}")
                self.interrupts.ask(requests.FLAGS[name])
        return self.interrupts.requests()

    def warn(self, text: str) -> None:
        self.say(f"warning: {text}")

    def loss_of_folder(self) -> str:
        return self.folder.describe_loss() if self.runtime.is_first else ""

    def save(self, trainer: Trainer, *, at_once: bool = True) -> None:
        is_of_all = self.saves.is_of_all  # called on all processes together
        if not (self.runtime.is_first or is_of_all):
            return
        values = trainer.state() | {"recipe": plain_values(self.recipe), "identity": self.identity.values()}
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
        return next((validation.measured for validation in trainer.callbacks if isinstance(validation, Validation)), {})

    def choose_best(self, trainer: Trainer) -> None:
        """Gives the best checkpoint its second name, with `run.save.best`."""
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
        """Exports during the run. The history records when the export is complete, so it is not repeated."""
        self.write_exports(trainer)
        if self.runtime.is_first:
            self.folder.record("exported", step=trainer.progress.step)

    def write_exports(self, trainer: Trainer) -> list[Path]:
        """Exports the trained weights, and their EMA when there is one. Called on all processes; the first writes."""
        update = self.model.update
        written, ema = self._export_one(trainer, update.evaluation_weights(), ""), update.ema
        if ema is not None:
            written += self._export_one(trainer, ema.weights, "_ema")
        return written

    def export_if_owed(self, trainer: Trainer) -> None:
        """Writes an export that was due at the step resumed from, if the process died before it was complete. The
        export at the run's end is written anyway."""
        is_due = trainer.owes_export and not trainer.progress.is_done
        if self.runtime.share("due" if is_due and not exports.is_made(self.folder, trainer.progress.step) else ""):
            self.say(f"the export of step {trainer.progress.step:,} was due and is missing: writing it now")
            try:
                self.export(trainer)
            except StorageError as error:
                self.warn(f"it could not be written: {error.message}")
            self.runtime.barrier()
        trainer.owes_export = False

    def epoch_begins(self, trainer: Trainer, epoch: int) -> None:
        if self.recipe.run.schedule_file and self.runtime.is_first:
            data = self.dataset
            folder = self.folder.logs if self.recipe.run.schedule_place == "logs" else self.folder.path
            try:
                schedule_file.write(data.timeline.epoch(epoch), data.rows, data.catalogue, self.recipe.data, folder)
            except StorageError as error:
                self.warn(f"{error.message}; training continues without it")
        if self.changes.begin(epoch):
            self._apply_live(trainer)

    def restore_live(self, trainer: Trainer) -> None:
        """Applies the live settings recorded in a checkpoint."""
        self.changes.values = dict(trainer.progress.live)
        if self.changes.values:
            self._apply_live(trainer)

    def _apply_live(self, trainer: Trainer) -> None:
        recipe = self.changes.current_recipe
        self.model.objective.take(recipe.objective)
        if recipe.model.clip_skip != self.recipe.model.clip_skip or "model.clip_skip" in trainer.progress.live:
            self.model.family.skip_layers(recipe.model.clip_skip)
        for callback in trainer.callbacks:
            callback.on_settings_changed(recipe.run, recipe.sample)
        trainer.progress.live = dict(self.changes.values)

    def report_corrupt(self, samples: Sequence[str], so_far: int) -> None:
        """Warns of damaged samples. Raises DatasetError E1820 for more than a start would accept."""
        for key in samples:
            self.warn(f"sample {key!r} is damaged, which its header did not show; it has no weight in the loss")
        share = self.recipe.data.max_skipped
        if so_far > max(ALWAYS_LET_PASS, share * len(self.dataset.rows)):
            raise DatasetError(
                f"{so_far:,} of {len(self.dataset.rows):,} samples are damaged, more than "
                f"data.max_skipped={share:g} allows; run.log names them; repair or remove them, or raise it",
                code="E1820",
            )

    def bad_step(self, report: StepReport) -> None:
        # each process records its samples: any of them may have caused the non-finite step
        culprit = self._find_nonfinite_weight() or ("gradient" if math.isfinite(report.loss) else "loss")
        try:
            durable.append_line(self.folder.bad_steps, {
                "step": report.step + 1, "rank": self.runtime.rank, "what": culprit, "keys": report.keys,
                "timesteps": report.timesteps, "losses": [str(x) for x in report.losses], "norm": str(report.norm),
            })  # fmt: skip
            where = "its samples are in bad_steps.jsonl"
        except StorageError as error:
            where = f"its samples could not be recorded: {error.message}"
        self.warn(f"step {report.step + 1} was not finite and was not applied; {where} (not finite: {culprit})")

    def _find_nonfinite_weight(self) -> str:
        """The first trained weight of this process that is not finite, "" if all are finite."""
        masters = self.model.update.masters.items()
        return next((f"weight {name}" for name, master in masters if not torch.isfinite(master).all()), "")

    def _export_one(self, trainer: Trainer, weights: Mapping[str, Tensor], ema: str) -> list[Path]:
        whole, settings = self.runtime.gather_shards(weights), self.changes.current_recipe.run.export
        if not self.runtime.is_first:
            return []
        names = {
            "name": exports.name_of(self.recipe, trainer, ema),
            "name_alone": exports.name_of(self.recipe, trainer, ema, alone=True),
        }
        facts = exports.facts(self.recipe, trainer)
        loss = next((log.smoothed_loss for log in trainer.callbacks if isinstance(log, MetricsLog)), None)
        card = ModelCard.of(
            self.folder, self.recipe, self.model, trainer.progress, loss=loss,
            held_out=self._losses(trainer), is_average=bool(ema),
        )  # fmt: skip
        return exports.write(
            self.model, self.recipe, settings, self.folder.exports, whole, facts=facts, say=self.say,
            free=partial(exports.choose_free_path, self.folder, replaces=self.replaces, say=self.say), card=card,
            **names,
        )  # fmt: skip


def create_callbacks(
    host: TrainHost, caches: Caches, line: LiveLine, of_user: Sequence[Callback], *, start_step: int
) -> list[Callback]:
    """Every callback of a run, in the same order on every process: those of `training/callbacks/` and of_user, given in
    Python."""
    recipe, runtime, dataset, model = host.recipe, host.runtime, host.dataset, host.model
    measures = held_out.is_measured(recipe, dataset)
    if measures and runtime.is_first:
        held_out.warn_of_trained(dataset, host.warn)
    return open_callbacks(
        Setup(
            run=recipe.run,
            recipe=plain_values(recipe),
            runtime=runtime,
            folder=host.folder,
            model=model,
            line=line,
            say=line.say,
            warn=host.warn,
            start_step=start_step,
            is_saving=host.is_saving,
            measures=measures,
            held_out=lambda at_most: held_out.batches(recipe, dataset, caches, at_most),
            previews=lambda: PreviewPrompts(recipe, runtime, dataset, caches, model, host.warn),
            drift=lambda: drift.prompts(recipe, dataset, caches, model),
            decode=_decoder(recipe, model, runtime.device),
        ),
        of_user,
    )


def _decoder(recipe: Recipe, model: TrainableModel, device: torch.device) -> Callable[[Tensor], Tensor]:
    """Latents → pixels: by the family's VAE, or, in a cached run, by one that is loaded at the first preview."""
    if "vae" in model.family.parts():
        return model.family.decode_media
    family = cache(lambda: assemble.encoders(recipe, model.files, device)("media"))
    return lambda latents: family().decode_media(latents)
