"""Facts of Stable Diffusion 1.x and 2.x."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mezzotint.settings.families.base import FamilySpec, ShippedConfig, Starter


def _matches(index: Mapping[str, Any], unet: Mapping[str, Any]) -> bool:
    """One text encoder, and no additional conditioning of the denoiser."""
    is_sdxl = "text_encoder_2" in index or unet.get("addition_embed_type") or unet.get("cross_attention_dim") == 2048
    return "unet" in index and not is_sdxl


SPEC = FamilySpec(
    name="sd",
    trains="Stable Diffusion 1.x and 2.x, text to image",
    label="Stable Diffusion",
    networks={"denoiser": "unet", "text_encoder": "clip_text", "vae": "vae"},
    folders={"denoiser": "unet", "text_encoder": "text_encoder", "vae": "vae"},
    tokenizers={"text_encoder": "tokenizer"},
    trainable=("denoiser", "text_encoder"),
    supports_learned_tokens=True,
    latent_scale=0.18215,
    layout="sd",
    is_stock=True,
    advice=("rates", "images", "noise", "averages"),
    tensor_names=r"^cond_stage_model\.",
    matches=_matches,
    shipped=(
        ShippedConfig("sd1", 768, 320),
        ShippedConfig("sd2", 1024, 320, "epsilon"),
        ShippedConfig("sd2-v", 1024, 320, "v"),
    ),
    starters=(
        Starter("mini-lora", model="mezzotint-mini"),
        Starter("mini", model="mezzotint-mini"),
        Starter("sd15-lora"),
        Starter("sd21-768-v", prediction="v_prediction"),
        Starter("sd15-12gb", largest_card=16 * 10**9),
        Starter("sd15"),
    ),
    editors="InstructPix2Pix",
)
