"""EveryDream2's options: a row for each flag, which is also a key of train.json, and for each key of optimizer.json and
of the validation file. Defaults are the documented ones.
"""

from __future__ import annotations

from typing import Any

from mezzotint.compat.kit.dialect import FileTable, Row, ignored, mapped, refused, row
from mezzotint.compat.kit.reading import Value

SCHEDULES = ("constant", "linear", "cosine", "polynomial")
OPTIMIZERS = (
    "adamw8bit", "adamw", "lion", "lion8bit", "prodigy", "dadapt_adam", "dadapt_lion", "dadapt_sgd", "adacoor",
)  # fmt: skip
NAME = "{name}-ep{epoch:02}-gs{micro_step:05}{ema}"
SCALING = 0.55


def _sources(raw: Any) -> tuple[str, ...]:
    """The data paths in train.json: a path, a list of them, or an object with a resolver. Raises ValueError."""
    if isinstance(raw, str):
        return (raw,)
    if isinstance(raw, list):
        return tuple(path for one in raw for path in _sources(one))
    if isinstance(raw, dict) and raw.get("resolver") in ("directory", "json") and isinstance(raw.get("path"), str):
        _require_alone(raw, "path")
        return (raw["path"],)
    if isinstance(raw, dict) and raw.get("resolver") == "multi" and isinstance(raw.get("resolvers"), list):
        _require_alone(raw, "resolvers")
        return _sources(raw["resolvers"])
    raise ValueError(
        'must be a path, a list of them, {"resolver": "directory" or "json", "path": …}, or {"resolver": "multi", '
        '"resolvers": […]}'
    )


def _require_alone(raw: dict[str, Any], key: str) -> None:
    """Raises ValueError for an object with other keys than resolver and `key`."""
    unknown = sorted(raw.keys() - {"resolver", key})
    if unknown:
        raise ValueError(f"has the unknown key {unknown[0]}; its keys are resolver and {key}")


def _sets(raw: Any) -> Value:
    """Folders by name, each as `NAME=FOLDER`. Raises ValueError."""
    if not isinstance(raw, dict) or not all(isinstance(path, str) and path for path in raw.values()):
        raise ValueError('must be an object of names and folders: {"name": "folder"}')
    return tuple(f"{name}={path}" for name, path in raw.items())


def _unless_endless(raw: Any) -> Value:
    """A number; JSON's Infinity means the library's default. Raises ValueError."""
    if isinstance(raw, bool) or not isinstance(raw, (int, float)):
        raise ValueError(f"must be a number, got {raw!r}")
    return None if raw == float("inf") else float(raw)


_REMARKS = tuple(
    ignored(key, str, "remarks, of any content", from_json=lambda raw: None) for key in ("doc", "documentation")
)


# fmt: off
_DATA = (
    row("config", str, "run.live.path", "a train.json of these options, without dashes; the command line overrides it"),
    row("data_root", "input", "data.path data.sets data.format",
        "a folder, a manifest (.json), or, in train.json, a list or an object of them", from_json=_sources),
    row("resolution", 512, "data.resolution data.buckets.shape",
        "buckets from EveryDream2's table; rounded down to a multiple of 64"),
    mapped("batch_size", 2, "data.batch_size", "images of one batch", least=1),
    mapped("flip_p", 0.0, "data.flip", "as documented; in EveryDream2 the flag has no effect, only files and YAML"),
    mapped("cond_dropout", 0.04, "data.captions.dropout", "the caption is left out"),
    mapped("shuffle_tags", False, "data.captions.shuffle_tags", "drawn at each visit"),
    mapped("keep_tags", 0, "data.captions.keep_tags", "as documented; in EveryDream2 it has no effect", least=0),
    row("rated_dataset", False, "data.rating.fraction data.rating.epochs", "decreases over max_epochs"),
    row("rated_dataset_target_dropout_percent", 50, "data.rating.fraction", "of the images, still used at the end"),
    row("rated_dataset_target_dropout_rate", int, "data.rating.fraction",
        "its name in trainSD21.json; read as rated_dataset_target_dropout_percent",
        now="rated_dataset_target_dropout_percent"),
    row("validation_config", str, "run.validation.every", "a JSON file, see below"),
    row("write_schedule", False, "run.schedule_file run.schedule_place",
        "`epN_batch_schedule.txt` in the run's folder"),
)

_MODEL = (
    row("resume_ckpt", "sd_v1-5_vae.ckpt", "model.path run.resume",
        "a model to start from: folder, single file, hub id; or a run folder, or findlast, to resume"),
    row("clip_skip", 0, "model.clip_skip", "c counts the last layer as 1: max(0, c − 1)"),
    mapped("attn_type", "sdp", "model.attention", "sdp is torch's own", choices=("xformers", "sdp", "slice"),
        values={"sdp": "auto"}),
    row("disable_textenc_training", False, "model.train", "only the denoiser is trained"),
    row("disable_unet_training", False, "model.train", "only the text encoder is trained"),
    mapped("gradient_checkpointing", False, "run.gradient_checkpointing.enabled", "less memory, more arithmetic"),
)

_NOISE = (
    row("loss_type", "mse", "objective.loss objective.huber_delta",
        "mse, as in late 2023; mse_huber is Huber at timestep 0 and MSE at the last; Huber turns at 1",
        choices=("huber", "mse", "mse_huber", "huber_mse"), fixed={"objective.huber_delta": 1.0},
        values={"mse_huber": "mse-huber", "huber_mse": "huber-mse"}),
    row("min_snr_gamma", float, "objective.min_snr_gamma objective.min_snr_form", "min(SNR, γ)/SNR for epsilon and v",
        fixed={"objective.min_snr_form": "ratio"}),
    row("zero_frequency_noise_ratio", 0.02, "objective.noise_offset", "-1 is zero terminal SNR without offset"),
    row("enable_zero_terminal_snr", False, "objective.zero_terminal_snr sample.guidance_rescale",
        "samples then have guidance rescale 0.7"),
    row("pyramid_noise_discount", float, "objective.pyramid_discount", "0 and below is off"),
    mapped("embedding_perturbation", 0.0, "objective.embedding_perturbation", "noise on the text embedding",
        since="later"),
    row("timestep_start", 0, "objective.timesteps", "inclusive", since="later"),
    row("timestep_end", 1000, "objective.timesteps", "exclusive", since="later"),
    ignored("train_sampler", "ddpm", "all of them have the same noising formula", choices=("ddpm", "pndm", "ddim")),
)

_UPDATE = (
    row("lr", float, "optim.lr", "overrides both rates of optimizer.json"),
    row("lr_scheduler", "constant", "optim.schedule.kind", "used if optimizer.json has none",
        choices=SCHEDULES),
    row("lr_warmup_steps", int, "optim.schedule.warmup_steps optim.schedule.warmup_ratio",
        "batches; 2 % of the decay without it; constant has none"),
    row("lr_decay_steps", 0, "optim.schedule.decay_steps optim.schedule.decay_ratio",
        "batches; 1.5 times the run without it"),
    row("scale_lr", False, "optim.lr_batch_power", "the rate times (batch × accumulation)^0.55, as documented",
        on=SCALING, off=0.0),
    row("optimizer_config", "optimizer.json", "optim.optimizer.kind",
        "see below; without the default file, the values that ship with EveryDream2"),
    mapped("grad_accum", 1, "optim.accumulation", "batches of a step, averaged", least=1),
    row("clip_grad_norm", float, "optim.clip.norm optim.clip.scope", "of each network separately"),
    row("ema_decay_rate", float, "optim.ema.rule optim.ema.decay", "switches EMA on"),
    row("ema_strength_target", float, "optim.ema.rule optim.ema.strength",
        "switches EMA on, and overrides the rate"),
    row("ema_update_interval", 500, "optim.ema.interval", "optimizer steps"),
    row("ema_device", "cpu", "optim.ema.device", "cuda keeps it on the device of the weights", choices=("cpu", "cuda"),
        values={"cuda": "same"}),
    row("ema_sample_nonema_model", False, "run.preview.weights",
        "without the next one: only the trained weights generate samples"),
    row("ema_sample_ema_model", False, "run.preview.weights", "samples from the average, which is the default"),
    row("ema_resume_model", str, "optim.ema.start", "a model, or findlast"),
    row("ema_decay_target", float, "optim.ema.strength", "old for ema_strength_target", now="ema_strength_target"),
    row("ema_decay_interval", int, "optim.ema.interval", "old for ema_update_interval", now="ema_update_interval"),
    row("ema_decay_device", str, "optim.ema.device", "old for ema_device", now="ema_device", choices=("cpu", "cuda")),
    row("ema_decay_resume_model", str, "optim.ema.start", "old for ema_resume_model, in one place of the document",
        now="ema_resume_model"),
    row("ema_decay_sample_raw_training", False, "run.preview.weights", "old for ema_sample_nonema_model",
        now="ema_sample_nonema_model"),
    row("ema_decay_sample_ema_model", False, "run.preview.weights", "old for ema_sample_ema_model",
        now="ema_sample_ema_model"),
)

_RUN = (
    row("project_name", "myproj", "run.name run.folder", "names folder and models"),
    row("logdir", "logs", "run.folder", "`LOGDIR/PROJECT-STAMP` is the run folder"),
    mapped("max_epochs", 300, "run.epochs", "the run's length", least=1),
    row("seed", 555, "run.seed sample.seed", "-1 selects a random one; epoch e has the order of seed + e"),
    row("disable_amp", False, "run.precision", "float32; without it fp16 under autocast with a loss scale", on="fp32",
        off="fp16", fixed={"run.weight_dtype": "fp32", "run.frozen_dtype": "same", "run.tf32": True}),
    ignored("amp", True, "only disable_amp has an effect"),
    refused("gpuid", 0,
        "a process trains on the first visible GPU; leave it out, and put CUDA_VISIBLE_DEVICES=N before the command"),
    row("load_settings_every_epoch", False, "run.live.path run.live.dialect run.live.line",
        "train.json is read at the start of each epoch; the command line overrides it"),
    refused("plugins", list, "plugins are Python classes of EveryDream2, which Mezzotint cannot run; leave them out"),
)

_SAVING = (
    row("ckpt_every_n_minutes", int, "run.save.every run.export.every",
        "20 if neither this nor save_every_n_epochs is given; below 1 is never"),
    row("save_every_n_epochs", int, "run.save.every run.export.every", "at the epoch's end; below 1 is never"),
    row("save_ckpts_from_n_epochs", 0, "run.export.from_epoch", "the first epoch that saves a model"),
    row("save_full_precision", False, "run.export.single_file_dtype", "single files in fp32, without it fp16",
        on="fp32", off="fp16"),
    ignored("save_optimizer", False, "a checkpoint always contains the optimizer; exported models never do"),
    row("save_ckpt_dir", str, "run.export.single_file_folder",
        "folder of single files; by default the current folder", values={None: "."}),
    row("no_save_ckpt", False, "run.export.single_file", "no single file", on=False, off=True),
    row("no_prepend_last", False, "run.export.name", "the last model is named like the others", on=NAME,
        off=f"{{last}}{NAME}"),
)

_SHOWING = (
    row("log_step", 25, "run.log_every", "batches; only scalars", least=1, unit="steps"),
    row("sample_steps", 250, "run.preview.every", "batches", least=1, unit="steps"),
    row("sample_prompts", "sample_prompts.txt", "sample.prompt_file",
        "a .txt or .json; without the default file, captions of the data set"),
    ignored("run_name", str, "curves are named by their folder"),
    row("wandb", False, "run.wandb.mode", "TensorBoard's files are written as well"),
)

_IDLE = (
    ignored("notebook", False, "it has no effect in EveryDream2 either"),
    ignored("lowvram", False, "it has no effect in EveryDream2 either; gradient_checkpointing saves memory"),
    ignored("disable_xformers", False, "it has no effect in EveryDream2 either; attn_type decides"),
    ignored("useadam8bit", False, "it has no effect in EveryDream2 either; optimizer.json names the optimizer"),
    ignored("ed1_mode", False, "it has no effect in EveryDream2 either; files of a folder are read anyway"),
    ignored("hf_repo_subfolder", str, "it has no effect in EveryDream2 either; give the folder of the model"),
)

FLAGS = (*_DATA, *_MODEL, *_NOISE, *_UPDATE, *_RUN, *_SAVING, *_SHOWING, *_IDLE)


def _network(level: str, *, rule: str, schedule: str, rate: str, none: str) -> tuple[Row, ...]:
    """The keys of one network. rule, schedule: a settings section, ending with a dot, or a mapping from parts to
    sections. none: the meaning of null."""

    def key(name: str, kind: type, to: str, about: str, **more: Any) -> Row:
        return row(f"{level}.{name}", kind, to, about, **more)

    def join_path(section_path: str, name: str) -> str:
        return f"{section_path}{name}" if section_path.endswith(".") else section_path

    return (
        key("optimizer", str, join_path(rule, "kind"), f"{', '.join(OPTIMIZERS)}; null: {none}"),
        key("lr", float, rate, f"null: {none}"),
        key("lr_scheduler", str, join_path(schedule, "kind"), f"overrides --lr_scheduler; null: {none}",
            choices=SCHEDULES),
        key("lr_decay_steps", int, join_path(schedule, "decay_steps"), "batches"),
        key("lr_warmup_steps", int, join_path(schedule, "warmup_steps"), "batches"),
        key("betas", tuple, join_path(rule, "betas"), f"null: {none}"),
        key("epsilon", float, join_path(rule, "eps"), f"null: {none}"),
        key("weight_decay", float, join_path(rule, "weight_decay"), f"null: {none}"),
        key("d0", float, join_path(rule, "options"), "first estimate of D-Adaptation and Prodigy"),
        key("growth_rate", float, join_path(rule, "options"), "of D-Adaptation and Prodigy", from_json=_unless_endless),
        key("momentum", float, join_path(rule, "options"), "of dadapt_sgd"),
        key("decouple", bool, join_path(rule, "options"), "weight decay apart from the gradient"),
        key("safeguard_warmup", bool, join_path(rule, "options"), "of prodigy; null: true"),
        key("text_encoder_lr_scale", float, "optim.part_lr",
            "the text encoder's rate times this, as documented; in EveryDream2 it has no effect"),
        ignored(f"{level}.no_prox", bool, "of dadapt_adan, which EveryDream2 never reaches"),
    )


_FREEZING = "text_encoder_freezing"
_OPTIMIZER = (
    *_REMARKS,
    *_network("base", rule="optim.optimizer.", schedule="optim.schedule.", rate="optim.lr", none="as shipped"),
    *_network("text_encoder_overrides", rule="optim.part_optimizer", schedule="optim.part_schedule",
              rate="optim.part_lr", none="as in base"),
    row(f"{_FREEZING}.unfreeze_last_n_layers", int, "model.last_layers", "null: all"),
    row(f"{_FREEZING}.unfreeze_final_n_layers", int, "model.last_layers",
        "its name in one document; read as unfreeze_last_n_layers"),
    row(f"{_FREEZING}.freeze_front_n_layers", int, "model.last_layers model.freeze",
        "old: freezes the first n; −n trains the last n"),
    row(f"{_FREEZING}.freeze_embeddings", bool, "model.freeze", "null: when earlier layers are frozen"),
    row(f"{_FREEZING}.freeze_final_layer_norm", bool, "model.freeze", "null: no"),
    row("apply_grad_scaler_step_tweaks", True, "run.scaler.stages",
        "from 500, 1000, 2000 and 4000 batches on, the loss scale grows more slowly"),
    ignored("log_grad_norm", True, "the norm is always logged"),
)

_VALIDATION = (
    *_REMARKS,
    row("val_split_mode", "automatic", "data.holdout.fraction data.holdout.path",
        "automatic holds out a share of the data", choices=("automatic", "manual", "none")),
    row("auto_split_proportion", 0.15, "data.holdout.fraction", "of automatic"),
    row("val_split_proportion", float, "data.holdout.fraction", "old for auto_split_proportion"),
    row("manual_data_root", str, "data.holdout.path", "of manual; logged as val/val"),
    row("val_data_root", str, "data.holdout.path", "old for manual_data_root"),
    row("extra_manual_datasets", list, "data.holdout.path", "further folders by name; logged as val/NAME",
        from_json=_sets),
    row("stabilize_training_loss", False, "run.validation.training_fraction", "trained images are measured, too"),
    row("stabilize_split_proportion", 0.15, "run.validation.training_fraction", "how many"),
    row("validate_training", True, "run.validation.every", "false measures nothing"),
    row("every_n_epochs", 1.0, "run.validation.every", "1 is the minimum in Mezzotint"),
    ignored("seed", 555, "run.seed selects the held-out images, and the noise of an image is always the same"),
    ignored("batch_size", int, "the loss is the mean over images and does not depend on it"),
    ignored("use_relative_loss", False, "it has no effect in EveryDream2 either"),
)
# fmt: on

SHIPPED: dict[str, Value] = {
    "base.optimizer": "adamw8bit", "base.lr": 1e-6, "base.lr_scheduler": "constant", "base.betas": (0.9, 0.999),
    "base.epsilon": 1e-8, "base.weight_decay": 0.01, "text_encoder_overrides.lr": 5e-7,
}  # fmt: skip
"""Values without an optimizer.json: those of the file that ships with EveryDream2, except for the text encoder's
schedule. In the later revision of that file it is cosine, while the document describes a constant rate by default; an
existing file is followed."""

OPTIMIZER = FileTable("optimizer_config", "optimizer:", _OPTIMIZER, SHIPPED)
VALIDATION = FileTable("validation_config", "validation:", _VALIDATION)
