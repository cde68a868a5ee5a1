"""Preparation of a run: everything between the recipe and the first step, in named steps."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType

import torch
from torch import Tensor

import mezzotint
from mezzotint.errors import MezzotintError, OutOfMemory, StorageError
from mezzotint.run_folder import RunFolder
from mezzotint.runtimes.base import Runtime
from mezzotint.settings.recipe import Recipe
from mezzotint.settings.resolved import Resolved, has_open_gradient_dtype
from mezzotint.tasks import assemble, describe, selection
from mezzotint.tasks.cache import cache, carrying, class_images
from mezzotint.tasks.check import fitting, room
from mezzotint.tasks.check.estimates import bucket_rows, largest_batches
from mezzotint.tasks.check.meta_model import MetaModel
from mezzotint.tasks.holding import free_device_memory
from mezzotint.tasks.prompts import previews
from mezzotint.tasks.prompts.long_captions import count_truncated
from mezzotint.tasks.proof import manifest
from mezzotint.tasks.reading import choices
from mezzotint.tasks.reading.choices import ChosenRecipe
from mezzotint.tasks.resolving import length_in_steps, resolve
from mezzotint.tasks.train import (
    _roll_back,
    announce,
    ema_start,
    external_start,
    live_settings,
    resume,
    run_files,
)
from mezzotint.tasks.train._roll_back import RollBack
from mezzotint.tasks.train.host import TrainHost, create_callbacks
from mezzotint.tasks.train.job import Job, RunStart
from mezzotint.tasks.train.live_settings import LiveSettings
from mezzotint.training import requests
from mezzotint.training.callbacks import metrics_log
from mezzotint.training.callbacks.progress_line import LiveLine
from mezzotint.training.checkpoints import sharding, state
from mezzotint.training.checkpoints.background_save import Saves
from mezzotint.training.loop import Trainer
from mezzotint.training.model import TrainableModel
from mezzotint.training.trainable import UpdateCheck
from mezzotint.weights.model_files import ModelFiles


def prepare(start: RunStart, damaged: Mapping[Path, str] = MappingProxyType({})) -> Job:
    """Everything before the first step; nothing in it changes what a checkpoint contains. damaged: checkpoints known to
    be damaged, with the reason. Raises DamagedCheckpoint, on every process, for another damaged one."""
    runtime, folder = start.runtime, start.folder
    with ExitStack() as stack:
        live = LiveLine(*((sys.stdout, folder.log) if runtime.is_first else (announce.Silence(), None)))
        stack.callback(live.close)
        checkpoint = _choose_checkpoint(start, damaged, live.say)
        with resume.wrap_state_errors(checkpoint):
            recorded = resume.recorded_in(checkpoint)
            settled = _settle(start, recorded, live.say)
        recipe = settled.recipe
        dataset = _open_dataset(recipe, runtime, live)
        resolved = replace(_resolve(settled, dataset, recorded, runtime, live.say), code=start.code.describe_sources())
        files = assemble.open_files(recipe)
        selection.require_trainable(recipe, files)  # before anything is encoded
        identity = _identity(resolved, dataset, files, runtime)
        restored, changes = _compare(start, resolved, checkpoint, identity)
        _refuse_early(resolved, files, folder, runtime)
        caches = assemble.open_caches(recipe, files)
        of_cache = cache.fill_for(recipe, files, runtime, dataset, caches, live.say, checks=False)
        model = start.code.attach_to(assemble.open_model(resolved, files, runtime))
        _refuse_unfit(resolved, dataset, model, runtime)
        host = _open_host(start, resolved, identity, dataset, caches, model, of_cache, live)
        roll_back = _roll_back.find_pending(folder, restored.values["progress"], runtime) if restored else None
        progress = external_start.progress(recipe, dataset.timeline, resolved.steps)
        if restored:
            progress.step = roll_back.at if roll_back else restored.step
        trainer = stack.enter_context(
            assemble.open_trainer(
                resolved, runtime, dataset, caches, model, progress=progress, host=host,
                callbacks=create_callbacks(host, caches, live, start.code.callbacks, start_step=progress.step),
                update_check=UpdateCheck(model.update.masters),
            )
        )  # fmt: skip
        if restored is None:
            _start_fresh(host)
        else:
            _restore(restored, changes, trainer, host, roll_back)
        if runtime.is_first:
            lines = _record_start(start, host, restored, changes)
            for line in (*(f"note       {note}" for note in start.reading.notes), *lines):
                live.say(line)
        close = stack.pop_all().close
    return Job(start, resolved, dataset, caches, model, host, trainer, live.say, close)


def _choose_checkpoint(start: RunStart, damaged: Mapping[Path, str], say: Callable[[str], None]) -> Path | None:
    """The checkpoint that the run resumes from, None for a new run. The first process decides for all: a checkpoint may
    become damaged between two reads."""
    path: Path | None = None
    if start.runtime.is_first:
        unusable = {**_roll_back.rolled_back_checkpoints(start.folder), **damaged}
        chosen = resume.choose(start.recipe.run.resume, start.folder, start.command, unusable)
        path = chosen.checkpoint
        for sentence in chosen.sentences:
            say(f"warning: {sentence}")
    shared = start.runtime.share(str(path or ""))
    return Path(shared) if shared else None


def _settle(start: RunStart, recorded: resume.Recorded | None, say: Callable[[str], None]) -> ChosenRecipe:
    """The recipe with its seeds and optimizers, the same on all processes."""
    runtime, of_run = start.runtime, recorded.recipe if recorded else None
    settled = choices.choose(
        start.recipe, runtime.device.type, of_run, origin=start.reading.origin, share=runtime.share, is_run=True
    )
    for sentence in settled.sentences:
        say(sentence)
    return settled


def _open_dataset(recipe: Recipe, runtime: Runtime, live: LiveLine) -> assemble.Dataset:
    """The data set, after the missing class images are generated."""
    class_images.generate(recipe, runtime, live.say, live.report)
    return carrying.open_dataset(recipe, runtime, announce.progress(live, "reading images"))


def _resolve(
    settled: ChosenRecipe, dataset: assemble.Dataset, recorded: resume.Recorded | None, runtime: Runtime,
    say: Callable[[str], None],
) -> Resolved:  # fmt: skip
    """What depends on the data set and on memory as well: the length, the type of gradient sums, the blocks on the
    device. The first process decides for all."""
    recipe, kind, processes = settled.recipe, runtime.device.type, runtime.world_size
    steps = length_in_steps(recipe, dataset.timeline)
    assemble.refuse_empty_shares(recipe, processes)
    sums = recorded.gradient_sums(recipe) if recorded else None
    blocks = recipe.run.offload.blocks
    decides_sums, decides_blocks = sums is None and has_open_gradient_dtype(recipe), blocks == "auto"
    if runtime.is_first and (decides_sums or decides_blocks):
        free = free_device_memory(runtime.device, recipe.run.memory_limit)
        batches = largest_batches(bucket_rows(dataset, recipe))
        if decides_sums:
            sums, sentence = room.choose_gradient_sums(recipe, batches, kind, processes=processes, free=free)
            say(sentence)
        if decides_blocks:
            outline = MetaModel(recipe, kind, sums)
            blocks, sentence = fitting.choose_blocks(outline, batches, processes=processes, free=free)
            say(sentence)
    sums, blocks = json.loads(runtime.share(json.dumps([sums, blocks])))
    return resolve(recipe, steps, sums=sums, blocks=blocks, choices=settled.kinds)


def _compare(
    start: RunStart, resolved: Resolved, checkpoint: Path | None, identity: resume.Identity
) -> tuple[state.Restored | None, list[str]]:
    """The checkpoint's state without tensors, and what has changed since, for the history. Raises RecipeError for what
    may not change."""
    if checkpoint is None:
        return None, []
    restored = state.read(checkpoint, tensors=False)
    allowing = partial(announce.command_allowing, resolved.recipe, arguments=start.arguments, launch=start.launch)
    with resume.wrap_state_errors(restored.path):
        return restored, resume.compare(restored, start.reading, resolved.recipe, identity, allowing)


def _open_host(
    start: RunStart, resolved: Resolved, identity: resume.Identity, dataset: assemble.Dataset, caches: assemble.Caches,
    model: TrainableModel, of_cache: Mapping[str, bool], live: LiveLine,
) -> TrainHost:  # fmt: skip
    recipe, runtime, folder = resolved.recipe, start.runtime, start.folder

    def warn(text: str) -> None:
        live.say(f"warning: {text}")

    require = partial(live_settings.require_possible, model=model, caches=caches)
    host = TrainHost(
        resolved, start.reading.digest, runtime, folder, start.interrupts, dataset, model, identity,
        recorded={**resolved.choices, **of_cache, **({"code": resolved.code} if resolved.code else {})},
        changes=LiveSettings(recipe, runtime, folder, require, live.say),
        saves=Saves(folder.checkpoints, runtime, recipe.run, warn),
        say=live.say, files=requests.Requests(folder.requests, warn), replaces=start.reading.replaces,
    )  # fmt: skip
    host.saves.reserve(model.update)
    return host


def _refuse_unfit(resolved: Resolved, dataset: assemble.Dataset, model: TrainableModel, runtime: Runtime) -> None:
    recipe, family = resolved.recipe, model.family
    room.refuse_too_small(recipe, dataset, family.denoisers[0], family.grid.pixels, runtime.device.type)
    external_start.check(recipe, model, resolved.steps)
    if recipe.run.preview.every is not None:
        previews.require_drawable(recipe, model.objective, family)
    if recipe.run.drift.every is not None:
        family.refuse_guidance(recipe.sample.guidance[0])


def _refuse_early(resolved: Resolved, files: ModelFiles, folder: RunFolder, runtime: Runtime) -> None:
    """Refuses what `check` would refuse, before the model is loaded: the first process checks for all. Raises
    StorageError E1710, OutOfMemory E1751."""
    kinds = {kind.__name__: kind for kind in (StorageError, OutOfMemory)}
    refusal = ""
    if runtime.is_first:
        try:
            room.require_disk_space(resolved, files, folder, runtime)
        except (StorageError, OutOfMemory) as error:
            refusal = f"{type(error).__name__} {error.code} {error.message}"
    refusal = runtime.share(refusal)
    if refusal:
        kind, code, message = refusal.split(" ", 2)
        raise kinds[kind](message, code=code)


def _identity(
    resolved: Resolved, dataset: assemble.Dataset, files: ModelFiles, runtime: Runtime
) -> resume.Identity:  # fmt: skip
    return resume.Identity(
        data=dataset.catalogue.fingerprint,
        parts=assemble.identities(resolved.recipe, files, assemble.parts_from_folder(files)),
        world_size=runtime.world_size,
        device=runtime.device.type,
        torch=torch.__version__,
        threads=torch.get_num_threads() if runtime.device.type == "cpu" else 0,
        code=resolved.code,
    )


def _start_fresh(host: TrainHost) -> None:
    """Loads the EMA and the optimizer state of a new run, where they start from files."""
    recipe, shares, update = host.recipe, host.runtime.shares, host.model.update
    shapes = {name: sharding.full_shape(f"w/{name}", m, shares) for name, m in update.masters.items()}
    weights = ema_start.weights(recipe, assemble.family_class(recipe), shapes)
    if weights is not None:
        assert update.ema is not None
        update.ema.start_from(sharding.select_rows(weights, shares))
    for sentence in external_start.restore(recipe, host.model):
        host.say(sentence)


def _restore(
    restored: state.Restored, changes: list[str], trainer: Trainer, host: TrainHost, roll_back: RollBack | None
) -> None:
    folder, shares = host.folder, host.runtime.shares
    state.fits(restored, trainer.tensors(), shares)
    tensors = read_tensors(restored, host.runtime)
    with resume.wrap_state_errors(restored.path):
        trainer.load(tensors, restored.values)
    host.saves.verified.add(restored.path)
    host.restore_live(trainer)
    if roll_back is not None:
        roll_back.apply(trainer.progress, host.dataset.timeline)
        trainer.owes_export = trainer.owes_export and roll_back.at == roll_back.to
    is_in_run = restored.path.resolve().parent == folder.checkpoints.resolve()
    if host.runtime.is_first:
        moved = resume.set_aside_later(folder, restored.step if is_in_run else restored.step - 1)
        metrics_log.truncate(folder, roll_back.at if roll_back else restored.step)
        folder.record("resumed", step=restored.step, changes=changes, set_aside=moved)
        host.choose_best(trainer)  # a process may have died before it did, and some were renamed
    if not is_in_run:
        # from here on only this folder records the run's progress
        trainer.owes_export = False  # the other run writes it
    if not is_in_run or (roll_back is not None and roll_back.at > roll_back.to):
        host.save(trainer)


def read_tensors(restored: state.Restored, runtime: Runtime) -> dict[str, Tensor]:
    """This process's tensors of a checkpoint; the first process verifies the whole checkpoint. Raises DamagedCheckpoint
    on all processes."""
    tensors, reason = {}, ""
    try:
        tensors = state.tensors_of(restored.path, runtime.shares, hashes=runtime.is_first)
    except state.DamagedCheckpoint as error:
        reason = error.reason
    except MezzotintError as error:
        reason = error.message
    reasons = runtime.gather(reason)
    if any(reasons):
        raise state.DamagedCheckpoint(restored.path, next(filter(None, reasons)))
    return tensors


def _record_start(start: RunStart, host: TrainHost, restored: state.Restored | None, changes: list[str]) -> list[str]:
    """Records this start in the run folder, and returns the lines to print."""
    recipe, folder, runtime, dataset, model = host.recipe, host.folder, host.runtime, host.dataset, host.model
    reading, launch = start.reading, start.launch
    texts = repr((recipe.model.family, sorted(host.identity.parts.items()), recipe.model.tokens))
    lost = None
    if not assemble.only_texts_of_files(recipe):
        lost = count_truncated(model.family, dataset.catalogue, recipe.data.captions, texts)
    if restored is None:
        metrics_log.truncate(folder, 0)
    run_files.write(recipe, folder, dataset, lost, runtime, launch)
    run_files.write_origins(reading, folder)
    if restored is None or changes or not (folder.path / manifest.FILE).exists():
        manifest.write(folder, recipe, dataset.catalogue, model.files, run_files.environment(runtime, launch))
    if recipe.run.export.link is not None:
        run_files.link(folder, recipe.run.export.link, host.say)
    trained_steps, steps, is_restart = recipe.run.start.step, host.resolved.steps, folder.attempts() > 0
    subject = describe.Subject(
        recipe=recipe, device=runtime.device, launch=launch, model=model, dataset=dataset, steps=steps,
        checkpoint_bytes=model.update.checkpoint_bytes(lambda name, m: sharding.full_shape(name, m, runtime.shares)),
        lost=lost,
    )  # fmt: skip
    description, notes = describe.describe(subject), describe.notes(subject)
    folder.record(
        "started", step=restored.step if restored else trained_steps, steps=steps, recipe=host.digest,
        processes=runtime.world_size, batch=recipe.data.batch_size, changes=changes,
        description=description, notes=notes, **host.recorded,
    )  # fmt: skip
    extension = announce.extension_line(reading, recipe, start.arguments, launch)
    line = announce.start_line(
        restored, steps, changes, start.command, trained_steps=trained_steps, extension=extension, is_restart=is_restart
    )
    titled = [*description, *(("note", note) for note in notes)]
    head = f"mezzotint {mezzotint.__version__}   run {recipe.run.name} in {folder.path}"
    return [head, *(f"  {title:<10} {text}" for title, text in titled), line]
