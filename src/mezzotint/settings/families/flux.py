"""Facts and settings of FLUX.1 dev, schnell, Kontext and Fill: guidance during training, length of T5's input."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field, NonNegativeFloat

from mezzotint.settings.base import ALLOW, NEVER, Section
from mezzotint.settings.families.base import FLOW_MATCHING_REFUSES, Distilled, FamilySpec, Starter


class FluxSettings(Section):
    """For family `flux`: guidance during training, length of T5's input, training of schnell."""

    guidance: Annotated[NonNegativeFloat | None, ALLOW] = None
    """The guidance scale given to FLUX.1 dev during training. None is 1, which corresponds to plain training data, as
    most trainers use it; diffusers' script uses 3.5. schnell has no guidance input and refuses a value."""

    t5_tokens: Annotated[Annotated[int, Field(ge=2, le=512)] | None, NEVER] = None
    """How many tokens of a caption T5 reads, the end token included. None is the model's own length: 512, for schnell
    256; diffusers' training script uses 77, which is faster. Padding is attended to, so another length is another
    text."""

    distilled: Annotated[bool, NEVER] = False
    """Allow training of schnell, a distilled model: training destroys its 4-step sampling, and it was never trained
    with guidance. To use an adapter with schnell, train it on dev."""


def _matches(index: Mapping[str, Any], config: Mapping[str, Any]) -> bool:
    return config.get("_class_name") == "FluxTransformer2DModel"


SPEC = FamilySpec(
    name="flux",
    trains="FLUX.1 dev, schnell, Kontext and Fill",
    label="FLUX.1",
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
    refuses={name: reason for name, reason in FLOW_MATCHING_REFUSES.items() if name != "task"},
    tensor_names=r"^(model\.diffusion_model\.)?double_blocks\.\d+\.img_mod\.lin\.",
    settings=FluxSettings,
    matches=_matches,
    layers={
        "mlp": r"single_transformer_blocks\.\d+\.proj_(mlp|out)",
    },
    single_file_configs=("flux-dev", "flux-schnell", "flux-fill"),
    is_flow_matching=True,
    usual={"sample": {"solver": "euler", "steps": 28, "guidance": (3.5,)}},
    distilled=Distilled("transformer/config.json", "guidance_embeds", False, steps=4, guidance=1.0),
    starters=(Starter("flux-lora-24gb"), Starter("flux-80gb")),
    editors="^FluxKontext",
)
