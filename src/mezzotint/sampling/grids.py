"""Contact sheets: prompts as rows, steps as columns, with captions, legible for small images too."""

from __future__ import annotations

import io
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from mezzotint import durable

Pixels = NDArray[np.uint8]
Font = ImageFont.ImageFont | ImageFont.FreeTypeFont

_GAP = 8
_CAPTION_WIDTH = 180
_SMALLEST_TILE = 160  # pixels of a tile's longer side; smaller images are enlarged by a whole factor
_PAPER, _INK, _FAINT = (255, 255, 255), (30, 30, 30), (120, 120, 120)


def sheet(
    cells: Sequence[Sequence[Pixels | None]],
    *,
    rows: Sequence[str],
    columns: Sequence[str],
    title: str = "",
    notes: Sequence[Sequence[str]] | None = None,
) -> Image.Image:
    """A table of images with captions on the left and headings on top.

    cells: rows of (H, W, 3) uint8 images of any size; None leaves a cell empty. rows: the captions, wrapped and
    truncated with …. columns: the headings, such as "step 500" or "step 500 · shadow". notes: a short text under each
    cell, or "".
    """
    assert len(cells) == len(rows)
    assert all(len(row) == len(columns) for row in cells)
    tiles = [[None if cell is None else _tile(cell) for cell in row] for row in cells]
    present = [tile for row in tiles for tile in row if tile is not None]
    width = max((t.width for t in present), default=_SMALLEST_TILE)
    font = _font(14)
    tiles_high = [max((t.height for t in row if t is not None), default=24) for row in tiles]
    under = [[_wrap(text, font, width, 3) for text in row] for row in notes or [[]] * len(cells)]
    noted = [_line_height(font) * max((len(text) for text in row), default=0) for row in under]
    heights = [high + low for high, low in zip(tiles_high, noted, strict=True)]
    head = _wrap(title, font, width * len(columns) + _CAPTION_WIDTH, 3) if title else []
    headings = [_wrap(text, font, width, 2) for text in columns]
    line = _line_height(font)
    top = _GAP + line * len(head) + (_GAP if head else 0) + line * max((len(h) for h in headings), default=0) + 4
    image = Image.new(
        "RGB",
        (_CAPTION_WIDTH + (width + _GAP) * len(columns) + 2 * _GAP, top + sum(h + _GAP for h in heights) + _GAP),
        _PAPER,
    )
    draw = ImageDraw.Draw(image)
    _write(draw, (_GAP, _GAP), head, font, _INK)
    for c, heading in enumerate(headings):
        left = _CAPTION_WIDTH + _GAP + c * (width + _GAP)
        _write(draw, (left, top - 4 - line * len(heading)), heading, font, _FAINT)
    for r, row in enumerate(tiles):
        y = top + sum(h + _GAP for h in heights[:r])
        caption = _wrap(rows[r], font, _CAPTION_WIDTH - _GAP, max(1, tiles_high[r] // line))
        _write(draw, (_GAP, y), caption, font, _INK)
        for c, tile in enumerate(row):
            if tile is not None:
                left = _CAPTION_WIDTH + _GAP + c * (width + _GAP)
                image.paste(tile, (left + (width - tile.width) // 2, y + (tiles_high[r] - tile.height) // 2))
        for c, text in enumerate(under[r]):
            _write(draw, (_CAPTION_WIDTH + _GAP + c * (width + _GAP), y + tiles_high[r]), text, font, _FAINT)
    return image


def spread_indices(count: int, limit: int) -> tuple[int, ...]:
    """At most `limit` of `count` indices, evenly spaced, including the first and the last: the columns to show."""
    if count <= limit:
        return tuple(range(count))
    if limit == 1:
        return (count - 1,)
    return tuple(round(i * (count - 1) / (limit - 1)) for i in range(limit))


def png(image: Image.Image) -> bytes:
    """The bytes of a PNG."""
    file = io.BytesIO()
    image.save(file, format="PNG")
    return file.getvalue()


def save(image: Image.Image, path: Path) -> None:
    """Writes a PNG atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with durable.replace_atomically(path, durably=False) as temporary:
        image.save(temporary, format="PNG")


def _tile(pixels: Pixels) -> Image.Image:
    image = Image.fromarray(pixels)
    times = max(1, -(-_SMALLEST_TILE // max(image.size)))
    return image.resize((image.width * times, image.height * times), Image.Resampling.NEAREST)


def _font(size: int) -> Font:
    """DejaVu Sans, which ships with matplotlib: Latin, Greek and Cyrillic. Without it Pillow's default font, ASCII;
    missing characters are shown as boxes."""
    package = find_spec("matplotlib")  # located, not imported
    if package is not None and package.origin is not None:
        path = Path(package.origin).parent / "mpl-data" / "fonts" / "ttf" / "DejaVuSans.ttf"
        if path.is_file():
            return ImageFont.truetype(path, size=size - 2)
    return ImageFont.load_default(size=size)


def _line_height(font: Font) -> int:
    return round(font.getbbox("Ågy|")[3]) + 3


def _wrap(text: str, font: Font, width: int, limit: int) -> list[str]:
    """Lines no wider than `width` pixels, at most `limit` of them; truncation is marked with ….

    Breaks at spaces, and inside a word only if the word is too wide.
    """
    lines, rest = [""], " ".join(text[:2000].split())
    while rest:
        word, _, rest = rest.partition(" ")
        joined = f"{lines[-1]} {word}".strip()
        if font.getlength(joined) <= width:
            lines[-1] = joined
        elif lines[-1]:
            lines.append("")
            rest = f"{word} {rest}".strip()
        else:
            fits = max((n for n in range(1, len(word)) if font.getlength(word[:n]) <= width), default=1)
            lines[-1] = word[:fits]
            lines.append("")
            rest = f"{word[fits:]} {rest}".strip()
    lines = [line for line in lines if line]
    if len(lines) > limit:
        lines = lines[:limit]
        while lines[-1] and font.getlength(lines[-1] + "…") > width:
            lines[-1] = lines[-1][:-1]
        lines[-1] += "…"
    return lines


def _write(
    draw: ImageDraw.ImageDraw, position: tuple[int, int], lines: Sequence[str], font: Font, ink: tuple[int, int, int]
) -> None:
    for i, text in enumerate(lines):
        draw.text((position[0], position[1] + i * _line_height(font)), text, font=font, fill=ink)
