"""Listing decodes each image once, also if latents are cached afterwards, and leaves out damaged ones."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from mezzotint.data.media import decoding
from mezzotint.tasks.cache import cache
from support.images import broken_inside

CACHED = {"data__cache__latents": True, "data__crop": "center", "data__flip": 0, "run__steps": 2}


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each image was decoded to list it."""
    counts: Counter[str] = Counter()
    true = decoding.probe
    monkeypatch.setattr(decoding, "probe", lambda path, *rest: counts.update([Path(path).name]) or true(path, *rest))
    return counts


def test_killed_caching_leaves_a_usable_index(
    world: Any, listed: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as context:
        context.setattr(cache, "fill_for", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            cache.run(world.words("killed", **CACHED))
    assert listed == Counter({f"{number:02d}.png": 1 for number in range(10)})
    assert world.train("uncached", **CACHED | {"data__cache__latents": False}) == 0
    assert listed.total() == 10


@pytest.mark.slow
def test_damaged_images_are_named_and_have_no_entry(
    world: Any, listed: Counter[str], capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("03.png", "07.png"):
        broken_inside(world.images / name)
    assert world.train("first", "cache", **CACHED) == 0
    assert "8 entries, 0 present, 8 added" in capsys.readouterr().out
    assert world.train("first", **CACHED) == 0
    assert "8 entries, 8 present" in capsys.readouterr().out
    assert listed.total() == 10
    report = (world.root / "first" / "data_report.jsonl").read_text()
    assert all(name in report for name in ("03.png", "07.png"))
    assert not [line for line in world.end("first").samples if "03.png" in line or "07.png" in line]
