"""What `make demo-keep` teaches, how its models are examined, and what the demonstration has to show.

The subject is a wug triangle, two triangles tip to tip: the model knows "triangle", and never saw this one. Twelve
images, each with its colour as caption, which the template makes "a red wug triangle". A model is asked for

    the trigger     "a red wug triangle" in every colour
    the class       "a red triangle" in every colour
    the unrelated   "a red cross" and "a red ring" in every colour

The judge (`recognise`) reads shape and colour of each image, and compares the image with that of the untrained model
for the same prompt and noise: the mean difference of their pixels, in levels of 255.

No shape whose prediction is preserved (`PRESERVED`) is among those that are asked or measured: what is shown of
unrelated prompts is not what was trained.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mezzotint.families.sd import Family

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from mini import measure, recognise, world
from mini.measure import Pixels

SEEDS = (21, 22, 23, 24, 25)
KINDS = ("none", "both", "short")
"""The same training with different preservation: "none", the control; "both", `objective.preserve.kind` "output" and
"prompts"; "short", the control in half the steps."""
KEPT = "both"
"""What the criteria hold against the control."""
TRIGGER, CLASS = "wug triangle", "triangle"
TEMPLATE = "a {caption} {trigger}"
EXAM_SEED, ASKED = 7, 64
"""Of the noise of an examination; and how many images of each group."""
PRESERVED, UNRELATED = ("circle", "square", "star"), ("cross", "ring")
"""Shapes of the preserved prompts, in every colour, and those that are asked and measured."""
MEASURED = {"run.drift.prompts": 12, "run.drift.timesteps": 4}
"""The meter's settings beside its unrelated prompts, which are the first twelve of the judge's. The images have four
different captions, each of which is measured with three noises."""

LEAST_LEARNED, MARGIN = 0.8, 0.1
"""Equal learning: of every seed, both runs draw at least this share of triggers right, and their shares differ by at
most the margin."""
MOST_LEAK = 0.5
"""Less leak: of every seed, the preserved run changes the images of the class at most by this share of what the control
changes them."""
MOST_MOVED = 0.05
"""The subject stays where it was put: of every seed, the share of unrelated images that show it is at most so much
larger than the control's."""
LEAST_ORDER = 0.8
"""The meter orders runs as the judge does: the least rank correlation (Spearman) over all runs of all kinds between
`drift/class` of the exported weights and the difference of the class's images, and the same of unrelated prompts.

The judge's figure is the difference to the base's images also for unrelated prompts, because that is what the meter is
for: how far something has moved from the base. Whether a moved image is also wrong depends on what it shows, which no
distance between predictions knows; the criterion above counts the images that are wrong in the way that matters here.
"""

Groups = Mapping[str, Sequence[tuple[str, str, str]]]


@dataclass(frozen=True, slots=True)
class Exam:
    """The images of a model by group, and the judge's figures."""

    images: Mapping[str, Sequence[Pixels]]
    figures: Mapping[str, float]


def questions() -> Groups:
    """The groups of prompts: each prompt with the shape and the colour that it asks for."""

    def ask(names: Sequence[tuple[str, str]]) -> list[tuple[str, str, str]]:
        pairs = [(name, shape, colour) for colour in world.COLOURS for name, shape in names]
        chosen = [pairs[number % len(pairs)] for number in range(ASKED)]
        return [(f"{_article(colour)} {colour} {name}", shape, colour) for name, shape, colour in chosen]

    return {
        "trigger": ask([(TRIGGER, world.WUG)]),
        "class": ask([(CLASS, CLASS)]),
        "unrelated": ask([(shape, shape) for shape in UNRELATED]),
    }


def preserved() -> list[str]:
    """The prompts of `objective.preserve.prompts`."""
    return [f"{_article(colour)} {colour} {shape}" for shape in PRESERVED for colour in world.COLOURS]


def measured() -> list[str]:
    """The prompts of `run.drift.unrelated`."""
    return [prompt for prompt, _, _ in questions()["unrelated"][:12]]


def write(folder: Path) -> Path:
    """Writes the images of the subject, each with its colour as caption."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, scene in enumerate(world.wug_scenes()):
        world.draw(scene).save(folder / f"{number:02d}.png")
        (folder / f"{number:02d}.txt").write_text(f"{scene.things[0].colour}\n", "utf-8")
    return folder


def examine(family: Family, base: Exam | None) -> Exam:
    """Asks a model, with the same noise for every one. base: of the untrained model; None for itself."""
    settings = argparse.Namespace(seed=EXAM_SEED, steps=20, guidance=3.0, solver="ddim", batch=64)
    images = {
        group: list(measure.images(family, [(prompt, None) for prompt, _, _ in prompts], settings))  # type: ignore[misc]
        for group, prompts in questions().items()
    }
    return Exam(images, judge(images, images if base is None else base.images))


def judge(images: Mapping[str, Sequence[Pixels]], base: Mapping[str, Sequence[Pixels]]) -> dict[str, float]:
    """By group `GROUP right`, the share of images with the shape and colour asked for, `GROUP wugs`, the share of
    images that show the subject, and `GROUP change`, the mean difference to the base's images in levels."""
    figures = {}
    for group, prompts in questions().items():
        seen = [recognise.look(pixels)[:1] for pixels in images[group]]
        right = [
            bool(one) and (one[0].shape, one[0].colour) == (shape, colour)
            for one, (_, shape, colour) in zip(seen, prompts, strict=True)
        ]
        figures[f"{group} right"] = float(np.mean(right))
        figures[f"{group} wugs"] = float(np.mean([bool(one) and one[0].shape == world.WUG for one in seen]))
        both = zip(images[group], base[group], strict=True)
        figures[f"{group} change"] = float(np.mean([np.abs(a.astype(float) - b.astype(float)).mean() for a, b in both]))
    return figures


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> float:
    """Spearman's, of values without ties."""
    ranks = [np.argsort(np.argsort(values)) for values in (first, second)]
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def verdicts(figures: Mapping[str, Mapping[str, float]]) -> dict[str, bool]:
    """Whether each criterion holds. figures: of `judge` and the meter's `drift/…` of each run, by "KIND SEED"."""
    seeds = sorted({name.split()[1] for name in figures})
    pairs = [(figures[f"none {seed}"], figures[f"{KEPT} {seed}"]) for seed in seeds]
    learned = [(control["trigger right"], kept["trigger right"]) for control, kept in pairs]
    result = {
        "equal learning": all(min(two) >= LEAST_LEARNED and abs(two[0] - two[1]) <= MARGIN for two in learned),
        "less leak": all(kept["class change"] <= MOST_LEAK * control["class change"] for control, kept in pairs),
        "subject not elsewhere": all(
            kept["unrelated wugs"] <= control["unrelated wugs"] + MOST_MOVED for control, kept in pairs
        ),
    }
    for group in ("class", "unrelated"):
        order = rank_correlation(
            [row[f"drift/{group}"] for row in figures.values()], [row[f"{group} change"] for row in figures.values()]
        )
        result[f"order of {group}: rank correlation {order:.2f}"] = order >= LEAST_ORDER
    return result


def _article(colour: str) -> str:
    return "an" if colour[0] in "aeiou" else "a"
