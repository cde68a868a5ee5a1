"""Shipped recipes: `check` finds nothing wrong with them, and the memory at their heads; they fit their card."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from flow_folders import full_size
from runs import logged
from shipped_recipes import STRAIGHT, WHOLE, WORDS

from mezzotint.assets import MODELS
from mezzotint.cli import main
from mezzotint.recipe.reading.read import read, shipped_recipes
from mezzotint.shapes import Size
from mezzotint.tasks.check.memory import Memory, MetaModel, memory_of
from mezzotint.training.optimizers import _torch_class
from mezzotint.training.optimizers.base import CHUNK

ALIKE = ("sdxl", "sdxl-cached", "sdxl-lora", "sdxl-lora-8gb", "sdxl-multi-aspect", "latte-65f",
         *(name for name in list(STRAIGHT)[1:] if name != "qwen-image-80gb"))  # fmt: skip
"""Recipes of which another one has all that they have."""


@pytest.fixture
def films(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write_clip: Callable[..., Path]) -> None:
    """Four clips in the folder `films` of the current folder."""
    monkeypatch.chdir(tmp_path)
    for number in range(4):
        write_clip(tmp_path / f"films/{number}.mp4", 10, size=(48, 32))
        (tmp_path / f"films/{number}.txt").write_text(f"a ball, number {number}")


@pytest.mark.usefixtures("films")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in ALIKE else name for name in WORDS]
)
def test_check_finds_nothing_wrong(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", name, *WORDS[name]]) == 0, capsys.readouterr().err


def predicted(name: str, size: tuple[int, ...], *words: str) -> Memory:
    """What a step of a recipe takes, which is what stands at its head."""
    recipe = read(name, ["model.weights=random", *words]).recipe
    memory = memory_of(MetaModel(recipe), {Size(*size): recipe.data.batch_size})
    at_head = re.search(r"`mezzotint check` predicts it: ([\d.]+) GB", shipped_recipes()[name].read_text("utf-8"))
    assert at_head is not None
    # on a card, where weights arrive in their type; read in float32 they lie in the host's memory
    assert memory.step / 1e9 == pytest.approx(float(at_head[1]), abs=0.1)
    in_gib = re.search(r"([\d.]+) GiB, which leaves", shipped_recipes()[name].read_text("utf-8"))
    assert in_gib is None or memory.peak / 2**30 == pytest.approx(float(in_gib[1]), abs=0.1)
    return memory


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
    at_head = re.search(r"and (\d+) GB of the host's", shipped_recipes()[name].read_text("utf-8"))
    assert (at_head is None) == (memory.on_host == 0)
    assert at_head is None or memory.on_host / 1e9 == pytest.approx(float(at_head[1]), abs=1)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "frames"), [("latte-17f", 17), ("latte-65f", 65)])
def test_the_head_of_a_recipe_of_latte_says_what_check_predicts(name: str, frames: int) -> None:
    """Embeddings from files stand for those of T5, which takes no part in a step."""
    files = (
        "data.format=clip-list",
        "data.clips.text_embeddings=true",
        "data.captions.dropout=0",
        "run.preview.every=null",
    )
    predicted(name, (512, 512, frames), f"model.path={MODELS / name}", "model.text_encoder=null", *files)


@pytest.mark.usefixtures("films")
def test_the_small_one_trains_on_clips_that_it_is_given() -> None:
    assert main(["train", "tiny_clips_cpu", "data.path=films", "run.tensorboard=false"]) == 0
    losses = logged("runs/tiny_clips_cpu")
    assert len(losses) == 20
    assert sum(losses[-5:]) < sum(losses[:5])
