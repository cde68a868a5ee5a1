"""Families, trained parts, adapters and number types of a job."""

from __future__ import annotations

from typing import Any

import pytest
from foreign_lines import GONE
from jobs import FLUX, changed, job, notes, problems, settings

from mezzotint.settings.families import base as families

FULL = {"network": GONE}
CLIPS = {"datasets.0.num_frames": 17, "datasets.0.shrink_video_to_frames": False}


def flow(arch: str) -> dict[str, Any]:
    return {**FLUX, "model.arch": arch}


@pytest.mark.parametrize(
    ("changes", "family"),
    [
        ({}, "sd"), ({"model.arch": "sd1"}, "sd"), ({"model.is_v2": True}, "sd"), ({"model.arch": "sdxl"}, "sdxl"),
        ({"model.is_xl": True}, "sdxl"), (flow("sd3"), "sd3"), (FLUX, "flux"),
        ({**FLUX, "model.arch": GONE, "model.is_flux": True}, "flux"),
        ({**FLUX, "model.arch": GONE, "model.is_v3": True}, "sd3"),
        (flow("flux2_klein_4b"), "flux2"), (flow("flux2"), "flux2"), (flow("chroma"), "chroma"),
        (flow("qwen_image:2512"), "qwen-image"), (flow("zimage"), "z-image"),
        (flow("zimage:turbo"), "z-image"), (flow("krea2"), "krea2"), (flow("wan21:14b"), "wan"),
        (flow("wan22_5b"), "wan"), (flow("wan22_14b:t2v"), "wan"), ({**flow("wan21_i2v:14b480p"), **CLIPS}, "wan"),
    ],
)  # fmt: skip
def test_arch_or_an_older_switch_is_a_family(changes: dict[str, Any], family: str) -> None:
    given = {key: value for key, value in changes.items() if value != GONE}
    assert settings(given)["model.family"] == family
    assert family in {spec.name for spec in families.specs()}


def test_without_a_network_the_whole_model_is_trained() -> None:
    full = settings(FULL | {"train.dtype": "bf16"})
    assert "model.adapter.kind" not in full
    assert (full["run.weight_dtype"], full["run.export.single_file"]) == ("same", True)
    assert settings({"train.dtype": "bf16"})["run.weight_dtype"] == "fp32"
    assert any("float32 copy" in note for note in notes({"train.dtype": "bf16"}, FULL))


def test_default_rank_and_alpha() -> None:
    read = settings({"network": {"type": "lora"}})
    assert (read["model.adapter.rank"], read["model.adapter.alpha"]) == (4, 1.0)
    read = settings({**FLUX, "network": {"type": "lora"}})
    assert (read["model.adapter.rank"], read["model.adapter.alpha"]) == (4, 4.0)


def test_lokr_keeps_alpha_on_transformers() -> None:
    lokr = {"network": {"type": "lokr", "linear": 8, "linear_alpha": 4, "lokr_full_rank": False, "lokr_factor": 8}}
    read = settings({**FLUX, **lokr})
    assert (read["model.adapter.kind"], read["model.adapter.rank"], read["model.adapter.alpha"]) == ("lokr", 8, 4.0)
    assert read["model.adapter.factor"] == 8
    found = problems(job({"network.type": "lokr", "network.dropout": 0.1}))
    assert [message for _, _, message, _ in found] == [
        "needs dropout of LoKr, which Mezzotint does not have yet; leave it out"
    ]


@pytest.mark.parametrize(
    ("changes", "targets"),
    [
        (FLUX, ["denoiser/all-linear"]),
        (flow("zimage"), ["denoiser/layers.*"]),
        (flow("krea2"), ["denoiser/all-linear"]),
        (flow("wan22_14b"), ["denoiser/all-linear", "denoiser_2/all-linear"]),
        ({**flow("wan22_14b_i2v"), **CLIPS}, ["denoiser/all-linear", "denoiser_2/all-linear"]),
        ({**FLUX, "network.network_kwargs.only_if_contains": ["transformer.single_transformer_blocks.7.proj_out"]},
         ["denoiser/*single_transformer_blocks.7.proj_out*"]),
    ],
)  # fmt: skip
def test_layers_of_transformers(changes: dict[str, Any], targets: list[str]) -> None:
    assert settings(changes)["model.adapter.targets"] == targets


@pytest.mark.parametrize(
    ("changes", "where", "words"),
    [
        ({**FLUX, "network.transformer_only": False}, "network.transformer_only", "all layers of a transformer"),
        ({"network.type": "lorm"}, "network.type", "LoRM"),
        ({**FLUX, "train.bypass_guidance_embedding": True}, "train.bypass_guidance_embedding", "guidance embedding"),
        ({"train.train_unet": False}, "train.train_unet", "nothing else is trained"),
        ({**FLUX, "train.train_text_encoder": True}, "train.train_text_encoder", "SD and SDXL only"),
        ({"model.quantize": True, "model.qtype": "int1"}, "model.qtype", "is not supported"),
    ],
)
def test_impossible_models_are_refused(changes: dict[str, Any], where: str, words: str) -> None:
    [(named, _, message, _)] = problems(job(changes))
    assert named == f"{where} in job.yaml"
    assert words in message


def test_text_encoder_may_be_trained_alone() -> None:
    read = settings({"train.train_unet": False, "train.train_text_encoder": True})
    assert (read["model.train"], read["model.adapter.targets"]) == (["text_encoder"], ["text_encoder/attention+mlp"])


@pytest.mark.parametrize(
    ("changes", "ours", "words"),
    [
        ({"model.quantize": True}, "int8", "qfloat8 is int8"),
        ({"model.quantize": True, "model.qtype": "uint3|ostris/accuracy_recovery_adapters/x"}, "nf4", "recovery"),
        ({"model.quantize": True, "model.qtype": "qint8"}, "int8", ""),
        ({"model.quantize": True, "model.quantize_te": False}, "int8", "are quantized with the model"),
        ({"model.quantize": False, "model.quantize_te": True}, "same", "are not quantized where the model is not"),
    ],
)
def test_quantization_is_in_8_or_4_bits(changes: dict[str, Any], ours: str, words: str) -> None:
    assert settings(changes)["run.frozen_dtype"] == ours
    assert any(words in note for note in notes(changes)) == bool(words)


def test_trained_weights_are_not_quantized() -> None:
    assert changed({"model.quantize": True, "model.quantize_te": False}, FULL) == {}
    assert any("not quantized" in note for note in notes({"model.quantize": True}, FULL))
