"""Adapters and LatteT2V: extracted of two, merged into one."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from mezzotint.compat.open_sora_plan.latte import Family as Clips
from mezzotint.errors import MezzotintError
from mezzotint.settings.sections.model import ModelSettings
from support.adapter_records import ran
from support.merging import merged
from support.rounding import within


def test_adapter_is_extracted_from_two_latte_models(released: Path, tmp_path: Path, capsys: Any) -> None:
    base = released / "5x64x64"
    shutil.copytree(base, tmp_path / "tuned")
    file = tmp_path / "tuned" / "diffusion_pytorch_model.safetensors"
    tensors = load_file(file)
    name = next(name for name in tensors if name.endswith("attn1.to_q.weight"))
    torch.manual_seed(0)
    tensors[name] += torch.randn(len(tensors[name]), 2) @ torch.randn(2, tensors[name].shape[1])
    save_file(tensors, file, {"format": "pt"})
    ran("extract", base, tmp_path / "tuned", tmp_path / "a.safetensors", "--rank=2")
    assert "1 layers (1 of transformer)" in capsys.readouterr().out
    ran("merge", base, tmp_path / "a.safetensors", tmp_path / "again")
    again = load_file(tmp_path / "again" / "diffusion_pytorch_model.safetensors")
    for key, tensor in tensors.items():
        within(again[key], tensor, roundings=256 if key == name else 0, name=key)


def test_adapters_are_merged_into_a_latte_model(released: Path, tmp_path: Path, capsys: Any) -> None:

    base, adapter = released / "5x64x64", tmp_path / "a.safetensors"
    file = "diffusion_pytorch_model.safetensors"
    name = next(name for name in load_file(base / file) if name.endswith("attn1.to_q.weight"))
    width = load_file(base / file)[name].shape[0]
    factors = {"A": torch.ones(1, width), "B": torch.full((width, 1), 0.5)}
    layer = f"transformer.{name.removesuffix('.weight')}"
    save_file({f"{layer}.lora_{which}.weight": tensor for which, tensor in factors.items()}, adapter)
    ran("merge", base, f"{adapter}:0.5", tmp_path / "out")
    assert "denoiser: 1 layers changed" in capsys.readouterr().out
    before, after = load_file(base / file), load_file(tmp_path / "out" / file)
    changed = before | {name: before[name] + 0.25}
    assert after.keys() == changed.keys()
    assert all(torch.equal(after[key], tensor) for key, tensor in changed.items())
    settings = ModelSettings(family="latte", path=tmp_path / "out")
    assert torch.equal(Clips.of(settings, ["denoiser"]).parts()["denoiser"].state_dict()[name], after[name])
    part = tmp_path / "part.safetensors"
    save_file({name: before[name]}, part)
    with pytest.raises(MezzotintError, match="only adapters can be merged"):
        merged(base, part, adapter, tmp_path / "more")
