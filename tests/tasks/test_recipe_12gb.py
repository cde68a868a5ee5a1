"""The recipe `sd15-12gb` fits its card, by what `check` counts."""

from __future__ import annotations

import pytest
import torch

from mezzotint.recipe.read import MODELS, read
from mezzotint.shapes import Size
from mezzotint.tasks._memory import Outline, memory_of
from mezzotint.training import rules


def test_it_stays_below_twelve_gigabytes(monkeypatch: pytest.MonkeyPatch) -> None:
    # counted by its package's name alone, which wants a GPU
    kind = type("AdamW8bit", (torch.optim.AdamW,), {"__module__": "bitsandbytes.optim.adamw"})
    monkeypatch.setattr(rules, "_class", lambda path: kind)
    words = [f"model.path={MODELS / 'sd1'}", "model.weights=random"]
    recipe = read("sd15-12gb", words).recipe
    counted = memory_of(Outline(recipe, "cpu"), {Size(512, 512): recipe.data.batch_size}, processes=1)
    assert 8.5e9 < counted.peak < 12e9
