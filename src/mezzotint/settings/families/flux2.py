"""Facts and settings of FLUX.2 dev and Klein: guidance during training, the text, training of distilled models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field, NonNegativeFloat, NonNegativeInt

from mezzotint.settings.base import ALLOW, NEVER, Section
from mezzotint.settings.families.base import FLOW_MATCHING_REFUSES, Distilled, FamilySpec, Starter


class Flux2Settings(Section):
    """For family `flux2`: guidance during training, length and layers of the text, training of distilled models."""

    guidance: Annotated[NonNegativeFloat | None, ALLOW] = None
    """The guidance scale given to FLUX.2 dev during training. None is 1, which corresponds to plain training data, as
    most trainers use it; diffusers' script uses 3.5. Klein has no guidance input and refuses a value."""

    text_tokens: Annotated[Annotated[int, Field(ge=16, le=512)], NEVER] = 512
    """How many tokens of a caption are read, those of the chat template included. Shorter captions are padded, and the
    padding is attended to, so another length is another text."""

    text_layers: Annotated[tuple[NonNegativeInt, NonNegativeInt, NonNegativeInt] | None, NEVER] = None
    """The text embedding is made of the text encoder's hidden states after this many layers. None is those of the
    model's own pipeline: 9, 18 and 27 for Klein, 10, 20 and 30 for dev. diffusers' training script of Klein also uses
    10, 20 and 30 by default, which Klein's pipeline never passes to the model."""

    ignore_chat_template: Annotated[bool, NEVER] = False
    """Ignores the chat template of the model folder. Captions are always formatted as in the model's training: by
    Qwen3's template for Klein, by Mistral's for dev. A folder with another template is refused unless this is true,
    because a template is a program and is never run."""

    distilled: Annotated[bool, NEVER] = False
    """Allow training of a distilled Klein: training destroys its 4-step sampling. Train an adapter for it on the base
    model."""


def _matches(index: Mapping[str, Any], config: Mapping[str, Any]) -> bool:
    return config.get("_class_name") == "Flux2Transformer2DModel"


SPEC = FamilySpec(
    name="flux2",
    trains="FLUX.2 dev, and FLUX.2 Klein base, 4B and 9B",
    label="FLUX.2",
    networks={
        "denoiser": "diffusers.models.transformers.transformer_flux2.Flux2Transformer2DModel",
        "text_encoder": "transformers.models.qwen3.modeling_qwen3.Qwen3Model",
        "vae": "diffusers.models.autoencoders.autoencoder_kl_flux2.AutoencoderKLFlux2",
    },
    folders={"denoiser": "transformer", "text_encoder": "text_encoder", "vae": "vae"},
    tokenizers={"text_encoder": "tokenizer"},
    refuses=FLOW_MATCHING_REFUSES,
    tensor_names=r"^(model\.diffusion_model\.)?single_stream_modulation\.lin\.",
    settings=Flux2Settings,
    matches=_matches,
    layers={
        "attention": r".*\.to_qkv_mlp_proj",
        "mlp": r".*\.ff(_context)?\.linear_(in|out)",
        "outer": r"(time_guidance_embed|(double|single)_stream_modulation\w*)\..*",
    },
    published=(
        "black-forest-labs/FLUX.2-dev",
        "black-forest-labs/FLUX.2-klein-base-4B",
        "black-forest-labs/FLUX.2-klein-base-9B",
    ),
    is_flow_matching=True,
    usual={"sample": {"solver": "euler", "steps": 50, "guidance": (4.0,)}},
    distilled=Distilled("model_index.json", "is_distilled", True, steps=4, guidance=1.0),
    starters=(
        Starter("klein-lora-24gb", pipeline="Klein"),
        Starter("flux2-dev-lora-24gb"),
        Starter("klein-80gb"),
    ),
    editors="^Flux2",
)
