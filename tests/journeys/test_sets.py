"""A run of several sets and base sizes, with caches: bit-exact after a kill, cached again only where a set changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image


def write_images(folder: Path, count: int, side: int) -> str:
    folder.mkdir()
    for number in range(count):
        pixels = np.random.default_rng(number + side).integers(0, 256, (side, side + 16, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")
        (folder / f"{number}.txt").write_text(f"red, image {number}")
    return str(folder)


@pytest.fixture
def sets(world: Any) -> list[dict[str, Any]]:
    return [
        {"path": write_images(world.root / "one", 5, 72), "repeats": 2.5, "captions": {"trigger": "sks"}},
        {"path": write_images(world.root / "two", 4, 96), "resolution": [32, 64], "resolution_mode": "random",
         "batch_size": 3, "flip": 0.5, "weight": 0.5},
        {"path": write_images(world.root / "class", 3, 80), "class_images": True, "resolution": [32, 64]},
    ]  # fmt: skip


def settings_of(sets: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {
        "data__path": None, "data__sets": json.dumps(sets), "data__resolution": 64, "data__buckets__step": 16,
        "data__batch_size": 2, "data__cache__latents": True, "data__cache__text": True, "data__cache__crops": 2,
        "data__cache__shuffles": 2, "data__captions__shuffle_tags": True, "run__steps": 14, "run__save__every": 5,
        "optim__accumulation": 2,
    } | more  # fmt: skip


@pytest.mark.slow
def test_killed_run_of_several_sets_resumes_bit_exactly(world: Any, sets: list[dict[str, Any]]) -> None:
    assert world.train("whole", **settings_of(sets)) == 0
    assert world.wait(world.fork("parts", fault="step.begin@8:kill", **settings_of(sets))) == 137
    assert world.wait(world.fork("parts", **settings_of(sets))) == 0
    assert world.end("parts") == world.end("whole")


@pytest.mark.slow
def test_only_entries_of_the_changed_set_are_encoded(
    world: Any, sets: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    def encode(changed: list[dict[str, Any]]) -> str:
        capsys.readouterr()
        assert world.train("cache", verb="cache", **settings_of(changed)) == 0
        return str(capsys.readouterr().out)

    first = encode(sets)
    assert "12 images new" in first, first
    same = encode([{**sets[0], "repeats": 1, "weight": 2.0}, {**sets[1], "batch_size": 1}, sets[2]])
    assert "nothing to add" in same, same
    sized = encode([sets[0], sets[1], {**sets[2], "resolution": [32, 64, 48]}])
    assert "3 images" in sized, sized


def test_check_shows_each_set_and_all_batch_sizes(world: Any, sets: list[dict[str, Any]], capsys: Any) -> None:
    assert world.train("whole", verb="check", **settings_of(sets)) == 0
    page = " ".join(capsys.readouterr().out.split())
    one, two, images = (world.root / name for name in ("one", "two", "class"))
    assert f"set 0 {one}: 5 images, 12.5 visits an epoch (38%), 64 px, batches of 2" in page
    assert f"set 1 {two}: 4 images, 4 visits an epoch (12%), 32, 64 px, batches of 3, weight 0.5" in page
    assert f"{images}: 3 class images, 16.5 visits an epoch (50%)" in page
    assert "2 or 3 samples × 2 accumulated a step" in page
