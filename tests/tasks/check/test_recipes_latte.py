"""The recipes of LatteT2V: `check` finds nothing wrong with them and predicts the memory at their heads; the small one
trains."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mezzotint import outside
from mezzotint.assets import MODELS
from mezzotint.cli import main
from mezzotint.recipe.reading.read import read, shipped_recipes
from mezzotint.shapes import Size
from mezzotint.tasks.check.memory import Outline, memory_of


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory, write_clip: Callable[..., Path]) -> Path:
    folder = tmp_path_factory.mktemp("films")
    for number in range(4):
        write_clip(folder / f"{number}.mp4", 10, size=(48, 32))
        (folder / f"{number}.txt").write_text(f"a ball, number {number}")
    return folder


@pytest.mark.parametrize("name", ["latte-17f", "latte-65f"])
def test_check_finds_nothing_wrong(
    name: str, films: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    small = ("model.path=tiny-latte", "model.weights=random", "model.text_encoder=null", "data.resolution=32")
    clips = (f"data.path={films}", "data.buckets.step=16", "data.clips.frames=5", "data.cache.path=cache")
    assert main(["check", name, *small, *clips, "run.precision=fp32", "run.device=cpu"]) == 0, capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("name", ["latte-17f", "latte-65f"])
def test_the_head_of_a_recipe_says_what_check_predicts(name: str) -> None:
    """Embeddings from files stand for those of T5, which takes no part in a step."""
    found = re.search(r"`mezzotint check` predicts it: ([\d.]+) GB", shipped_recipes()[name].read_text("utf-8"))
    assert found is not None
    model = (f"model.path={MODELS / name}", "model.weights=random", "model.text_encoder=null")
    files = ("data.format=clip-list", "data.clips.texts=true", "data.captions.dropout=0", "run.preview.every=null")
    recipe = read(name, [*model, *files]).recipe
    size = Size(512, 512, recipe.data.clips.frames)
    memory: Any = memory_of(Outline(recipe), {size: recipe.data.batch_size})
    assert memory.peak / 1e9 == pytest.approx(float(found[1]), abs=0.1)


def test_the_small_one_trains_on_clips_that_it_is_given(
    films: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["train", "tiny_clips_cpu", f"data.path={films}", "run.tensorboard=false"]) == 0
    told = [
        line["loss"]
        for line in outside.read_lines(tmp_path / "runs" / "tiny_clips_cpu" / "metrics.jsonl")
        if "loss" in line
    ]
    assert len(told) == 20
    assert sum(told[-5:]) < sum(told[:5])
