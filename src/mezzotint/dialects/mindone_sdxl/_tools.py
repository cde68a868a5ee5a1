"""The tools beside MindONE's `train.py`, as words of our verbs: converting, merging, drawing.

tools/model_conversion/convert_weight.py   mezzotint convert
tools/weight_merge/merge_weight.py         mezzotint merge
demo/sampling_without_streamlit.py         mezzotint sample
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from mezzotint.assets import ASSETS
from mezzotint.dialects.base import Draft, Row, Tool, switch
from mezzotint.dialects.mindone_sdxl._model import model
from mezzotint.dialects.mindone_sdxl._targets import TARGETS
from mezzotint.dialects.shared.targets import Config, read_text
from mezzotint.errors import RecipeError
from mezzotint.recipe.sections.sample import SDXL_SIZES

_WEIGHT = "checkpoints/sd_xl_base_1.0_ms.ckpt"
_TO_MINDSPORE, _FROM_MINDSPORE = ("pt_to_ms", "st_to_ms"), ("ms_to_pt", "ms_to_st")
SHIPPED = ASSETS / "mindone" / "inference"
"""The YAML files that the sampler's documents name, in words of our own."""
_CLOUD = "runs on the machine that it is started on, so copy the files there yourself"

SAMPLERS = MappingProxyType(
    {
        "EulerEDMSampler": "euler", "HeunEDMSampler": "heun", "EulerAncestralSampler": "euler-a",
        "AncestralSampler": "euler", "DPMPP2SAncestralSampler": "dpm++-2s-a", "DPMPP2MSampler": "dpm++",
        "LinearMultistepSampler": "lms", "LCMSampler": "lcm",
    }
)  # fmt: skip
"""Their samplers by our solvers."""


def _idle(flag: str, default: str | int | None, about: str) -> Row:
    form = "whole" if isinstance(default, int) else "text"
    return Row(flag, form, default, "without effect", about=about, may_be_empty=True)  # type: ignore[arg-type]


# convert

_CONVERT = (
    Row("task", "text", "pt_to_ms", "computed", choices=(*_TO_MINDSPORE, *_FROM_MINDSPORE),
        about="to MindSpore's .ckpt, or from it"),
    Row("weight_safetensors", "text", None, "computed", required=True, about="the .safetensors file"),
    Row("weight_ms", "text", None, "computed", required=True, about="the .ckpt file"),
    _idle("key_torch", None, "the names of tensors are known"),
    _idle("key_ms", None, "the names of tensors are known"),
)  # fmt: skip


def _convert(draft: Draft) -> list[str]:
    ours, theirs = draft.text("weight_safetensors"), draft.text("weight_ms")
    if draft.text("task") in _TO_MINDSPORE:
        return [ours, theirs, "--dtype=fp32"]
    return [theirs, ours]


# merge

_MERGE = (
    Row("base_weight", "text", _WEIGHT, "computed", about="the whole model"),
    Row("additional_weights", "text", None, "computed", required=True, about="files that are laid over it, in order"),
    Row("save_path", "text", "./merged_weight.ckpt", "computed", about="the file that is written"),
)  # fmt: skip


def _merge(draft: Draft) -> list[str]:
    others = [one.strip() for one in draft.text("additional_weights").split(",") if one.strip()]
    return [draft.text("base_weight"), *others, draft.text("save_path")]


# sample

_NUMBERS = (
    "orig_width", "orig_height", "target_width", "target_height", "crop_coords_top", "crop_coords_left",
)  # fmt: skip
_SAMPLE = (
    Row("task", "text", "txt2img", "computed", choices=("txt2img", "img2img"), about="from noise, or from a picture"),
    Row("config", "text", "configs/inference/sd_xl_base.yaml", "computed", about="tells base model and refiner apart"),
    Row("weight", "text", _WEIGHT, "computed", about="the model; of several with commas between, later ones "
        "are laid over the first"),
    Row("prompt", "text", "Astronaut in a jungle, cold color palette, muted colors, detailed, 8k", "computed",
        about="a text, or a .txt file with one a line"),
    Row("negative_prompt", "text", "", "computed", may_be_empty=True, about="of the refiner alone"),
    switch("support_long_prompts", outcome="refused",
           about="prompts of more than 77 tokens are not supported; leave it out"),
    Row("sd_xl_base_ratios", "text", "1.0", "computed", about="the size of txt2img"),
    *(Row(flag, "whole", None, "computed", about="what the model is told of sizes") for flag in _NUMBERS),
    Row("aesthetic_score", "number", 6.0, "computed", about="what the refiner is told"),
    Row("negative_aesthetic_score", "number", 2.5, "computed", about="what the refiner is told to leave"),
    Row("sampler", "text", "EulerEDMSampler", "computed", choices=tuple(SAMPLERS), about="the solver"),
    Row("guider", "text", "VanillaCFG", "computed", choices=("VanillaCFG", "IdentityGuider"), about="whether to guide"),
    Row("guidance_scale", "number", 5.0, "computed", about="held between 0 and 100"),
    switch("thresholding", about="bounds what guidance works on"),
    Row("dynamic_thresholding_ratio", "number", 0.995, "computed", about="the share that is left alone"),
    Row("sample_max_value", "number", 1.0, "computed", about="the largest bound"),
    Row("discretization", "text", None, "computed",
        choices=("LegacyDDPMDiscretization", "EDMDiscretization", "DiffusersDDPMDiscretization"),
        about="the levels of noise; without it, those of the schedule"),
    Row("sigma_min", "number", 0.002, "computed", about="with EDMDiscretization"),
    Row("sigma_max", "number", 80.0, "computed", about="with EDMDiscretization"),
    Row("rho", "number", 7.0, "computed", about="with EDMDiscretization"),
    Row("sample_step", "whole", 40, "computed", about="held between 1 and 1000"),
    _idle("num_rows", 1, "num_cols counts, there as here"),
    Row("num_cols", "whole", 1, "computed", about="pictures of a prompt, by seeds in a row, 10 at most"),
    Row("seed", "whole", 42, "computed", about="of the first picture"),
    switch("deterministic", default=True, outcome="without effect", about="a seed draws the same picture anyway"),
    Row("init_latent_path", "text", None, "refused", about="noise is drawn by seeds; leave it out"),
    Row("init_noise_scheduler_path", "text", None, "refused", about="levels of noise are settings; leave it out"),
    switch("precision_keep_origin_dtype", outcome="without effect", about="types are those of ms_amp_level"),
    Row("save_path", "text", "outputs/demo/", "computed", about="where pictures lie"),
    Row("img", "text", None, "computed", about="the picture of img2img"),
    Row("strength", "number", 0.75, "computed", about="how much of it is drawn anew"),
    switch("add_pipeline", about="a refiner draws the end"),
    _idle("pipeline_config", "configs/inference/sd_xl_refiner.yaml", "the refiner is known by its weights"),
    Row("pipeline_weight", "text", "checkpoints/sd_xl_refiner_1.0_ms.ckpt", "computed", about="the refiner"),
    Row("stage2strength", "number", 0.15, "computed", about="the refiner's share"),
    switch("finish_denoising", default=True, about="the base model stops where the refiner begins"),
    Row("controlnet_mode", "text", None, "refused", about="ControlNet is not supported yet"),
    Row("control_image_path", "text", None, "refused", about="ControlNet is not supported yet"),
    _idle("low_threshold", 100, "ControlNet alone reads it"),
    _idle("high_threshold", 200, "ControlNet alone reads it"),
    switch("save_detected_map", outcome="without effect", about="ControlNet alone reads it"),
    Row("textual_inversion_weight", "text", None, "refused", about="textual inversion is not supported yet"),
    _idle("placeholder_token", None, "textual inversion alone reads it"),
    _idle("num_vectors", None, "textual inversion alone reads it"),
    Row("device_target", "text", "Ascend", "computed", choices=("Ascend", "GPU", "CPU"), about="where to draw"),
    _idle("ms_mode", 1, "it changes no numbers"),
    switch("ms_jit", default=True, outcome="without effect", about="it changes no numbers"),
    Row("ms_amp_level", "text", "O2", "computed", choices=("O0", "O1", "O2", "O3"), about="O0 is float32, others fp16"),
    switch("ms_enable_graph_kernel", outcome="without effect", about="it changes no numbers"),
    switch("enable_modelarts", outcome="without effect", about=_CLOUD),
    *(_idle(flag, None, _CLOUD) for flag in ("ckpt_url", "train_url", "multi_data_url", "pretrain_url", "ckpt_dir")),
)  # fmt: skip


def _sample(draft: Draft) -> list[str]:
    is_refiner, read = _inference(draft)
    version = "SDXL-refiner-1.0" if is_refiner else "SDXL-base-1.0"
    folder = Path(draft.text("save_path")) / draft.text("task") / version
    return [
        *_model(draft),
        *_prompts(draft, is_refiner=is_refiner),
        *_numbers(draft),
        *_levels(draft),
        *_framing(draft),
        *_picture(draft),
        *_second(draft),
        *_computing(draft, read),
        "--numbered",
        f"--out={folder}",
    ]


def _inference(draft: Draft) -> tuple[bool, Mapping[str, str]]:
    """(whether the model is a refiner, settings of ours) by the YAML of --config, or the one of its name that ships; by
    its name where there is neither."""
    name = draft.text("config")
    path = Path(name).expanduser()
    if not path.is_file():
        path = SHIPPED / path.name
        if not path.is_file():
            return "refiner" in name.lower(), {"run.vae_dtype": "fp32"}
        if "config" in draft.named:
            draft.note("config", f"there is no {name} here; the file of that name that ships with Mezzotint is read")
    try:
        config = Config(draft, name, read_text(path, name), TARGETS)
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


def _model(draft: Draft) -> list[str]:
    first, *others = [one.strip() for one in draft.text("weight").split(",") if one.strip()] or [""]
    return [first, *([f"model.over=[{','.join(map(json.dumps, others))}]"] if others else [])]


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
    ratio = draft.text("sd_xl_base_ratios")
    if ratio not in SDXL_SIZES:
        draft.refuse("sd_xl_base_ratios", f"takes {', '.join(SDXL_SIZES)}, got {ratio!r}", code="E1017")
    steps = min(1000, max(1, draft.whole("sample_step")))
    scale = min(100.0, max(0.0, draft.number("guidance_scale")))
    if draft.text("guider") == "IdentityGuider":
        scale = 1.0
    count = draft.whole("num_cols")
    if not 1 <= count <= 10:
        draft.refuse("num_cols", f"must be 1 to 10, got {count}", code="E1017")
    seeds = [draft.whole("seed") + number for number in range(min(10, max(1, count)))]
    sampler = draft.text("sampler")
    if sampler == "LinearMultistepSampler":
        draft.note("sampler", "each step is taken once; there, twice by mistake")
    width, height = SDXL_SIZES.get(ratio, (0, 0))
    is_own = draft.text("task") == "img2img"
    if is_own and "sd_xl_base_ratios" in draft.named:
        draft.note("sd_xl_base_ratios", "img2img keeps the picture's own size, there as here")
    return [
        *([] if is_own else [f"--size={width}x{height}"]),
        f"--steps={steps}", f"--guidance={scale:g}", f"--solver={SAMPLERS[sampler]}",
        f"--seed={','.join(map(str, seeds))}",
    ]  # fmt: skip


def _levels(draft: Draft) -> list[str]:
    kind = draft.text("discretization")
    words = []
    match kind:
        case "EDMDiscretization":
            words = [
                "sample.sigmas=edm",
                *(f"sample.{key}={draft.number(key):g}" for key in ("sigma_min", "sigma_max", "rho")),
            ]
        case "DiffusersDDPMDiscretization":
            words = ["--spacing=leading"]
        case _:
            words = ["--spacing=stability"]
    if kind != "EDMDiscretization":
        for flag in ("sigma_min", "sigma_max", "rho"):
            if flag in draft.named:
                draft.note(flag, "is for --discretization EDMDiscretization")
    if draft.values["thresholding"]:
        words.append(f"sample.thresholding.ratio={draft.number('dynamic_thresholding_ratio'):g}")
        words.append(f"sample.thresholding.max={draft.number('sample_max_value'):g}")
    return words


def _framing(draft: Draft) -> list[str]:
    """Sizes and scores that the model is told, where they are not those of what is drawn."""
    words = []
    for name, flags in (
        ("original_size", ("orig_width", "orig_height")),
        ("target_size", ("target_width", "target_height")),
    ):
        pair = [draft.values[flag] for flag in flags]
        if None not in pair:
            words.append(f"sample.framing.{name}=[{pair[0]},{pair[1]}]")
        elif pair != [None, None]:
            missing = flags[pair.index(None)]
            draft.refuse(missing, "is missing beside its other side", code="E1017")
    corner = [draft.values["crop_coords_top"], draft.values["crop_coords_left"]]
    if corner != [None, None]:
        words.append(f"sample.framing.crop_top_left=[{corner[0] or 0},{corner[1] or 0}]")
    for flag in ("aesthetic_score", "negative_aesthetic_score"):
        if flag in draft.named:
            words.append(f"sample.framing.{flag}={draft.number(flag):g}")
    return words


def _picture(draft: Draft) -> list[str]:
    if draft.text("task") == "img2img":
        if not draft.text("img"):
            draft.refuse("img", "is missing; img2img begins with a picture", code="E1017")
        return [f"sample.image={draft.text('img')}", f"sample.strength={draft.number('strength'):g}"]
    for flag in ("img", "strength"):
        if flag in draft.named:
            draft.note(flag, "is for --task img2img")
    return []


def _second(draft: Draft) -> list[str]:
    if not draft.values["add_pipeline"]:
        return []
    return [
        f"sample.refiner.path={draft.text('pipeline_weight')}",
        f"sample.refiner.strength={draft.number('stage2strength'):g}",
        f"sample.refiner.finish={'true' if draft.values['finish_denoising'] else 'false'}",
    ]


def _computing(draft: Draft, read: Mapping[str, str]) -> list[str]:
    """read: what the YAML says."""
    words = ["model.family=sdxl", *(f"{path}={read[path]}" for path in ("model.prediction",) if path in read)]
    if draft.text("ms_amp_level") != "O0":
        words += ["run.precision=fp16", "run.frozen_dtype=same", f"run.vae_dtype={read.get('run.vae_dtype', 'fp32')}"]
    if draft.text("device_target") == "CPU":
        words.append("run.device=cpu")
    return words


_SAMPLE_FLAGS = MappingProxyType(
    {
        "--out": "save_path", "--prompt": "prompt", "--file": "prompt", "--negative": "negative_prompt",
        "--size": "sd_xl_base_ratios", "--seed": "seed", "--steps": "sample_step", "sample.steps": "sample_step",
        "--guidance": "guidance_scale", "sample.guidance": "guidance_scale", "--solver": "sampler",
        "sample.solver": "sampler", "--spacing": "discretization", "sample.spacing": "discretization",
        "sample.sigmas": "discretization", "sample.sigma_min": "sigma_min", "sample.sigma_max": "sigma_max",
        "sample.rho": "rho", "sample.thresholding.ratio": "dynamic_thresholding_ratio",
        "sample.thresholding.max": "sample_max_value", "sample.image": "img", "sample.strength": "strength",
        "sample.refiner.path": "pipeline_weight", "sample.refiner.strength": "stage2strength",
        "sample.refiner.finish": "finish_denoising", "model.path": "weight", "model.over": "weight",
        "model.prediction": "config", "run.vae_dtype": "config", "run.precision": "ms_amp_level",
        "run.device": "device_target",
    }
)  # fmt: skip

TOOLS = (
    Tool("convert", _CONVERT, _convert, ("convert_weight.py",), MappingProxyType({"--dtype": "task"})),
    Tool("merge", _MERGE, _merge, ("merge_weight.py",)),
    Tool("sample", _SAMPLE, _sample, ("sampling_without_streamlit.py",), _SAMPLE_FLAGS),
)
