"""Facts and settings of Chroma: length of T5's input."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from mezzotint.settings.base import NEVER, Section
from mezzotint.settings.families.base import FLOW_MATCHING_REFUSES, FamilySpec, Starter


class ChromaSettings(Section):
    """For family `chroma`: length of T5's input."""

    text_tokens: Annotated[Annotated[int, Field(ge=16, le=512)], NEVER] = 512
    """How many tokens of a caption T5 reads, the end token included. Padding is masked, except the first padding token,
    which Chroma was trained with."""


def _matches(index: Mapping[str, Any], config: Mapping[str, Any]) -> bool:
    return config.get("_class_name") == "ChromaTransformer2DModel"


SPEC = FamilySpec(
    name="chroma",
    trains="Chroma1",
    label="Chroma",
    networks={
        "denoiser": "diffusers.models.transformers.transformer_chroma.ChromaTransformer2DModel",
        "text_encoder": "t5_text",
        "vae": "vae",
    },
    folders={"denoiser": "transformer", "text_encoder": "text_encoder", "vae": "vae"},
    tokenizers={"text_encoder": "tokenizer"},
    latent_scale=0.3611,
    refuses=FLOW_MATCHING_REFUSES,
    tensor_names=r"^(model\.diffusion_model\.)?distilled_guidance_layer\.norms\.\d+\.scale",
    settings=ChromaSettings,
    matches=_matches,
    layers={
        "mlp": r"single_transformer_blocks\.\d+\.proj_(mlp|out)",
        "outer": r"distilled_guidance_layer\..*",
    },
    published=("lodestones/Chroma1-HD", "lodestones/Chroma1-Base"),
    is_flow_matching=True,
    single_file_configs=("chroma",),
    usual={"sample": {"solver": "euler", "steps": 35, "guidance": (5.0,)}},
    starters=(Starter("chroma-lora-24gb"), Starter("chroma-80gb")),
)
