"""EveryDream2's options: a row for each flag, which is a key of train.json as well, for each key of optimizer.json and
of the file of validation. Defaults are the documented ones.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from mezzotint.dialects.base import Row, Table, switch
from mezzotint.dialects.shared.reading import Value

SCHEDULES = ("constant", "linear", "cosine", "polynomial")
OPTIMIZERS = (
    "adamw8bit", "adamw", "lion", "lion8bit", "prodigy", "dadapt_adam", "dadapt_lion", "dadapt_sgd", "adacoor",
)  # fmt: skip
NAME = "{name}-ep{epoch:02}-gs{micro_step:05}{ema}"
SCALING = 0.55


def _idle(flag: str, about: str, form: Any = "text") -> Row:
    return Row(flag, form, False if form == "switch" else None, "without effect", about=about)


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


def _anything(raw: Any) -> Value:
    return None


def _remarks(key: str) -> Row:
    return Row(key, "text", None, "without effect", about="remarks; whatever stands there", from_json=_anything)


# fmt: off
_DATA = (
    Row("config", "text", None, "computed", ("run.live.path",),
        about="a train.json: any of these options without dashes, below the line"),
    Row("data_root", "text", "input", "computed", ("data.path", "data.format"), from_json=_sources,
        about="a folder, a manifest (.json), or, in train.json, a list or an object of them"),
    Row("resolution", "whole", 512, "computed", ("data.resolution", "data.buckets.shape"),
        about="buckets by that trainer's own table; rounded down to a multiple of 64"),
    Row("batch_size", "whole", 2, "mapped", ("data.batch_size",), least=1, about="pictures of one batch"),
    Row("flip_p", "number", 0.0, "mapped", ("data.flip",),
        about="as documented; there the flag does nothing, and only files and yaml count"),
    Row("cond_dropout", "number", 0.04, "mapped", ("data.captions.dropout",), about="the caption is left out"),
    switch("shuffle_tags", "data.captions.shuffle_tags", outcome="mapped", about="drawn at each visit"),
    Row("keep_tags", "whole", 0, "mapped", ("data.captions.keep_tags",), least=0,
        about="as documented; there it does nothing"),
    switch("rated_dataset", "data.rating.share", "data.rating.epochs", about="falls over max_epochs"),
    Row("rated_dataset_target_dropout_percent", "whole", 50, "computed", ("data.rating.share",),
        about="of the pictures, still used at the end"),
    Row("rated_dataset_target_dropout_rate", "whole", None, "computed", ("data.rating.share",),
        now="rated_dataset_target_dropout_percent",
        about="so in trainSD21.json; rated_dataset_target_dropout_percent is meant"),
    Row("validation_config", "text", None, "computed", ("run.validation.every",), about="a JSON file, see below"),
    switch("write_schedule", "run.schedule_file", "run.schedule_place",
            about="`epN_batch_schedule.txt` in the run's folder"),
)

_MODEL = (
    Row("resume_ckpt", "text", "sd_v1-5_vae.ckpt", "computed", ("model.path", "run.resume"),
        about="a model to begin from: folder, single file, hub id; or a run folder, or findlast, to go on with"),
    Row("clip_skip", "whole", 0, "computed", ("model.clip_skip",), about="c counts the last layer as 1: max(0, c − 1)"),
    Row("attn_type", "text", "sdp", "mapped", ("model.attention",), choices=("xformers", "sdp", "slice"),
        values=MappingProxyType({"sdp": "auto"}), about="sdp is torch's own"),
    switch("disable_textenc_training", "model.train", about="only the denoiser is trained"),
    switch("disable_unet_training", "model.train", about="only the text encoder is trained"),
    switch("gradient_checkpointing", "run.recompute.enabled", outcome="mapped", about="less memory, more arithmetic"),
)

_NOISE = (
    Row("loss_type", "text", "mse", "computed", ("objective.loss", "objective.huber_delta"),
        choices=("huber", "mse", "mse_huber", "huber_mse"), fixed={"objective.huber_delta": 1.0},
        values={"mse_huber": "mse-huber", "huber_mse": "huber-mse"},
        about="mse, as in late 2023; mse_huber is Huber at timestep 0 and MSE at the last; Huber turns at 1"),
    Row("min_snr_gamma", "number", None, "computed", ("objective.min_snr_gamma", "objective.min_snr_form"),
        fixed={"objective.min_snr_form": "ratio"},
        about="min(SNR, γ)/SNR for epsilon and v"),
    Row("zero_frequency_noise_ratio", "number", 0.02, "computed", ("objective.noise_offset",),
        about="-1 is zero terminal SNR without offset"),
    switch("enable_zero_terminal_snr", "objective.zero_terminal_snr", "sample.guidance_rescale",
            about="samples then have guidance rescale 0.7"),
    Row("pyramid_noise_discount", "number", None, "computed", ("objective.pyramid_discount",),
        about="0 and below is off"),
    Row("embedding_perturbation", "number", 0.0, "mapped", ("objective.embedding_perturbation",), since="later",
        about="noise on the text embedding"),
    Row("timestep_start", "whole", 0, "computed", ("objective.timesteps",), since="later", about="inclusive"),
    Row("timestep_end", "whole", 1000, "computed", ("objective.timesteps",), since="later", about="exclusive"),
    Row("train_sampler", "text", "ddpm", "without effect", choices=("ddpm", "pndm", "ddim"),
        about="the noising formula is the same for all of them"),
)

_UPDATE = (
    Row("lr", "number", None, "computed", ("optim.lr",), about="beats both rates of optimizer.json"),
    Row("lr_scheduler", "text", "constant", "computed", ("optim.schedule.kind",),
        choices=SCHEDULES, about="counts where optimizer.json has none of its own"),
    Row("lr_warmup_steps", "whole", None, "computed", ("optim.schedule.warmup_steps", "optim.schedule.warmup_share"),
        about="batches; 2 % of the decay without it; constant has none"),
    Row("lr_decay_steps", "whole", 0, "computed", ("optim.schedule.decay_steps", "optim.schedule.decay_of_run"),
        about="batches; 1.5 times the run without it"),
    switch("scale_lr", "optim.lr_batch_power", on=SCALING, off=0.0,
            about="the rate times (batch × accumulation)^0.55, as documented"),
    Row("optimizer_config", "text", "optimizer.json", "computed", ("optim.optimizer.kind",),
        about="see below; where the default is not there, the values that ship"),
    Row("grad_accum", "whole", 1, "mapped", ("optim.accumulation",), least=1, about="batches of a step, averaged"),
    Row("clip_grad_norm", "number", None, "computed", ("optim.clip.norm", "optim.clip.scope"),
        about="each network on its own"),
    Row("ema_decay_rate", "number", None, "computed", ("optim.ema.rule", "optim.ema.decay"), about="switches EMA on"),
    Row("ema_strength_target", "number", None, "computed", ("optim.ema.rule", "optim.ema.strength"),
        about="switches EMA on, and counts before the rate"),
    Row("ema_update_interval", "whole", 500, "computed", ("optim.ema.interval",), about="optimizer steps"),
    Row("ema_device", "text", "cpu", "computed", ("optim.ema.device",), choices=("cpu", "cuda"),
        values={"cuda": "same"}, about="cuda is beside the weights"),
    switch("ema_sample_nonema_model", "run.preview.weights", about="alone: only the trained weights draw"),
    switch("ema_sample_ema_model", "run.preview.weights", about="the average draws, as it does anyway"),
    Row("ema_resume_model", "text", None, "computed", ("optim.ema.start",), about="a model, or findlast"),
    Row("ema_decay_target", "number", None, "computed", ("optim.ema.strength",), now="ema_strength_target",
        about="old for ema_strength_target"),
    Row("ema_decay_interval", "whole", None, "computed", ("optim.ema.interval",), now="ema_update_interval",
        about="old for ema_update_interval"),
    Row("ema_decay_device", "text", None, "computed", ("optim.ema.device",), now="ema_device",
        choices=("cpu", "cuda"), about="old for ema_device"),
    Row("ema_decay_resume_model", "text", None, "computed", ("optim.ema.start",), now="ema_resume_model",
        about="old for ema_resume_model; the document has it once"),
    switch("ema_decay_sample_raw_training", "run.preview.weights", now="ema_sample_nonema_model",
            about="old for ema_sample_nonema_model"),
    switch("ema_decay_sample_ema_model", "run.preview.weights", now="ema_sample_ema_model",
            about="old for ema_sample_ema_model"),
)

_RUN = (
    Row("project_name", "text", "myproj", "computed", ("run.name", "run.folder"), about="names folder and models"),
    Row("logdir", "text", "logs", "computed", ("run.folder",), about="`LOGDIR/PROJECT-STAMP` is the run folder"),
    Row("max_epochs", "whole", 300, "mapped", ("run.epochs",), least=1, about="the run's length"),
    Row("seed", "whole", 555, "computed", ("run.seed", "sample.seed"),
        about="-1 draws one; epoch e has the order of seed + e"),
    switch("disable_amp", "run.precision", on="fp32", off="fp16",
           fixed={"run.weight_dtype": "fp32", "run.frozen_dtype": "same", "run.tf32": True},
           about="float32; without it fp16 under autocast with a loss scale"),
    switch("amp", outcome="without effect", default=True, about="disable_amp alone decides"),
    Row("gpuid", "whole", 0, "refused",
        about="a process trains on the first GPU that it sees; leave it out, and put CUDA_VISIBLE_DEVICES=N before the "
        "line"),
    switch("load_settings_every_epoch", "run.live.path", "run.live.dialect", "run.live.line",
            about="train.json is read at the start of each epoch; the line stays on top"),
    Row("plugins", "texts", None, "refused",
        about="plugins are Python classes of that trainer, which cannot be run here; leave them out"),
)

_SAVING = (
    Row("ckpt_every_n_minutes", "whole", None, "computed", ("run.save.every", "run.export.every"),
        about="20 when save_every_n_epochs is absent, too; below 1 is never"),
    Row("save_every_n_epochs", "whole", None, "computed", ("run.save.every", "run.export.every"),
        about="at the epoch's end; below 1 is never"),
    Row("save_ckpts_from_n_epochs", "whole", 0, "computed", ("run.export.from_epoch",),
        about="models saved by epoch wait"),
    switch("save_full_precision", "run.export.single_file_dtype", on="fp32", off="fp16",
            about="single files in fp32, without it fp16"),
    switch("save_optimizer", outcome="without effect",
            about="a checkpoint always holds the optimizer; exported models never do"),
    Row("save_ckpt_dir", "text", None, "computed", ("run.export.single_file_folder",), values={None: "."},
        about="where single files lie; without it the folder one stands in"),
    switch("no_save_ckpt", "run.export.single_file", on=False, off=True, about="no single file"),
    switch("no_prepend_last", "run.export.name", on=NAME, off=f"{{last}}{NAME}",
            about="the last model is named like the others"),
)

_SHOWING = (
    Row("log_step", "whole", 25, "computed", ("run.log_every",), least=1, unit="steps",
        about="batches; scalars alone"),
    Row("sample_steps", "whole", 250, "computed", ("run.preview.every",), least=1, unit="steps", about="batches"),
    Row("sample_prompts", "text", "sample_prompts.txt", "computed", ("sample.file",),
        about="a .txt or .json; where the default is not there, captions of the data set"),
    Row("run_name", "text", None, "without effect", about="curves are named by their folder"),
    switch("wandb", "run.wandb.mode", outcome="computed", about="TensorBoard's files are written as well"),
)

_IDLE = (
    _idle("notebook", "it has no effect there either", "switch"),
    _idle("lowvram", "it has no effect there either; gradient_checkpointing spares memory", "switch"),
    _idle("disable_xformers", "it has no effect there either; attn_type decides", "switch"),
    _idle("useadam8bit", "it has no effect there either; optimizer.json names the optimizer", "switch"),
    _idle("ed1_mode", "it has no effect there either; the yaml and txt files of a folder are read anyway", "switch"),
    _idle("hf_repo_subfolder", "it has no effect there either; give the folder of the model"),
)

FLAGS = (*_DATA, *_MODEL, *_NOISE, *_UPDATE, *_RUN, *_SAVING, *_SHOWING, *_IDLE)


def _network(level: str, *, rule: str, schedule: str, rate: str, none: str) -> tuple[Row, ...]:
    """The keys of one network. rule, schedule: a section of ours that ends with a dot, or a mapping from
    parts to sections. none: what null stands for."""

    def row(name: str, form: Any, to: str, about: str, **more: Any) -> Row:
        return Row(f"{level}.{name}", form, None, "computed", (to,), about, **more)

    def of(place: str, name: str) -> str:
        return f"{place}{name}" if place.endswith(".") else place

    return (
        row("optimizer", "text", of(rule, "kind"), f"{', '.join(OPTIMIZERS)}; null: {none}"),
        row("lr", "number", rate, f"null: {none}"),
        row("lr_scheduler", "text", of(schedule, "kind"), f"counts before --lr_scheduler; null: {none}",
            choices=SCHEDULES),
        row("lr_decay_steps", "whole", of(schedule, "decay_steps"), "batches"),
        row("lr_warmup_steps", "whole", of(schedule, "warmup_steps"), "batches"),
        row("betas", "numbers", of(rule, "betas"), f"null: {none}"),
        row("epsilon", "number", of(rule, "eps"), f"null: {none}"),
        row("weight_decay", "number", of(rule, "weight_decay"), f"null: {none}"),
        row("d0", "number", of(rule, "options"), "first estimate of D-Adaptation and Prodigy"),
        row("growth_rate", "number", of(rule, "options"), "of D-Adaptation and Prodigy", from_json=_unless_endless),
        row("momentum", "number", of(rule, "options"), "of dadapt_sgd"),
        row("decouple", "switch", of(rule, "options"), "weight decay apart from the gradient"),
        row("safeguard_warmup", "switch", of(rule, "options"), "of prodigy; null: true"),
        row("text_encoder_lr_scale", "number", "optim.part_lr",
            "the text encoder's rate times this, as documented; there it does nothing"),
        Row(f"{level}.no_prox", "switch", None, "without effect",
            about="of dadapt_adan, which cannot be reached there"),
    )


_FREEZING = "text_encoder_freezing"
_OPTIMIZER = (
    _remarks("doc"),
    _remarks("documentation"),
    *_network("base", rule="optim.optimizer.", schedule="optim.schedule.", rate="optim.lr", none="as it ships"),
    *_network("text_encoder_overrides", rule="optim.part_optimizer", schedule="optim.part_schedule",
              rate="optim.part_lr", none="as in base"),
    Row(f"{_FREEZING}.unfreeze_last_n_layers", "whole", None, "computed", ("model.last_layers",), about="null: all"),
    Row(f"{_FREEZING}.unfreeze_final_n_layers", "whole", None, "computed", ("model.last_layers",),
        about="so in one document; unfreeze_last_n_layers is meant"),
    Row(f"{_FREEZING}.freeze_front_n_layers", "whole", None, "computed", ("model.last_layers", "model.freeze"),
        about="old: the first n stay as they are; −n trains the last n"),
    Row(f"{_FREEZING}.freeze_embeddings", "switch", None, "computed", ("model.freeze",),
        about="null: when earlier layers are frozen"),
    Row(f"{_FREEZING}.freeze_final_layer_norm", "switch", None, "computed", ("model.freeze",), about="null: no"),
    Row("apply_grad_scaler_step_tweaks", "switch", True, "computed", ("run.scaler.stages",),
        about="from 500, 1000, 2000 and 4000 batches on the loss scale grows slower"),
    Row("log_grad_norm", "switch", True, "without effect", about="the norm is always logged"),
)

_VALIDATION = (
    _remarks("doc"),
    _remarks("documentation"),
    Row("val_split_mode", "text", "automatic", "computed", ("data.holdout.share", "data.holdout.path"),
        choices=("automatic", "manual", "none"), about="automatic takes a share out of the data"),
    Row("auto_split_proportion", "number", 0.15, "computed", ("data.holdout.share",), about="of automatic"),
    Row("val_split_proportion", "number", None, "computed", ("data.holdout.share",),
        about="old for auto_split_proportion"),
    Row("manual_data_root", "text", None, "computed", ("data.holdout.path",), about="of manual; logged as val/val"),
    Row("val_data_root", "text", None, "computed", ("data.holdout.path",), about="old for manual_data_root"),
    Row("extra_manual_datasets", "texts", None, "computed", ("data.holdout.path",), from_json=_sets,
        about="further folders by name; logged as val/NAME"),
    switch("stabilize_training_loss", "run.validation.training_share", about="trained pictures are measured, too"),
    Row("stabilize_split_proportion", "number", 0.15, "computed", ("run.validation.training_share",), about="how many"),
    switch("validate_training", "run.validation.every", default=True, about="false measures nothing"),
    Row("every_n_epochs", "number", 1.0, "computed", ("run.validation.every",), about="1 at the most often here"),
    Row("seed", "whole", 555, "without effect",
        about="what is held out is drawn by run.seed, and the noise of a picture is always the same"),
    Row("batch_size", "whole", None, "without effect",
        about="the loss is the mean over pictures; it does not depend on it"),
    switch("use_relative_loss", outcome="without effect", about="it has no effect there either"),
)
# fmt: on

SHIPPED: MappingProxyType[str, Value] = MappingProxyType(
    {
        "base.optimizer": "adamw8bit",
        "base.lr": 1e-6,
        "base.lr_scheduler": "constant",
        "base.betas": (0.9, 0.999),
        "base.epsilon": 1e-8,
        "base.weight_decay": 0.01,
        "text_encoder_overrides.lr": 5e-7,
    }
)
"""What counts where there is no optimizer.json: the values of the one that comes with the trainer, but for the text
encoder's schedule. There it is cosine, in the later revision; the document says that a rate is constant unless one asks
for more, and whoever has the file at hand gets what it says."""

OPTIMIZER = Table("optimizer_config", "optimizer:", _OPTIMIZER, SHIPPED)
VALIDATION = Table("validation_config", "validation:", _VALIDATION)
