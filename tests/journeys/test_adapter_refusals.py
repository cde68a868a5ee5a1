"""Adapters that `train` refuses before the first step, each with a message."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from support.adapter_records import FILES, SD
from support.pickles import Canary

Change = Callable[[dict[str, torch.Tensor]], object]


def refused(world: Any, capsys: Any, **settings: Any) -> str:
    """The error message of a run that is refused."""
    name = f"refused-{len(list(world.root.glob('*.yaml')))}"
    assert world.train(name, **{"model__adapter__kind": "lora", **settings}) == 2
    assert not (world.root / name / "checkpoints").exists() or not any((world.root / name / "checkpoints").iterdir())
    complaint = str(capsys.readouterr().err)
    assert "Traceback" not in complaint
    return complaint


def spoilt(tmp_path: Path, change: Change, name: str = "sd_lora_text_r4.kohya.safetensors") -> Path:
    tensors = load_file(FILES / name)
    change(tensors)
    save_file(tensors, tmp_path / "spoilt.safetensors")
    return tmp_path / "spoilt.safetensors"


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"model__adapter__rank": 0}, "must be greater than 0, got 0"),
        ({"model__adapter__targets": "[nothing.*]"}, "no layer of unet matches 'nothing.*'"),
        ({"model__adapter__path": FILES / "sdxl_lora_text_r4.kohya.safetensors"}, "looks like an adapter for SDXL"),
        ({"model__adapter__path": FILES / "sd_lora_text_r4.kohya.safetensors"}, "the model is one with other layers"),
        (
            {"model__path": FILES / "sd_lora_text_r4.kohya.safetensors", "model__weights": "files"},
            "a LoRA adapter",
        ),
        ({"data__captions__trigger": "sks", "data__captions__template": "a photo"}, "does not contain {trigger}"),
    ],
)
def test_impossible_adapter_is_refused(settings: dict[str, Any], sentence: str, shared_world: Any, capsys: Any) -> None:
    assert sentence in refused(shared_world, capsys, **settings)


def test_sd_adapter_is_refused_for_sdxl(shared_world: Any, capsys: Any) -> None:
    path = FILES / "sd_lora_text_r4.kohya.safetensors"
    output = refused(shared_world, capsys, model__family="sdxl", model__path="tiny-sdxl", model__adapter__path=path)
    assert "looks like an adapter for Stable Diffusion 1 or 2" in output


def test_non_finite_adapter_is_refused(shared_world: Any, capsys: Any, tmp_path: Path) -> None:
    path = spoilt(tmp_path, lambda tensors: next(iter(tensors.values())).fill_(float("nan")))
    assert "finite" in refused(shared_world, capsys, model__adapter__path=path)


@pytest.mark.usefixtures("pickles_read_here", "unmeasured")
def test_missing_alpha_is_reported_by_train_and_check(
    shared_world: Any, capsys: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    tensors = load_file(FILES / "sd_lora_text_r4.kohya.safetensors")
    path = tmp_path / "fox.pt"  # which is read as any other
    torch.save({name: tensor for name, tensor in tensors.items() if not name.endswith("alpha")}, path)
    settings = {
        "model__path": SD, "model__weights": "files", "model__train": "[denoiser, text_encoder]",
        "model__adapter__path": path, "run__steps": 1,
    }  # fmt: skip
    for verb in ("check", "train"):
        assert shared_world.train("no-alpha", verb, **settings) == 0, capsys.readouterr().err
        output = " ".join(capsys.readouterr().out.split())
        assert f"{path}: 44 of 44 layers have no alpha; using alpha = rank" in output, verb


def test_malicious_pickle_does_not_run(shared_world: Any, capsys: Any, tmp_path: Path) -> None:
    tensors = load_file(FILES / "sd_lora_text_r4.kohya.safetensors")
    torch.save({**tensors, "evil": Canary(tmp_path / "ran")}, tmp_path / "evil.pt")
    output = refused(shared_world, capsys, model__adapter__path=tmp_path / "evil.pt")
    assert "evil.pt" in output
    assert not (tmp_path / "ran").exists()
