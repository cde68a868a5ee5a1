"""Where SDXL and its refiner keep their components in one file, whatever the spelling of the names.

Denoiser and autoencoder lie where they always did. Text encoders are numbered: `conditioner.embedders.0.transformer.`
is CLIP ViT-L/14, `conditioner.embedders.1.model.` OpenCLIP ViT-bigG/14; the refiner has the latter alone, as number 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mezzotint.weights.keymap import ComponentMap, Spell
from mezzotint.weights.layouts import base

Parts = dict[str, tuple[ComponentMap, ...]]

CLIP = "conditioner.embedders.0.transformer."
OPEN_CLIP, OPEN_CLIP_OF_REFINER = "conditioner.embedders.1.model.", "conditioner.embedders.0.model."

EXTRAS = (
    *base.EXTRAS,
    r"conditioner\.embedders\.0\.transformer\.(?:text_model\.)?embeddings\.position_ids",
    r"conditioner\.embedders\.[01]\.model\.(?:logit_scale|attn_mask)",
    r"denoiser\.sigmas",
)
"""Patterns of names that such files may have besides."""


def base_parts(spell: Spell = str, plain: Spell = str) -> Parts:
    """The components of SDXL's base model. spell, plain: see ComponentMap."""
    second = ComponentMap(OPEN_CLIP, base.open_clip, "clip_text_projected", spell, plain)
    clip = ComponentMap(CLIP, base.clip, "clip_text", spell, plain)
    return _pictures(spell, plain) | {"text_encoder": (clip,), "text_encoder_2": (second,)}


def refiner_parts(spell: Spell = str, plain: Spell = str) -> Parts:
    """The components of SDXL's refiner."""
    second = ComponentMap(OPEN_CLIP_OF_REFINER, base.open_clip, "clip_text_projected", spell, plain)
    return _pictures(spell, plain) | {"text_encoder_2": (second,)}


def chooser(parts: Parts) -> Callable[[str, Mapping[str, Any]], ComponentMap]:
    """`KeyMap.choose` where every component is kept in one way."""

    def choose(component: str, config: Mapping[str, Any]) -> ComponentMap:
        return parts[component][0]

    return choose


def _pictures(spell: Spell, plain: Spell) -> Parts:
    return {
        "unet": (ComponentMap(base.UNET, base.unet, "unet", spell, plain),),
        "vae": (ComponentMap(base.VAE, base.vae, "vae", spell, plain),),
    }
