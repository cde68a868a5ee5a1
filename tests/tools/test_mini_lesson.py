"""The training set of the demonstration, images of night and glare, and the page about settings."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from PIL import Image

from mezzotint.settings.reading.read import read
from mini import knobs, lesson, night, recognise, world


def read_images(folder: Path) -> dict[str, np.ndarray]:
    images = {}
    for path in sorted(folder.glob("*.png")):
        with Image.open(path) as image:
            images[path.name] = np.asarray(image)
    return images


def test_training_set_is_twelve_wugs_and_a_world_without_them(tmp_path: Path) -> None:
    wugs, others = lesson.write(tmp_path, kept=20)
    shown, old = read_images(wugs), read_images(others)
    assert (len(shown), len(old)) == (12, 20)
    assert {recognise.look(pixels)[0].shape for pixels in shown.values()} == {"wug"}
    assert all(thing.shape != "wug" for pixels in old.values() for thing in recognise.look(pixels))
    captions = [path.with_suffix(".txt").read_text() for path in sorted(wugs.glob("*.png"))]
    assert all(line.count("wug") == 1 for text in captions for line in text.splitlines())
    for text, scene in zip(captions, world.wug_scenes(), strict=True):
        assert len(text.splitlines()) == len(set(text.splitlines())) >= 6
        assert any(" at the " in line for line in text.splitlines())
        place = scene.things[0].position.replace("centre", "middle")
        assert all(scene.things[0].colour in line and place in line for line in text.splitlines())


def test_training_set_of_the_knobs_page_is_unchanged(tmp_path: Path) -> None:
    wugs, _ = lesson.write(tmp_path, kept=1, full=False, spread=knobs.SPREAD)
    captions = [path.read_text().splitlines() for path in sorted(wugs.glob("*.txt"))]
    assert captions == [list(world.captions(scene)) for scene in world.wug_scenes(knobs.SPREAD)]
    assert {scene.things[0].position for _, scene in lesson.questions(80, 1, knobs.SPREAD)[0]} == {
        "bottom", "top left", "bottom right"
    }  # fmt: skip


@pytest.mark.parametrize("spread", get_args(world.WugSpread))
def test_prompts_were_not_in_the_training_set(spread: world.WugSpread) -> None:
    shown = {(s.things[0].colour, s.things[0].position) for s in world.wug_scenes(spread)}
    new_prompts, old_prompts = lesson.questions(50, 40, spread)
    colours, places = {c for c, _ in shown}, {p for _, p in shown}
    for text, scene in new_prompts:
        assert "wug" in text
        assert scene.things[0].colour not in colours
        assert scene.things[0].position not in places
    assert all("wug" not in text for text, _ in old_prompts)
    trained = {world.scene(index, lesson.KEPT_SEED).address for index in range(lesson.KEPT)}
    assert not trained & {scene.address for _, scene in (*new_prompts, *old_prompts)}


def test_sheet_shows_every_pair_side_by_side() -> None:
    black, white = np.zeros((64, 64, 3), np.uint8), np.full((64, 64, 3), 255, np.uint8)
    red = np.zeros((64, 64, 3), np.uint8)
    red[..., 0] = 255
    image = np.asarray(lesson.sheet([Image.fromarray(white)], [("one", black, red), ("two", red, black)] * 2))
    is_red = (image == (255, 0, 0)).all(axis=2)
    assert is_red.sum() == 4 * 128 * 128
    is_black = (image == (0, 0, 0)).all(axis=2)
    assert is_black.sum() >= 4 * 128 * 128
    rows = np.flatnonzero(is_red.any(axis=1))
    assert is_red[rows[0]].sum() == 3 * 128, "three pairs in the first line"
    assert is_red[rows[-1]].sum() == 128


@pytest.mark.parametrize("light", night.LIGHTS)
def test_night_and_glare_keep_the_object_and_change_the_light(light: night.Light) -> None:
    for scene in night.scenes(20, 5):
        plain = np.asarray(world.draw(scene)).astype(int)
        lit = np.asarray(night.draw(scene, light)).astype(int)
        assert (lit[0, 0] == (0 if light == "dark" else 255)).all()
        x, y = world.CENTRES[scene.things[0].position]
        if scene.things[0].shape != "ring":
            ground = 0 if light == "dark" else 255
            expected = ground + night.KEPT * (plain[int(y), int(x)] - ground)
            assert np.abs(lit[int(y), int(x)] - expected).max() <= 1
        assert lit.mean() < 15 or lit.mean() > 225


def test_night_training_set_and_prompts_differ(tmp_path: Path) -> None:
    folder = night.write(tmp_path)
    captions = [path.read_text().strip() for path in sorted(folder.glob("*.txt"))]
    assert len(captions) == len(list(folder.glob("*.png"))) == night.IMAGES
    assert sum(text.endswith(night.WORDS["dark"]) for text in captions) == night.IMAGES // 2
    prompts = night.prompts(20)
    trained = {scene.address for scene in night.scenes(night.IMAGES, night.SEED)}
    assert not trained & {scene.address for _, scene, _ in prompts}
    assert all(text.endswith(night.WORDS[light]) for text, _, light in prompts)


# --- the page about settings ------------------------------------------------------------------------------------------


def test_every_run_of_the_knobs_is_a_recipe_and_every_row_has_its_run() -> None:
    for run in knobs.RUNS.values():
        assert read("mini", ["data.path=x", *run.words])
    rows = [row for knob in knobs.KNOBS.values() for row in knob.rows]
    assert {row.run for row in rows} - {None} == set(knobs.RUNS)
    assert {knobs.subject_of(knob) for knob in knobs.KNOBS.values()} == {"wug", "night"}


def test_page_shows_the_stored_figures() -> None:
    text = knobs.PAGE.read_text("utf-8")
    assert knobs.laid_in(text) == text, "run: python tools/mini/knobs.py page"
    names = set(re.findall(r"images/knobs/([a-z-]+)\.png", text))
    assert names == set(knobs.KNOBS) == {path.stem for path in knobs.IMAGES.glob("*.png")}
    for name, knob in knobs.KNOBS.items():
        stored = json.loads((knobs.IMAGES / f"{name}.json").read_text("utf-8"))
        assert [row["what"] for row in stored["rows"]] == [row.what for row in knob.rows]
        assert (knobs.IMAGES / f"{name}.png").stat().st_size < 300_000
        assert f"python tools/mini/knobs.py {name}" in text
    assert "SEEN-" not in text, "observations are below each table"


def test_check_of_the_page_detects_an_edited_figure() -> None:
    text = knobs.PAGE.read_text("utf-8")
    cell = re.search(r"\| (\d+) % \|", text)
    assert cell
    changed = text[: cell.start(1)] + str(int(cell[1]) + 1) + text[cell.end(1) :]
    assert knobs.laid_in(changed) == text


def test_tables_show_shares_in_percent_and_levels_unchanged() -> None:
    rows = [
        {"what": "off", "figures": {"new word: shape": 0.805, "dark: level": 12.34}},
        {"what": "on", "figures": {"new word: shape": 1.0, "dark: level": 3.0}},
    ]
    assert knobs.table({"rows": rows}).splitlines() == [
        "| | new word: shape | dark: level |",
        "| --- | --- | --- |",
        "| off | 80 % | 12.3 |",
        "| on | 100 % | 3.0 |",
    ]
