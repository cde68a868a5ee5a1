"""Expectations of the flags that diffusers' DreamBooth scripts for flow-matching models have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dialect_cases import diffusers_dreambooth, diffusers_dreambooth_lora, diffusers_dreambooth_lora_sdxl
from foreign_lines import GONE, Lines, without

Acts = Mapping[str, tuple[list[str], dict[str, Any]]]
PRIOR = diffusers_dreambooth.PRIOR
BAREST = ("--pretrained_model_name_or_path=model", "--instance_data_dir=cat", "--instance_prompt=a photo of sks cat")
XL = diffusers_dreambooth_lora_sdxl
_OF_XL = (
    "pretrained_vae_model_name_or_path", "do_edm_style_training", "output_kohya_format", "snr_gamma", "use_dora",
    "image_interpolation_mode", "enable_xformers_memory_efficient_attention", "rank", "lora_dropout",
    "train_text_encoder", "text_encoder_lr", "adam_weight_decay_text_encoder",
)  # fmt: skip

DOCUMENTED: dict[str, Any] = without(XL.DOCUMENTED, *_OF_XL) | {
    "resolution": 512, "max_sequence_length": 77, "weighting_scheme": "none", "logit_mean": 0.0, "logit_std": 1.0,
    "mode_scale": 1.29,
}  # fmt: skip
OF_TEXT: dict[str, Any] = {"text_encoder_lr": 5e-6, "adam_weight_decay_text_encoder": 1e-3}
OF_ADAPTERS: dict[str, Any] = {
    "rank": 4, "lora_dropout": 0.0, "lora_layers": None, "cache_latents": False, "upcast_before_saving": False,
}  # fmt: skip
OF_NEW_ONES: dict[str, Any] = {
    "bnb_quantization_config_path": None, "skip_final_inference": False, "final_validation_prompt": None,
    "aspect_ratio_buckets": None, "use_aspect_ratio_buckets": False, "offload": False,
}  # fmt: skip
"""Flags of Klein, Qwen-Image and Z-Image."""

_OF_XLS = (
    "run.vae_dtype", "sample.guidance", "sample.steps", "objective.min_snr_gamma", "objective.min_snr_form",
    "run.export.adapter", "model.adapter.kind", "model.adapter.rank", "model.adapter.init", "model.adapter.targets",
    "model.adapter.dropout",
)  # fmt: skip
EXPECTED: dict[str, Any] = without(XL.EXPECTED, *_OF_XLS) | {
    "model.path": "model", "data.resolution": 512, "data.resize": "bilinear", "data.cache.text": True,
    "objective.flow.density": "uniform", "objective.flow.grid": "table", "objective.flow.shift": "table",
    "objective.weighting": "prediction",
}  # fmt: skip
ADAPTED: dict[str, Any] = {
    "model.adapter.kind": "lora", "model.adapter.rank": 4, "model.adapter.init": "gaussian",
    "model.adapter.dropout": 0.0, "run.export.adapter": "diffusers", "run.export.dtype": "fp32",
    "data.cache.latents": False, "data.cache.crops": 1,
}  # fmt: skip


def at(folder: str) -> dict[str, str]:
    """The run folder."""
    return {"run.folder": folder, "run.export.folder": folder, "run.name": folder}


ACTS: Acts = without(XL.ACTS, *_OF_XL, "report_to") | {
    "use_8bit_adam": (["--use_8bit_adam"], {"optim.optimizer.kind": "adamw-8bit-or-adamw"}),
    "weighting_scheme": (["--weighting_scheme=cosmap"], {"objective.weighting": "cosmap"}),
    "logit_mean": (["--logit_mean=0.5"], {"objective.flow.mean": -0.5}),
    "logit_std": (["--logit_std=0.5"], {"objective.flow.std": 0.5}),
    "mode_scale": (["--mode_scale=1.0"], {"objective.flow.mode_scale": 1.0}),
}  # fmt: skip
OF_LOGIT = {"weighting_scheme": (["--weighting_scheme=sigma_sqrt"], {
    "objective.flow.density": "uniform", "objective.weighting": "sigma-sqrt", "objective.flow.mean": GONE,
    "objective.flow.std": GONE,
})}  # fmt: skip
"""Of scripts whose default is logit_normal."""
PRECONDITIONED = (["--precondition_outputs=0"], {"objective.flow.preconditioned": False})
_CACHED = {"data.cache.latents": True}
OF_ADAPTERS_ACTS: Acts = {
    "rank": (["--rank=8"], {"model.adapter.rank": 8}),
    "lora_alpha": (["--lora_alpha=8"], {"model.adapter.alpha": 8.0}),
    "lora_dropout": diffusers_dreambooth_lora.ACTS["lora_dropout"],
    "cache_latents": (["--cache_latents"], _CACHED),
    "upcast_before_saving": (["--upcast_before_saving"], {"run.export.dtype": "fp32"}),
    "mixed_precision": (
        ["--mixed_precision=bf16"], {"run.precision": "bf16", "run.frozen_dtype": "same", "run.export.dtype": "bf16"},
    ),
}  # fmt: skip
LADDER = [
    [512, 512], [576, 464], [464, 576], [624, 416], [416, 624], [592, 448], [448, 592], [688, 384], [384, 688],
    [720, 368], [368, 720],
]  # fmt: skip
OF_NEW_ONES_ACTS: Acts = {
    "offload": (["--offload"], _CACHED),
    "use_aspect_ratio_buckets": (
        ["--use_aspect_ratio_buckets"], {"data.buckets.shape": "list", "data.buckets.sizes": LADDER},
    ),
    "aspect_ratio_buckets": (
        ["--aspect_ratio_buckets=64,96;96,64"], {"data.buckets.sizes": [[64, 96], [96, 64]]},
    ),
    "final_validation_prompt": (
        ["--final_validation_prompt=a cat"], {"sample.prompts": ["a cat"] * 4, "run.preview.every": "1 epochs"},
    ),
    "skip_final_inference": (["--skip_final_inference"], {"sample.prompts": GONE, "run.preview.every": None}),
    "bnb_quantization_config_path": (["--bnb_quantization_config_path=bits.json"], {"run.frozen_dtype": "nf4"}),
}  # fmt: skip
FILES = {"bits.json": '{"load_in_4bit": true, "bnb_4bit_quant_type": "nf4"}'}
CAPTION_DROPOUT = (["--caption_dropout=0.1"], {"data.captions.dropout": 0.1})
_PRIOR, _PAIRS = diffusers_dreambooth.ACTS["with_prior_preservation"]
PRIOR_WITH_DROPOUT = (_PRIOR, {**_PAIRS, "data.prior.dropout": False})
BESIDE = {
    **diffusers_dreambooth.BESIDE,
    "prodigy_beta3": ("--optimizer=prodigy",),
    "logit_mean": ("--weighting_scheme=logit_normal",), "logit_std": ("--weighting_scheme=logit_normal",),
    "mode_scale": ("--weighting_scheme=mode",),
    "upcast_before_saving": ("--mixed_precision=bf16",),
    "text_encoder_lr": ("--train_text_encoder",), "adam_weight_decay_text_encoder": ("--train_text_encoder",),
    "aspect_ratio_buckets": ("--use_aspect_ratio_buckets",),
    "skip_final_inference": ("--final_validation_prompt=a cat",),
}  # fmt: skip


def of_encoders(*parts: str) -> Acts:
    """Flags of text encoders that are trained."""
    own = {"kind": "adamw", "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 1e-3}
    settings = {f"optim.part_optimizer.{part}.{name}": value for part in parts for name, value in own.items()}
    return {
        "train_text_encoder": (
            ["--train_text_encoder"],
            {
                "model.train": ["denoiser", *parts], "data.cache.text": False, **settings,
                **{f"optim.part_lr.{part}": 5e-6 for part in parts},
            },
        ),
        "text_encoder_lr": (["--text_encoder_lr=1e-5"], {f"optim.part_lr.{part}": 1e-5 for part in parts}),
        "adam_weight_decay_text_encoder": (
            ["--adam_weight_decay_text_encoder=0.5"],
            {f"optim.part_optimizer.{part}.weight_decay": 0.5 for part in parts},
        ),
    }  # fmt: skip


def with_targets(acts: Acts, targets: list[str], *parts: str) -> Acts:
    """Of adapters, whose layers are named besides when text encoders are trained."""
    if not parts:
        return acts
    words, largest_changes = acts["train_text_encoder"]
    both = [*targets, *(f"{part}/attention" for part in parts)]
    return {**acts, "train_text_encoder": (words, {**largest_changes, "model.adapter.targets": both})}


def report_to(project: str) -> tuple[list[str], dict[str, Any]]:
    return (
        ["--report_to=wandb"], {"run.tensorboard": False, "run.wandb.mode": "online", "run.wandb.project": project},
    )  # fmt: skip


IMPOSSIBLE = (
    (["--with_prior_preservation", "--class_prompt=a"], "--class_data_dir"),
    (["--resolution=520"], "--resolution"),
    (["--logit_std=0", "--weighting_scheme=logit_normal"], "--logit_std"),
    (["--mode_scale=2", "--weighting_scheme=mode"], "--mode_scale"),
    (["--dataset_name=x"], "--instance_data_dir"),
    (["--max_sequence_length=1"], "--max_sequence_length"),
    (["--optimizer=lion"], "--optimizer"),
)
OF_ADAPTERS_IMPOSSIBLE = ((["--rank=0"], "--rank"), (["--lora_layers=,"], "--lora_layers"))
OF_NEW_ONES_IMPOSSIBLE = (
    (["--aspect_ratio_buckets=64,96"], "--aspect_ratio_buckets"),
    (["--use_aspect_ratio_buckets", "--aspect_ratio_buckets=64;96"], "--aspect_ratio_buckets"),
    (["--use_aspect_ratio_buckets", "--aspect_ratio_buckets=64,90"], "--aspect_ratio_buckets"),
    (["--use_aspect_ratio_buckets", *PRIOR], "--use_aspect_ratio_buckets"),
    (["--lora_alpha=0"], "--lora_alpha"),
)


def lines(
    name: str, defaults: Mapping[str, Any], settings: Mapping[str, Any], acts: Acts, impossible: tuple[Any, ...] = ()
) -> Lines:
    """A dialect under test."""
    return Lines(
        f"diffusers-dreambooth-{name}",
        barest=BAREST,
        defaults=defaults,
        settings=settings,
        acts=without(acts, "instance_data_dir"),
        impossible=(*IMPOSSIBLE, *impossible),
        beside={flag: words for flag, words in BESIDE.items() if flag in acts},
        elsewhere=XL.LINES.elsewhere | ({"lora_layers"} & defaults.keys()),
        files=FILES,
    )
