"""A job file of ai-toolkit, trained on a tiny model: two sets, previews, a save, and the same command again."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from jobs import FLUX, job, write
from PIL import Image
from safetensors.torch import load_file

from mezzotint.cli import main
from support.foreign_adapters import DISTILLED, assert_opens, find_model

OURS = ("data.cache.path=cache", "run.device=cpu", "run.threads=1", "run.tensorboard=false", "sample.size=[64,64]")
SMALL: dict[str, Any] = {
    "datasets.0.resolution": [32, 64], "datasets.0.bucket_tolerance": 8, "train.batch_size": 2, "train.steps": 2,
    "train.lr": 1e-3, "save.save_every": 1, "sample.sample_every": 2, "sample.sample_steps": 1,
    "trigger_word": "p3r",
}  # fmt: skip


def images(folder: Path) -> None:
    folder.mkdir()
    for shade in (20, 90, 160, 230):
        Image.new("RGB", (72, 64), (shade, 80, 160)).save(folder / f"{shade:03}.png")
        (folder / f"{shade:03}.txt").write_text("a fox, sitting")


def train(changes: dict[str, Any], *ours: str) -> int:
    return main(["train", "--as", "ai-toolkit", *OURS, *ours, "--", "python", "run.py", write(job(changes))])


def losses() -> list[float]:
    steps = [json.loads(line) for line in Path("output/fox/metrics.jsonl").read_text().splitlines()]
    return [step["loss"] for step in steps if "loss" in step]


def test_lora_is_trained_saved_and_resumed(tmp_path: Path, shallow_sd: Path) -> None:
    shutil.copytree(shallow_sd, tmp_path / "model")
    images(tmp_path / "images")
    images(tmp_path / "kind")
    kind = {"datasets.1.folder_path": "kind", "datasets.1.is_reg": True, "datasets.1.resolution": 64,
            "datasets.1.bucket_tolerance": 8}  # fmt: skip
    changes = {**SMALL, **kind, "model.name_or_path": "model", "logging.log_every": 1}
    assert train(changes) == 0
    assert len(losses()) == 2
    folder = Path("output/fox")
    tensors = load_file(folder / "fox.safetensors")
    alphas = {float(tensor) for name, tensor in tensors.items() if name.endswith(".alpha")}
    assert alphas == {8.0}
    assert {len(tensor) for name, tensor in tensors.items() if name.endswith("lora_down.weight")} == {16}
    assert any("time_embedding" in name or "time_embed" in name for name in tensors)
    assert (folder / "exports" / "fox_000000001").is_dir()
    assert list((folder / "samples").rglob("*.png"))
    assert train({**changes, "train.steps": 3}, "run.allow_change=[run.steps]") == 0
    assert len(losses()) == 3, "and not one more"


@pytest.mark.slow
@pytest.mark.parametrize("network", ["lora", "lokr"])
def test_transformer_is_trained(tmp_path: Path, network: str) -> None:
    images(tmp_path / "images")
    changes: dict[str, Any] = {
        **SMALL,
        **FLUX,
        "model.name_or_path": "tiny-flux",
        "network.type": network,
        "train.dtype": "bf16",
    }
    changes |= {"datasets.0.resolution": 64, "datasets.0.bucket_tolerance": 16, "logging.log_every": 1}
    assert train(changes, "model.weights=random") == 0
    assert len(losses()) == 2
    assert Path("output/fox/fox.safetensors").is_file()


def test_kontext_is_trained_on_pairs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    images(tmp_path / "images")
    images(tmp_path / "before")
    prompts = {"sample.prompts": ["a fox --ctrl_img before/020.png"]}
    changes: dict[str, Any] = {**SMALL, **FLUX, **prompts, "model.arch": "flux_kontext", "train.dtype": "bf16"}
    changes |= {"model.name_or_path": "tiny-flux", "datasets.0.resolution": 64, "datasets.0.bucket_tolerance": 16}
    changes |= {"datasets.0.control_path": "before", "logging.log_every": 1}
    assert train(changes, "model.weights=random", "model.flux.t5_tokens=16") == 0
    assert len(losses()) == 2
    assert list(Path("output/fox/samples").rglob("*.png"))
    Path("before/020.png").unlink()
    assert train({**changes, "training_folder": "other"}, "model.weights=random") == 2
    message = " ".join(capsys.readouterr().err.split())
    assert "error[E1294]" in message
    assert "without a source image: 020.png; add an image of the same name" in message


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arch", "model", "more"),
    [
        ("sd1", "sd", {}),
        ("sdxl", "sdxl", {"train.train_text_encoder": False}),
        ("flux", "flux", {**FLUX, "train.dtype": "bf16"}),
        ("chroma", "chroma", {**FLUX, "train.dtype": "bf16"}),
        ("zimage", "z_image", {**FLUX, "train.dtype": "bf16"}),
        ("krea2", "krea2", {**FLUX, "train.dtype": "bf16"}),
    ],
)
def test_adapter_of_each_model_opens_in_diffusers(
    arch: str, model: str, more: dict[str, Any], tmp_path: Path, request: pytest.FixtureRequest, capsys: Any
) -> None:
    images(tmp_path / "images")
    base = find_model(model, request)
    small = {"datasets.0.resolution": 64, "datasets.0.bucket_tolerance": 16, "sample.samples": []}
    assert (
        train(
            {**SMALL, **more, **small, "model.arch": arch, "model.name_or_path": str(base)}, *DISTILLED.get(model, ())
        )
        == 0
    )
    assert_opens(Path("output/fox/fox.safetensors"), base, capsys)
