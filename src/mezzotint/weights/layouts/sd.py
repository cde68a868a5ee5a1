"""Single files of Stable Diffusion 1.x and 2.x, as the original training code (latent-diffusion, "LDM") names them.

`model.diffusion_model.` is the denoiser, `first_stage_model.` the autoencoder, `cond_stage_model.` the text encoder:
below `transformer.` CLIP ViT-L/14 of SD1 under transformers' names, below `model.` OpenCLIP ViT-H/14 of SD2 with
query, key and value in one tensor. Averaged weights lie below `model_ema.` under the denoiser's names without dots.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mezzotint.weights.keymap import ComponentMap, KeyMap
from mezzotint.weights.layouts import base

CLIP, OPEN_CLIP = "cond_stage_model.transformer.", "cond_stage_model.model."

_EXTRAS = (
    *base.EXTRAS,
    r"cond_stage_model\.transformer\.(?:text_model\.)?embeddings\.position_ids",
    r"cond_stage_model\.model\.(?:text_projection|logit_scale|attn_mask|transformer\.resblocks\.\d+\..*)",
    r"cond_stage_model\.(?:logit_scale|text_projection)",
)


def _choose(component: str, config: Mapping[str, Any]) -> ComponentMap:
    """The way a component is written. OpenCLIP computes the exact gelu, CLIP an approximation."""
    ways = LAYOUT.parts[component]
    return ways[1] if component == "text_encoder" and config.get("hidden_act") == "gelu" else ways[0]


LAYOUT = KeyMap(
    name="sd",
    family="sd",
    parts={
        "unet": (ComponentMap(base.UNET, base.unet, "unet"),),
        "vae": (ComponentMap(base.VAE, base.vae, "vae"),),
        "text_encoder": (
            ComponentMap(CLIP, base.clip, "clip_text"),
            ComponentMap(OPEN_CLIP, base.open_clip, "clip_text"),
        ),
    },
    choose=_choose,
    extras=_EXTRAS,
    average=base.average,
    average_start=base.AVERAGE,
)
"""Single files of SD 1.x and 2.x."""
