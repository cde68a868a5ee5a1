"""The notes of `mezzotint.tasks.describe`: settings that may not be intended, and values that follow from several
settings. They are not errors, and nothing is changed."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path

from torch import nn

from mezzotint.assets import MODELS
from mezzotint.data.buckets import clip_buckets
from mezzotint.families.base import Grid
from mezzotint.runtimes.base import Launch
from mezzotint.settings.counting import format_count
from mezzotint.settings.recipe import Recipe
from mezzotint.settings.sections.data import DataSettings
from mezzotint.tasks.prompts import cleaning
from mezzotint.tasks.resolving import rate_factor, resolve
from mezzotint.training import rates, trainable

_KNOWS = re.compile(r"^In short: ([^.]+)\.", re.MULTILINE)


def _count_equal_sets(data: DataSettings) -> Counter[str]:
    """The number of sets with the same folder and settings, by folder."""
    others = [one.model_dump_json(exclude={"path"}) for one in data.sets]
    same = Counter(zip((str(one.path.resolve()) for one in data.sets), others, strict=True))
    return Counter({folder: count for (folder, _), count in same.items()})


def of_settings(recipe: Recipe, *, prediction: str | None, device: str, buckets: int | None) -> list[str]:
    """Settings without effect, or with a surprising one; usually none.

    recipe: with its paths resolved. prediction: of the model, None if it could not be read. device: "cpu" or "cuda".
    buckets: how many have images, None if the data could not be read.
    """
    sentences = [
        f"data.sets lists {folder} {'twice' if count == 2 else f'{count} times'} with the same settings: an epoch "
        "visits each of its images as often; use repeats instead"
        for folder, count in _count_equal_sets(recipe.data).items()
        if count > 1
    ]
    if recipe.objective.zero_terminal_snr and prediction == "epsilon":
        sentences.append(
            "objective.zero_terminal_snr with a model that predicts epsilon: the last timestep is pure noise, from "
            "which an epsilon model learns nothing; use this schedule with v-prediction"
        )
    if recipe.run.compile and device == "cpu":
        many = f"each of the {buckets} buckets" if buckets is not None and buckets > 1 else "every image size"
        sentences.append(
            f"run.compile on a CPU: {many} is compiled when it first occurs, which may take minutes; this pays off "
            "only in long runs with few buckets"
        )
    if recipe.run.memory_limit is not None and device == "cpu":
        limit = f"run.memory_limit={recipe.run.memory_limit}"
        sentences.append(f"{limit} limits GPU memory, but this run is on the CPU")
    if recipe.data.captions.dropped == "zeros" and recipe.data.captions.dropout == 0.0:
        sentences.append(
            "data.captions.dropped=zeros with data.captions.dropout=0: only captions dropped by an image's own dropout "
            "probability become zeros"
        )
    if recipe.model.weights == "files":
        sentences += read_knowledge(recipe.model.path)
    if recipe.run.preview.every is not None:
        sentences += cleaning.sign_notes(recipe.sample.prompts)
    processors = len(os.sched_getaffinity(0))
    if recipe.data.workers > max(2, processors):
        sentences.append(
            f"data.workers={recipe.data.workers}, but only {format_count(processors, 'processor')} can be used here: "
            "more workers only wait for each other"
        )
    model = recipe.model
    if model.config is not None and model.weights == "files" and model.path.is_dir():
        sentences.append(
            f"model.config={model.config} has no effect: the folder model.path contains its configurations; "
            "model.config is for a single-file model, and for model.weights=random"
        )
    if recipe.run.half_precision != "autocast" and recipe.run.precision == "fp32":
        sentences.append(f"run.half_precision={recipe.run.half_precision} has no effect with run.precision=fp32")
    return sentences


def read_knowledge(path: Path) -> list[str]:
    """What a shipped model can generate, from its README; empty for other models."""
    readme = path / "README.md"
    if not path.is_relative_to(MODELS) or not readme.is_file():
        return []
    match = _KNOWS.search(readme.read_text("utf-8"))
    if match is None:
        return []
    return [f"{path.name} knows {' '.join(match[1].split())}; anything else becomes a grey field until it is trained"]


def of_patterns(recipe: Recipe, parts: Mapping[str, nn.Module], trained: Collection[str]) -> list[str]:
    """Patterns of parameter names that match nothing in this model. parts: the networks by name. trained: parameters by
    `part/parameter`."""
    every = [f"{part}/{name}" for part, module in parts.items() for name, _ in module.named_parameters()]
    patterns = [("model.freeze", recipe.model.freeze, every)]
    rules = {f"optim.part_optimizer.{part}": rule for part, rule in recipe.optim.part_optimizer.items()}
    for where, rule in ({"optim.optimizer": recipe.optim.optimizer} | rules).items():
        patterns.append((f"{where}.no_decay", rule.no_decay_patterns, list(trained)))
    matched = rates.names_to_match(trained, recipe.model.adapted_parts if recipe.model.has_adapter else ())
    above_zero = tuple(key for key, rate in recipe.optim.part_lr.items() if rate > 0)
    patterns.append(("optim.part_lr", above_zero, [name for names in matched.values() for name in names]))
    return [
        f"{where}: {' and '.join(unmet)} {'names' if len(unmet) == 1 else 'name'} nothing in this model"
        for where, texts, names in patterns
        if (unmet := trainable.find_unmatched_patterns(texts, names))
    ]


def of_clips(recipe: Recipe, grid: Grid) -> list[str]:
    """A sentence for each number of frames of which the autoencoder returns fewer."""
    step = grid.frames
    if not recipe.data.has_clips or step == 1:
        return []
    counts = sorted({count for one in recipe.data.image_sets() for count in clip_buckets.counts(one.settings.clips)})
    return [
        f"clips of {frames} frames: the autoencoder returns {(frames - 1) // step * step + 1} of them; {step} k + 1 "
        f"frames are complete, such as {(frames - 1) // step * step + 1} or {-(-(frames - 1) // step) * step + 1}"
        for frames in counts
        if (frames - 1) % step
    ]


def of_results(recipe: Recipe, steps: int) -> list[str]:
    """Values that follow from several settings, and settings that the optimizer does not use. steps: of the run."""
    o = recipe.optim
    sentences = []
    if recipe.run.whole_epochs and recipe.run.steps and steps < recipe.run.steps:
        sentences.append(
            f"run.whole_epochs ends the run at step {steps:,}, with its last whole epoch; "
            f"{format_count(recipe.run.steps - steps, 'step')} of run.steps left out"
        )
    if o.lr_batch_power:
        data = f"({recipe.data.batch_size} × {o.accumulation})"
        sentences.append(
            f"optim.lr_batch_power multiplies every rate by {data}^{o.lr_batch_power:g} = {rate_factor(recipe):.4g}: "
            + ", ".join(f"{part} {o.rate_of(part) * rate_factor(recipe):.4g}" for part in recipe.model.train)
        )
    if o.ema.strength is not None:
        sentences.append(
            f"optim.ema.strength {o.ema.strength:g} over {steps:,} steps with an update every {o.ema.interval:,}: "
            f"decay {resolve(recipe, steps).ema_decay:.10g}"
        )
    rules = {part: o.part_optimizer.get(part, o.optimizer) for part in recipe.model.train}
    for label in dict.fromkeys(rule.label for rule in rules.values() if not rule.has_rate):
        parts = " and ".join(part for part, rule in rules.items() if rule.label == label)
        sentences.append(f"{label} has no rate: optim.lr and its schedule have no effect on {parts}")
    for part, rule in rules.items():
        path = f"optim.part_lr.{part}" if part in o.part_lr else "optim.lr"
        note = rule.rate_note(o.rate_of(part), path)
        sentences += [note] if note is not None else []
    return sentences


def of_launcher(recipe: Recipe, launch: Launch) -> list[str]:
    """A note if the launcher sets another precision than the recipe: it is ignored."""
    precision = {"no": "fp32"}.get(launch.mixed_precision or "", launch.mixed_precision)
    if precision is None or precision == recipe.run.precision:
        return []
    return [f"the launcher sets {precision}; run.precision={recipe.run.precision} of the recipe is used"]
