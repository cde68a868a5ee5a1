"""What scripts of diffusers have in common: `train_text_to_image.py` and `train_text_to_image_sdxl.py`, of release
0.26.3 and of the head of August 2026, and their LoRA siblings. Rows by flag, and what several flags decide together.

A row that differs in one of them (a default, a flag of its own) stands in that dialect's file.
"""

from __future__ import annotations

import re
from dataclasses import replace

from mezzotint.compat.kit import setting_files
from mezzotint.compat.kit.dialect import Draft, Row, bucket_step, idle, mapped, refused, row, run_name
from mezzotint.compat.kit.reading import Value, shown

SD, XL = "train_text_to_image.py", "train_text_to_image_sdxl.py"
_UNSUPPORTED = {
    "SDXL by DreamBooth in whole, which is not supported; train_dreambooth_lora_sdxl.py is": "dreambooth_sdxl",
    "ControlNet, which is not supported yet": "controlnet controlnet_sdxl",
    "Kandinsky, which is not supported": "text_to_image_prior text_to_image_decoder",
    "without captions, which is not supported": "unconditional",
}  # fmt: skip
OTHERS = {
    **{f"train_{name}.py": f"trains {what}" for what, names in _UNSUPPORTED.items() for name in names.split()},
    "train_text_to_image_flax.py": "is the script for Flax; take the flags of train_text_to_image.py",
}
"""Scripts of the project that no dialect speaks for."""

_DIALECTS = {
    SD: ("Stable Diffusion 1.x and 2.x", "diffusers-sd"),
    XL: ("SDXL, whose flags differ", "diffusers-sdxl"),
    "train_text_to_image_lora.py": ("LoRA of Stable Diffusion", "diffusers-lora"),
    "train_text_to_image_lora_sdxl.py": ("LoRA of SDXL", "diffusers-lora-sdxl"),
    "train_dreambooth.py": ("a subject by DreamBooth", "diffusers-dreambooth"),
    "train_dreambooth_lora.py": ("a subject by DreamBooth, as a LoRA", "diffusers-dreambooth-lora"),
    "textual_inversion.py": ("a new word", "diffusers-textual-inversion"),
    "textual_inversion_sdxl.py": ("a new word of SDXL", "diffusers-textual-inversion-sdxl"),
    "train_dreambooth_lora_sdxl.py": ("a subject by DreamBooth, as a LoRA of SDXL", "diffusers-dreambooth-lora-sdxl"),
    "train_dreambooth_sd3.py": ("a subject by DreamBooth, in SD3", "diffusers-dreambooth-sd3"),
    "train_dreambooth_flux.py": ("a subject by DreamBooth, in FLUX.1", "diffusers-dreambooth-flux"),
    **{
        f"train_dreambooth_lora_{name}.py": (
            f"a subject by DreamBooth, as a LoRA of {model}", f"diffusers-dreambooth-lora-{name.replace('_', '-')}"
        )
        for name, model in {
            "sd3": "SD3", "flux": "FLUX.1", "flux2_klein": "FLUX.2 Klein", "qwen_image": "Qwen-Image",
            "z_image": "Z-Image",
        }.items()
    },
}  # fmt: skip
"""Scripts that a dialect speaks for: what they train, and its name."""


def others(script: str) -> dict[str, str]:
    """What the other scripts of the project do, and which dialect is theirs."""
    known = {name: f"trains {what}: write --as {dialect}" for name, (what, dialect) in _DIALECTS.items()}
    return {name: what for name, what in known.items() if name != script} | OTHERS


PRECISIONS = {"no": "fp32", "fp16": "fp16", "bf16": "bf16"}
SCHEDULES = (
    "linear", "cosine", "cosine_with_restarts", "polynomial", "constant", "constant_with_warmup", "piecewise_constant",
)  # fmt: skip
FILTERS = {"nearest_exact": "nearest"}
"""Pillow has one nearest neighbour; torchvision maps both names to it."""

HUB_ID = re.compile(r"(?!\.{1,2}/)[\w.-]+/[\w.-]+")
"""What may be a hub id; a folder of that form is found before it."""

POLYNOMIAL_END = 1e-7
"""Where diffusers' polynomial schedule ends, whatever the peak rate."""


_ROWS = (
    row("pretrained_model_name_or_path", str, "model.path",
        "a folder in diffusers' layout, or a hub id that lies in the local cache", required=True),
    row("revision", str, "model.path", "of a hub id: OWNER/NAME@REVISION"),
    idle("variant", str, "the plain files are read, and a variant where a component has only that"),
    row("dataset_name", str, "data.path data.format",
        "a folder, or a hub id in the local cache; wins over train_data_dir"),
    row("dataset_config_name", str, "data.hub_config", "the named configuration of a hub data set", optional=True),
    row("train_data_dir", str, "data.path data.format", "pictures with metadata.jsonl, .csv or .parquet"),
    mapped("image_column", "image", "data.columns.image", "the column of the picture"),
    mapped("caption_column", "text", "data.columns.caption", "the column of the caption"),
    mapped("max_train_samples", int, "data.max_samples", "drawn by the seed", above=0),
    row("cache_dir", str, "data.hub_cache", "the cache of hub data sets", optional=True),
    row("resolution", 512, "data.resolution data.buckets.step", "the side of the square that every picture is cut to"),
    row("center_crop", False, "data.crop", "the middle; without it a place drawn at each visit", on="center",
        off="random"),
    row("random_flip", False, "data.flip", "half of the visits are mirrored", on=0.5, off=0.0),
    mapped("image_interpolation_mode", "bilinear", "data.resize",
        "the filter; 0.26.3 is always bilinear, head's default is lanczos", since="head", values=FILTERS,
        choices=("nearest", "nearest_exact", "bilinear", "bicubic", "box", "hamming", "lanczos")),
    row("train_batch_size", 16, "data.batch_size", "per process there; multiplied by the number of processes once",
        above=0, unit="processes"),
    mapped("dataloader_num_workers", 0, "data.workers", "processes that decode pictures"),
    row("num_train_epochs", 100, "run.epochs", "counts when max_train_steps is absent", above=0),
    row("max_train_steps", int, "run.steps", "optimizer steps", above=0),
    mapped("gradient_accumulation_steps", 1, "optim.accumulation", "batches of one step", above=0),
    mapped("gradient_checkpointing", False, "run.gradient_checkpointing.enabled", "of the UNet"),
    row("learning_rate", 1e-4, "optim.lr", "the peak"),
    row("scale_lr", False, "optim.lr", "the rate times batch, accumulation and processes"),
    row("lr_scheduler", "constant",
        "optim.schedule.kind optim.schedule.floor optim.schedule.cycles optim.schedule.power",
        "constant has no warm-up there; restarts are one cycle; polynomial ends at 1e-7", choices=SCHEDULES),
    row("lr_warmup_steps", 500, "optim.schedule.warmup_steps", "optimizer steps", least=0),
    row("use_8bit_adam", False, "optim.optimizer.kind", "needs the extra eight-bit", on="adamw-8bit", off="adamw"),
    row("adam_beta1", 0.9, "optim.optimizer.betas", "of the mean"),
    row("adam_beta2", 0.999, "optim.optimizer.betas", "of the square"),
    mapped("adam_weight_decay", 1e-2, "optim.optimizer.weight_decay", "on every parameter"),
    mapped("adam_epsilon", 1e-8, "optim.optimizer.eps", "added to the root"),
    row("max_grad_norm", 1.0, "optim.clip.norm", "over all parameters"),
    row("use_ema", False, "optim.ema.rule", "min(0.9999, (1 + s)/(10 + s)); the result is the average", on="ramp",
        off="none", fixed={"optim.ema.decay": 0.9999, "optim.ema.interval": 1}),
    row("snr_gamma", float, "objective.min_snr_gamma objective.min_snr_form", "Min-SNR in the form of the prediction",
        fixed={"objective.min_snr_form": "prediction"}),
    mapped("noise_offset", 0.0, "objective.noise_offset", "a constant a channel"),
    row("output_dir", "sd-model-finetuned", "run.folder run.name run.export.folder",
        "the run folder; the finished pipeline lies in it, too"),
    row("seed", int, "run.seed sample.seed", "without one, 0: a run can be repeated"),
    row("mixed_precision", str, "run.precision run.frozen_dtype", "without it, what the launcher hands over",
        choices=tuple(PRECISIONS)),
    row("allow_tf32", False, "run.tf32", "matrix products of float32 on GPUs", optional=True),
    idle("enable_xformers_memory_efficient_attention", False,
        "torch's own attention, which is used, does the same work"),
    row("checkpointing_steps", 500, "run.save.every", "optimizer steps", above=0, unit="steps"),
    mapped("checkpoints_total_limit", int, "run.save.keep", "without it all are kept", above=0),
    row("resume_from_checkpoint", str, "run.resume",
        "latest goes on, or starts when there is none; without it a new run is insisted on"),
    idle("local_rank", -1, "the launcher's variables tell the place of a process"),
    row("validation_epochs", 5, "run.preview.every", "epochs between previews", above=0),
    row("report_to", "tensorboard", "run.tensorboard run.wandb.mode", "metrics.jsonl is always written",
        choices=("tensorboard", "wandb", "comet_ml", "all")),
    idle("logging_dir", "logs", "the logs lie in logs/ of the run folder"),
    refused("push_to_hub", False, "a run uploads nothing: it would need your token and the network for hours; upload "
        "the finished folder with `hf upload`"),
    refused("hub_token", str,
        "everyone on the machine can read a token on a command line; remove it, and keep it in `hf auth login`"),
    idle("hub_model_id", str, "nothing is uploaded"),
)  # fmt: skip
_BY_FLAG = {one.flag: one for one in _ROWS}


def rows(*flags: str) -> tuple[Row, ...]:
    """The rows of flags that mean the same in both scripts."""
    return tuple(_BY_FLAG[flag] for flag in flags)


def with_default(flag: str, default: Value) -> Row:
    """The row of a flag with this script's own default."""
    return replace(_BY_FLAG[flag], default=default)


LENGTH = rows("num_train_epochs", "max_train_steps", "gradient_accumulation_steps", "gradient_checkpointing")
UPDATE = rows(
    "learning_rate", "scale_lr", "lr_scheduler", "lr_warmup_steps", "use_8bit_adam", "adam_beta1", "adam_beta2",
    "adam_weight_decay", "adam_epsilon", "max_grad_norm", "use_ema",
)  # fmt: skip


def model(draft: Draft, family: str) -> None:
    """Which model it is; the denoiser is trained."""
    path, revision = draft.text("pretrained_model_name_or_path"), draft.text("revision")
    if revision and HUB_ID.fullmatch(path):
        path = f"{path}@{revision}"
    elif revision:
        draft.note("revision", "a folder has no revisions; it is read as it is")
    values = {"model.path": path, "model.family": family, "model.train": ["denoiser"]}
    draft.put(values, "pretrained_model_name_or_path")


def data(draft: Draft) -> None:
    """Where the pictures lie, and how they are placed."""
    name, folder = draft.text("dataset_name"), draft.text("train_data_dir")
    misread = any(problem.where == "--dataset_name" for problem in draft.problems)
    if not name and not folder and not misread:
        draft.refuse("train_data_dir", "neither it nor --dataset_name is given; the script needs one", code="E1017")
    if name and folder:
        draft.note("train_data_dir", "--dataset_name counts; the data set is read as it is, without this folder")
    values = {"data.format": "metadata", "data.path": [name or folder]}
    draft.put(values, "dataset_name" if name else "train_data_dir")
    draft.lay("dataset_config_name", "cache_dir")
    placed(draft)
    draft.lay("center_crop", "random_flip")


def placed(draft: Draft, cell: int = 8) -> None:
    """Pictures are cut to squares. cell: pixels of which sides are multiples."""
    side = draft.whole("resolution")
    if side < 16 or side % cell:
        near = max(16, round(side / cell) * cell)
        draft.refuse("resolution", f"must be a multiple of {cell}, at least 16, got {side}", f"write {near}", "E1017")
    else:
        draft.put({"data.resolution": side, "data.buckets.step": bucket_step(side)}, "resolution")
    draft.set("data.buckets.shape", "square", "resolution")


def batches(draft: Draft) -> None:
    """Batches of all processes, and the length of the run."""
    draft.lay("train_batch_size")
    # there, several processes fill the last batches by starting over; one process trains a smaller one
    draft.set("data.remainder", "fill" if draft.launched.processes > 1 else "short", "train_batch_size")
    has_steps = draft.values["max_train_steps"] is not None
    draft.lay("max_train_steps" if has_steps else "num_train_epochs")
    if has_steps and draft.says("num_train_epochs"):
        draft.note("num_train_epochs", "--max_train_steps counts")
    for flag in ("gradient_accumulation_steps", "max_train_samples"):
        if flag in draft.rows:
            draft.fits(flag)


def rate(draft: Draft) -> None:
    """The rate and its schedule, in optimizer steps as they are written."""
    rate, kind = draft.number("learning_rate"), draft.text("lr_scheduler")
    if draft.values["scale_lr"]:
        times = draft.whole("gradient_accumulation_steps") * draft.whole("train_batch_size") * draft.launched.processes
        draft.note("scale_lr", f"{rate:g} × {times} = {rate * times:g}")
        rate *= times
    draft.set("optim.lr", rate, "scale_lr" if draft.values["scale_lr"] else "learning_rate")
    warmup = draft.whole("lr_warmup_steps")
    draft.fits("lr_warmup_steps")
    if kind == "constant" and warmup:
        if "lr_warmup_steps" in draft.named:
            draft.note("lr_warmup_steps", "constant has no warm-up there; --lr_scheduler=constant_with_warmup has one")
        warmup = 0
    ours = {"cosine_with_restarts": "restarts", "constant_with_warmup": "constant"}.get(kind, kind)
    if kind == "piecewise_constant":
        what = "piecewise_constant has no rules in this script, there as here"
        draft.refuse("lr_scheduler", what, "take another one")
    draft.set("optim.schedule.kind", ours, "lr_scheduler")
    draft.set("optim.schedule.warmup_steps", max(0, warmup), "lr_warmup_steps")
    if kind == "polynomial" and rate <= POLYNOMIAL_END:
        draft.refuse("learning_rate", f"must be above 1e-07, where polynomial ends, got {rate:g}", code="E1017")
    floor = POLYNOMIAL_END / rate if kind == "polynomial" and rate > 0 else 0.0
    values = {"optim.schedule.cycles": 1, "optim.schedule.power": 1.0, "optim.schedule.floor": floor}
    draft.put(values, "lr_scheduler")


def update(draft: Draft) -> None:
    """Optimizer, clipping, average."""
    draft.lay("use_8bit_adam")
    betas = [draft.number("adam_beta1"), draft.number("adam_beta2")]
    draft.set("optim.optimizer.betas", betas, "adam_beta1", "adam_beta2")
    norm = draft.number("max_grad_norm")
    if norm <= 0:
        draft.refuse("max_grad_norm", f"must be above 0, got {norm:g}: it would make every gradient zero", code="E1017")
    draft.put({"optim.clip.norm": norm, "optim.clip.scope": "all"}, "max_grad_norm")
    if "use_ema" in draft.rows:
        draft.lay("use_ema")


def precision(draft: Draft) -> None:
    """The type of the arithmetic and where it comes from; trained weights are kept in float32."""
    own, handed = draft.text("mixed_precision"), draft.launched.mixed_precision
    word = own or handed or "no"
    if word not in PRECISIONS:
        draft.refuse("mixed_precision", f"the launcher hands over {shown(word)}", "no, fp16 and bf16 are supported")
        return
    values = {"run.precision": PRECISIONS[word], "run.weight_dtype": "fp32"}
    draft.put({**values, "run.frozen_dtype": "fp32" if word == "no" else "same"}, "mixed_precision")
    if handed and not own:
        draft.origin["run.precision"] = f"the launcher ({draft.launched.launcher})"
        draft.note("mixed_precision", f"not given; {PRECISIONS[word]}, as the launcher hands over")
    elif handed and own != handed:
        draft.note("mixed_precision", f"{PRECISIONS[word]}; the launcher hands over {handed}, the flag counts")
    draft.lay("allow_tf32")


def saving(draft: Draft) -> None:
    """Folder, checkpoints, resuming, seed."""
    folder = draft.text("output_dir")
    draft.put({"run.folder": folder, "run.export.folder": folder, "run.name": run_name(folder)}, "output_dir")
    draft.lay("checkpointing_steps")
    draft.fits("checkpoints_total_limit")
    draft.set("run.resume", _resume(draft), "resume_from_checkpoint")
    seed = draft.values["seed"]
    if isinstance(seed, int) and seed < 0:
        draft.refuse("seed", f"must be 0 or more, got {seed}", code="E1017")
    draft.put({"run.seed": seed or 0, "sample.seed": seed or 0}, "seed")
    if seed is None:
        draft.note("seed", "not given; 0 is taken, so that the run can be repeated. Other numbers draw anew")


def _resume(draft: Draft) -> str:
    path = draft.text("resume_from_checkpoint")
    if path in ("", "latest"):
        return "auto" if path else "never"
    last = setting_files.short(path.rstrip("/\\"))
    numbered = re.fullmatch(r"checkpoint-(\d+)", last)
    if numbered is None:
        return path
    # there, too, only the last part of the path counts, looked up in output_dir
    step = f"step-{int(numbered[1]):08d}"
    draft.note("resume_from_checkpoint", f"{last} is checkpoints/{step} of --output_dir")
    return step


def previews(draft: Draft, prompts: list[str], prompt_flag: str, *, steps: int, guidance: float) -> None:
    """What is drawn during the run, when and how. prompts: a picture each. prompt_flag: where they come from."""
    if prompts and draft.fits("validation_epochs"):
        epochs = draft.whole("validation_epochs")
        draft.set("sample.prompts", prompts, prompt_flag)
        draft.set("run.preview.every", f"{epochs} epochs", "validation_epochs")
        theirs = f"; there, of epochs 1, {1 + epochs}, …" if epochs > 1 else ""
        ours = f"at step 0 and at the end of epochs {epochs}, {2 * epochs}, …{theirs}"
        draft.note("validation_epochs", f"previews {ours}. Drawn at --resolution, with the solver of sample.solver")
    else:
        draft.set("run.preview.every", None, prompt_flag)
        if not prompts and "validation_epochs" in draft.named:
            draft.note("validation_epochs", f"without --{prompt_flag} nothing is drawn")
    draft.set(
        "run.preview.weights",
        "ema" if draft.values.get("use_ema") else "raw",
        "use_ema" if "use_ema" in draft.rows else prompt_flag,
    )
    draft.put({"sample.steps": steps, "sample.guidance": guidance}, prompt_flag)


def tracking(draft: Draft, project: str, *flags: str) -> None:
    """Curves. project: the one of wandb. flags: where it comes from."""
    report = draft.text("report_to")
    if report == "comet_ml":
        draft.refuse("report_to", "comet_ml is not supported; tensorboard, wandb and metrics.jsonl are", "take one")
    if report == "all":
        draft.note("report_to", "of all trackers, TensorBoard is written")
    draft.set("run.tensorboard", report != "wandb", "report_to")
    if report == "wandb":
        draft.set("run.wandb.mode", "online", "report_to")
        draft.set("run.wandb.project", project, *(flags or ("report_to",)))


def quirks(draft: Draft) -> None:
    """What both scripts do by accident and this run does not."""
    processes, steps = draft.launched.processes, draft.whole("gradient_accumulation_steps")
    if processes > 1 or steps > 1:
        draft.note("", "the loss shown is that of the whole step, not of one process's last micro-batch")
    if steps > 1:
        draft.note("gradient_accumulation_steps", "a shorter step at an epoch's end counts fully; there, less")
    if processes > 1 and draft.values["seed"] is not None:
        draft.note("seed", "each sample has noise of its own; there, all processes draw the same")
    if draft.values["resume_from_checkpoint"] is not None:
        draft.note("resume_from_checkpoint", "goes on exactly where it stopped; there, the epoch begins anew")
