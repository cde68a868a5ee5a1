"""Networks from files: old and new names fit, other files are refused before they are read, random ones repeat."""

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

TEXT: dict[str, Any] = {
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "vocab_size": 40,
    "max_position_embeddings": 12,
    "bos_token_id": 38,
    "eos_token_id": 39,
    "torch_dtype": "float32",
    "model_type": "clip_text_model",
}
VAE: dict[str, Any] = {
    "block_out_channels": [8, 8],
    "down_block_types": ["DownEncoderBlock2D"] * 2,
    "up_block_types": ["UpDecoderBlock2D"] * 2,
    "norm_num_groups": 8,
    "latent_channels": 4,
}
HERE = Path("folder/config.json")


def _text_file(tmp_path: Path, seed: int = 0) -> tuple[Path, torch.nn.Module]:
    module = components.draw("clip_text", TEXT, seed, "text_encoder", where=HERE)
    path = tmp_path / "text" / "model.safetensors"
    components.write("clip_text", module.state_dict(), TEXT, path.parent, "fp32")
    return path, module


def _same(one: torch.nn.Module, two: torch.nn.Module) -> bool:
    a, b = one.state_dict(), two.state_dict()
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


def test_text_encoders_are_written_with_the_level_that_older_readers_need(tmp_path: Path) -> None:
    path, _ = _text_file(tmp_path)
    assert all(name.startswith("text_model.") for name in tensor_files.read_header(path))


def test_text_encoders_are_read_with_and_without_that_level_and_with_position_ids(tmp_path: Path) -> None:
    path, module = _text_file(tmp_path)
    assert _same(components.load("clip_text", TEXT, path, where=HERE), module)
    bare = {k.removeprefix("text_model."): v for k, v in load_file(path).items()}
    save_file(bare, path)
    assert _same(components.load("clip_text", TEXT, path, where=HERE), module)
    old = {f"text_model.{k}": v for k, v in bare.items()} | {"text_model.embeddings.position_ids": torch.arange(12)}
    save_file(old, path)
    loaded = components.load("clip_text", TEXT, path, where=HERE)
    assert _same(loaded, module)
    ids = torch.tensor([[38, 1, 2, 39]])
    assert torch.equal(loaded(ids).last_hidden_state, module(ids).last_hidden_state)


def test_what_is_loaded_is_float32_in_eval_mode_and_can_be_trained(tmp_path: Path) -> None:
    path, _ = _text_file(tmp_path)
    save_file({k: v.half() for k, v in load_file(path).items()}, path)
    loaded = components.load("clip_text", TEXT, path, where=HERE)
    assert not loaded.training
    assert all(p.dtype == torch.float32 and p.requires_grad for p in loaded.parameters())
    loaded(torch.tensor([[38, 1, 39]])).last_hidden_state.sum().backward()


def test_autoencoders_with_the_old_names_of_their_attention_are_read(tmp_path: Path) -> None:
    module = components.draw("vae", VAE, 1, "vae", where=HERE)
    old = {"to_q": "query", "to_k": "key", "to_v": "value", "to_out.0": "proj_attn"}
    state = dict(module.state_dict())
    for new, name in old.items():
        for key in [k for k in state if f".{new}." in k]:
            state[key.replace(f".{new}.", f".{name}.")] = state.pop(key)
    assert any(".proj_attn." in k for k in state)
    save_file(state, tmp_path / "x.safetensors")
    assert _same(components.load("vae", VAE, tmp_path / "x.safetensors", where=HERE), module)


def test_weights_that_do_not_fit_are_told_with_counts_and_names_before_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, _ = _text_file(tmp_path)
    state = load_file(path)
    state["extra.weight"] = torch.ones(1)
    del state["text_model.final_layer_norm.bias"]
    state["text_model.final_layer_norm.weight"] = torch.ones(3)
    save_file(state, path)
    monkeypatch.setattr("mezzotint.weights.files.tensor_files.read", lambda *a: pytest.fail("must not be read"))
    with pytest.raises(WeightsError) as caught:
        components.load("clip_text", TEXT, path, where=HERE)
    assert caught.value.code == "E1405"
    for words in (
        "missing: 1 tensor (final_layer_norm.bias)",
        "unexpected: 1 tensor (extra.weight)",
        "final_layer_norm.weight is 3 in the file, 16 by config.json",
    ):
        assert words in caught.value.message


def test_a_file_of_another_kind_is_called_so(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    save_file({"down_blocks.0.lora_A.weight": torch.ones(1)}, path)
    with pytest.raises(WeightsError, match="LoRA"):
        components.load("vae", VAE, path, where=HERE)


def test_a_configuration_that_makes_no_network_is_named() -> None:
    with pytest.raises(WeightsError, match=r"folder/config\.json") as caught:
        components.draw("vae", VAE | {"block_out_channels": "abc"}, 0, "vae", where=HERE)
    assert caught.value.code == "E1409"


def test_random_weights_are_a_function_of_seed_and_part_and_leave_the_generator_alone() -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    one = components.draw("clip_text", TEXT, 3, "text_encoder", where=HERE)
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(7)
    assert _same(components.draw("clip_text", TEXT, 3, "text_encoder", where=HERE), one)
    assert not _same(components.draw("clip_text", TEXT, 4, "text_encoder", where=HERE), one)
    assert not _same(components.draw("clip_text", TEXT, 3, "text_encoder_2", where=HERE), one)
    assert not one.training


@pytest.mark.parametrize("told", [{}, {"torch_dtype": "float16"}, {"dtype": "bfloat16"}])
@pytest.mark.parametrize("name", ["fp16", "bf16"])
def test_a_text_encoder_of_any_type_opens_in_float32_as_all_else_in_diffusers(
    tmp_path: Path, name: components.DTypeName, told: dict[str, str]
) -> None:
    module = components.draw("clip_text", TEXT, 0, "text_encoder", where=HERE)
    config = {k: v for k, v in TEXT.items() if k != "torch_dtype"} | told | {"_name_or_path": "/home/me"}
    components.write("clip_text", module.state_dict(), config, tmp_path / "t", name)
    kinds = {info.dtype for info in tensor_files.read_header(tmp_path / "t" / "model.safetensors").values()}
    assert kinds == {name.upper().replace("FP", "F")}
    assert "/home/me" not in (tmp_path / "t" / "config.json").read_text()
    assert CLIPTextModel.from_pretrained(tmp_path / "t", local_files_only=True).dtype == torch.float32
    named = CLIPTextModel.from_pretrained(tmp_path / "t", local_files_only=True, dtype=torch.float16)
    assert named.dtype == torch.float16
