"""Reads an image of the world back: what stands where, in which shape and colour, and whether that was asked for.

Plain image measuring, no learning: the ground is the commonest colour of the border, things are connected regions
that differ from it, a thing's colour is that of its core, its shape the best match among silhouettes drawn by
`world.silhouette`. Made to hold on images that went through a VAE or came out of a sampler.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from mini import world
from mini.world import Position, Scene, Size

Image = NDArray[np.uint8]
Floats = NDArray[np.float32]

LEAST_DISTANCE = 60.0
"""A pixel belongs to a thing when its colour is so far from the ground, in RGB levels."""
LEAST_AREA = 24
"""Smaller regions are specks."""
LEAST_MATCH = 0.55
LARGEST_WIDTH = 40
"""A region that correlates less with every silhouette, or is wider than this in pixels, has the shape `unknown`."""
PADDING = 0.12
"""The part of its width by which a thing's box grows on each side before it is compared."""
SIDE = 20
"""Things are compared at this many pixels across."""
UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Seen:
    """One thing of an image. box: left, top, right, bottom in pixels, the last two outside. match: −1 … 1."""

    shape: str
    colour: str
    position: Position
    size: Size
    box: tuple[int, int, int, int]
    match: float

    @property
    def centre(self) -> tuple[float, float]:
        """(x, y) in pixels."""
        left, top, right, bottom = self.box
        return (left + right) / 2, (top + bottom) / 2


@dataclass(frozen=True, slots=True)
class Verdict:
    """What of a scene is right in an image. What the scene does not ask for counts as right.

    colour, shape: of the largest thing, or of all things where several are asked for. position: of the one thing.
    count: as many things as asked for, and no more. relation: both things, standing so to each other.
    """

    colour: bool
    shape: bool
    position: bool
    count: bool
    relation: bool

    @property
    def all(self) -> bool:
        """Everything is right."""
        return self.colour and self.shape and self.position and self.count and self.relation


def look(pixels: Image) -> list[Seen]:
    """The things of an image, the largest first. pixels: (64, 64, 3) uint8."""
    ground = _ground(pixels)
    apart = pixels.astype(np.float32) - ground
    distance = np.sqrt(np.square(apart).sum(axis=2))
    labels, _ = ndimage.label(distance > LEAST_DISTANCE, structure=np.ones((3, 3)))
    areas = np.bincount(labels.ravel())
    regions = [(int(areas[number]), number, window) for number, window in _windows(labels)]
    regions = [region for region in regions if region[0] >= LEAST_AREA]
    regions.sort(key=lambda region: -region[0])
    return [_read(pixels, apart, distance, labels == number, window) for _, number, window in regions]


def background(pixels: Image) -> str:
    """The name of the ground's colour: the nearest of BACKGROUNDS."""
    return _nearest(_ground(pixels), world.BACKGROUNDS)


def judge(pixels: Image, scene: Scene) -> Verdict:
    """Whether an image shows what a scene asks for. pixels: (64, 64, 3) uint8."""
    seen = look(pixels)
    things = scene.things
    shown = seen[:1] if len(things) == 1 else seen
    alone = scene.kind == "single"
    return Verdict(
        colour=Counter(thing.colour for thing in shown) == Counter(thing.colour for thing in things),
        shape=Counter(thing.shape for thing in shown) == Counter(thing.shape for thing in things),
        position=not alone or (bool(shown) and shown[0].position == things[0].position),
        count=len(seen) == len(things),
        relation=scene.relation is None or _stands(seen, scene),
    )


def _stands(seen: list[Seen], scene: Scene) -> bool:
    """The two things of a relation are there, and stand to each other as asked, by five pixels at least."""
    centres = []
    for named in scene.things:
        fitting = [thing for thing in seen if (thing.shape, thing.colour) == (named.shape, named.colour)]
        if not fitting:
            return False
        centres.append(fitting[0].centre)
    right, down = centres[1][0] - centres[0][0], centres[1][1] - centres[0][1]
    ways = {"left of": right, "right of": -right, "above": down, "below": -down}
    assert scene.relation is not None
    return ways[scene.relation] >= 5


def _ground(pixels: Image) -> Floats:
    """The commonest colour of the border, to a sixteenth of the range, and then the mean of what is that colour."""
    border = np.concatenate((pixels[:2].reshape(-1, 3), pixels[-2:].reshape(-1, 3), pixels[2:-2, :2].reshape(-1, 3)))
    border = np.concatenate((border, pixels[2:-2, -2:].reshape(-1, 3))).astype(np.int64)
    bins = (border + 8) >> 4
    codes = (bins[:, 0] << 10) | (bins[:, 1] << 5) | bins[:, 2]
    commonest = np.bincount(codes).argmax()
    ground: Floats = np.median(border[codes == commonest], axis=0).astype(np.float32)
    return ground


def _windows(labels: NDArray[Any]) -> list[tuple[int, tuple[slice, slice]]]:
    windows = enumerate(ndimage.find_objects(labels), start=1)
    return [(number, window) for number, window in windows if window is not None]


def _read(
    pixels: Image,
    apart: Floats,
    distance: Floats,
    region: NDArray[np.bool_],
    window: tuple[slice, slice],
) -> Seen:
    core = region & (distance >= np.quantile(distance[region], 0.5))
    colour = np.median(pixels[core], axis=0)
    towards = np.median(apart[core], axis=0)
    near = ndimage.binary_dilation(region[_grown(window)], iterations=2)
    cover = np.zeros(region.shape, dtype=np.float32)
    cover[_grown(window)] = np.clip(apart[_grown(window)] @ (towards / np.square(towards).sum()), 0, 1) * near
    box = _box(cover)
    shape, match = _shape(cover, box)
    middle = ((box[0] + box[2]) / 2, (box[1] + box[3]) / 2)
    wide = max(box[2] - box[0], box[3] - box[1])
    if wide > LARGEST_WIDTH:
        shape = UNKNOWN
    size: Size = "small" if wide < 21 else "medium" if wide < 24 else "big"
    return Seen(shape, _nearest(colour, world.COLOURS), _place(middle), size, box, match)


def _grown(window: tuple[slice, slice]) -> tuple[slice, slice]:
    rows, columns = (slice(max(0, side.start - 3), side.stop + 3) for side in window)
    return rows, columns


def _box(cover: Floats) -> tuple[int, int, int, int]:
    """Around all pixels that are covered to a half."""
    rows, columns = np.nonzero(cover.max(axis=1) >= 0.5)[0], np.nonzero(cover.max(axis=0) >= 0.5)[0]
    return int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1


def _place(centre: tuple[float, float]) -> Position:
    def steps(point: tuple[float, float]) -> float:
        return (point[0] - centre[0]) ** 2 + (point[1] - centre[1]) ** 2

    return min(world.CENTRES, key=lambda name: steps(world.CENTRES[name]))


def _nearest(colour: NDArray[Any], names: dict[str, tuple[int, int, int]]) -> str:
    return min(names, key=lambda name: float(np.square(np.asarray(names[name]) - colour).sum()))


def _shape(cover: Floats, box: tuple[int, int, int, int]) -> tuple[str, float]:
    """The shape whose silhouettes correlate most with a cover, and how much."""
    names, known = _silhouettes()
    matches = known @ _normal(cover, box)
    best = int(matches.argmax())
    match = float(matches[best])
    return (names[best] if match >= LEAST_MATCH else UNKNOWN), match


def _normal(cover: Floats, box: tuple[int, int, int, int]) -> Floats:
    """A cover about its box, square, at SIDE × SIDE pixels, with mean 0 and length 1, flat."""
    left, top, right, bottom = box
    reach = max(right - left, bottom - top) * (0.5 + PADDING)
    steps = (np.arange(SIDE) + 0.5) / SIDE * 2 - 1
    rows = (top + bottom) / 2 - 0.5 + reach * steps
    columns = (left + right) / 2 - 0.5 + reach * steps
    flat = _between(_between(cover, rows).T, columns).T.ravel()
    flat = flat - flat.mean()
    normal: Floats = (flat / max(float(np.linalg.norm(flat)), 1e-6)).astype(np.float32)
    return normal


def _between(cover: Floats, rows: NDArray[np.float64]) -> Floats:
    """The rows of a cover at broken places, 0 outside."""
    below = np.floor(rows).astype(int)
    share = (rows - below)[:, None]
    padded = np.pad(cover, ((1, 1), (0, 0)))
    last = len(padded) - 1
    mixed = padded[np.clip(below + 1, 0, last)] * (1 - share) + padded[np.clip(below + 2, 0, last)] * share
    rounded: Floats = mixed.astype(np.float32)
    return rounded


@lru_cache(maxsize=1)
def _silhouettes() -> tuple[list[str], Floats]:
    """Every shape in five widths, at three sub-pixel places, sharp and blurred: names, (N, SIDE²) normalised covers."""
    names, covers = [], []
    for shape in (*world.SHAPES, world.WUG):
        for diameter in (18.5, 20.0, 22.0, 29.0, 33.0):
            for shift in (0.0, 0.33, 0.66):
                drawn = world.silhouette(shape, (32 + shift, 32 + 0.7 * shift), diameter)
                sharp: Floats = np.asarray(drawn, dtype=np.float32) / np.float32(255)
                for cover in (sharp, ndimage.gaussian_filter(sharp, 0.8)):
                    names.append(shape)
                    covers.append(_normal(cover, _box(cover)))
    return names, np.stack(covers)
