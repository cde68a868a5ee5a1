"""Where latents are cached, the filling is the first to decode a picture, and nothing else does before the run: what an
index by headers then lacks, a start with damaged pictures finds out, and does as if it had decoded all at first."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pictures import broken_inside

from mezzotint.data.media import decoding
from mezzotint.tasks.cache import cache

CACHED = {"data__cache__latents": True, "data__crop": "center", "data__flip": 0, "run__steps": 2}


@pytest.fixture
def decodes(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each picture was decoded."""
    counts: Counter[str] = Counter()
    true = decoding._decoded
    monkeypatch.setattr(
        decoding, "_decoded", lambda file, *rest: counts.update([Path(file.name).name]) or true(file, *rest)
    )
    return counts


@pytest.fixture(autouse=True)
def _named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files keep their names."""
    monkeypatch.setattr(decoding, "_regular", lambda path, most: path.open("rb"))


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["train", "cache"])
def test_each_picture_is_decoded_once_for_index_and_cache(world: Any, decodes: Counter[str], verb: str) -> None:
    assert world.train("first", verb, **CACHED) == 0
    assert decodes == Counter({f"{number:02d}.png": 1 for number in range(10)})
    assert world.train("second", **CACHED) == 0
    assert world.train("uncached", **CACHED | {"data__cache__latents": False, "run__steps": 0}) in (0, 2)
    assert decodes.total() == 10, "and that counts as a proof for every later start"


@pytest.mark.slow
def test_damaged_pictures_are_left_out_as_if_all_had_been_decoded_first(
    world: Any, decodes: Counter[str], capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("03.png", "07.png"):
        broken_inside(world.pictures / name)
    assert world.train("first", **CACHED, data__cache__path=world.root / "one") == 0
    assert "2 damaged pictures, so every picture is decoded for the index" in capsys.readouterr().out
    decodes.clear()
    assert world.train("again", **CACHED, data__cache__path=world.root / "one") == 0
    assert not decodes, "the index that was made then lacks them"
    assert world.train("plain", verb="cache", **CACHED | {"data__cache__latents": False, "data__cache__text": True},
                       data__cache__path=world.root / "two") == 0  # fmt: skip
    assert world.train("other", **CACHED, data__cache__path=world.root / "two") == 0
    assert world.end("first") == world.end("again") == world.end("other")
    assert not [line for line in world.end("first").samples if "03.png" in line or "07.png" in line]


def test_a_filling_that_was_killed_proves_nothing(world: Any, decodes: Counter[str], monkeypatch: Any) -> None:
    with monkeypatch.context() as context:
        context.setattr(cache, "fill_for", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            cache.run(world.words("killed", **CACHED))
    assert not decodes
    assert world.train("uncached", **CACHED | {"data__cache__latents": False}) == 0
    assert decodes["00.png"] >= 2, "for the index, and for the steps that visit it"
