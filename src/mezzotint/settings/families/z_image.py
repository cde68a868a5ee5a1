"""Facts and settings of Z-Image: length of the text, training of Turbo."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from mezzotint.settings.base import NEVER, Section
from mezzotint.settings.families.base import FLOW_MATCHING_REFUSES, Distilled, FamilySpec, Starter


class ZImageSettings(Section):
    """For family `z-image`: length of the text, training of Turbo."""

    text_tokens: Annotated[Annotated[int, Field(ge=16, le=512)], NEVER] = 512
    """How many tokens of a caption are read, those of the chat template included. Short captions are not padded."""

    ignore_chat_template: Annotated[bool, NEVER] = False
    """Ignores the chat template of the model folder. Captions are always formatted by Qwen3's own template, which
    Z-Image was trained with. A folder with another template is refused unless this is true, because a template is a
    program and is never run."""

    distilled: Annotated[bool, NEVER] = False
    """Allow training of Z-Image Turbo, a distilled model: training destroys its 8-step sampling."""


def _matches(index: Mapping[str, Any], config: Mapping[str, Any]) -> bool:
    return config.get("_class_name") == "ZImageTransformer2DModel"


SPEC = FamilySpec(
    name="z-image",
    trains="Z-Image",
    label="Z-Image",
    networks={
        "denoiser": "diffusers.models.transformers.transformer_z_image.ZImageTransformer2DModel",
        "text_encoder": "transformers.models.qwen3.modeling_qwen3.Qwen3Model",
        "vae": "vae",
    },
    folders={"denoiser": "transformer", "text_encoder": "text_encoder", "vae": "vae"},
    tokenizers={"text_encoder": "tokenizer"},
    latent_scale=0.3611,
    refuses=FLOW_MATCHING_REFUSES,
    tensor_names=r"^(model\.diffusion_model\.)?(layers|noise_refiner)\.\d+\.adaLN_modulation\.0\.",
    settings=ZImageSettings,
    matches=_matches,
    layers={
        "mlp": r".*\.feed_forward\.w\d",
        "outer": r"(all_)?(x|t|cap|final)_(embedder|layer)\..*",
    },
    published=("Tongyi-MAI/Z-Image", "Tongyi-MAI/Z-Image-Turbo"),
    is_flow_matching=True,
    usual={"sample": {"solver": "euler", "steps": 50, "guidance": (4.0,)}},
    distilled=Distilled("scheduler/scheduler_config.json", "shift", 3.0, steps=8, guidance=0.0),
    no_fp16="Z-Image's activations overflow in fp16",
    starters=(Starter("z-image-lora-24gb"), Starter("z-image-80gb")),
)
