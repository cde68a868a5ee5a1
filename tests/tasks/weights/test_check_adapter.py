"""Which model an adapter file is for."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from mezzotint.tasks.weights import check_adapter

LAYER = "lora_unet_down_blocks_1_attentions_0_transformer_blocks_0_attn1_to_k"
"""Stable Diffusion and SDXL have such layers, with other numbers."""


@pytest.mark.parametrize(
    ("architecture", "family"),
    [
        ("stable-diffusion-v1/lora", "sd"),
        ("stable-diffusion-v2-768-v/lora", "sd"),
        ("stable-diffusion-xl-v1-base/lora", "sdxl"),
    ],
)
def test_header_decides_between_models_with_the_same_layers(architecture: str, family: str) -> None:
    tensors = {f"{LAYER}.{name}": torch.zeros(4, 4) for name in ("lora_down.weight", "lora_up.weight")}
    models = check_adapter.guess(Path("a.safetensors"), tensors, {"modelspec.architecture": architecture})
    assert [model.family for model in models] == [family]
