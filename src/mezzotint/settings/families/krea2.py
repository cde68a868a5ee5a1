"""Facts and settings of Krea 2: length of the text, training of Turbo."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from mezzotint.settings.base import NEVER, Section
from mezzotint.settings.families.base import FLOW_MATCHING_REFUSES, Distilled, FamilySpec, Starter


class Krea2Settings(Section):
    """For family `krea2`: length of the text, training of Turbo."""

    text_tokens: Annotated[Annotated[int, Field(ge=16, le=1024)], NEVER] = 512
    """How many tokens of a caption are read, the 5 at the end of the template included. Short captions are not
    padded."""

    distilled: Annotated[bool, NEVER] = False
    """Allow training of Krea 2 Turbo, a distilled model: training destroys its 8-step sampling. To use an adapter with
    Turbo, train it on Krea 2 Raw."""


def _matches(index: Mapping[str, Any], config: Mapping[str, Any]) -> bool:
    return config.get("_class_name") == "Krea2Transformer2DModel"


SPEC = FamilySpec(
    name="krea2",
    trains="Krea 2 Raw and Turbo",
    label="Krea 2",
    networks={
        "denoiser": "diffusers.models.transformers.transformer_krea2.Krea2Transformer2DModel",
        "text_encoder": "transformers.models.qwen3_vl.modeling_qwen3_vl.Qwen3VLTextModel",
        "vae": "diffusers.models.autoencoders.autoencoder_kl_qwenimage.AutoencoderKLQwenImage",
    },
    folders={"denoiser": "transformer", "text_encoder": "text_encoder", "vae": "vae"},
    tokenizers={"text_encoder": "tokenizer"},
    refuses=FLOW_MATCHING_REFUSES,
    tensor_names=r"^(model\.diffusion_model\.)?txtfusion\.projector\.",
    settings=Krea2Settings,
    matches=_matches,
    layers={
        "attention": r".*\.attn\.to_gate",
        "mlp": r".*\.ff\.(gate|up|down)",
        "outer": r"(img_in|time_mod_proj|text_fusion\..*|txt_in\..*|final_layer\..*)",
    },
    published=("krea/Krea-2-Raw", "krea/Krea-2-Turbo"),
    is_flow_matching=True,
    usual={"sample": {"solver": "euler", "steps": 28, "guidance": (4.5,)}},
    distilled=Distilled("model_index.json", "is_distilled", True, steps=8, guidance=0.0),
    starters=(Starter("krea2-lora-24gb"), Starter("krea2-80gb")),
)
