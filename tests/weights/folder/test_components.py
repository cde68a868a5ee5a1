"""Networks from files: old and new names are read, other files are refused before reading."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import CLIPTextModel

from mezzotint.errors import WeightsError
from mezzotint.weights.files import tensor_files
from mezzotint.weights.folder import components
from support.small_text import HERE, TEXT, same, text_file

VAE: dict[str, Any] = {
    "block_out_channels": [8, 8],
    "down_block_types": ["DownEncoderBlock2D"] * 2,
    "up_block_types": ["UpDecoderBlock2D"] * 2,
    "norm_num_groups": 8,
    "latent_channels": 4,
}


def test_text_encoders_are_written_with_the_text_model_prefix(tmp_path: Path) -> None:
    path, _ = text_file(tmp_path)
    assert all(name.startswith("text_model.") for name in tensor_files.read_header(path))


def test_text_encoders_are_read_with_and_without_prefix(tmp_path: Path) -> None:
    path, module = text_file(tmp_path)
    assert same(components.load("clip_text", TEXT, path, where=HERE), module)
    bare = {k.removeprefix("text_model."): v for k, v in load_file(path).items()}
    save_file(bare, path)
    assert same(components.load("clip_text", TEXT, path, where=HERE), module)
    old = {f"text_model.{k}": v for k, v in bare.items()} | {"text_model.embeddings.position_ids": torch.arange(12)}
    save_file(old, path)
    loaded = components.load("clip_text", TEXT, path, where=HERE)
    assert same(loaded, module)
    ids = torch.tensor([[38, 1, 2, 39]])
    assert torch.equal(loaded(ids).last_hidden_state, module(ids).last_hidden_state)


def test_loaded_network_is_float32_in_eval_mode_and_trainable(tmp_path: Path) -> None:
    path, _ = text_file(tmp_path)
    save_file({k: v.half() for k, v in load_file(path).items()}, path)
    loaded = components.load("clip_text", TEXT, path, where=HERE)
    assert not loaded.training
    assert all(p.dtype == torch.float32 and p.requires_grad for p in loaded.parameters())
    loaded(torch.tensor([[38, 1, 39]])).last_hidden_state.sum().backward()


def test_autoencoders_with_old_attention_names_are_read(tmp_path: Path) -> None:
    module = components.random_network("vae", VAE, 1, "vae", where=HERE)
    old = {"to_q": "query", "to_k": "key", "to_v": "value", "to_out.0": "proj_attn"}
    state = dict(module.state_dict())
    for new, name in old.items():
        for key in [k for k in state if f".{new}." in k]:
            state[key.replace(f".{new}.", f".{name}.")] = state.pop(key)
    assert any(".proj_attn." in k for k in state)
    save_file(state, tmp_path / "x.safetensors")
    assert same(components.load("vae", VAE, tmp_path / "x.safetensors", where=HERE), module)


def test_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    save_file({"down_blocks.0.lora_A.weight": torch.ones(1)}, path)
    with pytest.raises(WeightsError, match="LoRA"):
        components.load("vae", VAE, path, where=HERE)


def test_invalid_configuration_is_reported() -> None:
    with pytest.raises(WeightsError, match=r"folder/config\.json") as caught:
        components.random_network("vae", VAE | {"block_out_channels": "abc"}, 0, "vae", where=HERE)
    assert caught.value.code == "E1409"


@pytest.mark.parametrize("dtype_entry", [{}, {"torch_dtype": "float16"}, {"dtype": "bfloat16"}])
@pytest.mark.parametrize("name", ["fp16", "bf16"])
def test_written_text_encoder_opens_in_float32_in_transformers(
    tmp_path: Path, name: components.DTypeName, dtype_entry: dict[str, str]
) -> None:
    module = components.random_network("clip_text", TEXT, 0, "text_encoder", where=HERE)
    config = {k: v for k, v in TEXT.items() if k != "torch_dtype"} | dtype_entry | {"_name_or_path": "/home/me"}
    components.write("clip_text", module.state_dict(), config, tmp_path / "t", name)
    kinds = {info.dtype for info in tensor_files.read_header(tmp_path / "t" / "model.safetensors").values()}
    assert kinds == {name.upper().replace("FP", "F")}
    assert "/home/me" not in (tmp_path / "t" / "config.json").read_text()
    assert CLIPTextModel.from_pretrained(tmp_path / "t", local_files_only=True).dtype == torch.float32
    named = CLIPTextModel.from_pretrained(tmp_path / "t", local_files_only=True, dtype=torch.float16)
    assert named.dtype == torch.float16
