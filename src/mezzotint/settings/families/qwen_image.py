"""Facts and settings of Qwen-Image and Qwen-Image-Edit: length of the text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from mezzotint.settings.base import NEVER, Section
from mezzotint.settings.families.base import FLOW_MATCHING_REFUSES, FamilySpec, Starter


class QwenImageSettings(Section):
    """For family `qwen-image`: length of the text."""

    text_tokens: Annotated[Annotated[int, Field(ge=16, le=1024)], NEVER] = 512
    """How many tokens of a caption are read, those at the end of the template included; those of images, which models
    that edit read too, are not counted. Short captions are not padded."""


def _matches(index: Mapping[str, Any], config: Mapping[str, Any]) -> bool:
    return config.get("_class_name") == "QwenImageTransformer2DModel"


SPEC = FamilySpec(
    name="qwen-image",
    trains="Qwen-Image and Qwen-Image-Edit",
    label="Qwen-Image",
    networks={
        "denoiser": "diffusers.models.transformers.transformer_qwenimage.QwenImageTransformer2DModel",
        "text_encoder": "transformers.models.qwen2_5_vl.modeling_qwen2_5_vl.Qwen2_5_VLTextModel",
        "vae": "diffusers.models.autoencoders.autoencoder_kl_qwenimage.AutoencoderKLQwenImage",
    },
    folders={"denoiser": "transformer", "text_encoder": "text_encoder", "vae": "vae"},
    tokenizers={"text_encoder": "tokenizer"},
    refuses=FLOW_MATCHING_REFUSES,
    tensor_names=r"^(model\.diffusion_model\.)?transformer_blocks\.\d+\.img_mod\.1\.",
    settings=QwenImageSettings,
    matches=_matches,
    layers={
        "mlp": r".*\.(img|txt)_mlp\.net\.\d+(\.proj)?",
        "outer": r"(img|txt)_in",
    },
    published=("Qwen/Qwen-Image", "Qwen/Qwen-Image-Edit", "Qwen/Qwen-Image-Edit-2511"),
    is_flow_matching=True,
    usual={"sample": {"solver": "euler", "steps": 50, "guidance": (4.0,), "negative_prompt": " "}},
    starters=(Starter("qwen-image-lora-24gb"), Starter("qwen-image-80gb")),
    editors="^QwenImageEdit",
)
