"""Facts and settings of Stable Diffusion 3 and 3.5: length of T5's input."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from mezzotint.settings.base import NEVER, Section
from mezzotint.settings.families.base import FLOW_MATCHING_REFUSES, FamilySpec, Starter


class SD3Settings(Section):
    """For family `sd3`: length of T5's input."""

    t5_tokens: Annotated[Annotated[int, Field(ge=2, le=512)], NEVER] = 256
    """How many tokens of a caption T5 reads, the end token included; diffusers' pipeline uses 256, its training scripts
    77. CLIP's encoders always read 77. More takes more memory and time."""


def _matches(index: Mapping[str, Any], config: Mapping[str, Any]) -> bool:
    return config.get("_class_name") == "SD3Transformer2DModel"


SPEC = FamilySpec(
    name="sd3",
    trains="Stable Diffusion 3 medium and 3.5 medium and large",
    label="Stable Diffusion 3",
    networks={
        "denoiser": "diffusers.models.transformers.transformer_sd3.SD3Transformer2DModel",
        "text_encoder": "clip_text_projected",
        "text_encoder_2": "clip_text_projected",
        "text_encoder_3": "t5_text",
        "vae": "vae",
    },
    folders={
        "denoiser": "transformer",
        "text_encoder": "text_encoder",
        "text_encoder_2": "text_encoder_2",
        "text_encoder_3": "text_encoder_3",
        "vae": "vae",
    },
    tokenizers={"text_encoder": "tokenizer", "text_encoder_2": "tokenizer_2", "text_encoder_3": "tokenizer_3"},
    trainable=("denoiser", "text_encoder", "text_encoder_2"),
    latent_scale=1.5305,
    refuses=FLOW_MATCHING_REFUSES,
    tensor_names=r"(^|model\.)joint_blocks\.\d+\.x_block\.",
    settings=SD3Settings,
    matches=_matches,
    single_file_configs=("sd3-medium", "sd3.5-medium", "sd3.5-large"),
    is_flow_matching=True,
    usual={"sample": {"solver": "euler", "steps": 28, "guidance": (7.0,)}},
    starters=(Starter("sd35-lora-24gb"), Starter("sd35-80gb")),
)
