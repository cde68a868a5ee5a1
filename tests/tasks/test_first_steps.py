"""The first steps of a new user: unusual images and captions are named, and the quick-start prompt occurs in its
training data."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from mezzotint.data.buckets import buckets
from mezzotint.data.catalogue.catalogue import build
from mezzotint.settings.reading.read import read, resolve_paths
from support.run_folders import report_of


def odd_images(world: Any) -> None:
    """Adds a strip, a duplicate, a small image, and captions that are too long or missing."""
    folder: Path = world.images
    rng = np.random.default_rng(5)

    def save_image(name: str, width: int, height: int, caption: str) -> None:
        Image.fromarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8)).save(folder / f"{name}.png")
        (folder / f"{name}.txt").write_text(caption)

    save_image("long", 48, 48, "circle " * 112)
    save_image("many", 48, 48, "\n".join(["a dog", *(f"dog number {n}" for n in range(31)), "de.utf8=ein Hund"]))
    save_image("mute", 48, 48, " \n")
    save_image("small", 20, 20, "a small one")
    save_image("strip", 300, 8, "a strip")
    (folder / "twin.png").write_bytes((folder / "small.png").read_bytes())
    (folder / "twin.txt").write_text("a twin")


@pytest.mark.usefixtures("unmeasured")
def test_unusual_images_and_captions_are_counted_and_named(world: Any, capsys: pytest.CaptureFixture[str]) -> None:
    odd_images(world)
    settings = {"data__captions__lines": "random", "run__steps": 1, "optim__ema__rule": "none"}
    patterns = (
        r"1 caption of \d+ is longer than the text encoder reads, and the end is lost: long\.png \(\d+ tokens lost\)",
        r"1 exact copy of other images is trained twice: twin\.png = small\.png",
        r"1 image with an aspect ratio far from every bucket; .*: strip\.png \(300×8, \d+(\.\d)? % used\)",
        r"1 sample with 10 captions or more, .*: many\.png \(33, the last 'de\.utf8=ein Hund'\)",
    )
    assert world.train("run", verb="cache", data__cache__text=True, data__captions__lines="random") == 0
    assert re.search(patterns[0], capsys.readouterr().out)
    assert world.train("run", verb="check", **settings) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert world.train("run", **settings) == 0
    start, log = capsys.readouterr().out, (world.root / "run" / "run.log").read_text()
    for pattern in patterns:
        assert re.search(pattern, said), pattern
        assert re.search(pattern, start), pattern
        assert re.search(pattern, log), pattern
    report = report_of(world.root / "run")
    assert report["small.png"]["enlarged"] is True
    assert (report["small.png"]["size"], report["small.png"]["bucket"]) == ("20×20", "48×48")
    assert report["twin.png"]["same_as"] == "small.png"
    assert report["twin.png"]["sha256"] == report["small.png"]["sha256"]
    assert report["mute.png"]["empty_caption"] is True
    assert report["many.png"]["captions"] == 33
    assert report["strip.png"]["seen"] < 0.25
    assert report["long.png"]["lost_tokens"] == 112 + 2 - 77
    for name in ("enlarged", "same_as", "empty_caption", "captions", "seen", "lost_tokens"):
        assert name not in report["00.png"], name


def test_quick_start_prompt_and_size_occur_in_its_training_data(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    pages = (root / "README.md", root / "docs" / "start" / "first-steps.md")
    shown = [
        re.findall(r'^mezzotint sample runs/first --prompt="(.*)"', page.read_text(), re.MULTILINE) for page in pages
    ]
    assert shown[0] == shown[1]
    (prompt,) = shown[0]
    recipe = resolve_paths(read("mini", ["data.path=shapes"]))
    catalogue = build(recipe.data, tmp_path, workers=1)
    report = [row for row in range(len(catalogue)) if prompt in catalogue.captions(row)]
    assert report, prompt
    table = buckets.table(recipe.data)
    sizes = [table[number] for number in catalogue.buckets_of(report, recipe.data).bucket]
    assert [(size.width, size.height) for size in sizes] == [recipe.sample.size or (64, 64)]


@pytest.mark.parametrize("name", ["mini", "mini-lora"])
def test_first_run_recipe_trains_one_language_of_captions(name: str) -> None:
    """With `choose`, one of several translations is chosen at random."""
    assert read(name).recipe.data.captions.lines == "first"
