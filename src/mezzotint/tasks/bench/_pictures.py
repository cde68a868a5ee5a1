"""A stand-in data set: captioned pictures drawn by address, for benchmarks whose own pictures are not to be had."""

from __future__ import annotations

from pathlib import Path

from PIL import Image, ImageDraw

from mezzotint import draws, durable
from mezzotint.recipe.base import with_values
from mezzotint.recipe.sections.data import CaptionSettings, DataSettings

_COLOURS = ("red", "green", "blue", "orange", "purple", "white", "black", "yellow", "grey", "brown")
_SHAPES = ("circle", "square", "triangle", "cross")
_PLACES = {"left": 0.3, "middle": 0.5, "right": 0.7}


def with_stand_in(settings: DataSettings, folder: Path) -> DataSettings:
    """The section with the drawn pictures in the place of its own data set; all else stays."""
    captions = CaptionSettings(dropout=settings.captions.dropout)
    values = {"path": (folder,), "format": "image-folder", "repeats": (1.0,), "captions": captions}
    return with_values(settings, values)


def folder_of(cache: Path, count: int, side: int) -> Path:
    """Where a stand-in lies. cache: the folder of caches. side: of a picture, in pixels."""
    return cache / "stand-in" / f"{count}-pictures-of-{side}"


def draw(folder: Path, count: int, side: int) -> None:
    """Draws the pictures and captions, unless they are there. The folder has its name when it is complete. Raises
    StorageError."""
    if folder.is_dir():
        return
    with durable.storage_errors(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
    with durable.replacing(folder, durably=False) as aside:
        aside.mkdir()
        for number in range(count):
            image, caption = picture(number, side)
            image.save(aside / f"{number:05d}.png", compress_level=1)
            (aside / f"{number:05d}.txt").write_text(caption + "\n", "utf-8")


def picture(number: int, side: int) -> tuple[Image.Image, str]:
    """Picture and caption of a number: two shapes on a ground, the same on every machine."""
    ground = _choice(number, "ground", _COLOURS)
    image = Image.new("RGB", (side, side), ground)
    pen = ImageDraw.Draw(image)
    words = []
    for layer, height in enumerate((0.3, 0.7)):
        colour = _choice(number, f"colour {layer}", tuple(c for c in _COLOURS if c != ground))
        shape = _choice(number, f"shape {layer}", _SHAPES)
        place = _choice(number, f"place {layer}", tuple(_PLACES))
        radius = side * (0.08 + 0.1 * draws.uniform(draws.key(0, "stand-in", number, f"radius {layer}")))
        _draw_shape(pen, shape, colour, (_PLACES[place] * side, height * side), radius)
        words.append(f"a {colour} {shape} on the {place}")
    return image, f"{words[0]} above {words[1]}, {ground} ground"


def _draw_shape(pen: ImageDraw.ImageDraw, shape: str, colour: str, at: tuple[float, float], r: float) -> None:
    x, y = at
    match shape:
        case "circle":
            pen.ellipse((x - r, y - r, x + r, y + r), fill=colour)
        case "square":
            pen.rectangle((x - r, y - r, x + r, y + r), fill=colour)
        case "triangle":
            pen.polygon([(x, y - r), (x + r, y + r), (x - r, y + r)], fill=colour)
        case "cross":
            pen.rectangle((x - r, y - r / 3, x + r, y + r / 3), fill=colour)
            pen.rectangle((x - r / 3, y - r, x + r / 3, y + r), fill=colour)
        case _:
            raise AssertionError(shape)


def _choice(number: int, what: str, among: tuple[str, ...]) -> str:
    return among[draws.below(draws.key(0, "stand-in", number, what), len(among))]
