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
from mezzotint.data.catalogue.data_report import readable
from mezzotint.data.formats.shared.folder_repeats import seen_in
from mezzotint.families.base import Grid
from mezzotint.recipe.counting import counted
from mezzotint.recipe.formats.base import format_spec
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
    sentences = [
        f"data.path names {folder} {'twice' if count == 2 else f'{count} times'}: an epoch visits each of its pictures "
        "as often; data.repeats says that better"
        for folder, count in Counter(path.resolve() for path in recipe.data.path).items()
        if count > 1
    ]
    if recipe.objective.zero_terminal_snr and prediction == "epsilon":
        sentences.append(
            "objective.zero_terminal_snr with a model that predicts epsilon: the last timestep is pure noise, and the "
            "noise in it teaches nothing; such a schedule is for v-prediction"
        )
    if recipe.run.compile and device == "cpu":
        many = f"each of the {buckets} buckets" if buckets is not None and buckets > 1 else "every size of picture"
        sentences.append(
            f"run.compile on a CPU: {many} is compiled anew when it is first met, which may take minutes; it pays in "
            "long runs over few buckets"
        )
    if recipe.run.memory_limit is not None and device == "cpu":
        cap = f"run.memory_limit={recipe.run.memory_limit}"
        sentences.append(f"{cap} caps a GPU's memory, and this run is on the CPU")
    if recipe.data.captions.dropped == "zeros" and recipe.data.captions.dropout == 0.0:
        sentences.append(
            "data.captions.dropped=zeros with data.captions.dropout=0: only captions that a picture's own chance drops "
            "become zeros"
        )
    if recipe.model.weights == "files":
        sentences += knowledge(recipe.model.path)
    if recipe.run.preview.every is not None:
        sentences += cleaning.sign_notes(recipe.sample.prompts)
    processors = len(os.sched_getaffinity(0))
    if recipe.data.workers > max(2, processors):
        sentences.append(
            f"data.workers={recipe.data.workers}, and this machine lets a run use {counted(processors, 'processor')}: "
            "more workers than that wait for each other"
        )
    model = recipe.model
    if model.config is not None and model.weights == "files" and model.path.is_dir():
        sentences.append(
            f"model.config={model.config} has no effect: model.path is a folder with configurations of its own; "
            "model.config is for a model in one file, and for model.weights=random"
        )
    if recipe.run.half_precision != "autocast" and recipe.run.precision == "fp32":
        sentences.append(
            f"run.half_precision={recipe.run.half_precision} is about bf16 and fp16, and run.precision is fp32"
        )
    return sentences


def knowledge(path: Path) -> list[str]:
    """What a model that ships knows, from its README; of other models nothing."""
    readme = path / "README.md"
    if not path.is_relative_to(MODELS) or not readme.is_file():
        return []
    match = _KNOWS.search(readme.read_text("utf-8"))
    if match is None:
        return []
    return [f"{path.name} knows {' '.join(match[1].split())}; anything else is a grey field until it has learned it"]


def of_data(dataset: Dataset, settings: DataSettings) -> list[str]:
    """Sentences about the pictures, most of the time none."""
    hints = format_spec(settings.format).hints_at_repeats
    sentences = list(_of_repeats(dataset, settings)) if hints else []
    packed = {ending: count for ending, count in dataset.catalogue.report.unknown if ending in _ARCHIVES}
    if packed:
        many = " and ".join(counted(count, f"{ending} archive") for ending, count in packed.items())
        where = ", ".join(readable(os.fspath(root)) for root in dict.fromkeys(dataset.catalogue.roots))
        verb, them = ("are", "them") if sum(packed.values()) > 1 else ("is", "it")
        sentences.append(
            f"{many} below {where} {verb} not opened, so that pictures in {them} are not trained; unpack {them} there"
        )
    sentences += _of_directions(dataset, settings)
    if broken := list(_broken_groups(dataset)):
        sentences.append(
            f"data.holdout.fraction breaks pictures that are batched together by name: it takes "
            f"{_few(broken)}; to leave them whole, hold out a folder of its own with "
            "data.holdout.path (EveryDream2's val_split_mode manual)"
        )
    return sentences


def of_pictures(recipe: Recipe, dataset: Dataset) -> list[str]:
    """Sentences about pictures and captions that are probably not meant so: the same picture twice, pictures of which
    most is cut away, samples with very many captions. Most of the time none."""
    catalogue, sentences = dataset.catalogue, []

    def name(row: int) -> str:
        return catalogue.label(row)

    paths = [path.resolve() for path in recipe.data.path]
    if same := findings.duplicates(catalogue) if len(set(paths)) == len(paths) else {}:
        pairs = [f"{name(row)} = {name(first)}" for row, first in same.items()]
        is_one = len(same) == 1
        copies = (
            "1 image is an exact copy of another and is" if is_one else f"{len(same):,} images are exact copies and are"
        )
        sentences.append(
            f"{copies} trained twice: {_few(pairs)}; remove {'it' if is_one else 'them'} unless you meant that"
        )
    rows = np.arange(0 if recipe.data.has_clips else len(catalogue))
    shares = findings.seen_shares(catalogue, rows, recipe.data)
    if len(strips := np.flatnonzero(shares < findings.MOSTLY_CUT)):
        in_order = strips[np.argsort(shares[strips], kind="stable")].tolist()
        seen = [
            f"{name(row)} ({catalogue.width[row]}×{catalogue.height[row]}, {100 * shares[row]:.2g} % seen)"
            for row in in_order
        ]
        sentences.append(
            f"{_have(len(strips), 'picture')} a shape far from every bucket, so that most of it is cut away: "
            f"{_few(seen)}; cut it by hand, or raise data.buckets.max_aspect"
        )
    counts = catalogue.caption_counts()
    if len(many := np.flatnonzero(counts >= findings.MANY_CAPTIONS)):
        in_order = many[np.argsort(-counts[many], kind="stable")].tolist()
        last = [
            f"{name(row)} ({counts[row]}, the last {readable(catalogue.captions(row)[-1][:40])!r})"
            for row in in_order[:_SHOWN]
        ]
        sentences.append(
            f"{_have(len(many), 'sample')} {findings.MANY_CAPTIONS} captions or more, of which each visit draws one: "
            f"{_few(last, of=len(many))}; if the lines are translations, or no captions, set data.captions.lines=first"
        )
    return sentences


def _have(count: int, what: str) -> str:
    return f"1 {what} has" if count == 1 else f"{count:,} {what}s have"


def _few(texts: Sequence[str], *, of: int | None = None) -> str:
    """The first of some texts, and how many more there are. of: how many there would be, where not all are given."""
    count = len(texts) if of is None else of
    return ", ".join(texts[:_SHOWN]) + (f" and {count - _SHOWN:,} more" if count > _SHOWN else "")


def of_names(recipe: Recipe, parts: Mapping[str, nn.Module], trained: Collection[str]) -> list[str]:
    """Sentences about patterns that may match nothing and do. parts: the networks by name. trained: what moves, by
    `part/parameter`."""
    every = [f"{part}/{name}" for part, module in parts.items() for name, _ in module.named_parameters()]
    patterns = [("model.freeze", recipe.model.freeze, every)]
    rules = {f"optim.part_optimizer.{part}": rule for part, rule in recipe.optim.part_optimizer.items()}
    for where, rule in ({"optim.optimizer": recipe.optim.optimizer} | rules).items():
        patterns.append((f"{where}.no_decay", rule.undecayed, list(trained)))
    return [
        f"{where}: {' and '.join(unmet)} {'names' if len(unmet) == 1 else 'name'} nothing in this model"
        for where, texts, names in patterns
        if (unmet := trainable.idle(texts, names))
    ]


def _of_repeats(dataset: Dataset, settings: DataSettings) -> Iterator[str]:
    """A word about folders whose names say how often their pictures are meant to be seen."""
    is_once = set(settings.repeats) == {1}
    taken = "takes every picture once" if is_once else "does not read it, and data.repeats counts for all of a folder"
    for root in dict.fromkeys(dataset.catalogue.roots):
        if folders := seen_in(root):
            shown, one = _few([readable(name) for name in folders]), len(folders) == 1
            yield (
                f"{shown} below {readable(os.fspath(root))} look{'s' * one} like kohya's folders, whose number is how "
                f"often an epoch visits each picture; data.format={settings.format} {taken}; "
                "data.format=kohya reads the number, and the words where a picture has no caption"
            )


def _of_directions(dataset: Dataset, settings: DataSettings) -> Iterator[str]:
    """A word about captions that a mirrored picture or clip contradicts. Looks at the first of many."""
    catalogue, saying = dataset.catalogue, contradicted(dataset, settings)
    if not saying:
        return
    among = f" of the first {_LOOKED_AT:,}" if len(dataset.rows) > _LOOKED_AT else ""
    word = "clip" if settings.has_clips else "picture"
    of_motion = " or a direction of motion" if settings.has_clips else ""
    captions, verb = ("caption", "tells") if len(saying) == 1 else ("captions", "tell")
    yield (
        f"the {captions} of {counted(len(saying), word)}{among} {verb} left, right or a turn{of_motion}, such as that "
        f"of {catalogue.label(saying[0])}, and data.flip={settings.flip:g} mirrors {word}s, so that the words are "
        "wrong; set data.flip=0, or take the words out"
    )


def contradicted(dataset: Dataset, settings: DataSettings) -> list[int]:
    """The rows that may be mirrored and whose captions tell a direction, among the first of many."""
    catalogue, rows = dataset.catalogue, dataset.rows[:_LOOKED_AT]
    own = catalogue.overrides.flip[rows]
    mirrored = rows[np.where(np.isnan(own), settings.flip, own) > 0].tolist()
    return [row for row in mirrored if any(map(_DIRECTION.search, catalogue.captions(row)))]


def _broken_groups(dataset: Dataset) -> Iterator[str]:
    """`2 of the 7 of 'horses'` for each name that the share held out takes pictures of."""
    own = dataset.catalogue.overrides
    held, trained = Counter(own.group[dataset.held].tolist()), Counter(own.group[dataset.rows].tolist())
    for group, count in sorted(held.items()):
        if group:
            yield f"{count} of the {count + trained[group]} of {readable(own.group_name(group))!r}"


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
