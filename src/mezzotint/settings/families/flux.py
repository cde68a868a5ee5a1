"""Facts of FLUX.1 dev and schnell, and their settings: the guidance that training tells, how much T5 reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field, NonNegativeFloat

from mezzotint.settings.base import ALLOW, NEVER, Section
from mezzotint.settings.families.base import STRAIGHT_REFUSES, Distilled, FamilySpec


class FluxSettings(Section):
    """Of family `flux` alone: the guidance that training tells, how much T5 reads, whether schnell is meant."""

    guidance: Annotated[NonNegativeFloat | None, ALLOW] = None
    """The scale of guidance that FLUX.1 dev is told while it is trained; None is 1, at which it says what plain
    training data says, as most trainers take it. diffusers' script takes 3.5. schnell is told none, and refuses one."""

    t5_tokens: Annotated[Annotated[int, Field(ge=2, le=512)] | None, NEVER] = None
    """How many tokens of a caption T5 reads, the end among them. None is what the model was made for: 512, of schnell
    256; diffusers' training script takes 77, which is faster. Padding is attended to, so that another length is another
    text."""

    distilled: Annotated[bool, NEVER] = False
    """Trains schnell, which was distilled to four steps: those few steps fall apart in training, and with guidance it
    was never trained. An adapter for schnell is better trained on dev, and used with schnell."""


def _holds(index: Mapping[str, Any], config: Mapping[str, Any]) -> bool:
    return config.get("_class_name") == "FluxTransformer2DModel"


SPEC = FamilySpec(
    name="flux",
    trains="FLUX.1 dev and schnell",
    called="FLUX.1",
    networks={
        "denoiser": "diffusers.models.transformers.transformer_flux.FluxTransformer2DModel",
        "text_encoder": "clip_text",
        "text_encoder_2": "t5_text",
        "vae": "vae",
    },
    folders={
        "denoiser": "transformer",
        "text_encoder": "text_encoder",
        "text_encoder_2": "text_encoder_2",
        "vae": "vae",
    },
    tokenizers={"text_encoder": "tokenizer", "text_encoder_2": "tokenizer_2"},
    trainable=("denoiser", "text_encoder"),
    latent_scale=0.3611,
    refuses=STRAIGHT_REFUSES,
    tensor_names=r"^(model\.diffusion_model\.)?double_blocks\.\d+\.img_mod\.lin\.",
    settings=FluxSettings,
    holds=_holds,
    layers={
        "mlp": r"single_transformer_blocks\.\d+\.proj_(mlp|out)",
    },
    is_straight=True,
    usual={"sample": {"solver": "euler", "steps": 28, "guidance": (3.5,)}},
    distilled=Distilled("transformer/config.json", "guidance_embeds", False, steps=4, guidance=1.0),
)
