"""Facts of Wan 2.1 and 2.2, text to video, and their settings: how much of a caption is read, first frames."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from mezzotint.settings.base import ALLOW, FREE, NEVER, InputPath, Section, Share
from mezzotint.settings.families.base import STRAIGHT_REFUSES, FamilySpec


class WanSettings(Section):
    """Of family `wan` alone: how much of a caption is read, how many clips have their first frame given."""

    text_tokens: Annotated[Annotated[int, Field(ge=16, le=512)], NEVER] = 512
    """How many tokens of a caption are read, the end among them. Zeros take the place of what shorter ones lack."""

    first_frame_prob: Annotated[Share, ALLOW] = 0.0
    """Of Wan 2.2 TI2V 5B: the share of clips that are trained as image to video: their first latent frame is shown
    without noise, told to have none, and left out of the loss. 0 trains text to video alone; 0.5 both alike."""

    low_noise: Annotated[InputPath | None, FREE] = None
    """Of Wan 2.2 A14B, which ComfyUI has in a file for each of its two denoisers: the file of `denoiser_2`, for little
    noise. `model.path` then names that of `denoiser`, for much noise, or a folder, whichever of them is trained. None
    takes the folder's. With `model.weights=random` it has no effect."""


def _holds(index: Mapping[str, Any], config: Mapping[str, Any]) -> bool:
    return config.get("_class_name") == "WanTransformer3DModel"


SPEC = FamilySpec(
    name="wan",
    trains="Wan 2.1 text to video, 1.3B and 14B, and Wan 2.2, TI2V 5B and T2V A14B",
    called="Wan, text to video",
    networks={
        "denoiser": "diffusers.models.transformers.transformer_wan.WanTransformer3DModel",
        "denoiser_2": "diffusers.models.transformers.transformer_wan.WanTransformer3DModel",
        "text_encoder": "umt5_text",
        "vae": "diffusers.models.autoencoders.autoencoder_kl_wan.AutoencoderKLWan",
    },
    folders={
        "denoiser": "transformer",
        "denoiser_2": "transformer_2",
        "text_encoder": "text_encoder",
        "vae": "vae",
    },
    trainable=("denoiser", "denoiser_2"),
    tokenizers={"text_encoder": "tokenizer"},
    refuses=STRAIGHT_REFUSES,
    tensor_names=r"^(model\.diffusion_model\.)?head\.modulation$",
    settings=WanSettings,
    holds=_holds,
    layers={
        "outer": r"condition_embedder\..*|patch_embedding",
    },
    is_straight=True,
    usual={"sample": {"solver": "unipc", "steps": 50, "guidance": (5.0,)}},
)
