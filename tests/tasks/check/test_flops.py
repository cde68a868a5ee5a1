"""FLOPs of a step."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from mezzotint.settings.reading.read import read_text, resolve_paths
from mezzotint.shapes import Size
from mezzotint.tasks.check.flops import flops_and_recomputed, flops_of_samples


@pytest.fixture
def shallow(shared_world: Any, tmp_path: Path) -> Path:
    """Configurations of a model whose denoiser has two levels, for fast counting."""
    folder = tmp_path / "shallow"
    shutil.copytree(shared_world.model, folder)
    path = folder / "unet" / "config.json"
    levels = {
        "block_out_channels": [16, 32],
        "down_block_types": ["CrossAttnDownBlock2D", "DownBlock2D"],
        "up_block_types": ["UpBlock2D", "CrossAttnUpBlock2D"],
    }
    path.write_text(json.dumps(json.loads(path.read_text()) | levels))
    return folder


@pytest.mark.slow
def test_flops_scale_with_size_and_exclude_frozen_parts_and_recompute(shallow: Path) -> None:
    words = [f"model.path={shallow}", "model.weights=random", "run.gradient_checkpointing.enabled=true"]
    recipe = resolve_paths(read_text("schema: 1", overrides=words))
    flops = flops_of_samples(recipe, [Size(32, 32), Size(32, 64), Size(64, 32)])
    assert flops[Size(32, 64)] == flops[Size(64, 32)] > 1.5 * flops[Size(32, 32)]
    plain = [words[0], words[1], "model.train=[denoiser, text_encoder]"]
    both = resolve_paths(read_text("schema: 1", overrides=plain))
    more = flops_of_samples(both, [Size(32, 32)])[Size(32, 32)] - flops[Size(32, 32)]
    # two layers of width 32 over 77 tokens: q, k, v, out (4 · 32²) and the MLP (2 · 32 · 64), each product 2 operations
    # forward and 4 backward, and the two products of attention
    products = 2 * 77 * (4 * 32 * 32 + 2 * 32 * 64)
    attention = 2 * 2 * 77 * 77 * 32
    assert more >= 2 * 3 * (products + attention) * 0.95, "recompute, which only the first has, is not counted"
    without, again = flops_and_recomputed(recipe, Size(32, 32))
    assert without == flops[Size(32, 32)]
    assert 0 < again <= without / 3, "at most a forward pass"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "side", "teraflops"),
    [
        ("sd1", 512, 2.407),
        pytest.param("sd2", 512, 2.409, marks=pytest.mark.exhaustive),
        pytest.param("sd2-v", 768, 6.443, marks=pytest.mark.exhaustive),
    ],
)
def test_flops_of_full_size_models_match_published_counts(name: str, side: int, teraflops: float) -> None:
    recipe = resolve_paths(read_text("schema: 1", overrides=[f"model.path={name}", "model.weights=random"]))
    flops = flops_of_samples(recipe, [Size(side, side)])[Size(side, side)]
    assert flops / 1e12 == pytest.approx(teraflops, rel=1e-3)
