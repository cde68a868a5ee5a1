"""Images that are not of the world, so that the VAE learns to code shapes and grounds that nobody told it of.

`wild(index, seed)` draws random polygons, blobs, arcs, bars and unions of these in any colour, on plain
grounds and gradients. A pure function, like the world's scenes.
"""

from __future__ import annotations

import math

import numpy as np
from PIL import Image, ImageDraw

from mezzotint import draws

PIXELS = 64
FINE = 4
"""Figures are drawn at so many times their size and reduced."""


def wild(index: int, seed: int) -> Image.Image:
    """Image number `index`: RGB, 64 × 64 pixels."""
    rng = np.random.Generator(np.random.Philox(key=draws.key(seed, "mini wild", index)))
    image = _ground(rng)
    for _ in range(rng.integers(1, 4)):
        image.paste(_colour(rng), mask=_figure(rng))
    return image


def _ground(rng: np.random.Generator) -> Image.Image:
    first, second = np.array(_colour(rng), dtype=np.float64), np.array(_colour(rng), dtype=np.float64)
    angle = rng.uniform(0, 2 * math.pi)
    rows, columns = np.mgrid[0:PIXELS, 0:PIXELS]
    along = rows * math.sin(angle) + columns * math.cos(angle)
    share = (along - along.min()) / np.ptp(along) * (rng.random() < 0.2)
    mixed = first + (second - first) * share[..., None]
    return Image.fromarray(mixed.round().astype(np.uint8))


def _figure(rng: np.random.Generator) -> Image.Image:
    """The mask of one figure: one to three primitives about one centre."""
    mask = Image.new("L", (PIXELS * FINE, PIXELS * FINE))
    pen = ImageDraw.Draw(mask)
    centre, radius = rng.uniform(8, 56, 2) * FINE, rng.uniform(4, 17) * FINE
    for _ in range(rng.integers(1, 4)):
        _primitive(pen, centre + rng.uniform(-0.7, 0.7, 2) * radius, radius * rng.uniform(0.5, 1), rng)
    return mask.reduce(FINE)


def _primitive(pen: ImageDraw.ImageDraw, centre: np.ndarray, radius: float, rng: np.random.Generator) -> None:
    x, y = centre
    match rng.choice(("polygon", "ellipse", "arc", "bar", "slice", "hole")):
        case "polygon":
            corners = rng.integers(3, 9)
            turns = np.sort(rng.uniform(0, 2 * math.pi, corners))
            reach = radius * rng.uniform(0.4, 1, corners)
            pen.polygon([(x + r * math.cos(t), y + r * math.sin(t)) for t, r in zip(turns, reach, strict=True)], 255)
        case "ellipse":
            wide, high = radius * rng.uniform(0.5, 1, 2)
            pen.ellipse((x - wide, y - high, x + wide, y + high), 255)
        case "arc":
            start, sweep = rng.uniform(0, 360), rng.uniform(120, 360)
            width = max(2 * FINE, int(radius * rng.uniform(0.2, 0.5)))
            pen.arc((x - radius, y - radius, x + radius, y + radius), start, start + sweep, 255, width)
        case "bar":
            turn = rng.choice((0, 45, 90, 135, rng.uniform(0, 180))) * math.pi / 180
            dx, dy = radius * math.cos(turn), radius * math.sin(turn)
            pen.line((x - dx, y - dy, x + dx, y + dy), 255, max(2 * FINE, int(radius * rng.uniform(0.2, 0.7))))
        case "slice":
            start = rng.uniform(0, 360)
            pen.pieslice((x - radius, y - radius, x + radius, y + radius), start, start + rng.uniform(60, 240), 255)
        case _:
            pen.ellipse((x - radius / 3, y - radius / 3, x + radius / 3, y + radius / 3), 0)


def _colour(rng: np.random.Generator) -> tuple[int, int, int]:
    red, green, blue = rng.integers(0, 256, 3)
    return int(red), int(green), int(blue)
