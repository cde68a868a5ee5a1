"""Facts and settings of Wan 2.1 and 2.2, text and image to video: length of the text, first-frame conditioning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from mezzotint.settings.base import ALLOW, FREE, NEVER, InputPath, Section, Share
from mezzotint.settings.families.base import FLOW_MATCHING_REFUSES, FamilySpec, Starter


class WanSettings(Section):
    """For family `wan`: length of the text, first-frame conditioning."""

    text_tokens: Annotated[Annotated[int, Field(ge=16, le=512)], NEVER] = 512
    """How many tokens of a caption are read, the end token included. Shorter captions are padded with zeros.
    Wan 2.1 I2V takes 512."""

    first_frame_prob: Annotated[Share, ALLOW] = 0.0
    """For Wan 2.2 TI2V 5B: the probability that a clip is trained as image to video (first-frame conditioning): its
    first latent frame has no noise, timestep 0 and no loss. 0 trains only text to video; 0.5 both equally."""

    low_noise: Annotated[InputPath | None, FREE] = None
    """For Wan 2.2 A14B in ComfyUI's files, one for each of its two denoisers: the file of `denoiser_2`, for low noise.
    `model.path` then names the file of `denoiser`, for high noise, or a folder, whichever is trained. None uses the
    folder's. No effect with `model.weights=random`."""


def _matches(index: Mapping[str, Any], config: Mapping[str, Any]) -> bool:
    return config.get("_class_name") == "WanTransformer3DModel"


SPEC = FamilySpec(
    name="wan",
    trains="Wan 2.1, text to video 1.3B and 14B and image to video 14B, and Wan 2.2, TI2V 5B, T2V A14B and I2V A14B",
    label="Wan",
    networks={
        "denoiser": "diffusers.models.transformers.transformer_wan.WanTransformer3DModel",
        "denoiser_2": "diffusers.models.transformers.transformer_wan.WanTransformer3DModel",
        "text_encoder": "umt5_text",
        "vae": "diffusers.models.autoencoders.autoencoder_kl_wan.AutoencoderKLWan",
        "image_encoder": "clip_vision",
    },
    folders={
        "denoiser": "transformer",
        "denoiser_2": "transformer_2",
        "text_encoder": "text_encoder",
        "vae": "vae",
        "image_encoder": "image_encoder",
    },
    trainable=("denoiser", "denoiser_2"),
    tokenizers={"text_encoder": "tokenizer"},
    refuses=FLOW_MATCHING_REFUSES,
    tensor_names=r"^(model\.diffusion_model\.)?head\.modulation$",
    settings=WanSettings,
    matches=_matches,
    layers={
        "outer": r"condition_embedder\..*|patch_embedding",
    },
    published=(
        "Wan-AI/Wan2.1-T2V-1.3B-Diffusers",
        "Wan-AI/Wan2.1-T2V-14B-Diffusers",
        "Wan-AI/Wan2.1-I2V-14B-480P-Diffusers",
        "Wan-AI/Wan2.1-I2V-14B-720P-Diffusers",
        "Wan-AI/Wan2.2-T2V-A14B-Diffusers",
        "Wan-AI/Wan2.2-I2V-A14B-Diffusers",
        "Wan-AI/Wan2.2-TI2V-5B-Diffusers",
    ),
    is_flow_matching=True,
    usual={"sample": {"solver": "unipc", "steps": 50, "guidance": (5.0,)}},
    starters=(Starter("wan-lora-24gb"), Starter("wan-80gb")),
)
