"""Folders with the configurations of flow-matching models in their published sizes, without weights."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import torch

from mezzotint.weights.folder.model_folder import shipped_folder
from support.sd_folder import edit

T5: dict[str, Any] = {
    "d_model": 4096,
    "d_ff": 10240,
    "d_kv": 64,
    "num_heads": 64,
    "num_layers": 24,
    "vocab_size": 32128,
}
CLIP_L: dict[str, Any] = {
    "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12,
    "projection_dim": 768,
}  # fmt: skip
BIG_G: dict[str, Any] = {
    "hidden_size": 1280, "intermediate_size": 5120, "num_hidden_layers": 32, "num_attention_heads": 20,
    "projection_dim": 1280,
}  # fmt: skip
QWEN3_4B: dict[str, Any] = {
    "hidden_size": 2560, "intermediate_size": 9728, "num_hidden_layers": 36, "num_attention_heads": 32,
    "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936, "layer_types": ["full_attention"] * 36,
}  # fmt: skip
MISTRAL_24B: dict[str, Any] = {
    "model_type": "mistral", "hidden_size": 5120, "intermediate_size": 32768, "num_hidden_layers": 40,
    "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 131072,
}  # fmt: skip
QWEN3_VL_4B: dict[str, Any] = QWEN3_4B | {
    "model_type": "qwen3_vl_text", "max_position_embeddings": 262144,
    "rope_parameters": {
        "mrope_section": [24, 20, 20], "mrope_interleaved": True, "rope_theta": 5000000.0, "rope_type": "default",
    },
}  # fmt: skip
QWEN25_7B: dict[str, Any] = {
    "model_type": "qwen2_5_vl_text", "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28,
    "num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 152064,
    "layer_types": ["full_attention"] * 28, "max_position_embeddings": 128000, "rms_norm_eps": 1e-6,
    "rope_parameters": {"mrope_section": [16, 24, 24], "rope_theta": 1000000.0, "rope_type": "default"},
}  # fmt: skip
VAE: dict[str, Any] = {
    "block_out_channels": [128, 256, 512, 512], "layers_per_block": 2, "latent_channels": 16, "norm_num_groups": 32,
}  # fmt: skip
_SD3 = {"attention_head_dim": 64, "joint_attention_dim": 4096, "pooled_projection_dim": 2048, "in_channels": 16,
        "out_channels": 16, "patch_size": 2, "sample_size": 128, "qk_norm": "rms_norm"}  # fmt: skip
FULL: dict[str, tuple[str, dict[str, dict[str, Any]]]] = {
    "sd35-medium": (
        "sd3",
        {
            "transformer": _SD3 | {
                "num_layers": 24, "num_attention_heads": 24, "caption_projection_dim": 1536,
                "pos_embed_max_size": 384, "dual_attention_layers": list(range(13)),
            },
            "text_encoder": CLIP_L, "text_encoder_2": BIG_G, "text_encoder_3": T5, "vae": VAE,
        },
    ),
    "flux-dev": (
        "flux",
        {
            "transformer": {
                "num_layers": 19, "num_single_layers": 38, "attention_head_dim": 128, "num_attention_heads": 24,
                "joint_attention_dim": 4096, "pooled_projection_dim": 768, "in_channels": 64,
                "axes_dims_rope": [16, 56, 56],
            },
            "text_encoder": CLIP_L, "text_encoder_2": T5, "vae": VAE,
        },
    ),
    "chroma": (
        "chroma",
        {
            "transformer": {
                "num_layers": 19, "num_single_layers": 38, "attention_head_dim": 128, "num_attention_heads": 24,
                "joint_attention_dim": 4096, "in_channels": 64, "axes_dims_rope": [16, 56, 56],
                "approximator_num_channels": 64, "approximator_hidden_dim": 5120, "approximator_layers": 5,
            },
            "text_encoder": T5, "vae": VAE,
        },
    ),
    "wan-1.3b": (
        "wan",
        {
            "transformer": {
                "num_attention_heads": 12, "attention_head_dim": 128, "ffn_dim": 8960, "num_layers": 30,
                "text_dim": 4096, "rope_max_seq_len": 1024,
            },
            "text_encoder": T5 | {"vocab_size": 256384},
            "vae": {"base_dim": 96, "dim_mult": [1, 2, 4, 4], "num_res_blocks": 2},
        },
    ),
    "ltx-2b": (
        "ltx",
        {
            "transformer": {
                "num_attention_heads": 32, "attention_head_dim": 64, "cross_attention_dim": 2048, "num_layers": 28,
                "caption_channels": 4096, "in_channels": 128, "out_channels": 128,
            },
            "text_encoder": T5,
            "vae": {
                "block_out_channels": [128, 256, 512, 512], "decoder_block_out_channels": [128, 256, 512, 512],
                "latent_channels": 128, "layers_per_block": [4, 3, 3, 3, 4],
                "decoder_layers_per_block": [4, 3, 3, 3, 4],
            },
        },
    ),
    "klein-4b": (
        "flux2",
        {
            "transformer": {
                "num_layers": 5, "num_single_layers": 20, "attention_head_dim": 128, "num_attention_heads": 24,
                "joint_attention_dim": 7680, "in_channels": 128, "axes_dims_rope": [32, 32, 32, 32],
                "timestep_guidance_channels": 256,
            },
            "text_encoder": QWEN3_4B, "vae": VAE | {"latent_channels": 32},
        },
    ),
    "flux2-dev": (
        "flux2",
        {
            "transformer": {
                "num_layers": 8, "num_single_layers": 48, "attention_head_dim": 128, "num_attention_heads": 48,
                "joint_attention_dim": 15360, "in_channels": 128, "axes_dims_rope": [32, 32, 32, 32],
                "timestep_guidance_channels": 256, "guidance_embeds": True,
            },
            "text_encoder": {"model_type": "mistral3", "text_config": MISTRAL_24B},
            "vae": VAE | {"latent_channels": 32},
        },
    ),
    "qwen-image": (
        "qwen-image",
        {
            "transformer": {
                "num_layers": 60, "attention_head_dim": 128, "num_attention_heads": 24, "joint_attention_dim": 3584,
                "in_channels": 64, "out_channels": 16, "axes_dims_rope": [16, 56, 56],
            },
            "text_encoder": {"text_config": QWEN25_7B},
            "vae": {"base_dim": 96, "dim_mult": [1, 2, 4, 4], "num_res_blocks": 2},
        },
    ),
    "krea2": (
        "krea2",
        {
            "model_index.json": {"text_encoder_select_layers": None},
            "transformer": {
                "num_layers": 28, "attention_head_dim": 128, "num_attention_heads": 48, "num_key_value_heads": 12,
                "intermediate_size": 16384, "timestep_embed_dim": 256, "text_hidden_dim": 2560,
                "num_text_layers": 12, "text_num_attention_heads": 20, "text_num_key_value_heads": 20,
                "text_intermediate_size": 6912, "num_layerwise_text_blocks": 2, "num_refiner_text_blocks": 2,
                "axes_dims_rope": [32, 48, 48],
            },
            "text_encoder": {"text_config": QWEN3_VL_4B},
            "vae": {"base_dim": 96, "dim_mult": [1, 2, 4, 4], "num_res_blocks": 2},
        },
    ),
    "z-image": (
        "z-image",
        {
            "transformer": {
                "dim": 3840, "n_layers": 30, "n_refiner_layers": 2, "n_heads": 30, "n_kv_heads": 30,
                "cap_feat_dim": 2560, "in_channels": 16, "axes_dims": [32, 48, 48], "axes_lens": [1536, 512, 512],
            },
            "text_encoder": QWEN3_4B, "vae": VAE,
        },
    ),
}  # fmt: skip
"""By name, the family and what differs from its tiny model, by folder or file."""


def full_size(name: str, place: Path) -> Path:
    """The folder of a published model, with the tiny one's tokenizers and no weights."""
    family, configs = FULL[name]
    shutil.copytree(shipped_folder(f"tiny-{family}"), place)
    for folder, values in configs.items():
        edit(place / folder if folder.endswith(".json") else place / folder / "config.json", **values)
    if "text_config" in configs.get("text_encoder", {}):  # the tokenizer of another encoder, with its chat template
        (place / "tokenizer" / "chat_template.jinja").unlink(missing_ok=True)
    return place


def tiny_a14b(records: Path, place: Path) -> Path:
    """A model as Wan 2.2 T2V A14B is: two denoisers, the first from σ = .875 on. records: the folder of a tiny Wan 2.1,
    of which all else is."""
    from diffusers.models.transformers.transformer_wan import WanTransformer3DModel

    shutil.copytree(records, place)
    edit(place / "model_index.json", transformer_2=["diffusers", "WanTransformer3DModel"], boundary_ratio=0.875)
    config = json.loads((place / "transformer" / "config.json").read_text())
    torch.manual_seed(14)
    known = {key: value for key, value in config.items() if not key.startswith("_")}
    WanTransformer3DModel(**known).save_pretrained(place / "transformer_2")
    return place


def tiny_5b(records: Path, place: Path) -> Path:
    """A random model as Wan 2.2 TI2V 5B is: an autoencoder that folds two by two, levels told of each token. records:
    the folder of a tiny Wan 2.1, of which all else is."""
    from diffusers.models.autoencoders.autoencoder_kl_wan import AutoencoderKLWan
    from diffusers.models.transformers.transformer_wan import WanTransformer3DModel

    shutil.copytree(records, place, ignore=shutil.ignore_patterns("vae", "diffusion_pytorch_model*"))
    edit(place / "model_index.json", expand_timesteps=True)
    torch.manual_seed(5)
    vae = AutoencoderKLWan(
        base_dim=4, decoder_base_dim=4, z_dim=8, dim_mult=[1, 1, 1, 1], num_res_blocks=1, is_residual=True,
        temperal_downsample=[False, True, True], in_channels=12, out_channels=12, patch_size=2, scale_factor_spatial=16,
        scale_factor_temporal=4, latents_mean=[n / 10 for n in range(8)], latents_std=[0.5 + n / 10 for n in range(8)],
    )  # fmt: skip
    vae.save_pretrained(place / "vae")
    config = json.loads((place / "transformer" / "config.json").read_text())
    known = {key: value for key, value in config.items() if not key.startswith("_")}
    WanTransformer3DModel(**known | {"in_channels": 8, "out_channels": 8}).save_pretrained(place / "transformer")
    return place


MISTRAL_CHAT = (
    "{{- bos_token }}{%- for message in messages %}"
    "{{- '[SYSTEM_PROMPT]' if message.role == 'system' else '[INST]' }}"
    "{%- for block in message.content %}{{- block.text }}{%- endfor %}"
    "{{- '[/SYSTEM_PROMPT]' if message.role == 'system' else '[/INST]' }}{%- endfor %}"
)
"""A chat template that formats a system message and a user message as Mistral Small 3's does."""


def tiny_flux2_dev(klein: Path, place: Path) -> Path:
    """A random model as FLUX.2 dev is: Mistral 3 with its vision tower as the text encoder, a guidance embedding.
    klein: the folder of a tiny FLUX.2 Klein, of which the autoencoder and the scheduler are."""
    from diffusers.models.transformers.transformer_flux2 import Flux2Transformer2DModel
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import Mistral3Config, Mistral3ForConditionalGeneration, PreTrainedTokenizerFast

    parts = ("transformer", "text_encoder", "tokenizer")
    shutil.copytree(klein, place, ignore=shutil.ignore_patterns(*parts))
    config = json.loads((klein / "transformer" / "config.json").read_text())
    known = {key: value for key, value in config.items() if not key.startswith("_")}
    torch.manual_seed(2)
    Flux2Transformer2DModel(**known | {"guidance_embeds": True}).save_pretrained(place / "transformer")
    special = ["<unk>", "<s>", "</s>", "<pad>", "[INST]", "[/INST]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[IMG]"]
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = {word: number for number, word in enumerate(special + letters)}
    core = Tokenizer(models.BPE(vocab=words, merges=[], unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core, bos_token="<s>", eos_token="</s>", unk_token="<unk>", pad_token="<pad>",
        additional_special_tokens=special[4:], padding_side="left", chat_template=MISTRAL_CHAT,
    )  # fmt: skip
    tokenizer.save_pretrained(place / "tokenizer")
    text = {
        "model_type": "mistral", "hidden_size": config["joint_attention_dim"] // 3, "intermediate_size": 16,
        "num_hidden_layers": 31, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 4,
        "vocab_size": len(tokenizer), "max_position_embeddings": 4096, "sliding_window": None,
    }  # fmt: skip
    vision = {
        "model_type": "pixtral", "hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 1,
        "num_attention_heads": 2, "head_dim": 4, "image_size": 32, "patch_size": 8,
    }  # fmt: skip
    encoder = Mistral3Config(
        text_config=text, vision_config=vision, image_token_index=special.index("[IMG]"), tie_word_embeddings=False
    )
    Mistral3ForConditionalGeneration(encoder).save_pretrained(place / "text_encoder")
    index = place / "model_index.json"
    index.write_text(json.dumps({k: v for k, v in json.loads(index.read_text()).items() if k != "is_distilled"}))
    edit(
        index, _class_name="Flux2Pipeline",
        text_encoder=["transformers", "Mistral3ForConditionalGeneration"],
        tokenizer=["transformers", "PreTrainedTokenizerFast"],
    )  # fmt: skip
    return place


def tiny_i2v(records: Path, place: Path, *, second: bool = False) -> Path:
    """A random model as Wan 2.1 I2V is, with an image encoder, or with a `second` denoiser as Wan 2.2 I2V A14B is, from
    σ = .9 on. records: the folder of a tiny Wan 2.1 T2V, of which all else is."""
    from diffusers.models.transformers.transformer_wan import WanTransformer3DModel
    from transformers.models.clip.configuration_clip import CLIPVisionConfig
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
    from transformers.models.clip.modeling_clip import CLIPVisionModel

    shutil.copytree(records, place, ignore=shutil.ignore_patterns("transformer"))
    config = json.loads((records / "transformer" / "config.json").read_text())
    known = {key: value for key, value in config.items() if not key.startswith("_")}
    known |= {"in_channels": 36} | ({} if second else {"image_dim": 8, "added_kv_proj_dim": 16})
    torch.manual_seed(36)
    for name in ("transformer", "transformer_2")[: 1 + second]:
        WanTransformer3DModel(**known).save_pretrained(place / name)
    edit(place / "model_index.json", _class_name="WanImageToVideoPipeline")
    if second:
        edit(
            place / "model_index.json", transformer_2=["diffusers", "WanTransformer3DModel"], boundary_ratio=0.9,
            image_encoder=[None, None], image_processor=[None, None],
        )  # fmt: skip
        return place
    sides = {"image_size": 16, "patch_size": 8}
    vision = CLIPVisionModel(
        CLIPVisionConfig(hidden_size=8, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2, **sides)
    )
    with torch.no_grad():
        for parameter in vision.parameters():
            parameter.normal_(std=0.3)
    vision.save_pretrained(place / "image_encoder")
    side = sides["image_size"]
    processor = CLIPImageProcessorPil(size={"shortest_edge": side}, crop_size={"height": side, "width": side})
    processor.save_pretrained(place / "image_processor")
    edit(
        place / "model_index.json", image_encoder=["transformers", "CLIPVisionModel"],
        image_processor=["transformers", "CLIPImageProcessor"],
    )  # fmt: skip
    return place
