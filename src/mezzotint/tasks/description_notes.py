"""The notes of `mezzotint.tasks.describe`: what a recipe asks for and may not mean, and values that follow from several
settings. Nothing here is an error, and nothing is changed."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path

from torch import nn

from mezzotint.assets import MODELS
from mezzotint.families.base import Grid
from mezzotint.runtimes.base import Launch
from mezzotint.settings.counting import counted
from mezzotint.settings.recipe import Recipe
from mezzotint.tasks.prompts import cleaning
from mezzotint.tasks.resolving import rate_factor, resolve
from mezzotint.training import trainable

_KNOWS = re.compile(r"^In short: ([^.]+)\.", re.MULTILINE)


def of_settings(recipe: Recipe, *, prediction: str | None, device: str, buckets: int | None) -> list[str]:
    """Settings without effect here, or that do something else than they seem to; usually none.

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


def of_patterns(recipe: Recipe, parts: Mapping[str, nn.Module], trained: Collection[str]) -> list[str]:
    """Patterns of parameter names that match nothing in this model. parts: the networks by name. trained: parameters by
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


def of_results(recipe: Recipe, steps: int) -> list[str]:
    """Values that follow from several settings, and settings that the optimizer does not use. steps: of the run."""
    o = recipe.optim
    sentences = []
    if recipe.run.whole_epochs and recipe.run.steps and steps < recipe.run.steps:
        sentences.append(
            f"run.whole_epochs ends the run at step {steps:,}, with its last whole epoch; "
            f"{counted(recipe.run.steps - steps, 'step')} of run.steps left out"
        )
    if o.lr_batch_power:
        data = f"({recipe.data.batch_size} × {o.accumulation})"
        sentences.append(
            f"optim.lr_batch_power multiplies every rate by {data}^{o.lr_batch_power:g} = {rate_factor(recipe):.4g}: "
            + ", ".join(f"{part} {o.part_lr.get(part, o.lr) * rate_factor(recipe):.4g}" for part in recipe.model.train)
        )
    if o.ema.strength is not None:
        sentences.append(
            f"optim.ema.strength {o.ema.strength:g} over {steps:,} steps with an update every {o.ema.interval:,}: "
            f"decay {resolve(recipe, steps).ema_decay:.10g}"
        )
    rules = {part: o.part_optimizer.get(part, o.optimizer) for part in recipe.model.train}
    for label in dict.fromkeys(rule.label for rule in rules.values() if not rule.has_rate):
        parts = " and ".join(part for part, rule in rules.items() if rule.label == label)
        sentences.append(f"{label} has no rate: optim.lr and its schedule have no influence on {parts}")
    for part, rule in rules.items():
        path = f"optim.part_lr.{part}" if part in o.part_lr else "optim.lr"
        note = rule.rate_note(o.part_lr.get(part, o.lr), path)
        sentences += [note] if note is not None else []
    return sentences


def of_launcher(recipe: Recipe, launch: Launch) -> list[str]:
    """That the precision which the launcher hands over is not the recipe's, and does not count."""
    handed = {"no": "fp32"}.get(launch.mixed_precision or "", launch.mixed_precision)
    if handed is None or handed == recipe.run.precision:
        return []
    return [f"the launcher asks for {handed}; run.precision={recipe.run.precision} of the recipe is used"]
