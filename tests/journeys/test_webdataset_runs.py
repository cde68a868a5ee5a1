"""Runs over tar shards: killed and resumed, with several workers, they equal an uninterrupted run."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

WORKERS = {"data__format": "webdataset", "data__workers": 2, "run__steps": 6, "data__cache__latents": False}


def pack(world: Any, folder: Path, number: int) -> None:
    with tarfile.open(folder / f"{number:02d}.tar", "w") as archive:
        for path in sorted(world.images.glob("*.png"))[number::3]:
            archive.add(path, arcname=f"all/{path.name}")
            archive.add(path.with_suffix(".txt"), arcname=f"all/{path.stem}.txt")


@pytest.fixture
def shards(world: Any) -> Path:
    """The images in three shards, each followed by its caption."""
    folder = Path(world.root / "shards")
    folder.mkdir()
    for number in range(3):
        pack(world, folder, number)
    return folder


@pytest.mark.slow
@pytest.mark.faults
def test_killed_run_over_shards_resumes_bit_exactly(world: Any, shards: Path) -> None:
    settings = WORKERS | {"data__path": shards / "{00..02}.tar"}
    assert world.wait(world.fork("undisturbed", **settings)) == 0, world.out("undisturbed")
    assert world.wait(world.fork("killed", fault="step.begin@5:kill", **settings)) == 137
    assert world.wait(world.fork("killed", **settings)) == 0, world.out("killed")
    assert world.end("killed") == world.end("undisturbed")
    assert world.wait(world.fork("alone", **settings | {"data__workers": 0})) == 0
    assert world.end("alone") == world.end("undisturbed"), "workers change nothing"


def test_only_latents_of_a_changed_shard_are_encoded_again(
    world: Any, shards: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = WORKERS | {"data__path": shards, "data__crop": "center", "data__flip": 0, "run__seed": 1}
    settings |= {"data__cache__latents": True}
    assert world.train("cached", verb="cache", **settings) == 0
    assert "10 entries, 0 present, 10 added" in capsys.readouterr().out
    (world.images / "00.txt").write_text("another caption")
    Image.new("RGB", (48, 48), (1, 2, 3)).save(world.images / "03.png")
    pack(world, shards, 0)
    assert world.train("cached", verb="cache", **settings) == 0
    assert "9 present, 1 added: 1 image changed" in capsys.readouterr().out
