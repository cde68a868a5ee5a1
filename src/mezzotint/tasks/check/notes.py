"""What a recipe asks for and its writer may not mean: sentences that `check` and the start of a run show. Nothing here
is an error, and nothing is changed."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from torch import nn

from mezzotint.assets import MODELS
from mezzotint.data.catalogue import findings
from mezzotint.data.catalogue.catalogue import readable
from mezzotint.data.formats.shared.folder_repeats import seen_in
from mezzotint.families.base import Grid
from mezzotint.recipe.counting import counted
from mezzotint.recipe.recipe import Recipe
from mezzotint.recipe.sections.data import DataSettings
from mezzotint.tasks.assemble import Dataset
from mezzotint.tasks.prompts import cleaning
from mezzotint.training import trainable

_KNOWS = re.compile(r"^In short: ([^.]+)\.", re.MULTILINE)
_ARCHIVES = frozenset((".zip", ".7z", ".rar", ".tar", ".tgz", ".gz", ".bz2", ".xz", ".zst"))
_SHOWN = 3
_LOOKED_AT = 20_000
"""Captions of so many samples are read for a note."""

_DIRECTION = re.compile(
    r"\b(left|right|(left|right)-?(wards?|hand|ward|facing|most)|(anti-?|counter-?)?clockwise"
    r"|(east|west)(wards?|bound)?)\b",
    re.IGNORECASE,
)
"""What is another thing in a mirror. Words, not meaning: "right now" is among them."""


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
    if recipe.model.weights == "files":
        found += knowledge(recipe.model.path)
    if recipe.run.preview.every is not None:
        found += cleaning.sign_notes(recipe.sample.prompts)
    processors = len(os.sched_getaffinity(0))
    if recipe.data.workers > max(2, processors):
        found.append(
            f"data.workers={recipe.data.workers}, and this machine lets a run use {counted(processors, 'processor')}: "
            "more workers than that wait for each other"
        )
    model = recipe.model
    if model.config is not None and model.weights == "files" and model.path.is_dir():
        found.append(
            f"model.config={model.config} has no effect: model.path is a folder with configurations of its own; "
            "model.config is for a model in one file, and for model.weights=random"
        )
    if recipe.run.half != "autocast" and recipe.run.precision == "fp32":
        found.append(f"run.half={recipe.run.half} is about bf16 and fp16, and run.precision is fp32")
    return found


def knowledge(path: Path) -> list[str]:
    """What a model that ships knows, from its README; of other models nothing."""
    readme = path / "README.md"
    if not path.is_relative_to(MODELS) or not readme.is_file():
        return []
    found = _KNOWS.search(readme.read_text("utf-8"))
    if found is None:
        return []
    return [f"{path.name} knows {' '.join(found[1].split())}; anything else is a grey field until it has learned it"]


def of_data(dataset: Dataset, settings: DataSettings) -> list[str]:
    """Sentences about the pictures, most of the time none."""
    found = list(_of_kohya(dataset)) if settings.format == "image-folder" else []
    packed = {ending: count for ending, count in dataset.catalogue.report.unknown if ending in _ARCHIVES}
    if packed:
        many = " and ".join(counted(count, f"{ending} archive") for ending, count in packed.items())
        where = ", ".join(readable(os.fspath(root)) for root in dict.fromkeys(dataset.catalogue.roots))
        verb, them = ("are", "them") if sum(packed.values()) > 1 else ("is", "it")
        found.append(
            f"{many} below {where} {verb} not opened, so that pictures in {them} are not trained; unpack {them} there"
        )
    found += _of_directions(dataset, settings)
    if broken := list(_broken_groups(dataset)):
        more = f" and {len(broken) - _SHOWN} more" if len(broken) > _SHOWN else ""
        found.append(
            f"data.holdout.share breaks pictures that are batched together by name: it takes "
            f"{', '.join(broken[:_SHOWN])}{more}; to leave them whole, hold out a folder of its own with "
            "data.holdout.path (EveryDream2's val_split_mode manual)"
        )
    return found


def of_pictures(recipe: Recipe, dataset: Dataset) -> list[str]:
    """Sentences about pictures and captions that are probably not meant so: the same picture twice, pictures of which
    most is cut away, samples with very many captions. Most of the time none."""
    catalogue, found = dataset.catalogue, []
    paths = [path.resolve() for path in recipe.data.path]
    same = findings.duplicates(catalogue) if len(set(paths)) == len(paths) else {}
    if same:
        what = "1 picture has" if len(same) == 1 else f"{len(same):,} pictures have"
        pairs = [f"{readable(catalogue.key(row))} = {readable(catalogue.key(first))}" for row, first in same.items()]
        found.append(f"{what} the very bytes of another, and count as often: {_few(pairs)}; take them away, if unmeant")
    rows = np.arange(len(catalogue))
    if not recipe.data.has_clips:
        shares = findings.seen_shares(catalogue, rows, recipe.data)
        strips = np.flatnonzero(shares < findings.MOSTLY_CUT)
        if len(strips):
            what = "1 picture has" if len(strips) == 1 else f"{len(strips):,} pictures have"
            in_order = strips[np.argsort(shares[strips], kind="stable")].tolist()
            sizes = [
                f"{catalogue.width[row]}×{catalogue.height[row]}, {100 * shares[row]:.2g} % seen" for row in in_order
            ]
            named = [f"{readable(catalogue.key(row))} ({told})" for row, told in zip(in_order, sizes, strict=True)]
            found.append(
                f"{what} a shape far from every bucket, so that most of it is cut away: {_few(named)}; cut it by hand, "
                "or raise data.buckets.max_aspect"
            )
    counts = catalogue.caption_counts()
    many = np.flatnonzero(counts >= findings.MANY_CAPTIONS)
    if len(many):
        what = "1 sample has" if len(many) == 1 else f"{len(many):,} samples have"
        named = [
            f"{readable(catalogue.key(row))} ({counts[row]}, the last {readable(catalogue.captions(row)[-1][:40])!r})"
            for row in many[np.argsort(-counts[many], kind="stable")][:_SHOWN].tolist()
        ]
        more = f" and {len(many) - len(named):,} more" if len(many) > len(named) else ""
        found.append(
            f"{what} {findings.MANY_CAPTIONS} captions or more, of which each visit draws one: {', '.join(named)}"
            f"{more}; lines in other languages, or that are no captions, are trained as well"
        )
    return found


def _few(texts: Sequence[str]) -> str:
    more = f" and {len(texts) - _SHOWN:,} more" if len(texts) > _SHOWN else ""
    return ", ".join(texts[:_SHOWN]) + more


def of_names(recipe: Recipe, parts: Mapping[str, nn.Module], trained: Collection[str]) -> list[str]:
    """Sentences about patterns that may match nothing and do. parts: the networks by name. trained: what moves, by
    `part/parameter`."""
    every = [f"{part}/{name}" for part, module in parts.items() for name, _ in module.named_parameters()]
    found = [("model.freeze", recipe.model.freeze, every)]
    rules = {f"optim.part_optimizer.{part}": rule for part, rule in recipe.optim.part_optimizer.items()}
    for where, rule in ({"optim.optimizer": recipe.optim.optimizer} | rules).items():
        found.append((f"{where}.no_decay", rule.undecayed, list(trained)))
    return [
        f"{where}: {' and '.join(unmet)} {'names' if len(unmet) == 1 else 'name'} nothing in this model"
        for where, told, names in found
        if (unmet := trainable.idle(told, names))
    ]


def _of_kohya(dataset: Dataset) -> Iterator[str]:
    """A word about folders whose names say how often their pictures are meant to be seen."""
    for root in dict.fromkeys(dataset.catalogue.roots):
        if folders := seen_in(root):
            shown = ", ".join(readable(name) for name in folders[:_SHOWN])
            more = f" and {len(folders) - _SHOWN} more" if len(folders) > _SHOWN else ""
            one = len(folders) == 1
            yield (
                f"{shown}{more} below {readable(os.fspath(root))} look{'s' * one} like kohya's folders, whose number "
                "is how often an epoch visits each picture; data.format=image-folder takes every picture once; "
                "data.format=kohya reads the number, and the words where a picture has no caption"
            )


def _of_directions(dataset: Dataset, settings: DataSettings) -> Iterator[str]:
    """A word about captions that a mirrored picture or clip contradicts. Looks at the first of many."""
    catalogue = dataset.catalogue
    rows = dataset.rows[:_LOOKED_AT]
    own = catalogue.overrides.flip[rows]
    mirrored_rows = rows[np.where(np.isnan(own), settings.flip, own) > 0].tolist()
    saying = [row for row in mirrored_rows if any(map(_DIRECTION.search, catalogue.captions(row)))]
    if not saying:
        return
    among = f" of the first {_LOOKED_AT:,}" if len(dataset.rows) > _LOOKED_AT else ""
    word = "clip" if settings.has_clips else "picture"
    of_motion = " or a direction of motion" if settings.has_clips else ""
    verb = "tells" if len(saying) == 1 else "tell"
    yield (
        f"the captions of {counted(len(saying), word)}{among} {verb} left, right or a turn{of_motion}, such as that of "
        f"{readable(catalogue.key(saying[0]))}, and data.flip={settings.flip:g} mirrors {word}s, so that the words are "
        "wrong; set data.flip=0, or take the words out"
    )


def _broken_groups(dataset: Dataset) -> Iterator[str]:
    """`2 of the 7 of 'horses'` for each name that the share held out takes pictures of."""
    own = dataset.catalogue.overrides
    held, trained = Counter(own.group[dataset.held].tolist()), Counter(own.group[dataset.rows].tolist())
    for group, count in sorted(held.items()):
        if group:
            yield f"{count} of the {count + trained[group]} of {readable(own.group_name(group))!r}"


def _times(count: int) -> str:
    return "twice" if count == 2 else f"{count} times"


def of_clips(recipe: Recipe, grid: Grid) -> list[str]:
    """A sentence for each number of frames of which the autoencoder gives back fewer."""
    clips, step = recipe.data.clips, grid.frames
    if not recipe.data.has_clips or step == 1:
        return []
    counts = sorted({frames for frames, _, _ in clips.buckets} or {clips.frames})
    return [
        f"clips of {frames} frames: the autoencoder gives {(frames - 1) // step * step + 1} of them back; {step} k + 1 "
        f"frames come back whole, such as {(frames - 1) // step * step + 1} or {-(-(frames - 1) // step) * step + 1}"
        for frames in counts
        if (frames - 1) % step
    ]
