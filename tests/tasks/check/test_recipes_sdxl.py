"""The recipes of SDXL: `check` finds nothing wrong with them, and predicts the memory that stands at their heads."""

from __future__ import annotations

import re
from typing import Any

import pytest

from mezzotint.assets import MODELS
from mezzotint.cli import main
from mezzotint.recipe.reading.read import read, shipped_recipes
from mezzotint.shapes import Size
from mezzotint.tasks.check.memory import Outline, memory_of
from mezzotint.training.optimizers.base import CHUNK

RECIPES = ("sdxl", "sdxl-cached", "sdxl-multi-aspect", "sdxl-24gb")
TINY = ("model.path=tiny-sdxl", "model.weights=random", "data.path=shapes", "run.precision=fp32", "run.device=cpu")


def predicted(name: str) -> Any:
    recipe = read(name, [f"model.path={MODELS / 'sdxl'}", "model.weights=random"]).recipe
    return memory_of(Outline(recipe), {Size(1024, 1024): recipe.data.batch_size})


def told(name: str) -> float:
    """The memory at the head of a recipe, in units of 10⁹ bytes."""
    found = re.search(r"`mezzotint check` predicts it: ([\d.]+) GB", shipped_recipes()[name].read_text("utf-8"))
    assert found is not None
    return float(found[1])


@pytest.mark.parametrize("name", RECIPES)
def test_check_finds_nothing_wrong(name: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    words = [*TINY, "data.resolution=64", "data.buckets.step=16", f"data.cache.path={tmp_path}"]
    if name == "sdxl-multi-aspect":
        words = [word for word in words if not word.startswith(("data.resolution", "data.buckets"))]
        words.append("data.buckets.sizes=[[64, 64], [48, 80]]")
    assert main(["check", name, *words]) == 0, capsys.readouterr().err


@pytest.mark.slow
def test_the_recipe_for_24_gigabytes_fits_them() -> None:
    found = predicted("sdxl-24gb")
    assert found.peak / 1e9 == pytest.approx(told("sdxl-24gb"), abs=0.1)
    assert found.peak < 0.9 * 24 * 2**30, "a tenth is left for what is not counted"
    assert 0 < found.update <= CHUNK
    assert [part.name for part in found.parts if part.loaded] == ["denoiser"]


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in RECIPES if name != "sdxl-24gb"])
def test_the_head_of_a_recipe_says_what_check_predicts(name: str) -> None:
    assert predicted(name).peak / 1e9 == pytest.approx(told(name), abs=0.1)
