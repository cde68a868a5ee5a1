"""The verb `check`: reads everything and trains nothing. Recipe, files, parameters, batches, memory, disk, and, with
`--dry`, time. Everything that would keep the run from starting is told together.

Nothing is written but the index of the data set, in the cache folder.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from mezzotint import outside
from mezzotint.diffusion.objective import Objective
from mezzotint.errors import CheckpointError, MezzotintError, OutOfMemory, Problem, RecipeError
from mezzotint.recipe import advice
from mezzotint.recipe.reading.read import Reading, located
from mezzotint.recipe.recipe import Recipe
from mezzotint.recipe.resume_rules import as_begun, data_changed, differences, judge
from mezzotint.recipe.sections.model import ModelSettings
from mezzotint.reports import batch_report
from mezzotint.run_folder import RunFolder
from mezzotint.runtimes.base import Launch, bytes_of, device_for
from mezzotint.runtimes.single import Runtime
from mezzotint.sampling.sample import require_solver
from mezzotint.tasks import assemble, clip_rules, held_out, long_captions, optimizers
from mezzotint.tasks.assemble import Dataset
from mezzotint.tasks.cache import text_files
from mezzotint.tasks.check import _estimates, page
from mezzotint.tasks.check._dry_run import DryRun, dry_run
from mezzotint.tasks.check._estimates import BucketRow, CacheNeed, Disk, Length
from mezzotint.tasks.check._model_files import Component, components
from mezzotint.tasks.check.memory import Memory, Outline, described, memory_of
from mezzotint.tasks.check.notes import notes, of_data, of_names, of_pictures
from mezzotint.tasks.prompts import previews
from mezzotint.tasks.reading.arguments import parse_with
from mezzotint.tasks.train import announce, ema_start, exports, resume
from mezzotint.tasks.train.train import folder_of
from mezzotint.training import state
from mezzotint.training.callbacks import wandb_log
from mezzotint.weights.folder import publishing

_OF_PATHS = ("E1020", "E1201", "E1401", "E1402", "E1406")
"""What is wrong when a path leads nowhere, or to something else."""


@dataclass(slots=True)
class Checked:
    """What a check has found. What could not be found out is None or empty, and `problems` says why. notes: sentences
    about what will run and may not be meant. names: where pictures are batched by name, how each name fills its buckets
    (`batch_report.HEAD`). at_hand: bytes of memory free on the device, None where nobody tells."""

    reading: Reading
    recipe: Recipe
    processes: int
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    files: tuple[Component, ...] = ()
    memory: Memory | None = None
    dataset: Dataset | None = None
    buckets: tuple[BucketRow, ...] = ()
    names: tuple[tuple[str, ...], ...] = ()
    length: Length | None = None
    caches: tuple[CacheNeed, ...] = ()
    disk: Disk | None = None
    dry: DryRun | None = None
    at_hand: int | None = None
    notes: list[str] = field(default_factory=list)
    problems: list[MezzotintError] = field(default_factory=list)

    @property
    def fits(self) -> bool | None:
        """Whether a step's peak is no more than what is free; None where one of them is not known."""
        return None if self.memory is None or self.at_hand is None else self.memory.peak <= self.at_hand

    @contextmanager
    def gathering(self) -> Iterator[None]:
        """An error of the reader's world within is kept, each once, and the check goes on."""
        try:
            yield
        except MezzotintError as error:
            self.keep(error)

    def keep(self, error: MezzotintError) -> None:
        """Adds a problem that is not among the others yet."""
        if (error.code, error.message) not in [(known.code, known.message) for known in self.problems]:
            self.problems.append(error)


def run(arguments: Sequence[str]) -> int:
    """`mezzotint check RECIPE key=value … [--json] [--all] [--dry] [--processes=N]`. Returns 0 when the recipe can run,
    5 when it does not fit into memory.

    Raises the problem that was found, or a RecipeError with all of them when they are several.
    """
    reading, line = parse_with(arguments, "check")
    launch = Launch.read()
    if launch.rank:
        return 0  # the first process looks for all
    processes = line.whole("--processes", 1) or launch.world_size
    words = line.written(leaving=[switch.name for switch in line.verb.switches])
    checked = check(reading, processes=processes, dry="--dry" in line, words=words)
    if "--json" in line:
        print(json.dumps(page.document(checked), indent=1, ensure_ascii=False))
    elif not _is_lost(checked):
        print("\n".join(page.page(checked, every_setting="--all" in line)))
    sys.stdout.flush()  # before the problems, which go to stderr
    _raise(checked)
    return OutOfMemory.exit_status if checked.fits is False else 0


def _is_lost(checked: Checked) -> bool:
    """Whether a wrong path is all that is wrong: it is then told alone, not below a report on half of the run."""
    return bool(checked.problems) and all(error.code in _OF_PATHS for error in checked.problems)


def check(reading: Reading, *, processes: int = 1, dry: bool = False, words: Sequence[str] = ()) -> Checked:
    """Looks at everything. Problems are in the answer; none of them is raised. words: what stands behind other verbs to
    do the same."""
    checked = Checked(reading, located(reading), processes, notes=list(reading.notes))
    _take_as_begun(checked)
    _look_at_settings(checked)
    _settle_optimizer(checked)
    outline = _look_at_model(checked)
    with checked.gathering():
        text_files.require(checked.recipe, words or [reading.name])
    _look_at_data(checked)
    if outline is not None and checked.dataset is not None and not assemble.only_texts_of_files(checked.recipe):
        with checked.gathering():
            catalogue = checked.dataset.catalogue
            checked.notes += long_captions.note(long_captions.lost_words(outline.family, catalogue), catalogue)
    prediction = outline.prediction if outline is not None else None
    checked.notes += notes(
        checked.recipe,
        prediction=prediction,
        device=checked.device.type,
        buckets=len(checked.buckets) if checked.dataset is not None else None,
    )
    _advise(checked, prediction)
    if outline is not None:
        _look_at_memory(checked, outline)
    with checked.gathering():
        exports.require_possible(checked.recipe)
    if checked.recipe.run.wandb.mode != "off":
        with checked.gathering():
            wandb_log.package(checked.recipe.run.wandb)
    if checked.recipe.run.export.folder is not None:
        with checked.gathering():
            publishing.refuse_others(checked.recipe.run.export.folder)
    if checked.dataset is not None:
        with checked.gathering():  # reads the file of prompts
            previews.captions(checked.recipe, checked.dataset)
        held_out.warn_of_trained(checked.dataset, checked.notes.append)
    folder = RunFolder(folder_of(reading, checked.recipe))
    _look_at_run_folder(checked, folder, words or [reading.name])
    if checked.memory is not None:
        _look_at_disk(checked, folder)
    if dry and not checked.problems and checked.dataset is not None and checked.length is not None:
        with checked.gathering():
            checked.dry = dry_run(checked.recipe, checked.dataset, checked.length.steps, processes=processes)
    return checked


def _take_as_begun(checked: Checked) -> None:
    """What a run that would go on here keeps from its beginning; problems of its checkpoint come later."""
    wanted = checked.recipe.run.resume
    if wanted == "never":
        return
    with suppress(OSError, ValueError, LookupError, TypeError, AttributeError, MezzotintError):
        folder = RunFolder(folder_of(checked.reading, checked.recipe))
        if wanted in ("auto", "latest"):
            start = resume.Start(state.listed(folder.checkpoints)[0])
        else:
            start = resume.choose(wanted, folder, "")
        checked.recipe = as_begun(checked.recipe, start.recipe)


def _look_at_settings(checked: Checked) -> None:
    recipe = checked.recipe
    with checked.gathering():
        checked.device = device_for(recipe.run, Launch())
    if recipe.data.batch_size < checked.processes:
        checked.keep(
            RecipeError(
                f"data.batch_size is {recipe.data.batch_size}, too few for {checked.processes} processes; "
                f"write data.batch_size={checked.processes} or more",
                code="E1803",
            )
        )
    for part in recipe.model.train:
        has_rate = recipe.optim.part_optimizer.get(part, recipe.optim.optimizer).has_rate
        if has_rate and recipe.optim.part_lr.get(part, recipe.optim.lr) == 0:
            checked.keep(
                RecipeError(
                    f"the learning rate of {part} is 0, so that it cannot move; set optim.lr or optim.part_lr above 0, "
                    "or take it out of model.train",
                    code="E1602",
                )
            )
    checked.at_hand = _memory_at_hand(checked.device, checked.recipe.run.device_memory)


def _settle_optimizer(checked: Checked) -> None:
    """Of two optimizers that the recipe names, the one that `train` would take here."""
    asked, recorded = checked.recipe, None
    if not optimizers.is_open(asked):
        return
    with checked.gathering():
        there = state.listed(folder_of(checked.reading, asked).joinpath("checkpoints"))
        if there and asked.run.resume in ("auto", "latest"):
            recorded = _recorded(there[0])["recipe"]
    checked.recipe = optimizers.settled(asked, checked.device.type, recorded)
    checked.notes += optimizers.sentences(
        asked, checked.recipe, checked.device.type, goes_on=recorded is not None, origin=checked.reading.origin
    )


def _look_at_model(checked: Checked) -> Outline | None:
    outline, fits = None, False
    with checked.gathering():
        outline = Outline(checked.recipe, checked.device.type)
        checked.notes += clip_rules.notes(checked.recipe, outline.family.grid)
        checked.notes += of_names(checked.recipe, outline.family.parts(), outline.trained)
        clip_rules.refuse_unfit(checked.recipe, outline.family.grid)
        _require_drawing(checked.recipe, outline)
        fits = True
    parts = outline.family.parts() if outline is not None else {}
    checked.files, problems = components(checked.recipe.model, parts)
    for problem in problems:
        checked.keep(problem)
    start = ema_start.settings_of(checked.recipe)
    if start is not None and outline is not None:
        _look_at_ema_start(checked, outline, start)
    return outline if fits else None


def _require_drawing(recipe: Recipe, outline: Outline) -> None:
    """Raises RecipeError E1070 for previews that this model cannot be drawn in."""
    if recipe.run.preview.every is None:
        return
    objective, drawn = Objective(recipe.objective, outline.family.schedule, outline.prediction), recipe.sample
    require_solver(drawn.solver, objective.schedule, objective.parameterization.solved, drawn)


def _look_at_ema_start(checked: Checked, outline: Outline, start: ModelSettings) -> None:
    """Whether the average can start from the model that `optim.ema.start` names, told from its configurations."""
    with checked.gathering():
        family = described(type(outline.family), start)[1]
        shapes = {name: tuple(p.shape) for name, p in outline.trained.items()}
        ema_start.refuse_another(start.path, ema_start.named(family.parts()), shapes)
        for problem in components(start, family.parts())[1]:
            checked.keep(problem)


def _look_at_data(checked: Checked) -> None:
    recipe = checked.recipe
    with checked.gathering():
        runtime = Runtime(checked.device, Launch(), recipe.run)
        dataset = assemble.open_dataset(recipe, runtime, _progress)
        steps = assemble.length_in_steps(recipe, dataset.timeline)
        checked.length = _estimates.length(dataset.timeline, steps)
        checked.notes += announce.worked_out(recipe, steps)
        checked.dataset = dataset
        checked.buckets = _estimates.bucket_rows(
            dataset, recipe.data, accumulation=recipe.optim.accumulation, seed=recipe.run.seed
        )
        catalogue, rows = dataset.catalogue, dataset.rows
        if catalogue.overrides.group[rows].any():
            checked.names = tuple(batch_report.rows_of(catalogue, rows, recipe.data))
        checked.notes += batch_report.warnings(catalogue, rows, recipe.data)
        checked.notes += of_data(dataset, recipe.data) + of_pictures(recipe, dataset)


def _advise(checked: Checked, prediction: str | None) -> None:
    """What is usually done otherwise, and how large a file gets that is asked for."""
    recipe = checked.recipe
    steps = checked.length.steps if checked.length is not None else None
    memory = torch.cuda.mem_get_info(checked.device)[1] if checked.device.type == "cuda" else None
    checked.notes += advice.notes(recipe, steps=steps, memory=memory, prediction=prediction)
    if recipe.run.schedule_file and checked.dataset is not None and checked.length is not None:
        rows = checked.dataset.rows[:1000]
        line = 45 + sum(len(str(checked.dataset.catalogue.path(int(row)))) for row in rows) / max(1, len(rows))
        visits = sum(row.visits for row in checked.buckets)
        an_epoch = page.size(line * visits)
        whole = page.size(line * visits * checked.length.steps / max(1, checked.length.steps_an_epoch))
        checked.notes.append(f"run.schedule_file writes about {an_epoch} in each epoch, {whole} in all")


def _look_at_memory(checked: Checked, outline: Outline) -> None:
    batches = {row.bucket: row.largest for row in checked.buckets if row.batches}
    with checked.gathering():
        checked.memory = memory_of(outline, batches, processes=checked.processes)
        if checked.recipe.model.attention == "xformers":
            checked.notes.append(
                "activations are counted as with torch's own attention: what xformers keeps cannot be counted ahead"
            )


def _look_at_run_folder(checked: Checked, folder: RunFolder, words: Sequence[str]) -> None:
    """Whether `train` would start here or go on, without hashing a checkpoint."""
    recipe = checked.recipe
    there = state.listed(folder.checkpoints)
    line = f"mezzotint train {checked.reading.name}"
    with checked.gathering():
        start = there[0] if there and recipe.run.resume in ("auto", "latest") else None
        if recipe.run.resume == "never" or (recipe.run.resume == "latest" and not there):
            resume.choose(recipe.run.resume, folder, line)
        elif recipe.run.resume not in ("auto", "latest", "never"):
            start = resume.choose(recipe.run.resume, folder, line).checkpoint
        if start is not None:
            _compare(checked, start, lambda allowed: announce.allowing(recipe, allowed, words, Launch()))


def _compare(checked: Checked, checkpoint: Path, line: resume.Line) -> None:
    """Holds the recipe against that of a checkpoint. Raises RecipeError with every refused change. line: see
    `resume.with_line`."""
    recorded = _recorded(checkpoint)
    try:
        found = differences(recorded["recipe"], checked.recipe)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{checkpoint}: state.json cannot be read ({error})", code="E1501") from error
    allowed = resume.allowances(checked.reading, checked.recipe)
    changed, problems = judge(found, allowed)
    checked.notes.append(f"the run folder has {checkpoint.name}: train goes on from there")
    checked.notes += [f"not bit-exact from there: {one}" for one in changed]
    trained_on = recorded.get("identity", {}).get("data")
    if checked.dataset is not None and trained_on not in (None, checked.dataset.catalogue.fingerprint):
        checked.notes.append("not bit-exact from there: the data set's content has changed")
        problems += data_changed(allowed)
    if problems:
        raise resume.refusal(checkpoint, checked.recipe, checked.reading, resume.with_line(problems, line))


def _recorded(checkpoint: Path) -> dict[str, Any]:
    """What a checkpoint says of itself: `recipe` and `identity`, as JSON. Raises CheckpointError E1501."""
    try:
        values: dict[str, Any] = outside.read_json(checkpoint / "state.json", limit=outside.LISTED)
        dict(values["recipe"]["optim"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{checkpoint}: state.json cannot be read ({error})", code="E1501") from error
    return values


def _look_at_disk(checked: Checked, folder: RunFolder) -> None:
    recipe, memory = checked.recipe, checked.memory
    assert memory is not None
    if checked.dataset is not None:
        with checked.gathering():
            captions = previews.captions(recipe, checked.dataset)
            caches = assemble.open_caches(recipe, assemble.open_files(recipe))
            checked.caches = _estimates.cache_needs(recipe, checked.dataset, caches, memory, captions)
    during = saves = None
    if checked.length is not None:
        steps, an_epoch = checked.length.steps, checked.length.steps_an_epoch
        during = _estimates.times_due(recipe.run.export.every, steps=steps, steps_an_epoch=an_epoch)
        saves = _estimates.times_due(recipe.run.save.every, steps=steps, steps_an_epoch=an_epoch)
    with checked.gathering():
        checked.disk = _estimates.disk(
            recipe,
            folder.path,
            assemble.cache_folder(recipe),
            memory,
            there=len(state.listed(folder.checkpoints)),
            export=_estimates.export_bytes(recipe, memory, checked.files),
            exports=None if during is None else during + 1 + (recipe.run.export.folder is not None),
            saves=None if saves is None else saves + 1,
            cache=sum(need.missing_bytes for need in checked.caches),
        )
        _estimates.refuse_full_disk(checked.disk)
        if checked.disk.wanted > checked.disk.free:
            checked.notes.append(
                f"all checkpoints and exports of the run take {page.size(checked.disk.wanted)}, "
                f"{page.size(checked.disk.free)} are free at {folder.path}: lower run.save.keep, export less "
                "often, or make room"
            )


def _memory_at_hand(device: torch.device, cap: str | None) -> int | None:
    """Bytes that are free; of a GPU no more than `run.device_memory`."""
    if device.type == "cuda":
        free = torch.cuda.mem_get_info(device)[0]
        return free if cap is None else min(free, bytes_of(cap))
    try:
        lines = Path("/proc/meminfo").read_text("ascii").splitlines()
    except OSError:
        return None
    found = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    return 1024 * int(found[0]) if found else None


def _progress(done: int, total: int) -> None:
    if total >= 1000 and done * 10 // total > (done - 1) * 10 // total:
        print(f"looking at pictures: {done:,} of {total:,}", file=sys.stderr)


def _raise(checked: Checked) -> None:
    """One problem is raised as it is; several become one list."""
    if not checked.problems:
        return
    if len(checked.problems) == 1:
        raise checked.problems[0]
    listed: list[Problem] = []
    for error in checked.problems:
        inner = error.problems if isinstance(error, RecipeError) else ()
        listed += inner or [Problem(_kind(error), error.message, "", error.code)]
    closing = next(
        (error.closing for error in checked.problems if isinstance(error, RecipeError) and error.closing), ""
    )
    raise RecipeError(checked.reading.name, problems=listed, closing=closing)


def _kind(error: MezzotintError) -> str:
    """Which part of the request a problem concerns, by its code."""
    words = {"E12": "data", "E13": "cache", "E14": "model", "E15": "run", "E16": "optim", "E17": "disk", "E18": "run"}
    return words.get(error.code[:3], "recipe")
