"""Single files of Stable Diffusion 1.x and 2.x, as the original training code (latent-diffusion, "LDM") names them.

`model.diffusion_model.` is the denoiser, `first_stage_model.` the autoencoder, `cond_stage_model.` the text encoder:
below `transformer.` CLIP ViT-L/14 of SD1 under transformers' names, below `model.` OpenCLIP ViT-H/14 of SD2 with
query, key and value in one tensor. Averaged weights are below `model_ema.` under the denoiser's names without dots.
"""

from __future__ import annotations

from mezzotint.weights.keymap import ComponentMap, KeyMap
from mezzotint.weights.layouts import base

CLIP, OPEN_CLIP = "cond_stage_model.transformer.", "cond_stage_model.model."

_EXTRAS = (
    *base.EXTRAS,
    r"cond_stage_model\.transformer\.(?:text_model\.)?embeddings\.position_ids",
    r"cond_stage_model\.model\.(?:text_projection|logit_scale|attn_mask|transformer\.resblocks\.\d+\..*)",
    r"cond_stage_model\.(?:logit_scale|text_projection)",
)


LAYOUT = KeyMap(
    name="sd",
    family="sd",
    parts={
        "unet": (ComponentMap(base.UNET, base.unet, "unet"),),
        "vae": (ComponentMap(base.VAE, base.vae, "vae"),),
        "text_encoder": (
            ComponentMap(CLIP, base.clip, "clip_text"),
            # OpenCLIP computes the exact gelu, CLIP an approximation
            ComponentMap(OPEN_CLIP, base.open_clip, "clip_text", activation="gelu"),
        ),
    },
    extras=_EXTRAS,
    **base.AVERAGES,
)
"""Single files of SD 1.x and 2.x."""
