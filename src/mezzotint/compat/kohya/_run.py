"""Length, precision, memory, files and logs of a run, as `run`, and the cache of captions."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

from mezzotint.compat.kit.dialect import Draft
from mezzotint.compat.kit.run_files import (
    set_exports,
    set_folder,
    set_length,
    set_logs,
    set_precision,
    set_resume,
    split_intervals,
)
from mezzotint.compat.kohya._rows import has_option
from mezzotint.compat.kohya._scripts import Script
from mezzotint.settings.recipe import Recipe

_SAVED = {"float": "fp32", "fp16": "fp16", "bf16": "bf16"}
_PROJECTS = {"adapter": "network_train", "weights": "finetuning", "embeddings": "textual_inversion"}


def set_run(draft: Draft, script: Script) -> None:
    """Sets what depends on several options in `run`."""
    set_length(draft)
    draft.apply("gradient_checkpointing", "torch_compile")
    precision = _set_precision(draft, script)
    _set_memory(draft, script)
    name = set_folder(draft)
    _set_exports(draft, script, name, precision)
    set_resume(draft)
    set_logs(draft, _PROJECTS[script.method])
    if script.method == "adapter":
        _set_validation(draft)


def _set_precision(draft: Draft, script: Script) -> str:
    """Sets the types of weights and arithmetic; returns the type of trained weights."""
    precision = set_precision(draft)
    _set_frozen_type(draft, script, precision)
    keeps_half = has_option(script, "no_half_vae") and not draft.values["no_half_vae"]
    if has_option(script, "no_half_vae"):
        draft.set("run.vae_dtype", "same" if keeps_half else "fp32", "no_half_vae")
    for flag, needed in (("full_fp16", "fp16"), ("full_bf16", "bf16")):
        if draft.values[flag]:
            if precision != needed:
                message = f"needs --mixed_precision={needed}, as in the script"
                draft.refuse(flag, message, "write it, or leave this out", "E1017")
            draft.set("run.weight_dtype", "pure", flag)
            return needed
    draft.set("run.weight_dtype", "fp32", "full_bf16")
    return "fp32"


def _set_frozen_type(draft: Draft, script: Script, precision: str) -> None:
    flags = [flag for flag in ("fp8_base", "fp8_base_unet") if draft.values[flag] and has_option(script, flag)]
    if not flags or script.method != "adapter":
        draft.set("run.frozen_dtype", "same", "mixed_precision")
        if flags:
            draft.note("fp8_base", f"has no effect in {script.name}.py, which trains all weights")
        return
    draft.set("run.frozen_dtype", "int8", *flags)
    text = "int8 with a scale for each row takes as little memory as fp8, and is closer to the weights"
    draft.note(flags[0], f"frozen weights are quantized to 8 bits: {text}")
    if precision == "fp32":
        remedy = "write --mixed_precision=bf16, too, or leave this out"
        draft.refuse(flags[0], "needs --mixed_precision, as in the script", remedy, "E1017")


def _set_memory(draft: Draft, script: Script) -> None:
    if draft.values["ddp_timeout"] is not None and draft.check_bounds("ddp_timeout"):
        draft.set("run.timeout_seconds", 60 * draft.integer("ddp_timeout"), "ddp_timeout")
    if has_option(script, "blocks_to_swap") and draft.values["blocks_to_swap"]:
        draft.set("run.offload.blocks", "auto", "blocks_to_swap")
        draft.note("blocks_to_swap", "as many blocks stay on the device as fit; run.offload.blocks sets another number")
    flags = ("cache_text_encoder_outputs", "cache_text_encoder_outputs_to_disk")
    if not has_option(script, flags[0]):
        return
    is_cached = any(draft.values[flag] for flag in flags)
    encoders = [part for part in draft.settings.get("model", {}).get("train", []) if part.startswith("text_encoder")]
    if is_cached and encoders and script.family == "sdxl":
        remedy = "write --network_train_unet_only, too" if script.method == "adapter" else "leave one of them out"
        draft.refuse(flags[0], "encoded captions cannot train the text encoders, as in the script", remedy, "E1017")
    elif is_cached and encoders:
        draft.note(flags[0], "captions are encoded at each step, since a text encoder is trained")
        is_cached = False
    draft.set("data.cache.text", is_cached, *flags)


def _set_exports(draft: Draft, script: Script, name: str, precision: str) -> None:
    written = draft.text("save_precision")
    flags = ("save_precision", *(("full_bf16", "full_fp16") if not written else ()))
    kind = draft.text("save_model_as") or "safetensors"
    set_exports(draft, script.method, name, _SAVED.get(written, precision), *flags, kind=kind)


def _set_validation(draft: Draft) -> None:
    share = draft.number("validation_split")
    if not draft.check_bounds("validation_split") or not share:
        return
    draft.set("data.holdout.fraction", share, "validation_split")
    set_validation_interval(draft, "validation_split")
    set_held_out_images(draft)


def set_validation_interval(draft: Draft, flag: str) -> None:
    """Sets when held-out images are measured. flag: what holds them out."""
    units = {"validate_every_n_steps": "steps", "validate_every_n_epochs": "epochs"}
    interval = next((flag for flag in units if draft.values[flag] is not None), "validate_every_n_epochs")
    if draft.check_bounds(interval):
        draft.set("run.validation.every", f"{draft.values[interval] or 1} {units[interval]}", interval, flag)


def set_held_out_images(draft: Draft) -> None:
    """Sets the number of held-out images if it is given."""
    if draft.values["max_validation_steps"] is not None and draft.check_bounds("max_validation_steps"):
        images = draft.integer("max_validation_steps") * draft.integer("train_batch_size")
        draft.set("data.holdout.max_samples", images, "max_validation_steps", "train_batch_size")


# --- writing ----------------------------------------------------------------------------------------------------------


def write_run(recipe: Recipe, script: Script) -> dict[str, Any]:
    """The options of a run: its files, logs and validation."""
    run = recipe.run
    return {
        **_write_files(recipe, script),
        "ddp_timeout": run.timeout_seconds // 60 if run.timeout_seconds % 60 == 0 else None,
        "resume": None,
        **split_intervals("validate_every_n", (run.validation.every,) if recipe.data.holdout.fraction else ()),
    }


def _write_files(recipe: Recipe, script: Script) -> dict[str, Any]:
    run, export = recipe.run, recipe.run.export
    folder = PurePosixPath(run.folder or f"runs/{run.name}")
    is_online, is_file = run.wandb.mode == "online", script.method != "weights" or export.single_file
    return {
        "output_dir": str(folder.parent),
        "output_name": run.name,
        **split_intervals("save_every_n", export.every or run.save.every),
        "save_state": bool(run.save.every) or None,
        "save_precision": {ours: word for word, ours in _SAVED.items()}[export.dtype],
        "save_model_as": "safetensors" if is_file else "diffusers_safetensors",
        "logging_dir": f"{folder}/logs" if run.tensorboard else None,
        "log_with": ("all" if run.tensorboard else "wandb") if is_online else None,
        "log_tracker_name": run.wandb.project if is_online else None,
    }
