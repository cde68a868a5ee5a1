"""Facts and settings of LTX-Video: length of T5's input, frame rate, first-frame conditioning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field, PositiveFloat

from mezzotint.settings.base import ALLOW, NEVER, Section, Share
from mezzotint.settings.families.base import FLOW_MATCHING_REFUSES, FamilySpec, Starter


class LTXSettings(Section):
    """For family `ltx`: length of T5's input, frame rate, first-frame conditioning."""

    text_tokens: Annotated[Annotated[int, Field(ge=16, le=512)], NEVER] = 128
    """How many tokens of a caption T5 reads, the end token included. T5 sees the padding, the denoiser does not; from
    0.9.5 on neither does, and the pipeline reads 256."""

    frame_rate: Annotated[PositiveFloat, ALLOW] = 25.0
    """Frames per second of the clips, which the denoiser gets in its time positions, in training and in sampling. Use
    the same value as in `data.clips.fps`."""

    first_frame_prob: Annotated[Share, ALLOW] = 0.0
    """The probability that a clip is trained as image to video (first-frame conditioning): its first latent frame has
    no noise, timestep 0 and no loss. 0 trains only text to video; finetrainers uses 0.1."""


def _matches(index: Mapping[str, Any], config: Mapping[str, Any]) -> bool:
    return config.get("_class_name") == "LTXVideoTransformer3DModel"


SPEC = FamilySpec(
    name="ltx",
    trains="LTX-Video 2B and 13B, text to video",
    label="LTX-Video, text to video",
    networks={
        "denoiser": "diffusers.models.transformers.transformer_ltx.LTXVideoTransformer3DModel",
        "text_encoder": "t5_text",
        "vae": "diffusers.models.autoencoders.autoencoder_kl_ltx.AutoencoderKLLTXVideo",
    },
    folders={"denoiser": "transformer", "text_encoder": "text_encoder", "vae": "vae"},
    tokenizers={"text_encoder": "tokenizer"},
    refuses=FLOW_MATCHING_REFUSES,
    tensor_names=r"^(model\.diffusion_model\.)?patchify_proj\.",
    settings=LTXSettings,
    matches=_matches,
    is_flow_matching=True,
    usual={"sample": {"solver": "euler", "steps": 50, "guidance": (3.0,)}},
    starters=(Starter("ltx-lora-24gb"), Starter("ltx-80gb")),
)
