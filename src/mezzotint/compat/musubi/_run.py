"""Length, precision, memory, files and logs of a run, as `run`."""

from __future__ import annotations

from mezzotint.compat.kit.dialect import Draft
from mezzotint.compat.kit.run_files import set_exports, set_folder, set_length, set_logs, set_precision, set_resume
from mezzotint.compat.musubi._scripts import TrainingScript

_TYPES = {
    "float32": "fp32", "fp32": "fp32", "float": "fp32", "float16": "fp16", "fp16": "fp16", "half": "fp16",
    "bfloat16": "bf16", "bf16": "bf16",
}  # fmt: skip


def set_run(draft: Draft, script: TrainingScript) -> None:
    """Sets the section `run`."""
    set_length(draft)
    draft.apply("gradient_checkpointing")
    is_compiled = bool(draft.values["compile"]) or draft.text("dynamo_backend").upper() != "NO"
    draft.set("run.compile", is_compiled, "compile", "dynamo_backend")
    draft.set("run.tf32", bool(draft.values["cuda_allow_tf32"]), "cuda_allow_tf32")
    dtype = _set_precision(draft, script)
    _set_memory(draft)
    name = set_folder(draft)
    set_exports(draft, script.method, name, dtype, "full_bf16" if script.method == "weights" else "mixed_precision")
    set_resume(draft)
    set_logs(draft, "network_train" if script.method == "adapter" else "fine-tuning")


def _set_precision(draft: Draft, script: TrainingScript) -> str:
    """Sets the types of weights and arithmetic; returns the type of exported weights."""
    precision = set_precision(draft)
    written = draft.text("vae_dtype")
    if written and written not in _TYPES:
        draft.refuse("vae_dtype", f"must be float32, bfloat16 or float16, got {written[:40]}", code="E1017")
    draft.set("run.vae_dtype", _TYPES.get(written, "same"), "vae_dtype")
    _set_frozen_type(draft, script, precision)
    is_pure = bool(draft.values["full_bf16"]) and script.method == "weights"
    if is_pure and precision != "bf16":
        message = "needs --mixed_precision=bf16, as in the script"
        draft.refuse("full_bf16", message, "write it, or leave this out", "E1017")
    draft.set("run.weight_dtype", "pure" if is_pure else "fp32", "full_bf16")
    if script.method == "weights":
        return "bf16" if is_pure else "fp32"
    return "fp16" if precision == "fp16" else "bf16"


def _set_frozen_type(draft: Draft, script: TrainingScript, precision: str) -> None:
    flags = [flag for flag in ("fp8_base", "fp8_scaled") if draft.values[flag]]
    if flags == ["fp8_scaled"]:
        draft.refuse("fp8_scaled", "needs --fp8_base, as in the scripts", "write it, too", "E1017")
    if not flags or script.method != "adapter":
        draft.set("run.frozen_dtype", "same", "fp8_base")
        if flags:
            draft.note(flags[0], f"has no effect in {script.name}.py, which trains all weights")
        return
    draft.set("run.frozen_dtype", "int8", *flags)
    text = "int8 with a scale for each row takes as little memory as fp8, and is closer to the weights"
    draft.note(flags[0], f"frozen weights are quantized to 8 bits: {text}")
    if precision == "fp32":
        draft.refuse(flags[0], "needs bf16 or fp16", "write --mixed_precision=bf16, too, or leave this out", "E1017")


def _set_memory(draft: Draft) -> None:
    if draft.values["ddp_timeout"] is not None and draft.check_bounds("ddp_timeout"):
        draft.set("run.timeout_seconds", 60 * draft.integer("ddp_timeout"), "ddp_timeout")
    if draft.values["blocks_to_swap"]:
        draft.set("run.offload.blocks", "auto", "blocks_to_swap")
        draft.note("blocks_to_swap", "as many blocks stay on the device as fit; run.offload.blocks sets another number")
