"""Contact sheets contain every image, enlarge small ones without blur, and keep texts within their cells."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageFont

from mezzotint.sampling import grids
from mezzotint.sampling.grids import _font, _wrap

Pixels = grids.Pixels


def _flat(colour: tuple[int, int, int], width: int = 64, height: int = 64) -> Pixels:
    return np.full((height, width, 3), colour, dtype=np.uint8)


def _count(image: Image.Image, colour: tuple[int, int, int]) -> int:
    return int((np.asarray(image) == np.array(colour)).all(axis=2).sum())


def test_small_images_are_enlarged_by_whole_factors() -> None:
    pixels = _flat((200, 10, 10), 2, 2)
    pixels[0, 0] = (10, 200, 10)
    image = grids.sheet([[pixels]], rows=["a"], columns=["step 1"])
    assert _count(image, (10, 200, 10)) == 80 * 80
    assert _count(image, (200, 10, 10)) == 3 * 80 * 80


def test_every_cell_is_shown_and_empty_ones_stay_blank() -> None:
    cells: list[list[Pixels | None]] = [[_flat((250, 0, 0)), _flat((0, 250, 0))], [None, _flat((0, 0, 250), 96, 32)]]
    image = grids.sheet(cells, rows=["one", "two"], columns=["step 0", "step 10"], title="run")
    assert _count(image, (250, 0, 0)) == _count(image, (0, 250, 0)) == 192 * 192
    assert _count(image, (0, 0, 250)) == 192 * 64


def test_large_images_are_not_enlarged() -> None:
    image = grids.sheet([[_flat((9, 9, 200), 512, 256)]], rows=["a"], columns=["b"])
    assert _count(image, (9, 9, 200)) == 512 * 256


def test_captions_are_drawn_in_their_column() -> None:
    plain = grids.sheet([[_flat((0, 250, 0))]], rows=[""], columns=[""])
    lettered = grids.sheet([[_flat((0, 250, 0))]], rows=["a caption of several words " * 20], columns=[""])
    assert plain.size == lettered.size
    difference = np.asarray(plain).astype(int) != np.asarray(lettered).astype(int)
    columns = np.flatnonzero(difference.any(axis=(0, 2)))
    assert len(columns)
    assert columns.max() < np.flatnonzero((np.asarray(plain) == (0, 250, 0)).all(axis=2).any(axis=0)).min()
    assert _count(lettered, (0, 250, 0)) == 192 * 192


def test_non_ascii_letters_have_glyphs() -> None:
    def drawn(text: str) -> bytes:
        return bytes(_font(14).getmask(text))

    assert len({drawn(letter) for letter in "ÜäжΩ\ue123"}) == 5


@settings(max_examples=20, deadline=None)
@given(st.text(max_size=200), st.integers(20, 300), st.integers(1, 6))
def test_wrapped_lines_fit_and_mark_truncation(text: str, width: int, limit: int) -> None:
    font = ImageFont.load_default(size=14)
    lines = _wrap(text, font, width, limit)
    assert len(lines) <= limit
    assert all(font.getlength(line) <= width or len(line) <= 2 for line in lines)
    if lines and not lines[-1].endswith("…"):
        assert "".join("".join(lines).split()) == "".join(text.split())


@pytest.mark.parametrize(
    ("count", "limit", "places"),
    [(3, 8, (0, 1, 2)), (9, 3, (0, 4, 8)), (100, 2, (0, 99)), (5, 1, (4,)), (0, 4, ()), (8, 8, tuple(range(8)))],
)
def test_shown_columns_are_spread_from_first_to_last(count: int, limit: int, places: tuple[int, ...]) -> None:
    assert grids.spread_indices(count, limit) == places


def test_saved_sheet_leaves_no_temporary_file(tmp_path: Path) -> None:
    image = grids.sheet([[_flat((1, 2, 3))]], rows=["a"], columns=["b"])
    grids.save(image, tmp_path / "samples" / "grid.png")
    grids.save(image, tmp_path / "samples" / "grid.png")
    assert os.listdir(tmp_path / "samples") == ["grid.png"]
    assert np.array_equal(np.asarray(Image.open(tmp_path / "samples" / "grid.png")), np.asarray(image))


def test_note_is_placed_below_its_image() -> None:
    red, blue = _flat((255, 0, 0), 160, 160), _flat((0, 0, 255), 160, 160)
    plain = np.asarray(grids.sheet([[red, red], [blue, blue]], rows=["a", "b"], columns=["1", "2"]))
    noted = np.asarray(
        grids.sheet([[red, red], [blue, blue]], rows=["a", "b"], columns=["1", "2"], notes=[["", "a kite"], ["", ""]])
    )
    assert noted.shape[0] > plain.shape[0]
    assert noted.shape[1] == plain.shape[1]

    def count(image: Pixels, colour: tuple[int, int, int]) -> int:
        return int((image == colour).all(axis=2).sum())

    for colour in ((255, 0, 0), (0, 0, 255)):
        assert count(noted, colour) == count(plain, colour) == 2 * 160 * 160, "no image is written over"
    paper = (noted == 255).all(axis=2) | (noted == red[0, 0]).all(axis=2) | (noted == blue[0, 0]).all(axis=2)
    below = slice(np.flatnonzero((noted == red[0, 0]).all(axis=2).any(axis=1))[-1] + 1, None)
    left, right = ~paper[below, 188:348], ~paper[below, 356:516]
    assert right.any()
    assert not left.any()
