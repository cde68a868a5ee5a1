"""`mezzotint check` for video: sizes, unreadable files, joined images, and invalid bucket lists."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from mezzotint.families.base import Grid
from mezzotint.settings.reading.read import read_text
from mezzotint.tasks.check import page as _check_page
from mezzotint.tasks.check.check import Checked, check
from mezzotint.tasks.description_notes import of_clips
from mezzotint.tasks.reading.arguments import parse


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory, write_clip: Callable[..., Path]) -> Path:
    folder = tmp_path_factory.mktemp("films")
    for n in range(3):
        write_clip(folder / f"media/{n}.mp4", 8)
    write_clip(folder / "media/short.mp4", 3)
    (folder / "media/list.mp4").write_text("#EXTM3U\n")
    for name in ("0", "1", "2", "short", "list"):
        (folder / f"media/{name}.txt").write_text(name)
    (folder / "images").mkdir()
    for n in range(2):
        Image.fromarray(np.full((40, 40, 3), 90, np.uint8)).save(folder / f"images/{n}.png")
        (folder / f"images/{n}.txt").write_text(f"{n}")
    return folder


@pytest.fixture
def checked(shared_world: Any, films: Path) -> Callable[..., Checked]:
    """`checked(data__path=…)`: the check of a recipe of these clips, for a model of images: there is no smaller."""

    def run(**settings: Any) -> Checked:
        plain = {"path": films / "media", "format": "videofolder", "batch_size": 2, "resolution": 32, "workers": 0}
        values = {f"data__{key}": value for key, value in plain.items()}
        values |= {"data__buckets__step": 8, "data__clips__frames": 5}
        return check(parse(shared_world.words("films", **values | settings), "check"))

    return run


def test_check_output_shows_frame_counts_and_unreadable_files(checked: Callable[..., Checked], films: Path) -> None:
    outcome = checked(
        data__clips__images=2, data__clips__images_from="images", data__clips__images_path=films / "images"
    )
    page = "\n".join(_check_page.page(outcome))
    page = " ".join(page.split())
    assert "1 file skipped, which cannot be used: list.mp4: a playlist, not a clip" in page
    assert "1 file left out as the recipe asks: short.mp4: too short: 3 frames, but 5 are needed" in page
    assert "each with 2 of 2 images (random)" in page
    assert "w×h×frames" in page
    assert "40×24×5" in page
    document = _check_page.document(outcome)
    assert document["skipped"] == [["list.mp4", "a playlist, not a clip; use the clips that it lists"]]
    assert [row["bucket"] for row in document["buckets"]] == ["40×24×5"]


def test_frame_count_changed_by_the_autoencoder_is_a_note() -> None:
    recipe = read_text("schema: 1", overrides=["data.format=videofolder", "data.clips.frames=19"]).recipe
    (note,) = of_clips(recipe, Grid(channels=4, pixels=8, frames=4))
    assert note == (
        "clips of 19 frames: the autoencoder returns 17 of them; 4 k + 1 frames are complete, such as 17 or 21"
    )
    whole = read_text("schema: 1", overrides=["data.format=videofolder", "data.clips.frames=17"]).recipe
    assert of_clips(whole, Grid(channels=4, pixels=8, frames=4)) == []


def test_clips_are_refused_for_an_image_model(checked: Callable[..., Checked]) -> None:
    (problem,) = checked().problems
    assert problem.code == "E1292"
    assert "trains images, but data.format=videofolder contains clips" in problem.message
