"""Merging checkpoints of MindSpore's with other forms of SDXL."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from mezzotint.compat.mindone import mindspore_format
from mezzotint.families.sdxl import Family
from mezzotint.settings.sections.model import ModelSettings
from mezzotint.tasks.weights import convert
from support.merging import UNET, merged, require_a_denoiser_takes_its_place, same, scaled
from support.model_export import load_model


@pytest.fixture(scope="module")
def forms(sdxl_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The base model as a diffusers folder and as a checkpoint of MindSpore."""
    checkpoint = tmp_path_factory.mktemp("forms") / "base.ckpt"
    assert convert.run([str(sdxl_folder), str(checkpoint)]) == 0
    return {"folder": sdxl_folder, "mindspore": checkpoint}


@pytest.fixture(scope="module")
def family(sdxl_folder: Path) -> Family:
    return load_model(Family, ModelSettings(family="sdxl", path=sdxl_folder))


@pytest.mark.slow
def test_trained_denoiser_is_merged_into_a_mindspore_checkpoint(
    forms: dict[str, Path], family: Family, tmp_path: Path, capsys: Any
) -> None:
    require_a_denoiser_takes_its_place(forms, family, "mindspore", ".ckpt", tmp_path, capsys, written=("out.ckpt",))


def test_leftover_prefixes_of_tensor_names_are_removed(
    forms: dict[str, Path], family: Family, tmp_path: Path, capsys: Any
) -> None:
    state = scaled(family, tmp_path / "unet.ckpt", 2.0)
    held = dict(mindspore_format.read(tmp_path / "unet.ckpt"))
    odd: dict[str, Tensor] = {}
    for name, tensor in held.items():
        inside = name.removeprefix("model.diffusion_model.")
        stage = "stage1" if inside.startswith(("time_embed", "label_emb", "input", "middle")) else "stage2"
        odd[f"{stage}.diffusion_model._backbone.{inside}"] = tensor
        odd[f"ema.model.diffusion_model.{inside}"] = tensor * 3
    mindspore_format.write(tmp_path / "odd.ckpt", odd | {"updates": torch.tensor(7.0)})
    merged(forms["folder"], tmp_path / "odd.ckpt", tmp_path / "plain")
    output = capsys.readouterr().out
    assert f"`stage2.` from {len(held)} names" in output
    assert f"left out: {len(held)} averaged tensors; --ema=use uses them" in output
    assert same(load_file(tmp_path / "plain" / UNET), state)
    merged(forms["folder"], tmp_path / "odd.ckpt", tmp_path / "averaged", "--ema=use")
    assert same(load_file(tmp_path / "averaged" / UNET), {n: t * 3 for n, t in state.items()})
