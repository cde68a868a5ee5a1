"""Shipped recipes: `check` accepts them, their comments state the predicted memory, and they fit their GPU."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Container, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from mezzotint.assets import MODELS
from mezzotint.cli import main
from mezzotint.settings.reading.read import shipped_recipes
from mezzotint.training.optimizers.base import CHUNK
from support.flow_folders import full_size
from support.shipped_recipes import STRAIGHT, WHOLE, WORDS, predicted, write_films

Captured = pytest.CaptureFixture[str]

EXHAUSTIVE = (pytest.mark.slow, pytest.mark.exhaustive)
CHECKED = ("sdxl-24gb", "sd35-lora-24gb", "qwen-image-80gb")
"""Recipes that together have every setting of the others."""
PREDICTED = ("sdxl-24gb", "klein-lora-24gb", "wan-lora-24gb", "z-image-80gb")
"""One recipe for each way of counting: full fine-tuning, a quantized base, clips, offloaded masters."""


def chosen(names: Iterable[str], often: Container[str]) -> list[Any]:
    """The names as parameters; those that are not in `often` are exhaustive."""
    return [name if name in often else pytest.param(name, marks=EXHAUSTIVE) for name in names]


@pytest.mark.parametrize("name", chosen(WORDS, CHECKED))
def test_check_accepts_shipped_recipe(
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
def test_sd15_12gb_recipe_fits_12_gb(monkeypatch: pytest.MonkeyPatch) -> None:
    # the real package needs a GPU; the estimate only looks at its name
    kind = type("AdamW8bit", (torch.optim.AdamW,), {"__module__": "bitsandbytes.optim.adamw"})
    for name in ("bitsandbytes", "bitsandbytes.optim"):
        monkeypatch.setitem(sys.modules, name, module := ModuleType(name))
    vars(module)["AdamW8bit"] = kind
    memory = predicted("sd15-12gb", (512, 512), f"model.path={MODELS / 'sd1'}")
    assert 8.5e9 < memory.peak < 0.95 * 12 * 2**30
    assert memory.update <= CHUNK


@pytest.mark.slow
@pytest.mark.parametrize("name", chosen(("subject", "sd15-lora", "style"), ("subject",)))
def test_sd_adapter_recipe_fits_8_gb(name: str) -> None:
    memory = predicted(name, (512, 512), f"model.path={MODELS / 'sd1'}")
    assert memory.peak < 0.95 * 8 * 2**30
    assert 4 * sum(part.trained for part in memory.parts) == memory.gradients == memory.optimizer // 2


@pytest.mark.parametrize(
    ("name", "model", "side"),
    [
        pytest.param("sd15", "sd1", 512, marks=EXHAUSTIVE),
        pytest.param("sd21-768-v", "sd2-v", 768, marks=EXHAUSTIVE),
    ],
)
def test_sd_recipe_comment_states_predicted_memory(name: str, model: str, side: int) -> None:
    predicted(name, (side, side), f"model.path={MODELS / model}")


@pytest.mark.slow
@pytest.mark.parametrize("name", chosen([name for name in WORDS if name.startswith("sdxl")], PREDICTED))
def test_sdxl_recipe_comment_states_predicted_memory(name: str) -> None:
    memory = predicted(name, (1024, 1024), f"model.path={MODELS / 'sdxl'}")
    if name == "sdxl-24gb":
        assert memory.peak < 0.95 * 24 * 2**30, "5 % is left for memory that is not counted"
        assert memory.gradients == 2 * sum(part.trained for part in memory.parts)
        assert 0 < memory.update <= CHUNK
        assert [part.name for part in memory.parts if part.loaded] == ["denoiser"]
    if name == "sdxl-lora-8gb":
        assert memory.peak < 0.95 * 8 * 2**30


@pytest.mark.slow
@pytest.mark.parametrize("name", chosen(STRAIGHT, PREDICTED))
def test_flow_recipe_comment_states_predicted_memory(name: str, tmp_path: Path) -> None:
    pytest.importorskip("torchao")
    size = {"wan": (832, 480, 49), "ltx": (704, 512, 97)}.get(name.partition("-")[0], (1024, 1024))
    memory = predicted(name, size, f"model.path={full_size(STRAIGHT[name][1], tmp_path / 'model')}")
    assert memory.step < 0.95 * 1e9 * (80 if name in WHOLE else 24)
    assert [part.name for part in memory.parts if part.loaded] == ["denoiser"]
    at_head = re.search(r"and (\d+) GB of host memory", shipped_recipes()[name].read_text("utf-8"))
    assert (at_head is None) == (memory.on_host == 0)
    assert at_head is None or memory.on_host / 1e9 == pytest.approx(float(at_head[1]), abs=1)
