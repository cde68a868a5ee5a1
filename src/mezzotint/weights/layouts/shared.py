"""Layouts of single files of SDXL and its refiner, for any spelling of the names.

Denoiser and autoencoder have the same prefixes as in SD. Text encoders are numbered:
`conditioner.embedders.0.transformer.` is CLIP ViT-L/14, `conditioner.embedders.1.model.` OpenCLIP ViT-bigG/14; the
refiner has only the latter, as number 0.
"""

from __future__ import annotations

from typing import Any

from mezzotint.weights.keymap import ComponentMap, KeyMap, Spell
from mezzotint.weights.layouts import base

_EXTRAS = (
    *base.EXTRAS,
    r"conditioner\.embedders\.0\.transformer\.(?:text_model\.)?embeddings\.position_ids",
    r"conditioner\.embedders\.[01]\.model\.(?:logit_scale|attn_mask)",
    r"denoiser\.sigmas",
)
"""Patterns of further names that such files may contain."""


def layout(
    name: str,
    spell: Spell = str,
    plain: Spell = str,
    *,
    extras: tuple[str, ...] = (),
    logit_scale: float | None = None,
    **facts: Any,
) -> KeyMap:
    """The layout of the base model, with the refiner as its variant. spell, plain: see ComponentMap. extras: further
    patterns. logit_scale: of OpenCLIP, where readers expect it. facts: see KeyMap."""

    def ways(start: str, describe: Any, network: str) -> tuple[ComponentMap, ...]:
        return (ComponentMap(start, describe, network, spell, plain),)

    def model(name: str, open_clip: str, texts: dict[str, tuple[ComponentMap, ...]], **more: Any) -> KeyMap:
        parts = {"unet": ways(base.UNET, base.unet, "unet"), "vae": ways(base.VAE, base.vae, "vae"), **texts}
        parts["text_encoder_2"] = ways(open_clip, base.open_clip, "clip_text_projected")
        filled = {} if logit_scale is None else {f"{open_clip}logit_scale": logit_scale}
        return KeyMap(name, "sdxl", parts, (*_EXTRAS, *extras), filled=filled, **facts, **more)

    clip = {"text_encoder": ways("conditioner.embedders.0.transformer.", base.clip, "clip_text")}
    refiner = model(f"{name}-refiner", "conditioner.embedders.0.model.", {})
    return model(name, "conditioner.embedders.1.model.", clip, variants=(refiner,))
