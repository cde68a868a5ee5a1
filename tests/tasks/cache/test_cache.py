"""`mezzotint cache`: prints the location, the number of entries, and why they were missing."""

from __future__ import annotations

from typing import Any

import pytest

from mezzotint.errors import RecipeError
from mezzotint.tasks.cache import cache


def test_cache_command_refuses_undetermined_random_seed(world: Any) -> None:
    words = world.words("filled", run__seed=-1, data__cache__latents=True, run__resume="auto")
    with pytest.raises(RecipeError) as caught:
        cache.run(words)
    assert caught.value.code == "E1307"
    with pytest.raises(RecipeError, match=r"data\.max_samples"):
        cache.run([*words, "data.max_samples=4", "data.crop=center", "data.flip=0", "data.cache.content=moments"])
    assert cache.run([*words, "data.crop=center", "data.flip=0", "data.cache.content=moments"]) == 0


def test_cache_command_prints_location_counts_and_reasons(world: Any, capsys: pytest.CaptureFixture[str]) -> None:
    words = world.words("filled", data__workers=0)
    with pytest.raises(RecipeError, match=r"data\.cache\.latents=true") as caught:
        cache.run(words)
    assert caught.value.code == "E1306"
    words += ["data.cache.latents=true", "data.cache.text=true", "data.crop=center", "data.flip=0"]
    assert cache.run(words) == 0
    said = capsys.readouterr().out
    assert f"cache in {world.root / 'cache'}" in said
    assert "21 added: 10 images new, 11 captions new" in said
    assert cache.run(words) == 0
    assert "21 present, nothing to add" in capsys.readouterr().out
