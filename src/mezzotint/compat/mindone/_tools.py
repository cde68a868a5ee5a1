"""The tools beside MindONE's `train.py`, as words of our verbs: converting, merging, drawing.

tools/model_conversion/convert_weight.py   mezzotint convert
tools/weight_merge/merge_weight.py         mezzotint merge
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
"""The YAML files that the sampler's documents name, in words of our own."""

SAMPLERS: Mapping[str, str] = {
    "EulerEDMSampler": "euler", "HeunEDMSampler": "heun", "EulerAncestralSampler": "euler-a",
    "AncestralSampler": "euler", "DPMPP2SAncestralSampler": "dpm++-2s-a", "DPMPP2MSampler": "dpm++",
    "LinearMultistepSampler": "lms", "LCMSampler": "lcm",
}  # fmt: skip
"""Their samplers by our solvers."""


def _idle(flag: str, default: str | int | type, about: str) -> Row:
    return ignored(flag, default, about, may_be_empty=True)


# convert

_CONVERT = (
    row("task", "pt_to_ms", "--dtype", "to MindSpore's .ckpt, or from it", choices=(*_TO_MINDSPORE, *_FROM_MINDSPORE)),
    row("weight_safetensors", str, "", "the .safetensors file", required=True),
    row("weight_ms", str, "", "the .ckpt file", required=True),
    _idle("key_torch", str, "the names of tensors are known"),
    _idle("key_ms", str, "the names of tensors are known"),
)  # fmt: skip


def _convert(draft: Draft) -> list[str]:
    ours, theirs = draft.text("weight_safetensors"), draft.text("weight_ms")
    if draft.text("task") in _TO_MINDSPORE:
        return [ours, theirs, "--dtype=fp32"]
    return [theirs, ours]


# merge

_MERGE = (
    row("base_weight", WEIGHT, "", "the whole model"),
    row("additional_weights", str, "", "files that are laid over it, in order", required=True),
    row("save_path", "./merged_weight.ckpt", "", "the file that is written"),
)  # fmt: skip


def _merge(draft: Draft) -> list[str]:
    others = [one.strip() for one in draft.text("additional_weights").split(",") if one.strip()]
    return [draft.text("base_weight"), *others, draft.text("save_path")]


# sample

_NUMBERS = (
    "orig_width", "orig_height", "target_width", "target_height", "crop_coords_top", "crop_coords_left",
)  # fmt: skip
_SAMPLE = (
    row("task", "txt2img", "", "from noise, or from a picture", choices=("txt2img", "img2img")),
    row("config", "configs/inference/sd_xl_base.yaml", "model.prediction run.vae_dtype",
        "tells base model and refiner apart"),
    row("weight", WEIGHT, "model.path model.over",
        "the model; of several with commas between, later ones are laid over the first"),
    row("prompt", "Astronaut in a jungle, cold color palette, muted colors, detailed, 8k",
        "--prompt --file",
        "a text, or a .txt file with one a line"),
    row("negative_prompt", "", "--negative", "of the refiner alone", may_be_empty=True),
    refused("support_long_prompts", False, "prompts of more than 77 tokens are not supported; leave it out"),
    row("sd_xl_base_ratios", "1.0", "--size", "the size of txt2img"),
    *(row(flag, int, "", "the sizes that are passed to the model") for flag in _NUMBERS),
    row("aesthetic_score", 6.0, "sample.micro_conditioning.aesthetic_score", "the score that is passed to the refiner"),
    row("negative_aesthetic_score", 2.5, "sample.micro_conditioning.negative_aesthetic_score",
        "the score that the refiner is led away from"),
    row("sampler", "EulerEDMSampler", "--solver sample.solver", "the solver", choices=tuple(SAMPLERS)),
    row("guider", "VanillaCFG", "", "whether to guide", choices=("VanillaCFG", "IdentityGuider")),
    row("guidance_scale", 5.0, "--guidance sample.guidance", "held between 0 and 100"),
    row("thresholding", False, "", "bounds what guidance works on"),
    row("dynamic_thresholding_ratio", 0.995, "sample.thresholding.ratio", "the share that is left alone"),
    row("sample_max_value", 1.0, "sample.thresholding.max", "the largest bound"),
    row("discretization", str, "--spacing sample.timestep_spacing sample.sigmas",
        "the levels of noise; without it, those of the schedule",
        choices=("LegacyDDPMDiscretization", "EDMDiscretization", "DiffusersDDPMDiscretization")),
    row("sigma_min", 0.002, "sample.sigma_min", "with EDMDiscretization"),
    row("sigma_max", 80.0, "sample.sigma_max", "with EDMDiscretization"),
    row("rho", 7.0, "sample.rho", "with EDMDiscretization"),
    row("sample_step", 40, "--steps sample.steps", "held between 1 and 1000"),
    _idle("num_rows", 1, "num_cols counts, there as here"),
    row("num_cols", 1, "", "pictures of a prompt, by seeds in a row, 10 at most"),
    row("seed", 42, "--seed", "of the first picture"),
    ignored("deterministic", True, "a seed draws the same picture anyway"),
    refused("init_latent_path", str, "noise is drawn by seeds; leave it out"),
    refused("init_noise_scheduler_path", str, "levels of noise are settings; leave it out"),
    ignored("precision_keep_origin_dtype", False, "types are those of ms_amp_level"),
    row("save_path", "outputs/demo/", "--out", "where pictures lie"),
    row("img", str, "sample.image", "the picture of img2img"),
    row("strength", 0.75, "sample.strength", "how much of it is drawn anew"),
    row("add_pipeline", False, "", "a refiner draws the end"),
    _idle("pipeline_config", "configs/inference/sd_xl_refiner.yaml", "the refiner is known by its weights"),
    row("pipeline_weight", "checkpoints/sd_xl_refiner_1.0_ms.ckpt", "sample.refiner.path", "the refiner"),
    row("stage2strength", 0.15, "sample.refiner.strength", "the refiner's share"),
    row("finish_denoising", True, "sample.refiner.finish", "the base model stops where the refiner begins"),
    refused("controlnet_mode", str, "ControlNet is not supported yet"),
    refused("control_image_path", str, "ControlNet is not supported yet"),
    _idle("low_threshold", 100, "ControlNet alone reads it"),
    _idle("high_threshold", 200, "ControlNet alone reads it"),
    ignored("save_detected_map", False, "ControlNet alone reads it"),
    refused("textual_inversion_weight", str, "textual inversion is not supported yet"),
    _idle("placeholder_token", str, "textual inversion alone reads it"),
    _idle("num_vectors", str, "textual inversion alone reads it"),
    row("device_target", "Ascend", "run.device", "where to draw", choices=("Ascend", "GPU", "CPU")),
    _idle("ms_mode", 1, "it changes no numbers"),
    ignored("ms_jit", True, "it changes no numbers"),
    row("ms_amp_level", "O2", "run.precision", "O0 is float32, others fp16", choices=("O0", "O1", "O2", "O3")),
    ignored("ms_enable_graph_kernel", False, "it changes no numbers"),
    ignored("enable_modelarts", False, NO_CLOUD),
    *(_idle(flag, str, NO_CLOUD) for flag in ("ckpt_url", "train_url", "multi_data_url", "pretrain_url", "ckpt_dir")),
)  # fmt: skip


def _sample(draft: Draft) -> list[str]:
    is_refiner, read = _inference(draft)
    version = "SDXL-refiner-1.0" if is_refiner else "SDXL-base-1.0"
    folder = Path(draft.text("save_path")) / draft.text("task") / version
    refiner = ("pipeline_weight", "stage2strength", "finish_denoising")
    first, *others = [one.strip() for one in draft.text("weight").split(",") if one.strip()] or [""]
    return [
        first,
        *([f"model.over=[{','.join(map(json.dumps, others))}]"] if others else []),
        *_prompts(draft, is_refiner=is_refiner),
        *_numbers(draft),
        *_levels(draft),
        *_framing(draft),
        *_picture(draft),
        *_words(draft, *(refiner if draft.values["add_pipeline"] else ())),
        *_computing(draft, read),
        "--numbered",
        f"--out={folder}",
    ]


def _words(draft: Draft, *flags: str) -> list[str]:
    """What flags say, by the first of our names for each."""
    values = [(draft.rows[flag].to[0], draft.values[flag]) for flag in flags]
    texts = {path: f"{value:g}" if isinstance(value, float) else str(value or "") for path, value in values}
    return [f"{path}={str(value).lower() if isinstance(value, bool) else texts[path]}" for path, value in values]


def _inference(draft: Draft) -> tuple[bool, Mapping[str, str]]:
    """(whether the model is a refiner, settings of ours) by the YAML of --config, or the one of its name that ships; by
    its name where there is neither."""
    name = draft.text("config")
    path = Path(name).expanduser()
    if what := outside.said_of(path):
        draft.refuse("config", f"{name}: {what}", "give a YAML file", "E1017")
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
    model(config, is_drawn=True)
    embedders = config.at(("model", "params", "conditioner_config", "params", "emb_models"))
    is_refiner = any(isinstance(one, dict) and one.get("input_key") == "aesthetic_score" for one in embedders or [])
    run, model_settings = draft.settings.get("run", {}), draft.settings.get("model", {})
    read = {"run.vae_dtype": run["vae_dtype"]} if "vae_dtype" in run else {}
    if model_settings.get("prediction", "epsilon") != "epsilon":
        read["model.prediction"] = model_settings["prediction"]
    return is_refiner, read


def _prompts(draft: Draft, *, is_refiner: bool) -> list[str]:
    prompt, negative = draft.text("prompt"), draft.text("negative_prompt")
    path = Path(prompt)
    is_file = len(prompt) < 250 and path.is_file()
    if is_file and path.suffix != ".txt":
        draft.refuse("prompt", f"{prompt} is a file", "one prompt a line stands in a file that ends in .txt", "E1017")
    words = [f"--file={prompt}" if is_file else f"--prompt={prompt}"]
    if is_refiner:
        return [*words, "sample.unconditional=caption", *([f"--negative={negative}"] if negative else [])]
    if negative:
        draft.note("negative_prompt", "the base model is guided away from nothing at all, there as here")
    return [*words, "sample.unconditional=zeros"]


def _numbers(draft: Draft) -> list[str]:
    """Size, steps, guidance, solver, seeds."""
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
        draft.note("sampler", "each step is taken once; there, twice by mistake")
    is_own = draft.text("task") == "img2img"
    if is_own and "sd_xl_base_ratios" in draft.named:
        draft.note("sd_xl_base_ratios", "img2img keeps the picture's own size, there as here")
    return [
        *([] if is_own else [f"--size={width}x{height}"]),
        f"--steps={steps}", f"--guidance={scale:g}", f"--solver={SAMPLERS[sampler]}",
        f"--seed={','.join(map(str, seeds))}",
    ]  # fmt: skip


def _levels(draft: Draft) -> list[str]:
    kind, levels = draft.text("discretization"), ("sigma_min", "sigma_max", "rho")
    if kind == "EDMDiscretization":
        words = ["sample.sigmas=edm", *_words(draft, *levels)]
    else:
        words = [f"--spacing={'leading' if kind == 'DiffusersDDPMDiscretization' else 'stability'}"]
        for flag in levels:
            if flag in draft.named:
                draft.note(flag, "is for --discretization EDMDiscretization")
    if draft.values["thresholding"]:
        words += _words(draft, "dynamic_thresholding_ratio", "sample_max_value")
    return words


def _framing(draft: Draft) -> list[str]:
    """Sizes and scores that the model is told, where they are not those of what is drawn."""
    words = []
    for name, flags in (("original_size", _NUMBERS[:2]), ("target_size", _NUMBERS[2:4])):
        pair = [draft.values[flag] for flag in flags]
        if None not in pair:
            words.append(f"sample.micro_conditioning.{name}=[{pair[0]},{pair[1]}]")
        elif pair != [None, None]:
            draft.refuse(flags[pair.index(None)], "is missing beside its other side", code="E1017")
    corner = [draft.values[flag] for flag in _NUMBERS[4:]]
    if corner != [None, None]:
        words.append(f"sample.micro_conditioning.crop_top_left=[{corner[0] or 0},{corner[1] or 0}]")
    scores = ("aesthetic_score", "negative_aesthetic_score")
    return words + _words(draft, *(flag for flag in scores if flag in draft.named))


def _picture(draft: Draft) -> list[str]:
    if draft.text("task") == "img2img":
        if not draft.text("img"):
            draft.refuse("img", "is missing; img2img begins with a picture", code="E1017")
        return _words(draft, "img", "strength")
    for flag in ("img", "strength"):
        if flag in draft.named:
            draft.note(flag, "is for --task img2img")
    return []


def _computing(draft: Draft, read: Mapping[str, str]) -> list[str]:
    """read: what the YAML says."""
    words = ["model.family=sdxl", *(f"{path}={read[path]}" for path in ("model.prediction",) if path in read)]
    if draft.text("ms_amp_level") != "O0":
        words += ["run.precision=fp16", "run.frozen_dtype=same", f"run.vae_dtype={read.get('run.vae_dtype', 'fp32')}"]
    if draft.text("device_target") == "CPU":
        words.append("run.device=cpu")
    return words


TOOLS = (
    Tool("convert", _CONVERT, _convert, ("convert_weight.py",), ("weight_safetensors", "weight_ms")),
    Tool("merge", _MERGE, _merge, ("merge_weight.py",), ("base_weight", "additional_weights", "save_path")),
    Tool("sample", _SAMPLE, _sample, ("sampling_without_streamlit.py",), ("weight",)),
)
