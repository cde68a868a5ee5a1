"""Shipped recipes of flow-matching models, each with its tiny model: trained, measured, in two processes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from mezzotint.cli import main
from support.forked import exit_status, fork, free_port, run_two, variables
from support.run_folders import bench_results, logged
from support.shipped_recipes import STRAIGHT, WHOLE, WORDS

ONE_PROCESS = {
    "flux-80gb": "E1830",
    "chroma-80gb": "E1830",
    "z-image-80gb": "E1752",
    "qwen-image-80gb": "E1830",
    "krea2-80gb": "E1830",
}
"""Recipes for one process, with the code of the error that two processes get."""
LEAST = ("run.steps=2", "run.threads=1", "run.tensorboard=false", "run.preview.every=null", "data.batch_size=2",
         "data.workers=0")  # fmt: skip

pytestmark = [pytest.mark.slow]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write_clip: Callable[..., Path]) -> None:
    """Four clips in the folder `films`, which the recipes name."""
    monkeypatch.chdir(tmp_path)
    for number in range(4):
        write_clip(tmp_path / f"films/{number}.mp4", 10, size=(48, 32))
        (tmp_path / f"films/{number}.txt").write_text(f"a ball, number {number}")


def line(name: str) -> list[str]:
    """A recipe with its tiny model and two steps; its settings of weights in memory stay."""
    is_distilled = "true" if STRAIGHT[name][0] == "tiny-z-image" else ""
    return [name, *WORDS[name], *LEAST, *([f"model.z_image.distilled={is_distilled}"] if is_distilled else [])]


@pytest.mark.parametrize("name", STRAIGHT)
def test_recipe_trains(name: str) -> None:
    pytest.importorskip("torchao")
    assert main(["train", *line(name), "run.folder=run"]) == 0
    losses = logged("run")
    assert len(losses) == 2
    assert len(set(losses)) == 2
    [export] = Path("run/exports").glob("step-*[0-9]")
    kind = "transformer/diffusion_pytorch_model.safetensors" if name in WHOLE else "*.safetensors"
    assert list(export.rglob(kind)), list(export.rglob("*"))


@pytest.mark.parametrize("name", ["wan-80gb", "flux-80gb"])
def test_recipe_is_benchmarked(name: str) -> None:
    pytest.importorskip("torchao")
    assert main(["bench", *line(name), "run.validation.timesteps=1", "--warm-up=1", "--as-written", "--out=out"]) == 0
    (row,) = bench_results(Path("out"))["rows"]
    assert (row["steps"], row["images_per_second"]["processed"] > 0) == (2, True)


@pytest.mark.distributed
@pytest.mark.parametrize(("name", "launcher"), [("klein-lora-24gb", "torchrun"), ("sd35-80gb", "accelerate")])
def test_recipe_trains_in_two_processes(name: str, launcher: str) -> None:
    more = {"ACCELERATE_MIXED_PRECISION": "no"} if launcher == "accelerate" else {}
    run_two(["train", *line(name), "run.folder=run"], Path("output.txt"), **more)
    assert json.loads(Path("run/environment.json").read_text())["processes"] == 2
    assert len(logged("run")) == 2


@pytest.mark.distributed
@pytest.mark.parametrize("name", ONE_PROCESS)
def test_recipe_is_refused_in_two(name: str) -> None:
    words, port = [*line(name), "run.folder=run"], free_port()
    words += ["run.offload.blocks=1"] if name == "z-image-80gb" else []  # auto: the tiny one has room
    children = [fork(["train", *words], Path("output.txt"), variables(n, port)) for n in range(2)]
    assert [exit_status(child) for child in children] == [2, 2]
    assert ONE_PROCESS[name] in Path("output.txt").read_text()
