"""Three edits of images of the world, and a judge: what `make demo-edit` teaches, and how it is examined.

    make it red              the thing is red afterwards
    move it to the left      it is in the left column afterwards, in the same row
    remove it                only the background is left

A pair is drawn from one scene, so nothing else differs: not the jitter, not the size, not the background. The judge
reads the result (`recognise`) and compares the background with the image before the edit. Pairs of the examination are
scenes of a seed that no training pair has.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import get_args

import numpy as np
from numpy.typing import NDArray
from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from mini import recognise, world
from mini.world import Position, Scene

RED, LEFT, REMOVE = "make it red", "move it to the left", "remove it"
EDITS = (RED, LEFT, REMOVE)
TRAINING_SEED, EXAM_SEED = 21, 22
"""Of the scenes of training pairs, and of the examination."""
PAIRS = 6000
"""Training pairs of all edits together."""
EXAMINED = 150
"""Pairs of the examination, as many of each edit."""
BACKGROUND_ERROR = 10.0
"""The largest mean difference of the background to that before the edit, in levels of 255."""
_MARGIN = 4
"""Pixels around both things that do not count as background."""

Pixels = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Pair:
    """An edit of one scene. after: None where nothing is left but the background."""

    edit: str
    before: Scene
    after: Scene | None

    def images(self) -> tuple[Image.Image, Image.Image]:
        """The images before and after, RGB, 64 × 64."""
        before = world.draw(self.before)
        if self.after is None:
            return before, Image.new("RGB", before.size, world.BACKGROUNDS[self.before.background])
        return before, world.draw(self.after)


@dataclass(frozen=True, slots=True)
class Judgement:
    """Whether an edit is done, and the rest left as it was. thing: its shape, colour and position, or that there is
    none. background: its mean difference to that before, in levels of 255."""

    thing: bool
    background: float

    @property
    def all(self) -> bool:
        """The thing is as asked, and the background unchanged."""
        return self.thing and self.background <= BACKGROUND_ERROR


def pairs(count: int, seed: int) -> list[Pair]:
    """The first `count` pairs of a seed, as many of each edit."""
    endless = _all_pairs(seed)
    return [next(endless) for _ in range(count)]


def write(folder: Path, chosen: Sequence[Pair]) -> tuple[Path, Path]:
    """Writes pairs as a data set. Returns the folders of the images after, with captions, and before."""
    after, before = folder / "after", folder / "before"
    for path in (after, before):
        path.mkdir(parents=True, exist_ok=True)
    for number, pair in enumerate(chosen):
        first, second = pair.images()
        first.save(before / f"{number:05d}.png")
        second.save(after / f"{number:05d}.png")
        (after / f"{number:05d}.txt").write_text(f"{pair.edit}\n", "utf-8")
    return after, before


def judge(pixels: Pixels, pair: Pair) -> Judgement:
    """What became of the image before an edit. pixels: (64, 64, 3) uint8."""
    seen = recognise.look(pixels)
    if pair.after is None:
        is_done = not seen
    else:
        thing = pair.after.things[0]
        is_done = [(one.shape, one.colour, one.position) for one in seen] == [
            (thing.shape, thing.colour, thing.position)
        ]
    before, after = (np.asarray(image, np.float64) for image in pair.images())
    is_ground = np.ones(before.shape[:2], np.bool_)
    for image in (before, after):
        for one in recognise.look(image.astype(np.uint8)):
            left, top, right, bottom = one.box
            rows = slice(max(0, top - _MARGIN), bottom + _MARGIN)
            is_ground[rows, max(0, left - _MARGIN) : right + _MARGIN] = False
    difference = np.abs(pixels.astype(np.float64) - before)[is_ground]
    return Judgement(is_done, float(difference.mean()))


def shares(judgements: Sequence[Judgement], chosen: Sequence[Pair]) -> dict[str, float]:
    """The share of edits that are done with the background unchanged, by edit and in all; `thing` and `background`:
    of each alone."""
    row = {
        edit: float(np.mean([one.all for one, pair in zip(judgements, chosen, strict=True) if pair.edit == edit]))
        for edit in EDITS
    }
    return row | {
        "all": float(np.mean([one.all for one in judgements])),
        "thing": float(np.mean([one.thing for one in judgements])),
        "background": float(np.mean([one.background <= BACKGROUND_ERROR for one in judgements])),
    }


def _all_pairs(seed: int) -> Iterator[Pair]:
    """Pairs of the scenes of a seed in order, each edit in turn, without scenes that it would not change."""
    index = 0
    while True:
        for edit in EDITS:
            pair = None
            while pair is None:
                scene = world.scene(index, seed)
                pair = _edited(scene, edit) if scene.kind == "single" else None
                index += 1
            yield pair


def _edited(scene: Scene, edit: str) -> Pair | None:
    """The pair of an edit; None for a scene that it does not change, or that cannot be judged."""
    [thing] = scene.things
    if edit == REMOVE:
        return Pair(edit, scene, None)
    if edit == RED:
        if thing.colour == "red" or scene.background not in world.backgrounds((thing.colour, "red")):
            return None
        return Pair(edit, scene, replace(scene, things=(replace(thing, colour="red"),)))
    target = _left_of(thing.position)
    return None if target is None else Pair(edit, scene, replace(scene, things=(replace(thing, position=target),)))


def _left_of(position: Position) -> Position | None:
    """The position in the left column and the same row; None if it is there already."""
    row = next((word for word in ("top", "bottom") if word in position), "")
    if "left" in position:
        return None
    name = f"{row} left".strip()
    assert name in get_args(Position)
    return name  # type: ignore[return-value]
