"""The training loop of the diffusers script, for comparison."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from mezzotint.cli import main
from mezzotint.errors import RecipeError
from mezzotint.runtimes.base import Launch, Runtime
from mezzotint.settings.reading.read import read_text
from mezzotint.tasks.bench import _stock


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_stock_loop_trains_on_the_same_images(shared_world: Any, tmp_path: Path) -> None:
    words = shared_world.words("against", run__steps=5)
    assert main(["bench", *words, "--against=stock", f"--out={tmp_path / 'out'}"]) == 0
    document = json.loads((tmp_path / "out" / "bench.json").read_text("utf-8"))
    mine, stock = document["rows"]
    assert (mine["name"], stock["name"]) == ("as written", "stock")
    assert stock["step_samples"] == mine["step_samples"]
    assert all(0 < loss < 5 for loss in stock["step_loss"])
    assert len({*stock["step_loss"]}) == 5
    assert mine["against"]["row"] == "stock"
    assert (mine["against"]["by"], mine["against"]["cpu_seconds"]["rounds"]) == ("CPU seconds", 4)
    assert stock["against"] is None


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["model.family=sdxl"], "trains model.family=sd"),
        (["model.train=[denoiser, text_encoder]"], "only trains the denoiser"),
        (["objective.loss=huber"], "has the mse of epsilon"),
        (["optim.optimizer.kind=lion"], "has AdamW"),
    ],
)
def test_unsupported_settings_of_the_stock_loop_are_refused(words: list[str], said: str) -> None:
    recipe = read_text("schema: 1", overrides=words).recipe
    with pytest.raises(RecipeError, match=said) as caught:
        _stock.as_stock(recipe, Runtime(torch.device("cpu"), Launch(), recipe.run))
    assert caught.value.code == "E1860"
