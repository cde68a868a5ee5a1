"""The scripts of diffusers' examples, an entry for each: what it trains, its data, and its defaults that differ from
those of the table of flags (`_flags.py`). `train_text_to_image.py` and `train_text_to_image_sdxl.py` are those of
release 0.26.3 and of August 2026 (where a default differs, that of 0.26.3 is used), those for InstructPix2Pix of 2024
(their flags are those of release 0.22, too), all others those of August 2026."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class ExampleScript:
    """A training script.

    name: of its dialect, without "diffusers-". file: the script. about: what it trains. family: of its models. data:
    images with a caption each, of a subject (DreamBooth), of a learned token (textual inversion), or before and after
    an edit. mode: whether it trains all weights, a LoRA, or embeddings of tokens. project: its name at trackers.
    preview: steps and guidance scale of its validation, () for the pipeline's. defaults: by flag.

    encodes_first: whether it encodes images and captions before the training. mean_when_cached: whether cached latents
    are the mean of the autoencoder's distribution, and others a sample of it.

    layers: ends of the names of the denoiser's layers that get a LoRA, "" for all attention. outer: top-level modules
    of the denoiser; a layer that starts with one is a full name. in_both: names of layers at the top level and in
    blocks. published_loss: see `Dialect`.
    """

    name: str
    file: str
    about: str
    family: str
    data: Literal["captions", "subject", "token", "edits"]
    mode: Literal["weights", "adapter", "embeddings"]
    project: str
    preview: tuple[int, float] | tuple[()] = ()
    defaults: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    encodes_first: bool = False
    mean_when_cached: bool = False
    layers: str = ""
    outer: str = ""
    in_both: str = ""
    published_loss: float | None = None

    @property
    def is_flow(self) -> bool:
        """Whether its models are flow-matching models."""
        return self.family not in ("sd", "sdxl")

    def is_one_of(self, selector: str) -> bool:
        """Whether a selector of the tables includes this script. selector: words separated by spaces, of which one must
        match: all, a name, `data`, `mode`, unet or flow, a family of flow-matching models, or several of these joined
        by +."""
        names = {"all", self.name, self.data, self.mode, *(("flow", self.family) if self.is_flow else ("unet",))}
        return any(names.issuperset(word.split("+")) for word in selector.split())


_SUBJECT = {"resolution": 512, "train_batch_size": 4, "num_train_epochs": 1}
_FLOW = {**_SUBJECT, "adam_weight_decay": 1e-4}
_TOKEN = {"output_dir": "text-inversion-model", "max_train_steps": 5000, "mixed_precision": "no"}
_EDITS = {"output_dir": "instruct-pix2pix-model", "resolution": 256}
_ATTENTION = "to_k to_q to_v to_out.0"

SCRIPTS = (
    ExampleScript(
        name="sd", file="train_text_to_image.py", about="Stable Diffusion 1.x and 2.x",
        family="sd", data="captions", mode="weights", project="text2image-fine-tune", preview=(20, 7.5),
        defaults={"output_dir": "sd-model-finetuned", "validation_epochs": 5}, published_loss=0.0456,
    ),
    ExampleScript(
        name="sdxl", file="train_text_to_image_sdxl.py", about="SDXL",
        family="sdxl", data="captions", mode="weights", project="text2image-fine-tune-sdxl", preview=(25, 5.0),
        defaults={"output_dir": "sdxl-model-finetuned", "resolution": 1024},
        encodes_first=True,
    ),
    ExampleScript(
        name="lora", file="train_text_to_image_lora.py", about="LoRA of Stable Diffusion 1.x and 2.x",
        family="sd", data="captions", mode="adapter", project="text2image-fine-tune", preview=(30, 7.5),
        defaults={"output_dir": "sd-model-finetuned-lora"},
    ),
    ExampleScript(
        name="lora-sdxl", file="train_text_to_image_lora_sdxl.py", about="LoRA of SDXL",
        family="sdxl", data="captions", mode="adapter", project="text2image-fine-tune", preview=(25, 5.0),
        defaults={"output_dir": "sd-model-finetuned-lora", "resolution": 1024},
    ),
    ExampleScript(
        name="dreambooth", file="train_dreambooth.py", about="a subject by all weights of Stable Diffusion 1.x and 2.x",
        family="sd", data="subject", mode="weights", project="dreambooth", preview=(25, 7.5),
        defaults={**_SUBJECT, "output_dir": "dreambooth-model", "learning_rate": 5e-6},
    ),
    ExampleScript(
        name="dreambooth-lora", file="train_dreambooth_lora.py",
        about="a subject as a LoRA of Stable Diffusion 1.x and 2.x",
        family="sd", data="subject", mode="adapter", project="dreambooth-lora", preview=(25, 7.5),
        defaults={**_SUBJECT, "output_dir": "lora-dreambooth-model", "learning_rate": 5e-4},
    ),
    ExampleScript(
        name="dreambooth-lora-sdxl", file="train_dreambooth_lora_sdxl.py", about="a subject as a LoRA of SDXL",
        family="sdxl", data="subject", mode="adapter", project="dreambooth-lora-sd-xl", preview=(25, 5.0),
        defaults={**_SUBJECT, "output_dir": "lora-dreambooth-model", "resolution": 1024, "adam_weight_decay": 1e-4},
    ),
    ExampleScript(
        name="dreambooth-sd3", file="train_dreambooth_sd3.py",
        about="a subject by all weights of Stable Diffusion 3 and 3.5",
        family="sd3", data="subject", mode="weights", project="dreambooth-sd3",
        defaults={**_FLOW, "output_dir": "sd3-dreambooth", "max_sequence_length": 77},
    ),
    ExampleScript(
        name="dreambooth-lora-sd3", file="train_dreambooth_lora_sd3.py",
        about="a subject as a LoRA of Stable Diffusion 3 and 3.5",
        family="sd3", data="subject", mode="adapter", project="dreambooth-sd3-lora",
        defaults={**_FLOW, "output_dir": "sd3-dreambooth", "max_sequence_length": 77},
        layers="attn.add_k_proj attn.add_q_proj attn.add_v_proj attn.to_add_out attn.to_k attn.to_out.0 "
        "attn.to_q attn.to_v",
        outer="pos_embed time_text_embed context_embedder transformer_blocks norm_out proj_out",
    ),
    ExampleScript(
        name="dreambooth-flux", file="train_dreambooth_flux.py", about="a subject by all weights of FLUX.1 dev",
        family="flux", data="subject", mode="weights", project="dreambooth-flux-dev-lora",
        defaults={**_FLOW, "output_dir": "flux-dreambooth", "max_sequence_length": 77},
    ),
    ExampleScript(
        name="dreambooth-lora-flux", file="train_dreambooth_lora_flux.py", about="a subject as a LoRA of FLUX.1 dev",
        family="flux", data="subject", mode="adapter", project="dreambooth-flux-dev-lora",
        defaults={**_FLOW, "output_dir": "flux-dreambooth-lora"},
        layers="attn.to_k attn.to_q attn.to_v attn.to_out.0 attn.add_k_proj attn.add_q_proj attn.add_v_proj "
        "attn.to_add_out ff.net.0.proj ff.net.2 ff_context.net.0.proj ff_context.net.2",
        outer="pos_embed time_text_embed context_embedder x_embedder transformer_blocks "
        "single_transformer_blocks norm_out",
        in_both="proj_out",
    ),
    ExampleScript(
        name="dreambooth-lora-flux2-klein", file="train_dreambooth_lora_flux2_klein.py",
        about="a subject as a LoRA of FLUX.2 Klein",
        family="flux2", data="subject", mode="adapter", project="dreambooth-flux2-klein-lora",
        defaults={**_FLOW, "output_dir": "flux-dreambooth-lora"},
        layers=f"{_ATTENTION} to_qkv_mlp_proj single_transformer_blocks.*.attn.to_out",
        outer="pos_embed time_guidance_embed double_stream_modulation_img double_stream_modulation_txt "
        "single_stream_modulation x_embedder context_embedder transformer_blocks "
        "single_transformer_blocks norm_out proj_out",
    ),
    ExampleScript(
        name="dreambooth-lora-qwen-image", file="train_dreambooth_lora_qwen_image.py",
        about="a subject as a LoRA of Qwen-Image",
        family="qwen-image", data="subject", mode="adapter", project="dreambooth-qwen-image-lora",
        defaults={**_FLOW, "output_dir": "hidream-dreambooth-lora"},
        layers=_ATTENTION,
        outer="pos_embed time_text_embed txt_norm img_in txt_in transformer_blocks norm_out proj_out",
        mean_when_cached=True,
    ),
    ExampleScript(
        name="dreambooth-lora-z-image", file="train_dreambooth_lora_z_image.py", about="a subject as a LoRA of Z-Image",
        family="z-image", data="subject", mode="adapter", project="dreambooth-z-image-lora",
        defaults={**_FLOW, "output_dir": "z-image-dreambooth-lora"},
        layers=_ATTENTION,
        outer="all_x_embedder all_final_layer noise_refiner context_refiner t_embedder cap_embedder layers",
    ),
    ExampleScript(
        name="textual-inversion", file="textual_inversion.py", about="a learned token for Stable Diffusion 1.x and 2.x",
        family="sd", data="token", mode="embeddings", project="textual_inversion", preview=(25, 7.5), defaults=_TOKEN,
    ),
    ExampleScript(
        name="textual-inversion-sdxl", file="textual_inversion_sdxl.py", about="a learned token for SDXL",
        family="sdxl", data="token", mode="embeddings", project="textual_inversion", preview=(25, 5.0), defaults=_TOKEN,
    ),
    ExampleScript(
        name="instruct-pix2pix", file="train_instruct_pix2pix.py",
        about="Stable Diffusion 1.x and 2.x to edit images (InstructPix2Pix)",
        family="sd", data="edits", mode="weights", project="instruct-pix2pix", preview=(20, 7.0), defaults=_EDITS,
    ),
    ExampleScript(
        name="instruct-pix2pix-sdxl", file="train_instruct_pix2pix_sdxl.py",
        about="SDXL to edit images (InstructPix2Pix)",
        family="sdxl", data="edits", mode="weights", project="instruct-pix2pix-xl", preview=(20, 7.0), defaults=_EDITS,
    ),
)  # fmt: skip

_UNSUPPORTED = {
    "all weights of SDXL by DreamBooth, which is not supported; train_dreambooth_lora_sdxl.py is": "dreambooth_sdxl",
    "ControlNet, which is not supported yet": "controlnet controlnet_sdxl",
    "Kandinsky, which is not supported": "text_to_image_prior text_to_image_decoder",
    "without captions, which is not supported": "unconditional",
}  # fmt: skip


def other_scripts(script: ExampleScript) -> dict[str, str]:
    """Descriptions of the other scripts of the examples, by file, with the dialect of each that has one."""
    supported = {
        one.file: f"trains {one.about}: write --as diffusers-{one.name}" for one in SCRIPTS if one is not script
    }
    unsupported = {
        f"train_{name}.py": f"trains {model}" for model, names in _UNSUPPORTED.items() for name in names.split()
    }
    flax = {"train_text_to_image_flax.py": "is the script for Flax; use the flags of train_text_to_image.py"}
    return supported | unsupported | flax
