"""The recipe `sd15-12gb` fits its card, by what `check` counts."""

from __future__ import annotations

import re

import pytest
import torch

from mezzotint.assets import MODELS
from mezzotint.recipe.reading.read import read, shipped_recipes
from mezzotint.shapes import Size
from mezzotint.tasks.check.memory import Outline, memory_of
from mezzotint.training.optimizers import _torch_class
from mezzotint.training.optimizers.base import CHUNK


def test_it_stays_below_twelve_gigabytes(monkeypatch: pytest.MonkeyPatch) -> None:
    # counted by its package's name alone, which wants a GPU
    kind = type("AdamW8bit", (torch.optim.AdamW,), {"__module__": "bitsandbytes.optim.adamw"})
    monkeypatch.setattr(_torch_class, "class_of", lambda path: kind)
    words = [f"model.path={MODELS / 'sd1'}", "model.weights=random"]
    recipe = read("sd15-12gb", words).recipe
    counted = memory_of(Outline(recipe, "cpu"), {Size(512, 512): recipe.data.batch_size}, processes=1)
    assert 8.5e9 < counted.peak < 0.95 * 12 * 2**30
    assert counted.update <= CHUNK
    told = re.search(r"`mezzotint check` predicts it: ([\d.]+) GB", shipped_recipes()["sd15-12gb"].read_text("utf-8"))
    assert told is not None
    assert counted.peak / 1e9 == pytest.approx(float(told[1]), abs=0.1)
