"""Images found damaged when first used (`data.on_corrupt=zero_weight`) change neither the plan nor other random draws:
with one and two processes, with and without a cache, and after resuming."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.images import broken_inside

BROKEN = ("03.png", "07.png")
SETTINGS = {"data__verify": "on_first_use", "data__on_corrupt": "zero_weight", "run__save__asynchronous": False}


def damage(world: Any) -> None:
    for name in BROKEN:
        broken_inside(world.images / name)


@pytest.mark.slow
def test_run_with_damaged_images_skips_and_reports_them(world: Any, capsys: pytest.CaptureFixture[str]) -> None:
    damage(world)
    assert world.train("whole", run__steps=4, **SETTINGS) == 0
    output = capsys.readouterr().out
    assert all(output.count(f"sample '{name}' is damaged") == 1 for name in BROKEN), "each is reported once"
    assert world.train("parts", run__steps=2, **SETTINGS) == 0
    assert world.train("parts", run__steps=4, **SETTINGS) == 0
    whole = world.end("whole")
    assert whole == world.end("parts")
    assert whole.progress["broken"] == list(BROKEN)
    samples = "".join(whole.samples)
    assert all(name in samples for name in BROKEN), "they stay in their batches"


@pytest.mark.slow
def test_cached_run_skips_damaged_images_without_an_entry(world: Any) -> None:
    damage(world)
    cached = SETTINGS | {"data__cache__latents": True, "data__cache__crops": 2}
    assert world.train("cached", run__steps=3, **cached) == 0
    assert world.end("cached").progress["broken"] == list(BROKEN)
    assert world.train("again", run__steps=3, **cached) == 0, "the complete cache lacks them, too"
    assert world.end("again") == world.end("cached")


def test_too_many_damaged_images_end_the_run(
    world: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    damage(world)
    monkeypatch.setattr("mezzotint.tasks.train.host.ALWAYS_LET_PASS", 1)
    assert world.train("many", run__steps=6, data__max_skipped=0.1, **SETTINGS) == 2
    assert "E1820" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.distributed
def test_two_processes_skip_the_same_images(world: Any, tmp_path: Path) -> None:
    damage(world)
    assert world.train("one", run__steps=6, **SETTINGS) == 0
    assert [world.wait(child) for child in world.fork_group("two", 2, run__steps=6, **SETTINGS)] == [0, 0]
    one, two = world.end("one"), world.end("two")
    assert two.progress["broken"] == one.progress["broken"] == list(BROKEN)
    assert [line[0] for line in two.metrics] == [line[0] for line in one.metrics]
    for first, second in zip(one.metrics, two.metrics, strict=True):
        assert float.fromhex(second[1]) == pytest.approx(float.fromhex(first[1]), rel=1e-4)
