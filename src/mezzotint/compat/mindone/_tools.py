"""The tools of MindONE's SDXL example besides `train.py`, as Mezzotint's commands: conversion, merging, sampling.

tools/model_conversion/convert_weight.py   mezzotint convert tools/weight_merge/merge_weight.py         mezzotint merge
demo/sampling_without_streamlit.py         mezzotint sample
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from mezzotint import outside
from mezzotint.assets import ASSETS
from mezzotint.compat.kit.dialect import Draft, Row, Tool, ignored, refused, row
from mezzotint.compat.mindone._config import Config
from mezzotint.compat.mindone._model import model
from mezzotint.compat.mindone._rows import NO_CLOUD, WEIGHT
from mezzotint.compat.mindone._run import size_of
from mezzotint.compat.mindone._targets import TARGETS
from mezzotint.errors import RecipeError

_TO_MINDSPORE, _FROM_MINDSPORE = ("pt_to_ms", "st_to_ms"), ("ms_to_pt", "ms_to_st")
SHIPPED = ASSETS / "mindone" / "inference"
"""Own versions of the YAML files that the sampler's documents name."""

SAMPLERS: Mapping[str, str] = {
    "EulerEDMSampler": "euler", "HeunEDMSampler": "heun", "EulerAncestralSampler": "euler-a",
    "AncestralSampler": "euler", "DPMPP2SAncestralSampler": "dpm++-2s-a", "DPMPP2MSampler": "dpm++",
    "LinearMultistepSampler": "lms", "LCMSampler": "lcm",
}  # fmt: skip
"""Mezzotint's solvers by MindONE's samplers."""


def _ignored(flag: str, default: str | int | type, about: str) -> Row:
    return ignored(flag, default, about, may_be_empty=True)


# convert

_CONVERT = (
    row("task", "pt_to_ms", "--dtype", "to MindSpore's .ckpt, or from it", choices=(*_TO_MINDSPORE, *_FROM_MINDSPORE)),
    row("weight_safetensors", str, "", "the .safetensors file", required=True),
    row("weight_ms", str, "", "the .ckpt file", required=True),
    _ignored("key_torch", str, "the names of tensors are known"),
    _ignored("key_ms", str, "the names of tensors are known"),
)  # fmt: skip


def _convert(draft: Draft) -> list[str]:
    ours, theirs = draft.text("weight_safetensors"), draft.text("weight_ms")
    if draft.text("task") in _TO_MINDSPORE:
        return [ours, theirs, "--dtype=fp32"]
    return [theirs, ours]


# merge

_MERGE = (
    row("base_weight", WEIGHT, "", "the whole model"),
    row("additional_weights", str, "", "files that replace tensors of it, in order", required=True),
    row("save_path", "./merged_weight.ckpt", "", "the output file"),
)  # fmt: skip


def _merge(draft: Draft) -> list[str]:
    others = [one.strip() for one in draft.text("additional_weights").split(",") if one.strip()]
    return [draft.text("base_weight"), *others, draft.text("save_path")]


# sample

_NUMBERS = (
    "orig_width", "orig_height", "target_width", "target_height", "crop_coords_top", "crop_coords_left",
)  # fmt: skip
_SAMPLE = (
    row("task", "txt2img", "", "from noise, or from an image", choices=("txt2img", "img2img")),
    row("config", "configs/inference/sd_xl_base.yaml", "model.prediction run.vae_dtype",
        "distinguishes base model and refiner"),
    row("weight", WEIGHT, "model.path model.over",
        "the model; of several, separated by commas, later ones replace tensors of the first"),
    row("prompt", "Astronaut in a jungle, cold color palette, muted colors, detailed, 8k",
        "--prompt --file",
        "a text, or a .txt file with one per line"),
    row("negative_prompt", "", "--negative", "only of the refiner", may_be_empty=True),
    refused("support_long_prompts", False, "prompts of more than 77 tokens are not supported; leave it out"),
    row("sd_xl_base_ratios", "1.0", "--size", "the size of txt2img"),
    *(row(flag, int, "", "the sizes that are passed to the model") for flag in _NUMBERS),
    row("aesthetic_score", 6.0, "sample.micro_conditioning.aesthetic_score", "the score that is passed to the refiner"),
    row("negative_aesthetic_score", 2.5, "sample.micro_conditioning.negative_aesthetic_score",
        "the refiner's score in the negative prompt"),
    row("sampler", "EulerEDMSampler", "--solver sample.solver", "the solver", choices=tuple(SAMPLERS)),
    row("guider", "VanillaCFG", "", "whether guidance is used", choices=("VanillaCFG", "IdentityGuider")),
    row("guidance_scale", 5.0, "--guidance sample.guidance", "clamped to 0 to 100"),
    row("thresholding", False, "", "limits the prediction under guidance"),
    row("dynamic_thresholding_ratio", 0.995, "sample.thresholding.ratio", "the share that is not limited"),
    row("sample_max_value", 1.0, "sample.thresholding.max", "the largest limit"),
    row("discretization", str, "--spacing sample.timestep_spacing sample.sigmas",
        "the noise levels; by default those of the schedule",
        choices=("LegacyDDPMDiscretization", "EDMDiscretization", "DiffusersDDPMDiscretization")),
    row("sigma_min", 0.002, "sample.sigma_min", "with EDMDiscretization"),
    row("sigma_max", 80.0, "sample.sigma_max", "with EDMDiscretization"),
    row("rho", 7.0, "sample.rho", "with EDMDiscretization"),
    row("sample_step", 40, "--steps sample.steps", "clamped to 1 to 1000"),
    _ignored("num_rows", 1, "num_cols is used, as in MindONE"),
    row("num_cols", 1, "", "images per prompt, with consecutive seeds, 10 at most"),
    row("seed", 42, "--seed", "of the first image"),
    ignored("deterministic", True, "a seed always gives the same image"),
    refused("init_latent_path", str, "noise comes from seeds; leave it out"),
    refused("init_noise_scheduler_path", str, "noise levels are settings; leave it out"),
    ignored("precision_keep_origin_dtype", False, "dtypes are those of ms_amp_level"),
    row("save_path", "outputs/demo/", "--out", "the folder of images"),
    row("img", str, "sample.image", "the image of img2img"),
    row("strength", 0.75, "sample.strength", "how much of it is replaced"),
    row("add_pipeline", False, "", "a refiner makes the last steps"),
    _ignored("pipeline_config", "configs/inference/sd_xl_refiner.yaml", "the refiner is recognised by its weights"),
    row("pipeline_weight", "checkpoints/sd_xl_refiner_1.0_ms.ckpt", "sample.refiner.path", "the refiner"),
    row("stage2strength", 0.15, "sample.refiner.strength", "the refiner's share"),
    row("finish_denoising", True, "sample.refiner.finish", "the base model stops where the refiner starts"),
    refused("controlnet_mode", str, "ControlNet is not supported yet"),
    refused("control_image_path", str, "ControlNet is not supported yet"),
    _ignored("low_threshold", 100, "it is only used by ControlNet"),
    _ignored("high_threshold", 200, "it is only used by ControlNet"),
    ignored("save_detected_map", False, "it is only used by ControlNet"),
    refused("textual_inversion_weight", str, "textual inversion is not supported yet"),
    _ignored("placeholder_token", str, "it is only used by textual inversion"),
    _ignored("num_vectors", str, "it is only used by textual inversion"),
    row("device_target", "Ascend", "run.device", "the device", choices=("Ascend", "GPU", "CPU")),
    _ignored("ms_mode", 1, "it does not change results"),
    ignored("ms_jit", True, "it does not change results"),
    row("ms_amp_level", "O2", "run.precision", "O0 is float32, others fp16", choices=("O0", "O1", "O2", "O3")),
    ignored("ms_enable_graph_kernel", False, "it does not change results"),
    ignored("enable_modelarts", False, NO_CLOUD),
    *(
        _ignored(flag, str, NO_CLOUD)
        for flag in ("ckpt_url", "train_url", "multi_data_url", "pretrain_url", "ckpt_dir")
    ),
)  # fmt: skip


def _sample(draft: Draft) -> list[str]:
    is_refiner, read = _read_config(draft)
    version = "SDXL-refiner-1.0" if is_refiner else "SDXL-base-1.0"
    folder = Path(draft.text("save_path")) / draft.text("task") / version
    refiner = ("pipeline_weight", "stage2strength", "finish_denoising")
    first, *others = [one.strip() for one in draft.text("weight").split(",") if one.strip()] or [""]
    return [
        first,
        *([f"model.over=[{','.join(map(json.dumps, others))}]"] if others else []),
        *_prompt_options(draft, is_refiner=is_refiner),
        *_number_options(draft),
        *_noise_level_options(draft),
        *_conditioning_options(draft),
        *_image_options(draft),
        *_setting_words(draft, *(refiner if draft.values["add_pipeline"] else ())),
        *_compute_options(draft, read),
        "--numbered",
        f"--out={folder}",
    ]


def _setting_words(draft: Draft, *flags: str) -> list[str]:
    """`SETTING=VALUE` of flags, with the first setting of each row."""
    values = [(draft.rows[flag].to[0], draft.values[flag]) for flag in flags]
    texts = {path: f"{value:g}" if isinstance(value, float) else str(value or "") for path, value in values}
    return [f"{path}={str(value).lower() if isinstance(value, bool) else texts[path]}" for path, value in values]


def _read_config(draft: Draft) -> tuple[bool, Mapping[str, str]]:
    """(whether the model is a refiner, settings) from the YAML of --config, or the shipped file of its name; without
    either, from its name."""
    name = draft.text("config")
    path = Path(name).expanduser()
    if file_kind := outside.describe_file_kind(path):
        draft.refuse("config", f"{name}: {file_kind}", "give a YAML file", "E1017")
        return False, {}
    if not path.is_file():
        path = SHIPPED / path.name
        if not path.is_file():
            return "refiner" in name.lower(), {"run.vae_dtype": "fp32"}
        if "config" in draft.named:
            draft.note("config", f"there is no {name} here; the file of that name that ships with Mezzotint is read")
    try:
        config = Config(draft, name, path, TARGETS)
    except RecipeError as error:
        draft.problems += error.problems
        return False, {}
    model(config, is_inference=True)
    embedders = config.at(("model", "params", "conditioner_config", "params", "emb_models"))
    is_refiner = any(isinstance(one, dict) and one.get("input_key") == "aesthetic_score" for one in embedders or [])
    run, model_settings = draft.settings.get("run", {}), draft.settings.get("model", {})
    read = {"run.vae_dtype": run["vae_dtype"]} if "vae_dtype" in run else {}
    if model_settings.get("prediction", "epsilon") != "epsilon":
        read["model.prediction"] = model_settings["prediction"]
    return is_refiner, read


def _prompt_options(draft: Draft, *, is_refiner: bool) -> list[str]:
    prompt, negative = draft.text("prompt"), draft.text("negative_prompt")
    path = Path(prompt)
    is_file = len(prompt) < 250 and path.is_file()
    if is_file and path.suffix != ".txt":
        draft.refuse("prompt", f"{prompt} is a file", "a file with one prompt per line must end in .txt", "E1017")
    options = [f"--file={prompt}" if is_file else f"--prompt={prompt}"]
    if is_refiner:
        return [*options, "sample.unconditional=caption", *([f"--negative={negative}"] if negative else [])]
    if negative:
        draft.note("negative_prompt", "the base model does not use a negative prompt, as in MindONE")
    return [*options, "sample.unconditional=zeros"]


def _number_options(draft: Draft) -> list[str]:
    """Options for size, steps, guidance, solver, seeds."""
    width, height = size_of(draft) or (0, 0)
    steps = min(1000, max(1, draft.integer("sample_step")))
    scale = min(100.0, max(0.0, draft.number("guidance_scale")))
    scale = 1.0 if draft.text("guider") == "IdentityGuider" else scale
    count = draft.integer("num_cols")
    if not 1 <= count <= 10:
        draft.refuse("num_cols", f"must be 1 to 10, got {count}", code="E1017")
    seeds = [draft.integer("seed") + number for number in range(min(10, max(1, count)))]
    sampler = draft.text("sampler")
    if sampler == "LinearMultistepSampler":
        draft.note("sampler", "each step is made once; in MindONE, twice by mistake")
    is_img2img = draft.text("task") == "img2img"
    if is_img2img and "sd_xl_base_ratios" in draft.named:
        draft.note("sd_xl_base_ratios", "img2img keeps the size of the image, as in MindONE")
    return [
        *([] if is_img2img else [f"--size={width}x{height}"]),
        f"--steps={steps}", f"--guidance={scale:g}", f"--solver={SAMPLERS[sampler]}",
        f"--seed={','.join(map(str, seeds))}",
    ]  # fmt: skip


def _noise_level_options(draft: Draft) -> list[str]:
    kind, levels = draft.text("discretization"), ("sigma_min", "sigma_max", "rho")
    if kind == "EDMDiscretization":
        options = ["sample.sigmas=edm", *_setting_words(draft, *levels)]
    else:
        options = [f"--spacing={'leading' if kind == 'DiffusersDDPMDiscretization' else 'stability'}"]
        for flag in levels:
            if flag in draft.named:
                draft.note(flag, "is for --discretization EDMDiscretization")
    if draft.values["thresholding"]:
        options += _setting_words(draft, "dynamic_thresholding_ratio", "sample_max_value")
    return options


def _conditioning_options(draft: Draft) -> list[str]:
    """Settings for sizes and scores that are passed to the model, if they differ from those of the image."""
    options = []
    for name, flags in (("original_size", _NUMBERS[:2]), ("target_size", _NUMBERS[2:4])):
        pair = [draft.values[flag] for flag in flags]
        if None not in pair:
            options.append(f"sample.micro_conditioning.{name}=[{pair[0]},{pair[1]}]")
        elif pair != [None, None]:
            draft.refuse(flags[pair.index(None)], "is missing; the other side is given", code="E1017")
    corner = [draft.values[flag] for flag in _NUMBERS[4:]]
    if corner != [None, None]:
        options.append(f"sample.micro_conditioning.crop_top_left=[{corner[0] or 0},{corner[1] or 0}]")
    scores = ("aesthetic_score", "negative_aesthetic_score")
    return options + _setting_words(draft, *(flag for flag in scores if flag in draft.named))


def _image_options(draft: Draft) -> list[str]:
    if draft.text("task") == "img2img":
        if not draft.text("img"):
            draft.refuse("img", "is missing; img2img starts from an image", code="E1017")
        return _setting_words(draft, "img", "strength")
    for flag in ("img", "strength"):
        if flag in draft.named:
            draft.note(flag, "is for --task img2img")
    return []


def _compute_options(draft: Draft, read: Mapping[str, str]) -> list[str]:
    """read: settings from the YAML."""
    options = ["model.family=sdxl", *(f"{path}={read[path]}" for path in ("model.prediction",) if path in read)]
    if draft.text("ms_amp_level") != "O0":
        options += ["run.precision=fp16", "run.frozen_dtype=same", f"run.vae_dtype={read.get('run.vae_dtype', 'fp32')}"]
    if draft.text("device_target") == "CPU":
        options.append("run.device=cpu")
    return options


TOOLS = (
    Tool("convert", _CONVERT, _convert, ("convert_weight.py",), ("weight_safetensors", "weight_ms")),
    Tool("merge", _MERGE, _merge, ("merge_weight.py",), ("base_weight", "additional_weights", "save_path")),
    Tool("sample", _SAMPLE, _sample, ("sampling_without_streamlit.py",), ("weight",)),
)
