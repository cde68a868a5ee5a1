"""Adapters of each family: cache, train, kill, resume, sample, merge, convert."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from safetensors.torch import load_file

from support.adapter_records import ran
from support.run_folders import logged

LORA = {
    "model__adapter__kind": "lora", "model__adapter__rank": 2, "model__adapter__dropout": 0.1, "run__steps": 4,
    "run__save__every": 2, "optim__lr": 2e-2, "optim__ema__rule": "none", "data__cache__latents": True,
    "data__cache__text": True, "data__batch_size": 2, "data__captions__dropout": 0.0,
}  # fmt: skip
CLIPS = {
    "model__family": "latte", "model__path": "tiny-latte", "data__format": "videofolder", "data__resolution": 32,
    "data__buckets__step": 16, "data__buckets__shape": "square", "data__clips__frames": 5, "data__crop": "center",
    "data__flip": 0.0,
}  # fmt: skip


@pytest.fixture(scope="module")
def clips(tmp_path_factory: pytest.TempPathFactory, write_clip: Callable[..., Path]) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("films")
    for number in range(2):
        write_clip(folder / f"{number}.mp4", 12, size=(48, 32))
        (folder / f"{number}.txt").write_text(f"a ball, number {number}")
    return CLIPS | {"data__path": folder}


def drawn(out: Path, base: Path, *words: str) -> NDArray[np.int16]:
    """The pixels of the generated image."""
    line = ["sample", base, *words, "--prompt=a ball", f"--out={out}", "--steps=2", "--size=32x32", "run.device=cpu"]
    ran(*line)
    [path] = (path for path in out.glob("*.png") if path.name != "contact.png")
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB")).astype(np.int16)


def tensors_in(folder: Path) -> dict[str, torch.Tensor]:
    files = [(file.relative_to(folder), load_file(file)) for file in folder.rglob("*.safetensors")]
    return {f"{file}: {name}": tensor for file, tensors in files for name, tensor in tensors.items()}


def ends(world: Any, name: str, settings: dict[str, Any]) -> Path:
    """A run over a filled cache, killed in its last step and resumed, must equal an uninterrupted run."""
    assert world.wait(world.fork(f"{name}-whole", **settings)) == 0, world.out(f"{name}-whole")
    killed = settings | {"run__save__asynchronous": False}
    assert world.wait(world.fork(name, fault="step.backward@4:kill", **killed)) == 137, world.out(name)
    assert world.wait(world.fork(name, **settings)) == 0, world.out(name)
    assert "resuming from step-00000002" in world.out(name)
    assert world.end(name).tensors == world.end(f"{name}-whole").tensors
    return Path(world.root / name)


def journey(world: Any, name: str, base: dict[str, Any], tmp_path: Path) -> None:
    """base: settings of a model and its data."""
    first = base | {"run__steps": 1, "optim__lr": 1e-9, "optim__ema__rule": "none", "data__batch_size": 1}
    assert world.train(f"{name}-base", **first) == 0
    model = world.root / f"{name}-base" / "exports" / "step-00000001"
    settings = base | LORA | {"model__path": model, "model__weights": "files"}
    assert world.train(name, "cache", **settings) == 0
    run = ends(world, name, settings)
    assert "(cached)" in world.out(name)
    assert len(logged(run)) == 4
    adapter = run / "exports" / "step-00000004"

    still = ("--frames=1",) if "data__clips__frames" in base else ()
    with_file = drawn(tmp_path / "a", model, f"--adapter={adapter}", *still)
    ran("merge", model, adapter, tmp_path / "merged")
    assert np.abs(drawn(tmp_path / "b", tmp_path / "merged", *still) - with_file).max() <= 1, "but for rounding"
    assert np.abs(drawn(tmp_path / "c", model, *still) - with_file).max() > 1

    own = adapter / "pytorch_lora_weights.safetensors"
    kohya, again = tmp_path / "kohya.safetensors", tmp_path / "again.safetensors"
    ran("convert", own, kohya, f"--base={model}", "--layout=kohya")
    ran("convert", kohya, again, f"--base={model}", "--layout=diffusers")
    ran("merge", model, again, tmp_path / "same")
    same = tensors_in(tmp_path / "same")
    assert all(torch.equal(tensor, same[key]) for key, tensor in tensors_in(tmp_path / "merged").items())
    if not still:  # convert does not read merged video models
        ran("convert", tmp_path / "merged", tmp_path / "merged.safetensors")


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.parametrize("family", ["sd", "sdxl", "latte"])
def test_killed_adapter_run_resumes_and_is_merged_and_converted(
    family: str, shared_world: Any, clips: dict[str, Any], sdxl_folder: Path, tmp_path: Path
) -> None:
    bases: dict[str, dict[str, Any]] = {
        "sd": {},
        "sdxl": {"model__family": "sdxl", "model__path": sdxl_folder, "model__weights": "files"},
        "latte": clips,
    }
    journey(shared_world, family, bases[family], tmp_path)
