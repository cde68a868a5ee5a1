"""Shipped recipes: `check` finds nothing wrong with them, and the memory at their heads; they fit their card."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from mezzotint.assets import MODELS
from mezzotint.cli import main
from mezzotint.settings.reading.read import shipped_recipes
from mezzotint.training.optimizers import _torch_class
from mezzotint.training.optimizers.base import CHUNK
from support.flow_folders import full_size
from support.shipped_recipes import STRAIGHT, WHOLE, WORDS, predicted, write_films

Captured = pytest.CaptureFixture[str]

ALIKE = ("sdxl", "sdxl-cached", "sdxl-lora", "sdxl-lora-8gb", "sdxl-multi-aspect",
         *(name for name in list(STRAIGHT)[1:] if name != "qwen-image-80gb"))  # fmt: skip
"""Recipes of which another one has all that they have."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in ALIKE else name for name in WORDS]
)
def test_check_finds_nothing_wrong(
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    write_clip: Callable[..., Path],
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    write_films(Path("films"), write_clip)
    assert main(["check", name, *WORDS[name]]) == 0, capsys.readouterr().err


@pytest.mark.slow
def test_that_for_12_gigabytes_fits_them(monkeypatch: pytest.MonkeyPatch) -> None:
    # counted by its package's name alone, which wants a GPU
    kind = type("AdamW8bit", (torch.optim.AdamW,), {"__module__": "bitsandbytes.optim.adamw"})
    monkeypatch.setattr(_torch_class, "class_of", lambda path: kind)
    memory = predicted("sd15-12gb", (512, 512), f"model.path={MODELS / 'sd1'}")
    assert 8.5e9 < memory.peak < 0.95 * 12 * 2**30
    assert memory.update <= CHUNK


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["subject", *(pytest.param(name, marks=pytest.mark.slow) for name in ("sd15-lora", "style"))]
)
def test_an_adapter_of_sd_fits_a_small_card(name: str) -> None:
    memory = predicted(name, (512, 512), f"model.path={MODELS / 'sd1'}")
    assert memory.peak < 0.95 * 8 * 2**30
    assert 4 * sum(part.trained for part in memory.parts) == memory.gradients == memory.optimizer // 2


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in WORDS if name.startswith("sdxl")])
def test_the_head_of_a_recipe_of_sdxl_says_what_check_predicts(name: str) -> None:
    memory = predicted(name, (1024, 1024), f"model.path={MODELS / 'sdxl'}")
    if name == "sdxl-24gb":
        assert memory.peak < 0.95 * 24 * 2**30, "a twentieth is left for what is not counted"
        assert memory.gradients == 2 * sum(part.trained for part in memory.parts)
        assert 0 < memory.update <= CHUNK
        assert [part.name for part in memory.parts if part.loaded] == ["denoiser"]
    if name == "sdxl-lora-8gb":
        assert memory.peak < 0.95 * 8 * 2**30


@pytest.mark.slow
@pytest.mark.parametrize("name", STRAIGHT)
def test_the_head_of_a_recipe_on_a_straight_path_says_what_check_predicts(name: str, tmp_path: Path) -> None:
    pytest.importorskip("torchao")
    size = {"wan": (832, 480, 49), "ltx": (704, 512, 97)}.get(name.partition("-")[0], (1024, 1024))
    memory = predicted(name, size, f"model.path={full_size(STRAIGHT[name][1], tmp_path / 'model')}")
    assert memory.step < 0.95 * 1e9 * (80 if name in WHOLE else 24)
    assert [part.name for part in memory.parts if part.loaded] == ["denoiser"]
    at_head = re.search(r"and (\d+) GB of host memory", shipped_recipes()[name].read_text("utf-8"))
    assert (at_head is None) == (memory.on_host == 0)
    assert at_head is None or memory.on_host / 1e9 == pytest.approx(float(at_head[1]), abs=1)
