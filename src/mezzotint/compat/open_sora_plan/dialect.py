"""The dialect `open-sora-plan`: translates command lines of Open-Sora-Plan v1.1's `train_t2v.py`, described by its
document on training arguments, to recipes. Where the document and the program differ, the document is followed.

Accidental behaviour of the program is not copied, with a note: saving the average instead of the weights, a resume at
the next epoch, the same noise on all processes, rates and averages that change with every micro-batch.
"""

from __future__ import annotations

from pathlib import PurePath

from mezzotint.compat.kit.derived import bucket_step, explain_divisor, run_name
from mezzotint.compat.kit.dialect import Dialect, Draft
from mezzotint.compat.open_sora_plan._rows import ROWS, SCHEDULES

SCRIPT = "train_t2v.py"
OTHER_SCRIPTS = {
    "train_causalvae.py": "trains the autoencoder, which is not supported",
    "train_t2v_diffusers.py": "belongs to a later version, whose flags differ",
    "sample_t2v.py": "generates clips; use `mezzotint sample`",
    "infer_t5.py": "writes the text cache; use `mezzotint cache --as open-sora-plan -- …` with the training command",
}
_FILES = (".safetensors", ".ckpt", ".pt", ".pth", ".bin")
_PAIRS = 28


def compute(draft: Draft) -> None:
    """Sets what depends on several flags or is not a plain copy, and adds notes."""
    draft.apply("model")
    _set_weights(draft)
    _set_clips(draft)
    _set_images(draft)
    _set_text(draft)
    _set_batches(draft)
    _set_rate(draft)
    _set_update(draft)
    _set_precision(draft)
    _set_memory(draft)
    _set_processes(draft)
    _set_length(draft)
    _set_saving(draft)
    _note_quirks(draft)


def _set_weights(draft: Draft) -> None:
    path = draft.text("pretrained")
    draft.set("model.path", path or "latte-17f", "pretrained")
    if not path:
        draft.set("model.weights", "random", "pretrained")
        draft.note("pretrained", "not given: all weights are random, and the model is trained from scratch")
    if PurePath(path).suffix in _FILES:
        draft.set("model.config", "latte-17f", "pretrained")
    if PurePath(path).name == "train_resume.ckpt":
        draft.note("pretrained", "only the weights are read, not the optimizer and the step")
    factor = draft.integer("compress_kv_factor")
    if not draft.check_bounds("compress_kv_factor"):
        return
    is_on = bool(draft.values["compress_kv"])
    if factor > 1 and not is_on:
        draft.note("compress_kv_factor", "without --compress_kv True nothing is compressed")
    if is_on and factor > 1 and draft.values["use_rope"]:
        draft.refuse("use_rope", "excludes --compress_kv: compressed keys have no rotary positions", "leave one out")
    draft.set("model.latte.compress_kv", factor if is_on else 1, "compress_kv", "compress_kv_factor")
    overlap = draft.number("tile_overlap_factor")
    if not 0 < overlap < 1:
        draft.refuse("tile_overlap_factor", f"must be between 0 and 1, got {overlap:g}", code="E1017")
    draft.set("model.latte.tiling.overlap", overlap, "tile_overlap_factor")


def _set_clips(draft: Draft) -> None:
    frames, side = draft.integer("num_frames"), draft.integer("max_image_size")
    if frames < 1 or frames % 2 == 0:
        near = f"{max(frames - 1, 1)} or {max(frames + 1, 3)}"
        draft.refuse("num_frames", f"must be odd, got {frames}", f"write {near}", "E1017")
    elif frames % 4 != 1:
        back = frames - frames % 4 + 1
        draft.note("num_frames", f"{frames} is not 4 k + 1: the autoencoder returns {back} frames")
    if side < 16 or side % 16:
        fitting = max(16, round(side / 16) * 16)
        draft.refuse("max_image_size", f"must be a multiple of 16, got {side}", f"write {fitting}", "E1017")
    flag = "image_data" if frames == 1 else "video_data"
    if frames == 1 and draft.is_given("video_data"):
        draft.note("video_data", "with --num_frames 1 only the list of images is read")
    if not draft.text(flag):
        draft.refuse(flag, "is not given; it must be the list file of the data set", code="E1017")
    draft.set_all({"data.format": "clip-list", "data.path": draft.text(flag)}, flag)
    draft.set_all({"data.clips.frames": frames, "model.latte.video_length": frames // 4 + 1}, "num_frames")
    squares = {
        "data.buckets.shape": "square",
        "data.buckets.step": bucket_step(side),
        "data.resize": "square-then-bilinear",
    }
    draft.set_all({"data.resolution": side, **squares}, "max_image_size")
    draft.apply("enable_flip", "filter_nonexistent")


def _set_images(draft: Draft) -> None:
    count, frames = draft.integer("use_image_num"), draft.integer("num_frames")
    from_clips = bool(draft.values["use_img_from_vid"])
    if not draft.check_bounds("use_image_num") or frames == 1:
        if count and frames == 1:
            draft.note("use_image_num", "with --num_frames 1 only single images are trained")
        return
    if count and from_clips and frames < count:
        draft.refuse("use_image_num", f"{count} images cannot be taken from {frames} frames", f"write {frames}")
    if count and not from_clips and not draft.text("image_data"):
        remedy = "give a list with --image_data, or --use_img_from_vid True"
        draft.refuse(
            "use_image_num",
            f"{count} images are to be joined to each clip, but there is no source of images",
            remedy,
            "E1017",
        )
    draft.set("data.clips.images", count, "use_image_num")
    if not count:
        for flag in ("image_data", "use_img_from_vid"):
            if draft.is_given(flag) and draft.values[flag]:
                draft.note(flag, "without --use_image_num no images are joined to clips")
        return
    draft.set("data.clips.images_from", "clips" if from_clips else "images", "use_img_from_vid", "image_data")
    if not from_clips:
        draft.set("data.clips.images_path", [draft.text("image_data")], "image_data")
        draft.set("data.clips.images_order", "groups", "use_image_num")
    elif draft.text("image_data"):
        draft.note("image_data", "with --use_img_from_vid the images are frames of the clips")


def _set_text(draft: Draft) -> None:
    is_cached = bool(draft.values["text_embed_cache"])
    draft.apply("text_embed_cache")
    draft.set_all({"data.captions.clean": True, "data.captions.dropout": 0.0}, "text_encoder_name")
    if not is_cached or draft.is_given("text_encoder_name"):
        draft.set("model.latte.text_encoder", draft.text("text_encoder_name"), "text_encoder_name", "text_embed_cache")
    draft.check_bounds("model_max_length")


def _set_batches(draft: Draft) -> None:
    draft.apply("batch_size")
    draft.check_bounds("gradient_accumulation_steps")
    ahead = draft.values["dataloader_prefetch_size"]
    is_sinking = bool(draft.values["dataset_sink_mode"])
    if ahead is not None and draft.check_bounds("dataloader_prefetch_size"):
        draft.set("data.prefetch", ahead, "dataloader_prefetch_size")
    draft.set("run.device_prefetch", (ahead or 2) if is_sinking else 0, "dataset_sink_mode", "dataloader_prefetch_size")
    size = draft.integer("sink_size")
    if size != -1 and size < 1:
        draft.refuse("sink_size", f"must be -1 or above 0, got {size}", code="E1017")
    if draft.is_given("sink_size") and not is_sinking:
        draft.note("sink_size", "has an effect only with --dataset_sink_mode True")
    if is_sinking and size > 0:
        draft.set("run.log_every", draft.steps_of("sink_size"), "sink_size")
        draft.note("sink_size", "sets only the log interval; steps and saves are as without it")
    else:
        draft.apply("log_interval")
        if is_sinking:
            draft.note("dataset_sink_mode", "Open-Sora-Plan logs the loss once per epoch; Mezzotint by --log_interval")


def _set_rate(draft: Draft) -> None:
    start, end = draft.number("start_learning_rate"), draft.number("end_learning_rate")
    kind = draft.text("lr_scheduler")
    if start <= 0 or end < 0 or (end > start and kind in ("cosine_decay", "polynomial_decay")):
        draft.refuse(
            "end_learning_rate", f"the rate would go from {start:g} to {end:g}", "start above the end", "E1017"
        )
        return
    floor = end / start
    if draft.values["scale_lr"]:
        times = draft.integer("batch_size") * draft.integer("gradient_accumulation_steps") * draft.launched.processes
        draft.note("scale_lr", f"both rates × {times}: {start * times:g} and {end * times:g}")
        start *= times
    draft.set("optim.lr", start, "scale_lr" if draft.values["scale_lr"] else "start_learning_rate")
    draft.set("optim.schedule.kind", SCHEDULES[kind], "lr_scheduler")
    if kind == "multi_step_decay":
        draft.note("lr_scheduler", "multi_step_decay has no milestones in Open-Sora-Plan: the rate is constant")
    warmup, decay = draft.steps_of("lr_warmup_steps"), draft.steps_of("lr_decay_steps")
    for flag in ("lr_warmup_steps", "lr_decay_steps"):
        draft.check_bounds(flag)
    draft.set("optim.schedule.warmup_steps", warmup, "lr_warmup_steps")
    if kind not in ("cosine_decay", "polynomial_decay"):
        if draft.is_given("lr_decay_steps") and decay:
            draft.note("lr_decay_steps", f"{kind} does not decay")
        return
    draft.set("optim.schedule.floor", floor, "end_learning_rate", "start_learning_rate")
    if decay:
        draft.set("optim.schedule.decay_steps", warmup + decay, "lr_decay_steps")
    if kind == "polynomial_decay":
        draft.set("optim.schedule.power", 0.9, "lr_scheduler")


def _set_update(draft: Draft) -> None:
    draft.apply("optim")
    if draft.text("optim") == "adamw":
        message = "adamw is torch's; the port's rule, without bias correction, is --optim AdamWeightDecay"
        draft.note("optim", message)
    betas = draft.values["betas"]
    if not isinstance(betas, tuple) or len(betas) != 2:
        draft.refuse("betas", f"must be two numbers, got {betas}", "such as 0.9 0.999", "E1017")
    else:
        draft.set("optim.optimizer.betas", list(betas), "betas")
    draft.apply("group_strategy")
    draft.check_bounds("max_grad_norm")
    norm = draft.values["max_grad_norm"] if draft.values["clip_grad"] else None
    draft.set("optim.clip.norm", norm, "clip_grad", "max_grad_norm")
    draft.set("optim.clip.scope", "all", "clip_grad")
    draft.apply("use_ema")
    if draft.values["use_ema"] and draft.integer("gradient_accumulation_steps") > 1:
        draft.note("use_ema", "is updated once per step, at the given rate; in Open-Sora-Plan, with every micro-batch")
    draft.set("run.preview.every", None, "use_ema")


def _set_precision(draft: Draft) -> None:
    half = draft.text("precision") != "fp32"
    level = "most" if draft.text("amp_level") == "O2" else "matmuls"
    if draft.values["global_bf16"]:
        level = "all"
        if draft.text("precision") != "bf16":
            draft.refuse("global_bf16", f"and --precision {draft.text('precision')} exclude each other", "use one")
    draft.set("run.half_precision", level if half else "autocast", "global_bf16", "amp_level", "precision")
    draft.set("run.weight_dtype", "fp32", "precision")
    draft.apply("vae_keep_gn_fp32")
    for flag in ("loss_scaler_type", "loss_scale_factor", "scale_window", "init_loss_scale"):
        if draft.text("precision") != "fp16" and draft.is_given(flag):
            draft.note(flag, "has an effect only in fp16")
    factor = draft.number("loss_scale_factor")
    if not 1 < factor <= 16:
        draft.refuse("loss_scale_factor", f"must be above 1 and at most 16, got {factor:g}", code="E1017")
    draft.set("run.scaler.growth", factor, "loss_scale_factor")
    draft.apply("scale_window", "init_loss_scale")


def _set_memory(draft: Draft) -> None:
    exempt = draft.integer("num_no_recompute")
    if not 0 <= exempt <= _PAIRS:
        message = f"must be between 0 and {_PAIRS}, the number of pairs of blocks; got {exempt}"
        draft.refuse("num_no_recompute", message, code="E1017")
    if exempt and not draft.values["use_recompute"]:
        draft.note("num_no_recompute", "has an effect only with --use_recompute True")
    draft.set(
        "run.gradient_checkpointing.skip_last", exempt if draft.values["use_recompute"] else 0, "num_no_recompute"
    )
    device, mode = draft.text("device").lower(), draft.integer("mode")
    draft.apply("device")
    if mode not in (0, 1):
        draft.refuse("mode", f"must be 0, compiled, or 1, eager; got {mode}", code="E1017")
    is_compiled = mode == 0 and device != "cpu"
    if mode == 0 and device == "cpu" and draft.is_given("mode"):
        draft.note("mode", "on a CPU compiling takes more time than it saves; run.compile=true enables it")
    draft.set("run.compile", is_compiled, "mode", "device")


def _set_processes(draft: Draft) -> None:
    processes, mode = draft.launched.processes, draft.text("parallel_mode")
    if processes > 1 and not draft.values["use_parallel"]:
        draft.refuse("use_parallel", f"is False, but {processes} processes are running", "write --use_parallel True")
    if processes == 1:
        if draft.values["use_parallel"]:
            draft.note("use_parallel", "only one process is running; torchrun starts several")
        draft.set("run.runtime", "auto", "use_parallel")
        return
    if mode == "data":
        draft.set("run.runtime", "ddp", "parallel_mode")
        return
    if mode == "semi":
        draft.note("parallel_mode", "semi is read as optim")
    draft.set_all({"run.runtime": "fsdp", "run.shard.parameters": False}, "parallel_mode")
    size = draft.integer("optimizer_weight_shard_size")
    if not draft.is_given("optimizer_weight_shard_size") and size > processes:
        size = processes
    if size < 1 or processes % size:
        draft.refuse("optimizer_weight_shard_size", *explain_divisor(size, processes), "E1017")
    draft.set("run.shard.group", size, "optimizer_weight_shard_size")


def _set_length(draft: Draft) -> None:
    if draft.values["max_train_steps"] is not None:
        draft.apply("max_train_steps")
        draft.note("max_train_steps", "is rounded down to whole epochs; run.whole_epochs=false ends exactly")
        if draft.is_given("epochs"):
            draft.note("epochs", "--max_train_steps is used")
    else:
        draft.apply("epochs")
    if draft.values["checkpointing_steps"] is not None:
        draft.apply("checkpointing_steps")
        if draft.is_given("ckpt_save_interval"):
            draft.note("ckpt_save_interval", "--checkpointing_steps is used")
    elif draft.check_bounds("ckpt_save_interval"):
        count = draft.integer("ckpt_save_interval")
        draft.set("run.save.every", f"{count} epoch{'s' * (count > 1)}", "ckpt_save_interval")
    draft.check_bounds("ckpt_max_keep")


def _set_saving(draft: Draft) -> None:
    flag = "output_path" if draft.text("output_path") else "output_dir"
    folder = draft.text(flag)
    draft.set_all({"run.folder": folder, "run.name": run_name(folder), "run.export.link": "ckpt"}, flag)
    draft.apply("seed")
    draft.set("run.resume", _resume_from(draft), "resume_from_checkpoint")
    draft.apply("profile")
    if draft.values["profile"]:
        draft.note("profile", "three steps are profiled, and the run continues")


def _resume_from(draft: Draft) -> str:
    path = draft.text("resume_from_checkpoint")
    match path.lower():
        case "false" | "0" | "":
            return "never"
        case "true" | "1":
            return "auto"
    if PurePath(path).name == "train_resume.ckpt":
        message = "is a checkpoint of the port: a new run starts from its weights; nothing else is read"
        draft.note("resume_from_checkpoint", message)
        draft.set_all({"model.path": path, "model.config": "latte-17f"}, "resume_from_checkpoint")
        draft.settings["model"].pop("weights", None)
        return "auto"
    return path


def _note_quirks(draft: Draft) -> None:
    """Adds notes about accidental behaviour of the program that is not copied."""
    if draft.launched.processes > 1:
        draft.note("seed", "each sample has its own noise; in Open-Sora-Plan, all processes draw the same")
    if draft.text("resume_from_checkpoint").lower() not in ("false", "0", ""):
        draft.note("resume_from_checkpoint", "resumes exactly where it stopped; in Open-Sora-Plan, at the next epoch")


DIALECT = Dialect(
    name="open-sora-plan",
    about="Open-Sora-Plan v1.1's train_t2v.py: LatteT2V on clips and images",
    rows=ROWS,
    compute=compute,
    scripts=(SCRIPT,),
    other_scripts=OTHER_SCRIPTS,
    accumulation="gradient_accumulation_steps",
    division="{count} micro-batches in Open-Sora-Plan are {steps} optimizer steps of {times}",
)
