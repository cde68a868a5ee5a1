"""Settings of a run: length, folder, precision, memory, saving and samples."""

from __future__ import annotations

from mezzotint.compat.kit.derived import run_name
from mezzotint.compat.kit.dialect import Draft
from mezzotint.compat.mindone._config import Config, Node
from mezzotint.settings.sections.sample import SDXL_SIZES

STAMP = "{stamp}"
PROMPT = "Astronaut in a jungle, cold color palette, muted colors, detailed, 8k"
"""MindONE's prompt of samples during training."""

_HALVES = {"O0": "most", "O1": "matmuls", "O2": "most", "O3": "all"}
_SCALE = 1024.0
_AHEAD = 10
"""Default number of batches that are kept on the device."""


def batch_size(config: Config, section: Node) -> int:
    """Sets the batch of all cards; returns that of one card."""
    draft = config.draft
    is_given = draft.values["per_batch_size"] is not None
    each = draft.integer("per_batch_size") if is_given else section["per_batch_size"]
    flag = "per_batch_size" if is_given else section.flag("per_batch_size")
    if each is None:
        section.refuse("per_batch_size", "is missing", "write it, or give --per_batch_size", "E1017")
    elif each < 1:
        draft.refuse(flag, f"must be above 0, got {each}", code="E1017")
    else:
        draft.set_batch(flag, each, "cards")
        return int(each)
    return 1


def run(draft: Draft, section: Node) -> None:
    """Sets the sections `run` and `sample`. section: the keys of `data`."""
    _set_length(draft, section)
    _set_folder(draft)
    _set_start(draft)
    _set_precision(draft)
    _set_memory(draft)
    _set_saving(draft)
    _set_samples(draft)
    draft.apply("seed")


def _set_length(draft: Draft, section: Node) -> None:
    epochs, batches = section["num_epochs"], section["total_step"]
    if epochs < 0:
        section.refuse("num_epochs", f"must be 0 or more, got {epochs}", code="E1017")
    elif epochs:
        section.copy("run.epochs", "num_epochs")
        if "total_step" in section.written:
            draft.note(section.flag("total_step"), "num_epochs is used")
    elif batches < 1:
        section.refuse("total_step", f"must be above 0, got {batches}", code="E1017")
    else:
        steps = draft.to_steps(batches)
        draft.set("run.steps", steps, section.flag("total_step"))
        in_steps = f"{batches} batches are {steps} steps; " if steps != batches else ""
        draft.note(section.flag("total_step"), f"{in_steps}the run ends at this step; MindONE's at the end of an epoch")


def _set_folder(draft: Draft) -> None:
    folder = draft.text("save_path").rstrip("/\\") or "."
    is_stamped = bool(draft.values["save_path_with_time"])
    # only save_path is named as origin, which a user changes to get another folder
    draft.set("run.folder", f"{folder}/{STAMP}" if is_stamped else folder, "save_path")
    draft.set("run.name", run_name(draft.text("version")), "version")
    draft.set_all({"run.export.link": "weights", "run.export.single_file": True}, "save_path")
    draft.set("run.export.name", "{what}_{micro_step}{ema}", "version")
    draft.set("run.resume", "never", "resume_step")


def _set_start(draft: Draft) -> None:
    """Sets the model and the step that the run starts from."""
    files = [one.strip() for one in draft.text("weight").split(",") if one.strip()]
    if files:
        draft.set("model.path", files[0], "weight")
    else:
        path = "sdxl-refiner" if "refiner" in draft.text("version") else "sdxl"
        draft.set_all({"model.path": path, "model.weights": "random"}, "weight")
        draft.note("weight", "is empty: training starts from random weights, which is not fine-tuning")
    if len(files) > 1:
        draft.set("model.over", files[1:], "weight")
        draft.note(
            "weight", f"{', '.join(files[1:])} replace tensors of {files[0]} in this order; the last one has priority"
        )
    step = draft.integer("resume_step")
    if draft.check_bounds("resume_step") and step:
        draft.set("run.start.step", draft.to_steps(step), "resume_step")
        draft.note(
            "resume_step",
            "images and rate continue after it; MindONE's file has no random state and no average. A run of Mezzotint "
            "given by --weight resumes completely",
        )
    draft.apply("save_optimizer", "optimizer_weight")


def _set_precision(draft: Draft) -> None:
    level = draft.text("ms_amp_level")
    is_half, is_small = level != "O0", bool(draft.values["param_fp16"])
    values = {"run.precision": "fp16" if is_half else "fp32", "run.half_precision": _HALVES[level]}
    draft.set_all({**values, "run.frozen_dtype": "same" if is_half else "fp32"}, "ms_amp_level")
    draft.set("run.weight_dtype", "same" if is_small and is_half else "fp32", "param_fp16")
    if is_small and is_half:
        draft.set("run.gradient_dtype", "same", "param_fp16")
    draft.set_all({"run.scaler.kind": "static", "run.scaler.init": _SCALE}, "ms_amp_level")
    if is_small:
        draft.note(
            "param_fp16",
            "makes training unstable and is not recommended: leave it out, or at least use the autoencoder that is "
            "fixed for fp16, model.vae=madebyollin/sdxl-vae-fp16-fix. Mezzotint keeps float32 master weights; MindONE "
            "does not (run.weight_dtype=pure)",
        )
        if not is_half:
            draft.note("param_fp16", "with --ms_amp_level O0 weights stay float32")
    if is_half and draft.values["overflow_still_update"]:
        draft.note("overflow_still_update", "a non-finite step never changes weights; in MindONE, it does")


def _set_memory(draft: Draft) -> None:
    draft.apply("device_target", "max_device_memory")
    ahead = draft.integer("sink_queue_size")
    if ahead == 0 or ahead < -1:
        draft.refuse("sink_queue_size", f"must be above 0, or -1, got {ahead}", code="E1017")
    elif draft.values["data_sink"]:
        draft.set("run.device_prefetch", _AHEAD if ahead == -1 else ahead, "sink_queue_size", "data_sink")
        draft.note("data_sink", "batches are kept ahead on the device; steps, logs and saves are as without it")
    draft.check_bounds("sink_size")
    draft.check_bounds("sink_queue_size")
    if "runtime" not in draft.settings.get("run", {}):  # the YAML may set sharding
        draft.set("run.runtime", "auto", "is_parallel")
    processes = draft.launched.processes
    if processes > 1 and not draft.values["is_parallel"]:
        message = f"is False, but {processes} processes are running"
        draft.refuse("is_parallel", message, "write --is_parallel True", "E1083")


def _set_saving(draft: Draft) -> None:
    draft.apply("save_ckpt_interval", "max_num_ckpt", "log_interval")
    if draft.is_given("max_num_ckpt"):
        draft.note("max_num_ckpt", "it limits checkpoints; all exported models in weights/ are kept")
    if draft.integer("gradient_accumulation_steps") > 1:
        draft.note("gradient_accumulation_steps", "intervals are in batches in MindONE, and are divided by it")


def _set_samples(draft: Draft) -> None:
    flag_of_samples = "infer_during_train"
    draft.set_all({"sample.steps": 40, "sample.guidance": 5.0, "sample.solver": "euler"}, flag_of_samples)
    size = size_of(draft)
    if size and draft.values[flag_of_samples]:
        if draft.check_bounds("infer_interval"):
            steps = draft.to_steps(draft.integer("infer_interval"))
            draft.set("run.preview.every", f"{steps} steps", "infer_interval", flag_of_samples)
        draft.set("sample.prompts", [PROMPT], flag_of_samples)
        draft.set("sample.size", list(size), "sd_xl_base_ratios", flag_of_samples)
    elif size:
        draft.set("run.preview.every", None, flag_of_samples)
        for flag in ("infer_interval", "sd_xl_base_ratios"):
            if draft.is_given(flag):
                draft.note(flag, "without --infer_during_train True nothing is sampled")


def size_of(draft: Draft) -> tuple[int, int] | None:
    """Width and height of samples; refuses an unknown ratio."""
    ratio = draft.text("sd_xl_base_ratios")
    if ratio not in SDXL_SIZES:
        draft.refuse("sd_xl_base_ratios", f"must be one of {', '.join(SDXL_SIZES)}, got {ratio!r}", code="E1017")
    return SDXL_SIZES.get(ratio)
