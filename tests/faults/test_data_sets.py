"""Extreme data sets: very many files, only broken ones, very few, fewer than a batch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mezzotint.data.catalogue.catalogue import build
from mezzotint.data.files import listing
from mezzotint.runtimes.base import Launch, Runtime
from mezzotint.settings.reading.read import read_text
from mezzotint.settings.recipe import Recipe
from mezzotint.tasks import assemble
from mezzotint.tasks.check import estimates
from mezzotint.tasks.doctor import doctor
from support.data_sets import put, small_of
from support.image_catalogues import paint
from support.messages import refused

pytestmark = pytest.mark.faults

FOLDERS, IN_EACH = 30, 5000


def test_each_folder_is_listed_once_with_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(4):
        paint(tmp_path / "images" / str(number), 3, start=3 * number)
    listed: list[Any] = []
    scandir = os.scandir

    def counted(place: Any) -> Any:
        listed.append(place)
        return scandir(place)

    monkeypatch.setattr(os, "scandir", counted)
    assert len(listing.walk(tmp_path / "images", {".png", ".txt"}).names) == 24
    assert sum(isinstance(place, int) for place in listed) == 5, "five folders, each opened and listed once"
    assert len(listed) == 6, "and the root is checked before"
    output: list[tuple[int, int]] = []
    data_set = build(
        small_of(tmp_path / "images"), tmp_path / "index", workers=1, progress=lambda *at: output.append(at)
    )
    assert len(data_set) == 12
    assert output[-1] == (12, 12)


_WALK = """
import resource, sys, time
from pathlib import Path
from mezzotint.data.files.listing import walk
peak = lambda: max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
before, began = peak(), time.process_time()
names = walk(Path(sys.argv[1]), {".png", ".txt"}).names
print(len(names), len(set(names)), peak() - before, time.process_time() - began)
"""


@pytest.mark.slow
def test_huge_folder_is_listed_in_little_memory(tmp_path: Path) -> None:
    """150,000 files instead of a million, which would take more than a minute to create on a slow disk. The limits are
    in proportion: 90 MB and 9 s (of 600 MB and 60 s) of CPU time."""
    for folder in range(FOLDERS):
        place = tmp_path / "many" / str(folder)
        place.mkdir(parents=True)
        first = place / "00000.png"
        first.touch()
        for number in range(1, IN_EACH):
            os.link(first, place / f"{number:05}.png")
    words = [sys.executable, "-c", _WALK, str(tmp_path / "many")]
    answer = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
    assert [int(number) for number in answer[:2]] == [FOLDERS * IN_EACH] * 2
    assert int(answer[2]) < 90_000, "kilobytes"
    assert float(answer[3]) < 9


def broken(root: Path, count: int) -> Path:
    names = [f"{number}.png" for number in range(count)]
    put(root, *names, text=b"\x89PNG\r\n\x1a\nnothing")
    return put(root, *(name.replace(".png", ".txt") for name in names), text="a caption")


def test_data_set_of_only_broken_samples_is_refused_with_reasons(tmp_path: Path) -> None:
    with refused("E1202", r"none of 3 files can be used: 0\.png \(truncated\)") as caught:
        build(small_of(broken(tmp_path / "images", 3)), tmp_path / "index", workers=1)
    assert caught.value.exit_status == 2


def opened(root: Path, tmp_path: Path, *words: str) -> tuple[Recipe, assemble.Dataset]:
    small = [f"data.path={root}", f"data.cache.path={tmp_path / 'cache'}", "data.resolution=32", "data.buckets.step=8"]
    recipe = read_text("schema: 1", overrides=[*small, *words]).recipe
    return recipe, assemble.open_dataset(recipe, Runtime(torch.device("cpu"), Launch(), recipe.run))


@pytest.mark.parametrize("count", [1, 3])
def test_fewer_samples_than_a_batch_follow_the_remainder_setting(tmp_path: Path, count: int) -> None:
    paint(tmp_path / "images", count, size=(32, 32))

    def sizes(remainder: str) -> list[int]:
        words = ("data.batch_size=5", f"data.remainder={remainder}")
        _, dataset = opened(tmp_path / "images", tmp_path, *words)
        epoch = dataset.timeline.epoch(0)
        assert set(epoch.order.tolist()) == set(range(count))
        assert epoch.num_steps == 1
        return np.diff(epoch.starts).tolist()

    assert [sizes(remainder) for remainder in ("short", "fill", "repeat")] == [[count], [5], [5]]
    with refused("E1207", rf"{count} samples do not fill a batch of 5 with data\.remainder=drop.*short") as caught:
        _, dataset = opened(tmp_path / "images", tmp_path, "data.batch_size=5", "data.remainder=drop")
        dataset.timeline.steps_of(0)
    assert caught.value.exit_status == 2


@pytest.mark.parametrize(
    ("remainder", "batches", "numbers", "status", "words"),
    [
        ("short", 2, (1, 0, 0), "look", "trained in a smaller batch"),
        ("fill", 2, (0, 2, 0), "look", "filled up with repeated visits"),
        ("repeat", 2, (0, 2, 0), "look", "filled up with repeated visits"),
        ("drop", 1, (0, 0, 1), "mend", "left out, different ones in each epoch"),
    ],
)
def test_bucket_with_fewer_images_than_a_batch_is_reported(
    tmp_path: Path, remainder: str, batches: int, numbers: tuple[int, int, int], status: str, words: str
) -> None:
    root = tmp_path / "images"
    paint(root, 3, size=(32, 32))
    paint(root, 1, start=3, size=(64, 16))
    recipe, dataset = opened(root, tmp_path, "data.batch_size=3", f"data.remainder={remainder}")
    rows = estimates.bucket_rows(dataset, recipe)
    poor = next(row for row in rows if row.images == 1)
    assert (poor.short, poor.repeated, poor.left_out) == numbers
    epoch = dataset.timeline.epoch(0)
    assert (epoch.num_batches, epoch.filled, epoch.left_out) == (batches, *numbers[1:])
    report, _ = doctor.examine(recipe)
    sentence = f"1 with fewer images than data.batch_size=3; 1 visit of the first epoch left over, {words}"
    assert [finding.status for finding in report.findings if sentence in finding.sentence] == [status]
