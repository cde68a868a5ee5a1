"""EveryDream2's options: a row for each flag, which is a key of train.json as well, for each key of optimizer.json and
of the file of validation. Defaults are the documented ones.
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
    """Where data lies, as train.json may say it: a path, a list of them, or an object that names its reader. Raises
    ValueError."""
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
        'is a path, a list of them, {"resolver": "directory" or "json", "path": …}, or {"resolver": "multi", '
        '"resolvers": […]}'
    )


def _require_alone(raw: dict[str, Any], key: str) -> None:
    """Raises ValueError for an object of other keys than resolver and this one."""
    unknown = sorted(raw.keys() - {"resolver", key})
    if unknown:
        raise ValueError(f"has the unknown key {unknown[0]}; besides resolver, {key} is read")


def _sets(raw: Any) -> Value:
    """Folders by name, each as `NAME=FOLDER`. Raises ValueError."""
    if not isinstance(raw, dict) or not all(isinstance(path, str) and path for path in raw.values()):
        raise ValueError('is an object of names and folders: {"name": "folder"}')
    return tuple(f"{name}={path}" for name, path in raw.items())


def _unless_endless(raw: Any) -> Value:
    """A number; JSON's Infinity is the libraries' own default. Raises ValueError."""
    if isinstance(raw, bool) or not isinstance(raw, (int, float)):
        raise ValueError(f"must be a number, got {raw!r}")
    return None if raw == float("inf") else float(raw)


_REMARKS = tuple(
    ignored(key, str, "remarks; whatever stands there", from_json=lambda raw: None) for key in ("doc", "documentation")
)


# fmt: off
_DATA = (
    row("config", str, "run.live.path", "a train.json: any of these options without dashes, below the line"),
    row("data_root", "input", "data.path data.format",
        "a folder, a manifest (.json), or, in train.json, a list or an object of them", from_json=_sources),
    row("resolution", 512, "data.resolution data.buckets.shape",
        "buckets by that trainer's own table; rounded down to a multiple of 64"),
    mapped("batch_size", 2, "data.batch_size", "pictures of one batch", least=1),
    mapped("flip_p", 0.0, "data.flip", "as documented; there the flag does nothing, and only files and yaml count"),
    mapped("cond_dropout", 0.04, "data.captions.dropout", "the caption is left out"),
    mapped("shuffle_tags", False, "data.captions.shuffle_tags", "drawn at each visit"),
    mapped("keep_tags", 0, "data.captions.keep_tags", "as documented; there it does nothing", least=0),
    row("rated_dataset", False, "data.rating.fraction data.rating.epochs", "falls over max_epochs"),
    row("rated_dataset_target_dropout_percent", 50, "data.rating.fraction", "of the pictures, still used at the end"),
    row("rated_dataset_target_dropout_rate", int, "data.rating.fraction",
        "so in trainSD21.json; rated_dataset_target_dropout_percent is meant",
        now="rated_dataset_target_dropout_percent"),
    row("validation_config", str, "run.validation.every", "a JSON file, see below"),
    row("write_schedule", False, "run.schedule_file run.schedule_place",
        "`epN_batch_schedule.txt` in the run's folder"),
)

_MODEL = (
    row("resume_ckpt", "sd_v1-5_vae.ckpt", "model.path run.resume",
        "a model to begin from: folder, single file, hub id; or a run folder, or findlast, to go on with"),
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
    ignored("train_sampler", "ddpm", "the noising formula is the same for all of them", choices=("ddpm", "pndm", "ddim")),
)

_UPDATE = (
    row("lr", float, "optim.lr", "beats both rates of optimizer.json"),
    row("lr_scheduler", "constant", "optim.schedule.kind", "counts where optimizer.json has none of its own",
        choices=SCHEDULES),
    row("lr_warmup_steps", int, "optim.schedule.warmup_steps optim.schedule.warmup_ratio",
        "batches; 2 % of the decay without it; constant has none"),
    row("lr_decay_steps", 0, "optim.schedule.decay_steps optim.schedule.decay_ratio",
        "batches; 1.5 times the run without it"),
    row("scale_lr", False, "optim.lr_batch_power", "the rate times (batch × accumulation)^0.55, as documented",
        on=SCALING, off=0.0),
    row("optimizer_config", "optimizer.json", "optim.optimizer.kind",
        "see below; where the default is not there, the values that ship"),
    mapped("grad_accum", 1, "optim.accumulation", "batches of a step, averaged", least=1),
    row("clip_grad_norm", float, "optim.clip.norm optim.clip.scope", "each network on its own"),
    row("ema_decay_rate", float, "optim.ema.rule optim.ema.decay", "switches EMA on"),
    row("ema_strength_target", float, "optim.ema.rule optim.ema.strength",
        "switches EMA on, and counts before the rate"),
    row("ema_update_interval", 500, "optim.ema.interval", "optimizer steps"),
    row("ema_device", "cpu", "optim.ema.device", "cuda is beside the weights", choices=("cpu", "cuda"),
        values={"cuda": "same"}),
    row("ema_sample_nonema_model", False, "run.preview.weights", "alone: only the trained weights draw"),
    row("ema_sample_ema_model", False, "run.preview.weights", "the average draws, as it does anyway"),
    row("ema_resume_model", str, "optim.ema.start", "a model, or findlast"),
    row("ema_decay_target", float, "optim.ema.strength", "old for ema_strength_target", now="ema_strength_target"),
    row("ema_decay_interval", int, "optim.ema.interval", "old for ema_update_interval", now="ema_update_interval"),
    row("ema_decay_device", str, "optim.ema.device", "old for ema_device", now="ema_device", choices=("cpu", "cuda")),
    row("ema_decay_resume_model", str, "optim.ema.start", "old for ema_resume_model; the document has it once",
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
    row("seed", 555, "run.seed sample.seed", "-1 draws one; epoch e has the order of seed + e"),
    row("disable_amp", False, "run.precision", "float32; without it fp16 under autocast with a loss scale", on="fp32",
        off="fp16", fixed={"run.weight_dtype": "fp32", "run.frozen_dtype": "same", "run.tf32": True}),
    ignored("amp", True, "disable_amp alone decides"),
    refused("gpuid", 0,
        "a process trains on the first GPU that it sees; leave it out, and put CUDA_VISIBLE_DEVICES=N before the line"),
    row("load_settings_every_epoch", False, "run.live.path run.live.dialect run.live.line",
        "train.json is read at the start of each epoch; the line stays on top"),
    refused("plugins", list, "plugins are Python classes of that trainer, which cannot be run here; leave them out"),
)

_SAVING = (
    row("ckpt_every_n_minutes", int, "run.save.every run.export.every",
        "20 when save_every_n_epochs is absent, too; below 1 is never"),
    row("save_every_n_epochs", int, "run.save.every run.export.every", "at the epoch's end; below 1 is never"),
    row("save_ckpts_from_n_epochs", 0, "run.export.from_epoch", "models saved by epoch wait"),
    row("save_full_precision", False, "run.export.single_file_dtype", "single files in fp32, without it fp16",
        on="fp32", off="fp16"),
    ignored("save_optimizer", False, "a checkpoint always holds the optimizer; exported models never do"),
    row("save_ckpt_dir", str, "run.export.single_file_folder",
        "where single files lie; without it the folder one stands in", values={None: "."}),
    row("no_save_ckpt", False, "run.export.single_file", "no single file", on=False, off=True),
    row("no_prepend_last", False, "run.export.name", "the last model is named like the others", on=NAME,
        off=f"{{last}}{NAME}"),
)

_SHOWING = (
    row("log_step", 25, "run.log_every", "batches; scalars alone", least=1, unit="steps"),
    row("sample_steps", 250, "run.preview.every", "batches", least=1, unit="steps"),
    row("sample_prompts", "sample_prompts.txt", "sample.prompt_file",
        "a .txt or .json; where the default is not there, captions of the data set"),
    ignored("run_name", str, "curves are named by their folder"),
    row("wandb", False, "run.wandb.mode", "TensorBoard's files are written as well"),
)

_IDLE = (
    ignored("notebook", False, "it has no effect there either"),
    ignored("lowvram", False, "it has no effect there either; gradient_checkpointing spares memory"),
    ignored("disable_xformers", False, "it has no effect there either; attn_type decides"),
    ignored("useadam8bit", False, "it has no effect there either; optimizer.json names the optimizer"),
    ignored("ed1_mode", False, "it has no effect there either; the yaml and txt files of a folder are read anyway"),
    ignored("hf_repo_subfolder", str, "it has no effect there either; give the folder of the model"),
)

FLAGS = (*_DATA, *_MODEL, *_NOISE, *_UPDATE, *_RUN, *_SAVING, *_SHOWING, *_IDLE)


def _network(level: str, *, rule: str, schedule: str, rate: str, none: str) -> tuple[Row, ...]:
    """The keys of one network. rule, schedule: a section of ours that ends with a dot, or a mapping from
    parts to sections. none: what null stands for."""

    def key(name: str, kind: type, to: str, about: str, **more: Any) -> Row:
        return row(f"{level}.{name}", kind, to, about, **more)

    def of(place: str, name: str) -> str:
        return f"{place}{name}" if place.endswith(".") else place

    return (
        key("optimizer", str, of(rule, "kind"), f"{', '.join(OPTIMIZERS)}; null: {none}"),
        key("lr", float, rate, f"null: {none}"),
        key("lr_scheduler", str, of(schedule, "kind"), f"counts before --lr_scheduler; null: {none}",
            choices=SCHEDULES),
        key("lr_decay_steps", int, of(schedule, "decay_steps"), "batches"),
        key("lr_warmup_steps", int, of(schedule, "warmup_steps"), "batches"),
        key("betas", tuple, of(rule, "betas"), f"null: {none}"),
        key("epsilon", float, of(rule, "eps"), f"null: {none}"),
        key("weight_decay", float, of(rule, "weight_decay"), f"null: {none}"),
        key("d0", float, of(rule, "options"), "first estimate of D-Adaptation and Prodigy"),
        key("growth_rate", float, of(rule, "options"), "of D-Adaptation and Prodigy", from_json=_unless_endless),
        key("momentum", float, of(rule, "options"), "of dadapt_sgd"),
        key("decouple", bool, of(rule, "options"), "weight decay apart from the gradient"),
        key("safeguard_warmup", bool, of(rule, "options"), "of prodigy; null: true"),
        key("text_encoder_lr_scale", float, "optim.part_lr",
            "the text encoder's rate times this, as documented; there it does nothing"),
        ignored(f"{level}.no_prox", bool, "of dadapt_adan, which cannot be reached there"),
    )


_FREEZING = "text_encoder_freezing"
_OPTIMIZER = (
    *_REMARKS,
    *_network("base", rule="optim.optimizer.", schedule="optim.schedule.", rate="optim.lr", none="as it ships"),
    *_network("text_encoder_overrides", rule="optim.part_optimizer", schedule="optim.part_schedule",
              rate="optim.part_lr", none="as in base"),
    row(f"{_FREEZING}.unfreeze_last_n_layers", int, "model.last_layers", "null: all"),
    row(f"{_FREEZING}.unfreeze_final_n_layers", int, "model.last_layers",
        "so in one document; unfreeze_last_n_layers is meant"),
    row(f"{_FREEZING}.freeze_front_n_layers", int, "model.last_layers model.freeze",
        "old: the first n stay as they are; −n trains the last n"),
    row(f"{_FREEZING}.freeze_embeddings", bool, "model.freeze", "null: when earlier layers are frozen"),
    row(f"{_FREEZING}.freeze_final_layer_norm", bool, "model.freeze", "null: no"),
    row("apply_grad_scaler_step_tweaks", True, "run.scaler.stages",
        "from 500, 1000, 2000 and 4000 batches on the loss scale grows slower"),
    ignored("log_grad_norm", True, "the norm is always logged"),
)

_VALIDATION = (
    *_REMARKS,
    row("val_split_mode", "automatic", "data.holdout.fraction data.holdout.path",
        "automatic takes a share out of the data", choices=("automatic", "manual", "none")),
    row("auto_split_proportion", 0.15, "data.holdout.fraction", "of automatic"),
    row("val_split_proportion", float, "data.holdout.fraction", "old for auto_split_proportion"),
    row("manual_data_root", str, "data.holdout.path", "of manual; logged as val/val"),
    row("val_data_root", str, "data.holdout.path", "old for manual_data_root"),
    row("extra_manual_datasets", list, "data.holdout.path", "further folders by name; logged as val/NAME",
        from_json=_sets),
    row("stabilize_training_loss", False, "run.validation.training_fraction", "trained pictures are measured, too"),
    row("stabilize_split_proportion", 0.15, "run.validation.training_fraction", "how many"),
    row("validate_training", True, "run.validation.every", "false measures nothing"),
    row("every_n_epochs", 1.0, "run.validation.every", "1 at the most often here"),
    ignored("seed", 555, "what is held out is drawn by run.seed, and the noise of a picture is always the same"),
    ignored("batch_size", int, "the loss is the mean over pictures; it does not depend on it"),
    ignored("use_relative_loss", False, "it has no effect there either"),
)
# fmt: on

SHIPPED: dict[str, Value] = {
    "base.optimizer": "adamw8bit", "base.lr": 1e-6, "base.lr_scheduler": "constant", "base.betas": (0.9, 0.999),
    "base.epsilon": 1e-8, "base.weight_decay": 0.01, "text_encoder_overrides.lr": 5e-7,
}  # fmt: skip
"""What counts where there is no optimizer.json: the values of the one that comes with the trainer, but for the text
encoder's schedule. There it is cosine, in the later revision; the document says that a rate is constant unless one asks
for more, and whoever has the file at hand gets what it says."""

OPTIMIZER = FileTable("optimizer_config", "optimizer:", _OPTIMIZER, SHIPPED)
VALIDATION = FileTable("validation_config", "validation:", _VALIDATION)
