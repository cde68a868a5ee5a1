"""Reads and writes the optimizer's moments in MindONE's file.

`optimizer.ckpt` is a MindSpore checkpoint whose names start with `ldm_with_loss_grad.optimizer.`: `adam_m.NAME` and
`adam_v.NAME` are the moments of a tensor, `NAME` the tensor itself, `global_step` the number of updates, and
`learning_rate.learning_rate` the rates of the whole run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from mezzotint.compat.mindone import mindspore_format, sdxl_layout
from mezzotint.errors import RecipeError
from mezzotint.families.base import ModelFamily
from mezzotint.settings.counting import format_names
from mezzotint.training.update import Update
from mezzotint.weights.files import formats
from mezzotint.weights.keymap import Entry

NAME = "optimizer.ckpt"
PREFIX = "ldm_with_loss_grad.optimizer."
_MOMENTS = {"adam_m.": "opt.mean/", "adam_v.": "opt.square/"}


def is_readable(path: Path) -> bool:
    """Whether a file is a MindSpore checkpoint."""
    return formats.name_at(path) == "mindspore"


def check(update: Update, family: ModelFamily) -> None:
    """Raises RecipeError E1076 for an optimizer without moments, or a network that MindONE does not have."""
    _moments(update)
    next(_entries(update, family))


def restore(path: Path, update: Update, family: ModelFamily) -> list[str]:
    """Loads the moments of a file into the optimizer. Returns sentences about what was restored and what was not.

    Raises RecipeError E1076 for an optimizer without such moments, or a file without moments of this model;
    WeightsError for an unreadable file.
    """
    mine = _moments(update)
    stored = {name.removeprefix(PREFIX).replace("._backbone", ""): name for name in mindspore_format.read_header(path)}
    sources: dict[str, tuple[Entry, str]] = {}
    for part, entry in _entries(update, family):
        for theirs, ours in _MOMENTS.items():
            if theirs + entry.foreign in stored:
                sources[stored[theirs + entry.foreign]] = entry, f"{ours}{part}/"
    misshapen: list[str] = []
    restored: set[str] = set()
    with torch.no_grad():
        for name, tensor in mindspore_format.read(path, sources.keys()):
            entry, start = sources[name]
            for ours, value in entry.to_ours(tensor).items():
                moment = mine.get(f"{start}{ours}")
                if moment is not None and moment.shape != value.shape:
                    misshapen.append(f"{ours} ({_shape(value)} in the file, {_shape(moment)} in the model)")
                elif moment is not None:
                    moment.copy_(value)
                    restored.add(f"{start}{ours}")
        if not restored:
            raise RecipeError(
                f"run.start.optimizer: {path} has no moments of the trained parameters; it belongs to another "
                f"model, or is not an optimizer file of MindONE, whose names start with {PREFIX}adam_m.",
                code="E1076",
            )
        counts = mindspore_format.read(path, [stored["global_step"]]) if "global_step" in stored else ()
        updates = [int(count.reshape(-1)[0]) for _, count in counts]
        if updates:
            update.applied.fill_(float(updates[0]))
    after = f" after {updates[0]:,} updates" if updates else ", without their count"
    sentences = [f"run.start.optimizer: {len(restored):,} moments from {path}{after}"]
    absent = sorted({name.partition("/")[2] for name in mine.keys() - restored})
    untrained = [name for name in stored if name.startswith(tuple(_MOMENTS)) and stored[name] not in sources]
    for names, outcome in (
        (absent, "start at zero, because the file does not have them"),
        (misshapen, "start at zero, because they have another shape"),
        (untrained, "of the file belong to parameters that are not trained"),
    ):
        if names:
            sentences.append(f"  {len(names):,} {outcome}: {format_names(names, 5)}")
    return [*sentences, "  not in such a file: the average, the loss scale, held-out measurements; they start again"]


def write(folder: Path, update: Update, family: ModelFamily, rates: Sequence[float] | None) -> None:
    """Writes the file into a folder, tensor by tensor; fused tensors that are only partly trained are left out. rates:
    the rate of every step of the run; None if it is constant. Raises RecipeError E1076 for an optimizer without
    moments, StorageError for errors of the disk."""
    mine, masters = _moments(update), update.masters

    def pairs() -> Iterator[tuple[str, Tensor]]:
        yield f"{PREFIX}global_step", update.applied.to("cpu", torch.int32).reshape(1)
        for part, entry in _entries(update, family):
            if any(f"{part}/{name}" not in masters for name in entry.ours):
                continue
            sources = [("", masters, f"{part}/")]
            sources += [(theirs, mine, f"{ours}{part}/") for theirs, ours in _MOMENTS.items()]
            for theirs, tensors, start in sources:
                held = {name: tensors[start + name].detach().to("cpu", torch.float32) for name in entry.ours}
                yield f"{PREFIX}{theirs}{entry.foreign}", entry.to_foreign(held)
        if rates is not None:
            yield f"{PREFIX}learning_rate.learning_rate", torch.tensor(list(rates), dtype=torch.float32)

    mindspore_format.write(folder / NAME, pairs())


def _moments(update: Update) -> Mapping[str, Tensor]:
    moments = {n: t for n, t in update.tensors().items() if n.startswith(tuple(_MOMENTS.values()))}
    if not moments:
        raise RecipeError(
            "run.start.optimizer and run.export.optimizer_file need the two moments of Adam, which this "
            "optimizer does not have; write optim.optimizer.kind=adam-weight-decay or adamw, or leave them out",
            code="E1076",
        )
    return moments


def _entries(update: Update, family: ModelFamily) -> Iterator[tuple[str, Entry]]:
    refiner = "text_encoder" not in family.text_parts
    for part in dict.fromkeys(name.split("/")[0] for name in update.masters):
        names = [name for name, _ in family.parts()[part].named_parameters()]
        try:
            entries = list(sdxl_layout.entries(part, names, refiner=refiner))
        except KeyError as error:
            raise RecipeError(
                "run.start.optimizer and run.export.optimizer_file need the tensor names of MindONE's SDXL, "
                f"which has no {part}; leave them out",
                code="E1076",
            ) from error
        yield from (
            (part, entry) for entry in entries if any(f"{part}/{name}" in update.masters for name in entry.ours)
        )


def _shape(tensor: Tensor) -> str:
    return "×".join(map(str, tensor.shape)) or "a number"
