"""The way back: the keys of a job for a recipe, where the rows of the tables do not have them already."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from mezzotint.compat.ai_toolkit import _model, _train
from mezzotint.compat.ai_toolkit._control import FILES, FOLDERS
from mezzotint.compat.ai_toolkit._model_rows import DATASETS
from mezzotint.compat.kit.writing import Writing, invert
from mezzotint.errors import RecipeError
from mezzotint.settings.base import Every
from mezzotint.settings.families.wan import WanSettings
from mezzotint.settings.reading.translation import Launched
from mezzotint.settings.recipe import Recipe
from mezzotint.settings.sections.conditions import FIRST_FRAME, in_folders
from mezzotint.settings.sections.data import ImageSet
from mezzotint.settings.sections.sample import SampleSettings

Values = dict[str, Any]

_SOLVERS = {"euler-a": "euler_a"}
_TEXT_ENCODER = re.compile(r"text_encoder\w*")
_CONTAINED = re.compile(r"denoiser(?:_2)?/\*(.+)\*")


def propose(recipe: Recipe, launched: Launched) -> Values:
    """The values of all keys that are not simply inverted, by flag."""
    arch = _find_arch(recipe)
    if recipe.data.path is None and not recipe.data.sets:
        raise RecipeError("the recipe has no data set; write data.path=FOLDER", code="E1026")
    if recipe.data.condition_names and arch not in _model.CONTROLS:
        message = f"ai-toolkit has no data.conditions for {recipe.model.family}; it has them for"
        raise RecipeError(f"{message} {', '.join(_model.CONTROLS)}", code="E1026")
    process = {
        "type": "sd_trainer", "datasets": None, **_write_run(recipe), **_write_model(recipe, arch),
        **_write_network(recipe), **_write_optimizer(recipe), **_write_schedule(recipe),
        **_write_objective(recipe, arch), **_write_samples(recipe, arch),
        "train.batch_size": _divide(recipe.data.batch_size, launched.processes),
    }  # fmt: skip
    sets = recipe.data.image_sets()
    triggers = {one.settings.captions.trigger for one in sets if not one.is_class}
    common = triggers.pop() if len(triggers) == 1 else ""
    process |= {"trigger_word": common or None, "train.prompt_dropout_prob": None}
    process["train.unload_text_encoder"] = any(one.settings.captions.template == "{trigger}" for one in sets) or None
    values = {"job:job": "extension", "job:config.name": recipe.run.name}
    values |= {f"process:{key}": value for key, value in process.items()}
    for number, one in enumerate(sets):
        entry = _write_set(recipe, one, common, launched)
        values |= {f"datasets:datasets.{number}.{key}": value for key, value in entry.items()}
    return values


def _find_arch(recipe: Recipe) -> str:
    """The kind of the model. Raises RecipeError for a family that ai-toolkit lacks."""
    family = recipe.model.family
    if family == "wan" and recipe.model.get_section(WanSettings).first_frame_prob:
        return "wan22_5b"
    if family == "wan":
        has_two = "denoiser_2" in recipe.model.train or "a14b" in str(recipe.model.path).lower()
        animates = recipe.sample.clip.first_frame or FIRST_FRAME in recipe.sample.conditions
        animates = animates or "i2v" in re.split(r"[^a-z0-9]+", str(recipe.model.path).lower())
        return ("wan22_14b" if has_two else "wan21") + ("_i2v" if animates else "")
    if family == "flux" and (recipe.model.task == "edit" or recipe.data.condition_names):
        return "flux_kontext"
    if family == "qwen-image" and recipe.data.condition_names:
        names = re.split(r"[^a-z0-9]+", str(recipe.model.path).lower())
        return "qwen_image_edit_plus" if {"plus", "2509", "2511"} & set(names) else "qwen_image_edit"
    if family == "flux2" and "klein" in (path := str(recipe.model.path).lower()):
        return "flux2_klein_9b" if "9b" in path else "flux2_klein_4b"
    arch = next((arch for arch, ours in _model.ARCHS.items() if ours == family), "")
    if not arch:
        raise RecipeError(f"ai-toolkit cannot train {family}; it has {', '.join(_model.ARCHS)}", code="E1026")
    return arch


def _write_run(recipe: Recipe) -> Values:
    run = recipe.run
    folder = PurePosixPath(run.folder or f"runs/{run.name}")
    return {
        "training_folder": str(folder.parent),
        "device": "cpu" if run.device == "cpu" else "cuda:0",
        "save.save_every": _steps(run.save.every) or _steps(run.export.every),
        "save.save_format": None if run.export.single_file else "diffusers",
        "logging.use_wandb": run.wandb.mode == "online" or None,
        "train.ema_config.use_ema": recipe.optim.ema.rule != "none" or None,
        "train.single_item_batching": run.micro_batch == 1 or None,
    }


def _write_model(recipe: Recipe, arch: str) -> Values:
    model, trained = recipe.model, recipe.model.train
    bits = recipe.run.frozen_dtype
    is_low = bits in ("int8", "nf4")
    encoders = [part for part in trained if part.startswith("text_encoder")]
    suffix = "" if model.adapter.is_trained else "_te"
    return {
        "model.arch": arch,
        "model.assistant_lora_path": str(model.under[0].path) if len(model.under) == 1 else None,
        "model.is_v_pred": model.prediction == "v" or None,
        "train.xformers": model.attention == "xformers" or None,
        "train.train_unet": any(part.startswith("denoiser") for part in trained),
        "train.train_text_encoder": bool(encoders) or None,
        "model.use_text_encoder_1": not encoders or "text_encoder" in encoders,
        "model.use_text_encoder_2": not encoders or "text_encoder_2" in encoders,
        "model.model_kwargs.train_high_noise": "denoiser" in trained if arch in _model.TWO_DENOISERS else None,
        "model.model_kwargs.train_low_noise": "denoiser_2" in trained if arch in _model.TWO_DENOISERS else None,
        f"model.quantize{suffix}": is_low or None,
        "model.low_vram": is_low or None,
        "model.qtype": None, "model.qtype_te": None, f"model.qtype{suffix}": "uint4" if bits == "nf4" else None,
        "model.layer_offloading": recipe.run.offload.blocks == "auto" or None,
        "model.only_if_contains": _list_contained([name[1:] for name in model.freeze if name.startswith("!")]),
    }  # fmt: skip


def _write_network(recipe: Recipe) -> Values:
    adapter = recipe.model.adapter
    names = ("type", "rank", "linear", "alpha", "linear_alpha", "lokr_full_rank", "lokr_factor", "dropout",
             "layer_offloading", "transformer_only", "all_layers", "pretrained_lora_path",
             "network_kwargs.only_if_contains")  # fmt: skip
    network: Values = {f"network.{name}": None for name in names}
    if not adapter.is_trained:
        return network
    is_full = adapter.kind == "lokr" and adapter.rank == _model.FULL_RANK
    network |= {
        "network.type": "lokr" if adapter.kind == "lokr" else "lora",
        "network.linear": None if is_full or adapter.path is not None else adapter.rank,
        "network.linear_alpha": None if is_full or adapter.path is not None else adapter.alpha or float(adapter.rank),
        "network.conv": adapter.rank_pattern.get("denoiser/*conv*"),
        "network.conv_alpha": adapter.alpha_pattern.get("denoiser/*conv*"),
        "network.dropout": adapter.dropout or None,
        "network.pretrained_lora_path": str(adapter.path) if adapter.path is not None else None,
        "network.network_kwargs.only_if_contains": _list_contained(adapter.targets),
    }
    if adapter.kind == "lokr":
        network |= {"network.lokr_full_rank": is_full, "network.lokr_factor": adapter.factor}
    return network


def _list_contained(patterns: Iterable[str]) -> list[str] | None:
    """The texts of patterns for layers whose name contains one, each once."""
    matches = (_CONTAINED.fullmatch(pattern) for pattern in patterns)
    return list(dict.fromkeys(match[1] for match in matches if match is not None)) or None


def _write_optimizer(recipe: Recipe) -> Values:
    rule, section = recipe.optim.optimizer, "train.optimizer_params"
    options: Mapping[str, Any] = getattr(rule, "options", {})
    values: Values = {"train.unet_lr": None, "train.optimizer": _find_optimizer(rule), "train.text_encoder_lr": None}
    values |= {f"{section}.{key}": options[key] for key in _train.OWN_KEYS["adafactor"] if key in options}
    if isinstance(options.get("betas"), (list, tuple)) and None not in options["betas"]:
        values[f"{section}.betas"] = list(options["betas"])
    rates = {recipe.optim.rate_of(part) for part in recipe.optim.part_lr if _TEXT_ENCODER.fullmatch(part)}
    values |= {"train.text_encoder_lr": rates.pop()} if len(rates) == 1 else {}
    values["train.max_grad_norm"] = recipe.optim.clip.norm or 0.0
    return values


def _find_optimizer(rule: Any) -> str | None:
    """The name of an optimizer, or of the most similar one."""
    if rule.kind == "library":
        names = [name for name, ours in _train.LIBRARIES.items() if ours == rule.class_name]
        fitting = (name for name in names if ("lion" in name) != ("eps" in rule.options))
        return next(fitting, next(iter(names), None))
    kinds = {kind: name for name, (kind, _) in reversed(_train.KINDS.items())}
    kinds |= {"adamw": "adamw", "adamw-8bit-or-adamw": "adamw8bit", "adamw-8bit": "adamw8bit", "adafactor": "adafactor"}
    return kinds.get(rule.kind)


def _write_schedule(recipe: Recipe) -> Values:
    schedule, name = recipe.optim.schedule, "train.lr_scheduler"
    keys = ("num_warmup_steps", "eta_min", "start_factor", "end_factor")
    rises = schedule.kind == "constant" and schedule.warmup_steps == recipe.run.steps
    kind, params = "constant", dict[str, Any]()
    if schedule.kind == "cosine":
        kind, params = "cosine", {"eta_min": float(f"{schedule.floor * recipe.optim.lr:.12g}")}
    elif schedule.kind == "linear":
        kind, params = "linear", {"start_factor": 1.0, "end_factor": schedule.floor}
    elif rises and schedule.warmup_from:
        kind, params = "linear", {"start_factor": schedule.warmup_from}
    elif schedule.warmup_steps:
        kind, params = "constant_with_warmup", {"num_warmup_steps": schedule.warmup_steps}
    return {name: kind, **{f"{name}_params.{key}": params.get(key) for key in keys}}


def _write_objective(recipe: Recipe, arch: str) -> Values:
    objective, flow = recipe.objective, recipe.objective.flow
    losses = {ours: name for name, ours in _train.LOSS_TYPES.items()}
    values: Values = {"train.loss_type": losses.get(objective.loss), **dict.fromkeys(_train.BELLS)}
    first, last = 0, 999
    if _model.ARCHS[arch] in ("sd", "sdxl"):
        low, high = objective.timesteps
        first, last = 999 - high, 1001 - low
        values |= {"train.noise_scheduler": "ddpm"}
    else:
        own = {"density": flow.density, "shift": flow.shift, "grid": flow.grid}
        density = "sigmoid" if flow.density == "logit-normal" else flow.density
        named = (name for name, one in _train.DENSITIES.items() if one == own)
        near = (name for name, one in _train.DENSITIES.items() if one["density"] == density)
        kind = next(named, next(near, None))
        if kind == "linear" and objective.weight_table == _train.TABLE:
            kind = "weighted"
        values |= {key: True for key, ours in _train.BELLS.items() if ours == objective.weighting}
        least, most = flow.sigmas
        first, last = round(1000 - 1000 * most), min(999, round(1000 - 1000 * least))
        values |= {"train.noise_scheduler": "flowmatch", "train.timestep_type": kind}
    for name, kind in _train.PRESERVED.items():
        is_on = objective.preserve.kind == (kind,)
        values |= {
            f"train.{name}": is_on or None,
            f"train.{name}_multiplier": objective.preserve.weight if is_on else None,
        }
    if objective.preserve.kind == ("output",):
        classes = {one.settings.captions.subject_class for one in recipe.data.image_sets() if not one.is_class}
        values["train.diff_output_preservation_class"] = classes.pop() if len(classes) == 1 else None
    return {**values, "train.min_denoising_steps": max(0, first), "train.max_denoising_steps": last}


def _write_samples(recipe: Recipe, arch: str) -> Values:
    sample = recipe.sample
    is_flow = _model.ARCHS[arch] not in ("sd", "sdxl")
    solver = "flowmatch" if is_flow and sample.solver == "euler" else _SOLVERS.get(sample.solver, sample.solver)
    width, height = sample.size or (None, None)
    has_previews = bool(sample.prompts) and recipe.run.preview.every is not None
    return {
        "sample.sampler": solver, "sample.width": width, "sample.height": height,
        "sample.neg": sample.negative_prompt, "train.disable_sampling": None,
        "sample.guidance_scale": sample.guidance[0] + (_model.ARCHS[arch] in _model.EXTRA_GUIDANCE),
        "sample.prompts": _write_prompts(sample) if has_previews else None,
    }  # fmt: skip


def _write_prompts(sample: SampleSettings) -> list[str]:
    """The prompts, with their control images as options."""
    first = sample.clip.first_frame
    conditions = sample.conditions if first is None else {FIRST_FRAME: (first,)}
    images = list(zip(FILES[1:], conditions.values(), strict=False))
    return [
        prompt + "".join(f" --{key} {files[number if len(files) > 1 else 0]}" for key, files in images)
        for number, prompt in enumerate(sample.prompts)
    ]


def _write_set(recipe: Recipe, one: ImageSet, common: str, launched: Launched) -> Values:
    """The keys of a data set. common: the trigger of the whole job."""
    data, captions, mask = one.settings, one.settings.captions, one.settings.mask
    tree = {"data": data.model_dump(mode="json", by_alias=True)}
    paths = {path for row in DATASETS for path in row.to}
    entry: Values = invert(DATASETS, {path: _value_at(tree, path) for path in paths}, launched)
    for key in ("dataset_path", "caption_ext", "caption_type", "cache_latents", "type", "num_frames", "fps"):
        entry[key] = None
    if captions.extension != "any":
        entry["caption_ext"] = captions.extension.removeprefix(".")
    folders = [str(folder) for folder in in_folders(data.conditions)]
    same_batch = data.batch_size == recipe.data.batch_size
    is_trained = captions.shuffle_tags or captions.tag_dropout
    own = captions.trigger if captions.trigger != common and not one.is_class else ""
    return entry | {
        "batch_size": None if same_batch else _divide(data.batch_size, launched.processes),
        "is_reg": one.is_class or None,
        "loss_multiplier": one.weight,
        "trigger_word": own or None,
        "keep_tokens": (captions.keep_tags + (not captions.trigger)) if is_trained else None,
        "buckets": False if data.buckets.shape == "square" else None,
        "square_crop": None,
        "random_crop": data.crop == "random" or None,
        "flip_x": data.flip == 0.5 or None,
        "alpha_mask": mask.source == "alpha" or None,
        "mask_path": str(mask.path) if mask.source == "files" else None,
        **dict.fromkeys(FOLDERS),
        FOLDERS[0]: (folders[0] if len(folders) == 1 else folders) or None,
        "cache_latents_to_disk": data.cache.latents or None,
        "cache_text_embeddings": None,
        **_write_clips(recipe, data),
    }


def _write_clips(recipe: Recipe, data: Any) -> Values:
    if data.format != "videofolder":
        return {"shrink_video_to_frames": None}
    starts = recipe.model.get_section(WanSettings).first_frame_prob == 1.0
    fps = {"fps": round(data.clips.fps)} if data.clips.fps else {}
    return {"num_frames": data.clips.frames, "shrink_video_to_frames": False, "do_i2v": starts or None, **fps}


def _value_at(tree: Any, path: str) -> Any:
    for part in path.split("."):
        tree = tree.get(part) if isinstance(tree, dict) else None
    return tree


def _steps(intervals: Sequence[Every] | Every | None) -> int | None:
    """The number of steps of an interval."""
    for one in intervals if isinstance(intervals, (list, tuple)) else (intervals,):
        if isinstance(one, Every) and one.unit == "steps":
            return int(one.count)
    return None


def _divide(batch: int, processes: int) -> int | None:
    """The batch of one process."""
    return batch // processes if batch % processes == 0 else None


def _remarks(recipe: Recipe) -> Iterator[str]:
    arch = _find_arch(recipe)
    if arch in ("sd1", "flux2", "flux2_klein_4b", "flux2_klein_9b", "wan21"):
        others = [name for name, family in _model.ARCHS.items() if family == recipe.model.family and name != arch]
        yield f"model.arch is {arch}, which the recipe does not say exactly; others are {', '.join(others)}"


WRITING = Writing(
    propose=(propose,),
    keep=frozenset(
        f"process:{key}"
        for key in ("device", "training_seed", "network.type", "network.linear", "network.linear_alpha", "model.arch",
                    "model.low_vram")
    ),
    lost={
        "data.flip": "flip_x is on or off",
        "data.captions.class_word": "",  # an empty one is what the trigger says, which is written
        "model.prediction": "ai-toolkit reads it from model.is_v_pred, not from the model; write true if it predicts v",
        "optim.optimizer.kind": "train.optimizer names the most similar one",
        "run.epochs": "steps count updates, and there are no epochs",
        "data.captions.trigger": "trigger_word starts captions of all sets",
    },
    remarks=_remarks,
)  # fmt: skip
