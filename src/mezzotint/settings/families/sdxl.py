"""Facts of SDXL's base model and its refiner."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mezzotint.settings.families.base import FamilySpec, ShippedConfig, Starter


def _matches(index: Mapping[str, Any], unet: Mapping[str, Any]) -> bool:
    """Size conditioning of the denoiser, or a second text encoder."""
    return "text_encoder_2" in index or bool(unet.get("addition_embed_type") or unet.get("cross_attention_dim") == 2048)


SPEC = FamilySpec(
    name="sdxl",
    trains="SDXL's base model and its refiner",
    label="SDXL",
    networks={
        "denoiser": "unet",
        "text_encoder": "clip_text",
        "text_encoder_2": "clip_text_projected",
        "vae": "vae",
    },
    folders={
        "denoiser": "unet",
        "text_encoder": "text_encoder",
        "text_encoder_2": "text_encoder_2",
        "vae": "vae",
    },
    tokenizers={"text_encoder": "tokenizer", "text_encoder_2": "tokenizer_2"},
    trainable=("denoiser", "text_encoder", "text_encoder_2"),
    supports_learned_tokens=True,
    latent_scale=0.13025,
    layout="sdxl",
    advice=("gamma", "half-precision"),
    tensor_names=r"^conditioner\.embedders\.",
    matches=_matches,
    shipped=(ShippedConfig("sdxl", 2048, 320), ShippedConfig("sdxl-refiner", 1280, 384)),
    starters=(
        Starter("sdxl-lora"),
        Starter("sdxl-24gb", largest_card=32 * 10**9),
        Starter("sdxl-cached"),
    ),
    editors="InstructPix2Pix",
)
