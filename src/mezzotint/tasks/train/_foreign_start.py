"""A run that goes on from foreign weights (`run.start`): where it begins, and the optimizer's moments in MindONE's
file, read and written.

`optimizer.ckpt` is a MindSpore checkpoint whose names begin with `ldm_with_loss_grad.optimizer.`: `adam_m.NAME` and
`adam_v.NAME` are the moments of a tensor, `NAME` the tensor itself, `global_step` the updates made, and
`learning_rate.learning_rate` the rates of the whole run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from torch import Tensor

from mezzotint.data.schedule.plan import Timeline
from mezzotint.errors import RecipeError
from mezzotint.families.base import ModelFamily
from mezzotint.recipe.counting import listed
from mezzotint.recipe.recipe import Recipe
from mezzotint.recipe.resolved import Resolved
from mezzotint.training import lr
from mezzotint.training.model import TrainableModel
from mezzotint.training.progress import Progress
from mezzotint.training.update import Update
from mezzotint.weights.files import mindspore
from mezzotint.weights.keymap import Entry
from mezzotint.weights.layouts import mindone_sdxl

NAME = "optimizer.ckpt"
PREFIX = "ldm_with_loss_grad.optimizer."
_MOMENTS = {"adam_m.": "opt.mean/", "adam_v.": "opt.square/"}


def check(recipe: Recipe, model: TrainableModel, steps: int) -> None:
    """Before the first step. Raises RecipeError E1076 for a start at the run's end, and where MindONE's file could not
    be written."""
    if recipe.run.start.step >= steps:
        raise RecipeError(
            f"run.start.step is {recipe.run.start.step}, and the run ends at step {steps}; raise run.steps, which "
            "counts the steps that lie behind, too",
            code="E1076",
        )
    if recipe.run.export.mindspore_optimizer:
        _moments(model.update)
        next(_entries(model.update, model.family))


def progress(recipe: Recipe, timeline: Timeline, steps: int) -> Progress:
    """Where a new run stands: at step 0, or after the steps that lie behind its weights."""
    start, step = Progress(last_step=steps), recipe.run.start.step
    if step:
        start.step = start.first_step = step
        start.epoch = timeline.locate(step - 1)[0]
        start.epoch_ends = timeline.locate(step)[0] > start.epoch
        start.samples = step * recipe.data.batch_size * recipe.optim.accumulation
    return start


def begin(recipe: Recipe, model: TrainableModel) -> Iterator[str]:
    """Makes a new run go on as `run.start` says; tells what it did."""
    start = recipe.run.start
    if start.step:
        yield f"going on from foreign weights after step {start.step}: rates, data and draws are the next step's"
    if start.optimizer is not None:
        yield from restore(start.optimizer, model.update, model.family)


def restore(path: Path, update: Update, family: ModelFamily) -> list[str]:
    """Takes the moments of a file into the optimizer. Returns what could be restored and what could not, in sentences.

    Raises RecipeError E1076 for an optimizer without such moments, or a file without any of this model; WeightsError
    for one that cannot be read.
    """
    mine = _moments(update)
    there = {name.removeprefix(PREFIX).replace("._backbone", ""): name for name in mindspore.entries(path)}
    places: dict[str, tuple[Entry, str]] = {}
    for part, entry in _entries(update, family):
        for theirs, ours in _MOMENTS.items():
            if theirs + entry.foreign in there:
                places[there[theirs + entry.foreign]] = entry, f"{ours}{part}/"
    misshapen: list[str] = []
    restored: set[str] = set()
    with torch.no_grad():
        for name, tensor in mindspore.read(path, places.keys()):
            entry, start = places[name]
            for ours, value in entry.to_ours(tensor).items():
                place = mine.get(f"{start}{ours}")
                if place is not None and place.shape != value.shape:
                    misshapen.append(f"{ours} ({_shape(value)} there, {_shape(place)} here)")
                elif place is not None:
                    place.copy_(value)
                    restored.add(f"{start}{ours}")
        if not restored:
            raise RecipeError(
                f"run.start.optimizer: {path} holds no moments of what is trained here; it is of another model, or no "
                f"optimizer's file of MindONE's, whose names begin with {PREFIX}adam_m.",
                code="E1076",
            )
        counts = mindspore.read(path, [there["global_step"]]) if "global_step" in there else ()
        updates = [int(count.reshape(-1)[0]) for _, count in counts]
        if updates:
            update.applied.fill_(float(updates[0]))
    after = f" after {updates[0]:,} updates" if updates else ", without their count"
    sentences = [f"run.start.optimizer: {len(restored):,} moments from {path}{after}"]
    absent = sorted({name.partition("/")[2] for name in mine.keys() - restored})
    strange = [name for name in there if name.startswith(tuple(_MOMENTS)) and there[name] not in places]
    for names, words in (
        (absent, "begin at zero, for the file has none of them"),
        (misshapen, "begin at zero, for they have another shape"),
        (strange, "of the file are of nothing that is trained here"),
    ):
        if names:
            sentences.append(f"  {len(names):,} {words}: {listed(names, 5)}")
    return [*sentences, "  not in such a file: the average, the loss scale, held-out measurements; they begin anew"]


def write(folder: Path, recipe: Recipe, model: TrainableModel, resolved: Resolved) -> None:
    """With `run.export.mindspore_optimizer`, writes the file of a run folder, tensor by tensor; joined tensors of which
    a part is trained are left out. Raises RecipeError E1076 for an optimizer without moments, StorageError when the
    disk refuses."""
    if not recipe.run.export.mindspore_optimizer:
        return
    update = model.update
    mine, masters = _moments(update), update.masters
    rates = rates_of(recipe, resolved.steps, resolved.rate_factor)

    def pairs() -> Iterator[tuple[str, Tensor]]:
        yield f"{PREFIX}global_step", update.applied.to("cpu", torch.int32).reshape(1)
        for part, entry in _entries(update, model.family):
            if any(f"{part}/{name}" not in masters for name in entry.ours):
                continue
            sources = [("", masters, f"{part}/")]
            sources += [(theirs, mine, f"{ours}{part}/") for theirs, ours in _MOMENTS.items()]
            for theirs, tensors, start in sources:
                held = {name: tensors[start + name].detach().to("cpu", torch.float32) for name in entry.ours}
                yield f"{PREFIX}{theirs}{entry.foreign}", entry.to_foreign(held)
        if rates is not None:
            yield f"{PREFIX}learning_rate.learning_rate", torch.tensor(rates, dtype=torch.float32)

    mindspore.write(folder / NAME, pairs())


def rates_of(recipe: Recipe, steps: int, factor: float) -> list[float] | None:
    """The rate of every step, as MindONE keeps it; None where it is constant. factor: that of every rate."""
    o = recipe.optim
    if o.schedule.kind == "constant" and not (o.schedule.warmup_steps or o.schedule.warmup_share):
        return None
    return [o.lr * factor * lr.factor(o.schedule, step, steps) for step in range(steps)]


def _moments(update: Update) -> Mapping[str, Tensor]:
    moments = {n: t for n, t in update.tensors().items() if n.startswith(tuple(_MOMENTS.values()))}
    if not moments:
        raise RecipeError(
            "run.start.optimizer and run.export.mindspore_optimizer are about the two moments of Adam, which this "
            "optimizer has not; write optim.optimizer.kind=adam-weight-decay or adamw, or leave them out",
            code="E1076",
        )
    return moments


def _entries(update: Update, family: ModelFamily) -> Iterator[tuple[str, Entry]]:
    refiner = "text_encoder" not in family.text_parts
    for part in dict.fromkeys(name.split("/")[0] for name in update.masters):
        names = [name for name, _ in family.parts()[part].named_parameters()]
        try:
            entries = list(mindone_sdxl.entries(part, names, refiner=refiner))
        except KeyError as error:
            raise RecipeError(
                "run.start.optimizer and run.export.mindspore_optimizer go by the names of MindONE's SDXL, and "
                f"{part} has none there; leave them out",
                code="E1076",
            ) from error
        yield from (
            (part, entry) for entry in entries if any(f"{part}/{name}" in update.masters for name in entry.ours)
        )


def _shape(tensor: Tensor) -> str:
    return "×".join(map(str, tensor.shape)) or "a number"
