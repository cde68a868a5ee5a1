"""The model's files, trained parts and rates, and adapters."""

from __future__ import annotations

from typing import Any

import pytest
from kohya_commands import changed, notes, recipe, refusal, settings

_ENCODERS = ["denoiser", "text_encoder", "text_encoder_2"]


@pytest.mark.parametrize(
    ("script", "words", "parts", "rates"),
    [
        ("train_network", "", ["denoiser", "text_encoder"], (2e-6, {})),
        ("train_network", "--unet_lr=1e-4 --text_encoder_lr 5e-5", ["denoiser", "text_encoder"],
         (1e-4, {"text_encoder": 5e-5})),
        ("train_network", "--text_encoder_lr 0", ["denoiser"], (2e-6, {})),
        ("train_network", "--unet_lr 0 --learning_rate=1e-4", ["text_encoder"], (1e-4, {})),
        ("sdxl_train_network", "--learning_rate=1e-4 --text_encoder_lr 5e-5 1e-5", _ENCODERS,
         (1e-4, {"text_encoder": 5e-5, "text_encoder_2": 1e-5})),
        ("sdxl_train_network", "--text_encoder_lr 5e-5", _ENCODERS,
         (2e-6, {"text_encoder": 5e-5, "text_encoder_2": 5e-5})),
        ("sdxl_train_network", "--network_train_unet_only --text_encoder_lr 5e-5", ["denoiser"], (2e-6, {})),
        ("flux_train_network", "--text_encoder_lr 1e-4 0", ["denoiser", "text_encoder"],
         (2e-6, {"text_encoder": 1e-4})),
        ("sd3_train_network", "", _ENCODERS, (2e-6, {})),
        ("train_db", "--learning_rate_te=1e-6", ["denoiser", "text_encoder"], (2e-6, {"text_encoder": 1e-6})),
        ("train_db", "--stop_text_encoder_training=-1", ["denoiser"], (2e-6, {})),
        ("fine_tune", "", ["denoiser"], (2e-6, {})),
        ("fine_tune", "--train_text_encoder", ["denoiser", "text_encoder"], (2e-6, {})),
        ("sdxl_train", "--train_text_encoder --learning_rate=1e-5 --learning_rate_te1 5e-6 --learning_rate_te2 2e-6",
         _ENCODERS, (1e-5, {"text_encoder": 5e-6, "text_encoder_2": 2e-6})),
        ("sdxl_train", "--train_text_encoder --learning_rate_te2 0", ["denoiser", "text_encoder"], (2e-6, {})),
        ("sd3_train", "--train_text_encoder", _ENCODERS, (2e-6, {})),
        ("flux_train", "", ["denoiser"], (2e-6, {})),
    ],
)  # fmt: skip
def test_parts_and_rates(script: str, words: str, parts: list[str], rates: tuple[float, dict[str, float]]) -> None:
    optim = recipe(script, *words.split()).optim
    assert settings(script, *words.split())["model.train"] == parts
    assert (optim.lr, dict(optim.part_lr)) == rates


@pytest.mark.parametrize(
    ("script", "words", "expected"),
    [
        ("flux_train_network", "--ae=ae.sft --clip_l=l.sft --t5xxl=t.sft",
         {"model.vae": "ae.sft", "model.over": ["l.sft", "t.sft"]}),
        ("sd3_train_network", "--clip_l=l --clip_g=g --t5xxl=t", {"model.over": ["l", "g", "t"]}),
        ("sdxl_train_network", "--max_token_length=225", {"model.caption_tokens": 225}),
        ("flux_train_network", "--max_token_length=225", {}),
        ("flux_train_network", "--t5xxl_max_token_length=256", {"model.flux.t5_tokens": 256}),
        ("sd3_train", "--t5xxl_max_token_length=77", {"model.sd3.t5_tokens": 77}),
        ("flux_train", "--guidance_scale=1", {"model.flux.guidance": 1.0}),
        ("flux_train", "--pretrained_model_name_or_path=flux1-schnell",
         {"model.path": "flux1-schnell", "model.flux.guidance": None}),
        ("sdxl_train", "--clip_skip=2", {}),
        ("train_db", "--clip_skip=1", {"model.clip_skip": 0}),
    ],
)  # fmt: skip
def test_files(script: str, words: str, expected: dict[str, Any]) -> None:
    assert changed(script, *words.split()) == expected


@pytest.mark.parametrize(
    ("script", "words", "expected"),
    [
        ("train_network", "--network_args conv_dim=8 conv_alpha=4",
         {"rank_pattern": {"denoiser/*.conv[12]": 8, "denoiser/*samplers*.conv": 8},
          "alpha_pattern": {"denoiser/*.conv[12]": 4.0, "denoiser/*samplers*.conv": 4.0}}),
        ("train_network", "--network_alpha=16 --network_dim=16 --network_args conv_dim=16",
         {"rank": 16, "alpha": 16.0, "rank_pattern": {},
          "alpha_pattern": {"denoiser/*.conv[12]": 1.0, "denoiser/*samplers*.conv": 1.0}}),
        ("train_network", "--network_dim=8 --network_alpha=0", {"rank": 8, "alpha": None}),
        ("train_network", "--network_module=lycoris.kohya --network_args algo=lokr factor=8 decompose_both=True",
         {"kind": "lokr", "factor": 8, "decompose_both": True,
          "targets": ("denoiser/all", "denoiser/conv_in", "denoiser/conv_out", "denoiser/time_embedding.linear_[12]",
                      "text_encoder/attention+mlp"), "rank_pattern": {}, "alpha_pattern": {}}),
        ("train_network", "--network_module=lycoris.kohya --network_args algo=loha preset=attn-mlp",
         {"kind": "loha", "targets": ("denoiser/attention", "denoiser/*.ff.net.*", "text_encoder/attention+mlp")}),
        ("train_network", "--network_module=lycoris.kohya --network_args dora_wd=True", {"kind": "dora"}),
        ("train_network", "--network_module=lycoris.kohya --network_dim=8 --network_args conv_dim=2",
         {"rank": 8, "rank_pattern": dict.fromkeys(
             ("denoiser/*.conv[12]", "denoiser/*samplers*.conv", "denoiser/conv_in", "denoiser/conv_out"), 2)}),
        ("flux_train_network", "--network_args train_blocks=single --network_train_unet_only",
         {"targets": ("denoiser/single_transformer_blocks.*",)}),
        ("flux_train_network", "--network_train_unet_only --network_args train_single_block_indices=7,20-21 "
         "train_double_block_indices=none",
         {"targets": tuple(f"denoiser/single_transformer_blocks.{number}.*" for number in (7, 20, 21))}),
        ("flux_train_network", "--network_train_unet_only --network_args single_dim=2 single_mod_dim=0 "
         "train_blocks=single",
         {"rank_pattern": {f"denoiser/single_transformer_blocks.*.{name}": 2
                           for name in ("attn.to_[qkv]", "proj_mlp", "proj_out")}}),
        ("sd3_train_network", "--network_train_unet_only --network_args train_block_indices=0-1",
         {"targets": ("denoiser/transformer_blocks.0.*", "denoiser/transformer_blocks.1.*")}),
        ("sdxl_train_network", "--network_train_unet_only --network_dim=32 --network_alpha=16",
         {"rank": 32, "alpha": 16.0, "targets": ("denoiser/attention+mlp",)}),
    ],
)  # fmt: skip
def test_adapters(script: str, words: str, expected: dict[str, Any]) -> None:
    adapter = recipe(script, *words.split()).model.adapter
    assert {name: getattr(adapter, name) for name in expected} == expected


CHROMA = ("--model_type=chroma", "--apply_t5_attn_mask", "--t5xxl=t5.safetensors", "--ae=ae.safetensors")


def test_chroma_has_neither_clip_nor_guidance() -> None:
    flux = settings("flux_train_network", *CHROMA[2:], "--guidance_scale=0", "--network_train_unet_only")
    chroma = settings("flux_train_network", *CHROMA, "--guidance_scale=0")
    only_flux = {path: value for path, value in flux.items() if chroma.get(path) != value}
    assert only_flux == {"model.family": "flux", "model.flux.guidance": 0.0}
    assert {path: value for path, value in chroma.items() if flux.get(path) != value} == {
        "model.family": "chroma", "model.chroma.text_tokens": 512}  # fmt: skip
    assert recipe("flux_train_network", *CHROMA).model.family == "chroma"
    said = notes("flux_train_network", *CHROMA, "--clip_l=l.safetensors")
    assert "Chroma has no CLIP" in said
    assert "not given, read as 0" in said
    blocks = recipe(
        "flux_train_network", *CHROMA, "--network_args", "train_single_block_indices=none", "img_attn_dim=8"
    )
    assert set(blocks.model.adapter.rank_pattern.values()) == {8}


def test_differences_of_adapters_are_noted() -> None:
    assert "queries, keys and values have an adapter each" in notes("flux_train_network")
    assert "queries" not in notes("flux_train_network", "--network_args", "split_qkv=True")
    assert "1 is usual for training" in notes("flux_train_network")
    assert "in the script, of the numbers between" in notes("train_network", "--network_dropout=0.1")
    with_file = notes("train_network", "--network_weights=a.safetensors", "--network_dim=8")
    assert "those of --network_weights" in with_file


@pytest.mark.parametrize(
    ("script", "words", "where", "code"),
    [
        ("flux_train", "--model_type=chroma", "--model_type", "E1018"),
        ("flux_train_network", "--model_type=chroma", "--apply_t5_attn_mask", "E1017"),
        ("flux_train_network", "--model_type=chroma --apply_t5_attn_mask --guidance_scale=1", "--guidance_scale",
         "E1018"),
        ("flux_train_network", "--model_type=chroma --apply_t5_attn_mask --network_args img_mod_dim=4",
         "--network_args", "E1018"),
        ("flux_train_network", "--apply_t5_attn_mask", "--apply_t5_attn_mask", "E1018"),
        ("train_network", "--network_args img_attn_dim=4", "--network_args", "E1018"),
        ("flux_train_network", "--network_args train_block_indices=4", "--network_args", "E1018"),
        ("flux_train_network", "--network_args train_single_block_indices=4-", "--network_args", "E1017"),
        ("train_db", "--stop_text_encoder_training=100", "--stop_text_encoder_training", "E1018"),
        ("train_network", "--network_module=networks.oft", "--network_module", "E1018"),
        ("sdxl_train", "--learning_rate=0", "--learning_rate", "E1018"),
        ("train_network", "--network_module=lycoris.kohya --network_args algo=loha dora_wd=True", "--network_args",
         "E1018"),
        ("train_network", "--network_module=lycoris.kohya --network_args algo=lokr dropout=0.1", "--network_dropout",
         "E1018"),
    ],
)  # fmt: skip
def test_unsupported_models_are_refused(script: str, words: str, where: str, code: str) -> None:
    assert [one[:2] for one in refusal(script, *words.split())] == [(where, code)]
