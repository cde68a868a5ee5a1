"""Draws the dozen small captioned images that ship as the data set `shapes`.

Each shows a shape of one colour on a ground of another.

    python tools/make_shapes.py src/mezzotint/assets/data/shapes

The images are drawn by this script alone and are free of anyone's rights.
"""

from __future__ import annotations

import sys
from pathlib import Path

from PIL import Image, ImageDraw

COLOURS = {
    "red": "#d83a2b",
    "green": "#2f9e44",
    "blue": "#2b59d8",
    "yellow": "#f2c230",
    "white": "#f5f5f5",
    "black": "#141414",
}
SIZES = ((80, 80), (96, 64), (64, 96))


def draw(shape: str, colour: str, ground: str, size: tuple[int, int]) -> Image.Image:
    """One image: the shape in the middle, its diameter 0.6 of the shorter side."""
    width, height = size
    image = Image.new("RGB", size, COLOURS[ground])
    pen = ImageDraw.Draw(image)
    r = 0.3 * min(size)
    x, y = width / 2, height / 2
    match shape:
        case "circle":
            pen.ellipse((x - r, y - r, x + r, y + r), fill=COLOURS[colour])
        case "square":
            pen.rectangle((x - r, y - r, x + r, y + r), fill=COLOURS[colour])
        case "triangle":
            pen.polygon([(x, y - r), (x + r, y + r), (x - r, y + r)], fill=COLOURS[colour])
        case _:
            raise AssertionError(shape)
    return image


def main(folder: Path) -> None:
    """Writes twelve images and their captions."""
    folder.mkdir(parents=True, exist_ok=True)
    names = list(COLOURS)
    for number in range(12):
        shape = ("circle", "square", "triangle")[number % 3]
        colour, ground = names[number % 4], names[4 + number % 2]
        stem = folder / f"{number:02d}-{colour}-{shape}"
        draw(shape, colour, ground, SIZES[(number // 3) % 3]).save(stem.with_suffix(".png"), optimize=True)
        stem.with_suffix(".txt").write_text(f"a {colour} {shape} on a {ground} ground\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
