"""The command `check`: reads everything and trains nothing. Recipe, files, parameters, batches, memory, disk, and, with
`--dry`, time. All problems that would keep the run from starting are reported together.

It writes only the index of the data set, in the cache folder.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from mezzotint import outside
from mezzotint.diffusion.flow_objective import objective_of
from mezzotint.errors import CheckpointError, MezzotintError, OutOfMemory, Problem, RecipeError
from mezzotint.reports import batch_report
from mezzotint.run_folder import RunFolder, refuse_older_checkpoint
from mezzotint.runtimes.base import Launch, device_for, free_memory
from mezzotint.runtimes.single import Runtime
from mezzotint.settings import advice
from mezzotint.settings.base import with_values
from mezzotint.settings.counting import format_bytes
from mezzotint.settings.reading.read import Reading, resolve_paths
from mezzotint.settings.resolved import has_open_gradient_dtype
from mezzotint.settings.resume_rules import data_change_problems, sort_differences
from mezzotint.settings.sections.model import ModelSettings
from mezzotint.settings.sections.run import GradientSums
from mezzotint.tasks import assemble, describe, holding
from mezzotint.tasks.cache import carrying, class_images, text_files
from mezzotint.tasks.check import _fit, estimates, fitting, page, room
from mezzotint.tasks.check._checked import Checked
from mezzotint.tasks.check._dry_run import dry_run
from mezzotint.tasks.check._fit import Card
from mezzotint.tasks.check._model_files import components
from mezzotint.tasks.check.memory import Memory, memory_of
from mezzotint.tasks.check.meta_model import MetaModel, build_described_model
from mezzotint.tasks.holding import free_device_memory
from mezzotint.tasks.prompts import drift, long_captions, previews
from mezzotint.tasks.reading import choices
from mezzotint.tasks.reading.arguments import parse_with
from mezzotint.tasks.reading.continuing import folder_of, linked_folders
from mezzotint.tasks.resolving import length_in_steps
from mezzotint.tasks.train import announce, ema_start, exports, held_out, resume
from mezzotint.training.callbacks import wandb_log
from mezzotint.training.checkpoints import state
from mezzotint.training.checkpoints.background_save import ROOM
from mezzotint.weights.folder import publishing

_OF_PATHS = ("E1020", "E1201", "E1401", "E1402", "E1406")
"""Codes of paths that do not exist or contain something else: if nothing else is wrong, the page about half of the run
is left out."""


_PARTS = {
    "E12": "data", "E13": "cache", "E14": "model", "E15": "run", "E16": "optim", "E17": "disk", "E175": "run",
    "E18": "run",
}  # fmt: skip
"""The part of the recipe that a problem concerns, by the start of its code."""


def run(arguments: Sequence[str]) -> int:
    """`mezzotint check RECIPE key=value … [--json] [--all] [--deep] [--dry] [--fit=SIZE [--host=SIZE]
    [--out=FILE]] [--processes=N]`. Returns 0 when the recipe can run, 5 when it does not fit into memory.

    Raises the only problem, or a RecipeError with all of several.
    """
    reading, line = parse_with(arguments, "check")
    launch = Launch.read()
    if launch.rank:
        return 0  # the first process checks for all
    processes = line.get_integer("--processes", 1) or launch.world_size
    typed = line.to_arguments(leaving=[switch.name for switch in line.command.options])
    card = _fit.read_card(line)
    checked = check(
        reading, processes=processes, deep="--deep" in line, dry="--dry" in line, arguments=typed, card=card
    )
    if checked.fit is not None and checked.fit.card.out is not None and not checked.problems:
        _fit.write_recipe(reading, checked.fit)
    if "--json" in line:
        print(json.dumps(page.document(checked), indent=1, ensure_ascii=False))
    elif not checked.problems or any(error.code not in _OF_PATHS for error in checked.problems):
        print("\n".join(page.page(checked, every_setting="--all" in line)))
    sys.stdout.flush()  # before the problems, which go to stderr
    _raise_problems(checked)
    return OutOfMemory.exit_status if checked.fits is False else 0


def check(
    reading: Reading, *, processes: int = 1, deep: bool = False, dry: bool = False, arguments: Sequence[str] = (),
    card: Card | None = None,
) -> Checked:  # fmt: skip
    """Checks everything. Problems are in the result; none is raised. deep: decode images, regardless of data.verify.
    arguments: those after another command with the same recipe, for printed command lines. card: what the run shall fit
    into, in place of the free memory of this machine."""
    arguments = arguments or [reading.name]
    checked = Checked(reading, resolve_paths(reading), processes, notes=list(reading.notes))
    with checked.collect_problems():
        checked.device = device_for(checked.recipe.run, Launch())
    recorded = _recorded_run(checked)
    of_run = recorded.recipe if recorded else None
    kind = checked.device.type if card is None else "cuda"
    settled = choices.choose(checked.recipe, kind, of_run, origin=reading.origin)
    checked.recipe = settled.recipe
    checked.notes += settled.sentences
    _check_settings(checked)
    if card is not None:
        checked.free_memory = None
    recorded_sums = recorded.gradient_sums(checked.recipe) if recorded else None
    outline = _check_model(checked, recorded_sums)
    with checked.collect_problems():
        text_files.require(checked.recipe, arguments)
    _check_data(checked, outline, deep=deep)
    outline = outline if recorded_sums or card is not None else _choose_sums(checked, outline)
    _describe(checked, outline)
    _advise(checked, outline)
    if outline is not None:
        _check_memory(checked, outline)
    if card is not None and outline is not None and checked.dataset is not None:
        with checked.collect_problems():
            search = fitting.Search(checked.recipe, checked.largest_batches(), outline.device, processes, outline.sums)
            checked.fit = _fit.find_fit(search, card)
    _check_writing(checked)
    if checked.dataset is not None:
        with checked.collect_problems():  # reads the file of prompts
            previews.captions(checked.recipe, checked.dataset)
        held_out.warn_of_trained(checked.dataset, checked.notes.append)
    folder = RunFolder(folder_of(reading, checked.recipe), linked_folders(reading, checked.recipe))
    _check_run_folder(checked, folder, arguments)
    if checked.memory is not None:
        _check_disk(checked, checked.memory, folder)
    if dry and not checked.problems and checked.dataset is not None and checked.length is not None:
        with checked.collect_problems():
            checked.dry = dry_run(checked.recipe, checked.dataset, checked.length.steps, processes=processes)
    return checked


def _recorded_run(checked: Checked) -> resume.Recorded | None:
    """What the checkpoint records that the run would resume from, None for a new run. Problems of the checkpoint are
    reported later."""
    with suppress(MezzotintError, OSError, ValueError, TypeError, AttributeError, LookupError):
        folder = RunFolder(folder_of(checked.reading, checked.recipe))
        return resume.recorded_state(checked.recipe.run.resume, folder)
    return None


def _check_settings(checked: Checked) -> None:
    recipe = checked.recipe
    with checked.collect_problems():
        assemble.refuse_empty_shares(recipe, checked.processes)
    with checked.collect_problems():
        holding.refuse_in_backward(recipe, checked.processes)
    for part in recipe.model.train:
        has_rate = recipe.optim.part_optimizer.get(part, recipe.optim.optimizer).has_rate
        if has_rate and not any(recipe.optim.rates_of(part)):
            cause = f"the learning rate of {part} is 0, so it cannot change"
            remedy = "set optim.lr or optim.part_lr above 0, or remove it from model.train"
            checked.add_problem(RecipeError(f"{cause}; {remedy}", code="E1602"))
    checked.free_memory = free_device_memory(checked.device, recipe.run.memory_limit)


def _check_model(checked: Checked, sums: GradientSums | None) -> MetaModel | None:
    """The model by its configurations; None where it cannot be described or does not fit the recipe. sums: see
    `MetaModel`."""
    outline, fits, recipe = None, False, checked.recipe
    with checked.collect_problems():
        outline = MetaModel(recipe, checked.device.type, sums)
        checked.notes += checked.model_files().absences()
        if recipe.run.preview.every is not None:
            objective = objective_of(recipe.objective, outline.family.schedule, outline.prediction)
            previews.require_drawable(recipe, objective, outline.family)
        if recipe.run.drift.every is not None:
            outline.family.refuse_guidance(recipe.sample.guidance[0])
        fits = True
    parts = outline.family.parts() if outline is not None else {}
    checked.files, problems = components(recipe.model, parts, checked.model_files)
    for problem in problems:
        checked.add_problem(problem)
    start = ema_start.settings_of(recipe)
    if start is not None and outline is not None:
        _check_ema_start(checked, outline, start)
    return outline if fits else None


def _check_ema_start(checked: Checked, outline: MetaModel, start: ModelSettings) -> None:
    """Checks by its configurations that the EMA can start from the model that `optim.ema.start` names."""
    with checked.collect_problems():
        family = build_described_model(type(outline.family), start)[1]
        shapes = {name: tuple(p.shape) for name, p in outline.trained.items()}
        ema_start.refuse_another(start.path, ema_start.parameters_by_path(family.parts()), shapes)
        for problem in components(start, family.parts())[1]:
            checked.add_problem(problem)


def _check_data(checked: Checked, outline: MetaModel | None, *, deep: bool) -> None:
    recipe, note = class_images.prepare_for_check(checked.recipe)
    recipe = with_values(recipe, {"data.verify": "on_start"}) if deep else recipe
    checked.notes += note
    with checked.collect_problems():
        runtime = Runtime(checked.device, Launch(), recipe.run)
        dataset = carrying.open_dataset(recipe, runtime, carrying.print_progress)
        steps = length_in_steps(recipe, dataset.timeline)
        checked.length = estimates.length(dataset.timeline, steps)
        checked.dataset = dataset
        checked.buckets = estimates.bucket_rows(dataset, recipe)
        catalogue, rows = dataset.catalogue, dataset.rows
        if catalogue.overrides.group[rows].any():
            checked.names = tuple(batch_report.rows_of(catalogue, rows, recipe.data))
        if outline is not None:
            denoiser = outline.family.denoisers[0]
            room.refuse_too_small(recipe, dataset, denoiser, outline.family.grid.pixels, checked.device.type)
    if outline is not None and checked.dataset is not None and not assemble.only_texts_of_files(recipe):
        with checked.collect_problems():
            captions = checked.recipe.data.captions
            checked.lost = long_captions.count_truncated(outline.family, checked.dataset.catalogue, captions)


def _choose_sums(checked: Checked, outline: MetaModel | None) -> MetaModel | None:
    """The model with the type of its gradient sums, chosen by memory where the recipe leaves it open."""
    if outline is None or checked.dataset is None or not has_open_gradient_dtype(checked.recipe):
        return outline
    sums: GradientSums = "same"
    with checked.collect_problems():
        sums, sentence = room.choose_gradient_sums(
            checked.recipe,
            checked.largest_batches(),
            outline.device,
            processes=checked.processes,
            free=checked.free_memory,
        )
        checked.notes.append(sentence)
    return MetaModel(checked.recipe, outline.device, sums)


def _describe(checked: Checked, outline: MetaModel | None) -> None:
    """The description of the run that `train` prints, too, and its notes."""
    launch = Launch.read()
    if launch.world_size != checked.processes:
        launch = replace(launch, world_size=checked.processes, local_size=checked.processes)
    subject = describe.Subject(
        recipe=checked.recipe,
        device=checked.device,
        launch=launch,
        model=outline.model if outline is not None else None,
        dataset=checked.dataset,
        steps=checked.length.steps if checked.length is not None else None,
        checkpoint_bytes=outline.update.checkpoint_bytes() if outline is not None else None,
        lost=checked.lost,
    )
    checked.description = describe.describe(subject)
    checked.notes += describe.notes(subject)


def _advise(checked: Checked, outline: MetaModel | None) -> None:
    """Notes on unusual settings, and on the size of the schedule file."""
    recipe, dataset, length = checked.recipe, checked.dataset, checked.length
    prediction = outline.prediction if outline is not None else None
    steps = length.steps if length is not None else None
    memory = torch.cuda.mem_get_info(checked.device)[1] if checked.device.type == "cuda" else None
    checked.notes += advice.notes(recipe, steps=steps, memory=memory, prediction=prediction)
    if recipe.run.schedule_file and dataset is not None and length is not None:
        rows = dataset.rows[:1000]
        line = 45 + sum(len(str(dataset.catalogue.path(int(row)))) for row in rows) / max(1, len(rows))
        an_epoch = line * sum(row.visits for row in checked.buckets)
        whole = an_epoch * length.steps / max(1, length.steps_an_epoch)
        sizes = f"{format_bytes(an_epoch)} in each epoch, {format_bytes(whole)} in all"
        checked.notes.append(f"run.schedule_file writes about {sizes}")


def _check_memory(checked: Checked, outline: MetaModel) -> None:
    batches, processes, free = checked.largest_batches(), checked.processes, checked.free_memory
    with checked.collect_problems():
        if checked.recipe.run.offload.blocks == "auto":
            outline.blocks, sentence = fitting.choose_blocks(outline, batches, processes=processes, free=free)
            checked.notes.append(sentence)
        with checked.collect_problems():
            holding.refuse_offload(checked.recipe, processes, outline.blocks)
        checked.memory = memory_of(outline, batches, processes=processes)
        if checked.fits is False and free is not None and batches:
            search = fitting.Search(checked.recipe, batches, outline.device, processes, outline.sums, of_card=False)
            checked.ways = fitting.ways_to_fit(search, free)
        checked.notes += holding.notes(checked.recipe, checked.model_files(), checked.device, checked.memory.on_host)
        if checked.recipe.model.attention == "xformers":
            checked.notes.append(
                "activations are counted as with torch's attention: those of xformers cannot be estimated"
            )
        copy, free = checked.memory.copy, free_memory()
        if copy and free is not None:
            free = max(0, free - (checked.memory.peak if checked.device.type == "cpu" else 0))
            if free < ROOM * copy:
                checked.notes.append(
                    f"a copy for a checkpoint takes {format_bytes(copy)}, and {format_bytes(free)} of host memory are "
                    "free for it: training waits while one is written, as with run.save.asynchronous=false"
                )


def _check_writing(checked: Checked) -> None:
    run = checked.recipe.run
    with checked.collect_problems():
        exports.require_possible(checked.recipe)
    with checked.collect_problems():
        if run.wandb.mode != "off":
            wandb_log.package(run.wandb)
    with checked.collect_problems():
        if run.export.folder is not None:
            publishing.refuse_others(run.export.folder)


def _check_run_folder(checked: Checked, folder: RunFolder, arguments: Sequence[str]) -> None:
    """Whether `train` would start or resume, without hashing a checkpoint."""
    recipe, resume_mode = checked.recipe, checked.recipe.run.resume
    with checked.collect_problems():
        folder.refuse_links()
        existing = state.list_checkpoints(folder.checkpoints)
        start = existing[0] if existing and resume_mode != "never" else None
        if resume_mode not in ("auto", "latest") or (resume_mode == "latest" and not existing):
            start = resume.choose(resume_mode, folder, f"mezzotint train {checked.reading.name}").checkpoint
        if start is not None:
            _compare(checked, start, lambda allowed: announce.command_allowing(recipe, allowed, arguments, Launch()))


def _compare(checked: Checked, checkpoint: Path, line: resume.Line) -> None:
    """Compares the recipe with that of a checkpoint. Raises RecipeError with every refused change. line: see
    `resume.with_line`."""
    refuse_older_checkpoint(checkpoint)
    recorded = _read_recorded(checkpoint)
    try:
        differing = resume.changed_settings(recorded, checked.recipe)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{checkpoint}: state.json cannot be read ({error})", code="E1501") from error
    allowed = resume.allowed_changes(checked.reading, checked.recipe)
    changed, problems = sort_differences(differing, allowed)
    inexact = list(map(str, changed))
    trained_on = recorded.get("identity", {}).get("data")
    if checked.dataset is not None and trained_on not in (None, checked.dataset.catalogue.fingerprint):
        inexact.append("the data set's content has changed")
        problems += data_change_problems(allowed)
    if problems:
        raise resume.refusal(checkpoint, checked.recipe, checked.reading, resume.with_line(problems, line))
    checked.notes.append(f"the run folder has {checkpoint.name}: train resumes from it")
    checked.notes += [f"not bit-exact from there: {difference}" for difference in inexact]


def _read_recorded(checkpoint: Path) -> dict[str, Any]:
    """What a checkpoint records: `recipe` and `identity`, as JSON. Raises CheckpointError E1501."""
    try:
        values: dict[str, Any] = outside.read_json(checkpoint / "state.json", limit=outside.LISTED)
        dict(values["recipe"]["optim"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{checkpoint}: state.json cannot be read ({error})", code="E1501") from error
    return values


def _check_disk(checked: Checked, memory: Memory, folder: RunFolder) -> None:
    recipe, length = checked.recipe, checked.length
    if checked.dataset is not None:
        with checked.collect_problems():
            captions = (*previews.captions(recipe, checked.dataset), *drift.captions(recipe, checked.dataset))
            caches = assemble.open_caches(recipe, checked.model_files())
            checked.caches = estimates.cache_needs(recipe, checked.dataset, caches, memory, captions)
    with checked.collect_problems():
        checked.disk = disk = estimates.disk(
            recipe,
            folder.path,
            memory,
            there=len(state.list_checkpoints(folder.checkpoints)),
            export=estimates.export_bytes(recipe, memory, checked.files),
            exports=estimates.times_due(recipe.run.export.every, length),
            saves=estimates.times_due(recipe.run.save.every, length),
            cache=sum(need.missing_bytes for need in checked.caches),
        )
        estimates.refuse_full_disk(disk)
        if disk.needed > disk.free:
            checked.notes.append(
                f"all checkpoints and exports of the run need {format_bytes(disk.needed)}, "
                f"{format_bytes(disk.free)} are "
                f"free at {folder.path}: lower run.save.keep, export less often, or free disk space"
            )


def _raise_problems(checked: Checked) -> None:
    """Raises one problem as it is, several as one list."""
    if len(checked.problems) == 1:
        raise checked.problems[0]
    listed: list[Problem] = []
    closing = ""
    for error in checked.problems:
        inner = error.problems if isinstance(error, RecipeError) else ()
        part = _PARTS.get(error.code[:4]) or _PARTS.get(error.code[:3], "recipe")
        listed += inner or [Problem(part, error.message, "", error.code)]
        closing = closing or (error.closing if isinstance(error, RecipeError) else "")
    if listed:
        raise RecipeError(checked.reading.name, problems=listed, closing=closing)
