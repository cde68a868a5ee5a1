"""The memory of a step by AdaCoor."""

from __future__ import annotations

from pathlib import Path

from mezzotint.families.sd import Family
from mezzotint.settings.recipe import Recipe
from mezzotint.shapes import Size
from mezzotint.tasks.check.memory import memory_of
from mezzotint.tasks.check.meta_model import MetaModel
from support.model_export import export_model, tiny_model


def test_optimizer_memory_is_counted_where_it_is_the_peak(tmp_path: Path) -> None:
    """Its copies and intermediate results, once the passes have let everything go."""
    tiny = export_model(tiny_model(Family), tmp_path / "tiny")
    run = {"precision": "bf16", "weight_dtype": "same"}
    optim = {"optimizer": {"kind": "adacoor"}}
    settings = Recipe.model_validate({"model": {"path": str(tiny)}, "run": run, "optim": optim})
    outline = MetaModel(settings)
    numbers = sum(p.numel() for p in outline.trained.values())
    memory = memory_of(outline, {Size(16, 16): 1})
    assert memory.update == 10 * numbers, "all in one chunk: float32 gradients, and squares in two types"
    assert memory.update > memory.activations[Size(16, 16)].bytes
    assert memory.peak == memory.steady + memory.update
