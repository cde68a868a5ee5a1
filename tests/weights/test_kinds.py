"""Files of other kinds are recognised by names and shapes only."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from mezzotint.weights import kinds
from mezzotint.weights.files.tensor_files import TensorInfo


def _header(**shapes: tuple[int, ...]) -> dict[str, TensorInfo]:
    return {name.replace("__", "."): TensorInfo("F16", shape) for name, shape in shapes.items()}


@pytest.mark.parametrize(
    ("header", "words"),
    [
        (_header(unet__down__lora__up__weight=(4, 4)), "LoRA"),
        (_header(lora_unet_mid__lora_down__weight=(4, 4)), "LoRA"),
        (_header(conditioner__embedders__1__model=(4,)), "SDXL"),
        (
            _header(
                model__diffusion_model__input_blocks__0__0__weight=(320, 4, 3, 3),
                model__diffusion_model__x__attn2__to_k__weight=(320, 768),
            ),
            "single-file checkpoint of SD 1.x",
        ),
        (
            _header(
                model__diffusion_model__input_blocks__0__0__weight=(320, 9, 3, 3),
                model__diffusion_model__x__attn2__to_k__weight=(320, 768),
            ),
            "inpainting",
        ),
        (_header(first_stage_model__encoder__conv_in__weight=(4,)), "VAE"),
        (_header(encoder__down_blocks__0__x=(4,)), "VAE"),
        (_header(down_blocks__0__a__attn2__to_k__weight=(320, 1024), conv_in__weight=(320, 4, 3, 3)), "SD 2.x"),
        (_header(text_model__encoder__layers__0__x=(4,)), "text encoder"),
        (_header(something=(4,)), "an unknown kind of file"),
    ],
)
def test_file_is_recognised_by_its_tensors(header: dict[str, TensorInfo], words: str) -> None:
    assert words in kinds.describe_tensors(header)


@pytest.mark.parametrize(
    ("index", "unet", "words"),
    [
        ({"text_encoder_2": 1}, {}, "SDXL"),
        ({}, {"cross_attention_dim": 2048}, "SDXL"),
        ({}, {"in_channels": 5}, "depth"),
        ({}, {"num_class_embeds": 1000}, "upscaler"),
        ({"transformer": 1, "_class_name": "FluxPipeline"}, {}, "FluxPipeline"),
    ],
)
def test_folder_is_recognised_by_its_configurations(
    index: dict[str, object], unet: dict[str, object], words: str
) -> None:
    assert words in str(kinds.describe_folder(index, unet, "sd"))


def test_stable_diffusion_folders_are_accepted() -> None:
    assert kinds.describe_folder({"unet": 1}, {"in_channels": 4, "cross_attention_dim": 768}, "sd") is None
    assert kinds.describe_folder({"unet": 1}, {"in_channels": 4, "cross_attention_dim": 1024}, "sd") is None


def test_paths_of_other_kinds_are_described(tmp_path: Path) -> None:
    assert kinds.describe_path(tmp_path) == "a folder without model_index.json"
    save_file({"x.lora_A.weight": torch.ones(1)}, tmp_path / "pytorch_lora_weights.safetensors")
    assert "LoRA" in str(kinds.describe_path(tmp_path))
    assert "LoRA" in str(kinds.describe_path(tmp_path / "pytorch_lora_weights.safetensors"))
    (tmp_path / "model.ckpt").write_bytes(b"PK")
    assert kinds.describe_path(tmp_path / "model.ckpt") == "a single file (.ckpt)"
    vae = tmp_path / "vae"
    vae.mkdir()
    save_file({"encoder.down_blocks.0.x": torch.ones(1)}, vae / "diffusion_pytorch_model.safetensors")
    (vae / "config.json").write_text("{}")
    assert "one component of a model, a standalone autoencoder (VAE)" in str(kinds.describe_path(vae))
    (tmp_path / "model_index.json").write_text(json.dumps({}))
    assert kinds.describe_path(tmp_path) is None
