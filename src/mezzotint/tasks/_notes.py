"""What a recipe asks for and its writer may not mean: sentences that `check` and the start of a run show. Nothing here
is an error, and nothing is changed."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterator, Mapping

from torch import nn

from mezzotint.data.catalogue import readable
from mezzotint.recipe.counting import counted
from mezzotint.recipe.optim import AdaCoor
from mezzotint.recipe.recipe import Recipe
from mezzotint.tasks.assemble import Dataset
from mezzotint.training import patterns

_ARCHIVES = frozenset((".zip", ".7z", ".rar", ".tar", ".tgz", ".gz", ".bz2", ".xz", ".zst"))
_SHOWN = 3


def notes(recipe: Recipe, *, prediction: str | None, device: str, buckets: int | None) -> list[str]:
    """The sentences, most of the time none.

    recipe: with its paths resolved. prediction: of the model, None where it could not be read. device: "cpu" or "cuda".
    buckets: how many hold pictures, None where the data could not be read.
    """
    found = [
        f"data.path names {folder} {_times(count)}: an epoch visits each of its pictures as often; data.repeats says "
        "that better"
        for folder, count in Counter(path.resolve() for path in recipe.data.path).items()
        if count > 1
    ]
    if recipe.objective.zero_terminal_snr and prediction == "epsilon":
        found.append(
            "objective.zero_terminal_snr with a model that predicts epsilon: the last timestep is pure noise, and the "
            "noise in it teaches nothing; such a schedule is for v-prediction"
        )
    if recipe.run.compile and device == "cpu":
        many = f"each of the {buckets} buckets" if buckets is not None and buckets > 1 else "every size of picture"
        found.append(
            f"run.compile on a CPU: {many} is compiled anew when it is first met, which may take minutes; it pays in "
            "long runs over few buckets"
        )
    if recipe.run.device_memory is not None and device == "cpu":
        found.append(f"run.device_memory={recipe.run.device_memory} caps a GPU's memory, and this run is on the CPU")
    if recipe.data.captions.dropped == "zeros" and recipe.data.captions.dropout == 0.0:
        found.append(
            "data.captions.dropped=zeros with data.captions.dropout=0: only captions that a picture's own chance drops "
            "become zeros"
        )
    if recipe.run.half != "autocast" and recipe.run.precision == "fp32":
        found.append(f"run.half={recipe.run.half} is about bf16 and fp16, and run.precision is fp32")
    return found


def of_data(dataset: Dataset) -> list[str]:
    """Sentences about the pictures, most of the time none."""
    found = []
    packed = {ending: count for ending, count in dataset.catalogue.report.unknown if ending in _ARCHIVES}
    if packed:
        many = " and ".join(counted(count, f"{ending} archive") for ending, count in packed.items())
        where = ", ".join(readable(os.fspath(root)) for root in dict.fromkeys(dataset.catalogue.roots))
        verb, them = ("are", "them") if sum(packed.values()) > 1 else ("is", "it")
        found.append(
            f"{many} below {where} {verb} not opened, so that pictures in {them} are not trained; unpack {them} there"
        )
    if broken := list(_broken_groups(dataset)):
        more = f" and {len(broken) - _SHOWN} more" if len(broken) > _SHOWN else ""
        found.append(
            f"data.holdout.share breaks pictures that are batched together by name: it takes "
            f"{', '.join(broken[:_SHOWN])}{more}; to leave them whole, hold out a folder of its own with "
            "data.holdout.path (EveryDream2's val_split_mode manual)"
        )
    return found


def of_names(recipe: Recipe, parts: Mapping[str, nn.Module], trained: Collection[str]) -> list[str]:
    """Sentences about patterns that may match nothing and do. parts: the networks by name. trained: what moves, by
    `part/parameter`."""
    every = [f"{part}/{name}" for part, module in parts.items() for name, _ in module.named_parameters()]
    found = [("model.freeze", recipe.model.freeze, every)]
    rules = {f"optim.part_optimizer.{part}": rule for part, rule in recipe.optim.part_optimizer.items()}
    for where, rule in ({"optim.optimizer": recipe.optim.optimizer} | rules).items():
        if not isinstance(rule, AdaCoor):
            found.append((f"{where}.no_decay", rule.no_decay, list(trained)))
    return [
        f"{where}: {' and '.join(unmet)} {'names' if len(unmet) == 1 else 'name'} nothing in this model"
        for where, told, names in found
        if (unmet := patterns.idle(told, names))
    ]


def _broken_groups(dataset: Dataset) -> Iterator[str]:
    """`2 of the 7 of 'horses'` for each name that the share held out takes pictures of."""
    own = dataset.catalogue.own
    held, trained = Counter(own.group[dataset.held].tolist()), Counter(own.group[dataset.rows].tolist())
    for group, count in sorted(held.items()):
        if group:
            yield f"{count} of the {count + trained[group]} of {readable(own.group_name(group))!r}"


def _times(count: int) -> str:
    return "twice" if count == 2 else f"{count} times"
