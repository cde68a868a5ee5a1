"""Options of the data, the noise, the optimizer, the length of a run, and its files."""

from __future__ import annotations

from mezzotint.compat.kit.dialect import ignored, mapped, refused, row, waits

CUT = "noise levels cut to a range"
STRATIFIED = "stratified noise levels"

# fmt: off
DATA = (
    row("dataset_config", str, "data.sets data.path data.format", "a TOML file of data sets, see below"),
)

NOISE = (
    row("timestep_sampling", "sigma", "objective.flow.density objective.flow.shift objective.flow.grid",
        "how noise levels are drawn", choices=(
        "sigma", "uniform", "sigmoid", "shift", "flux_shift", "flux2_shift", "ideogram4_shift", "qwen_shift",
        "krea2_shift", "logsnr", "qinglong_flux", "qinglong_qwen")),
    row("discrete_flow_shift", 1.0, "objective.flow.shift", "with sigma and shift", above=0),
    row("sigmoid_scale", 1.0, "objective.flow.sigmoid_scale", "with sigmoid and the shifts", above=0),
    row("weighting_scheme", "none", "objective.flow.density objective.weighting",
        "sigma_sqrt and cosmap weight the loss; logit_normal and mode are densities, with sigma only",
        choices=("logit_normal", "mode", "cosmap", "sigma_sqrt", "none")),
    row("logit_mean", 0.0, "objective.flow.mean", "with logsnr, and with sigma and logit_normal, where a larger one is "
        "less noise"),
    row("logit_std", 1.0, "objective.flow.std", "with logsnr, and with sigma and logit_normal", above=0),
    row("mode_scale", 1.29, "objective.flow.mode_scale", "with sigma and mode"),
    row("min_timestep", int, "objective.flow.sigmas", "with sigma, or without a shift", least=0, most=999),
    row("max_timestep", int, "objective.flow.sigmas", "with sigma, or without a shift", least=1, most=1000),
    waits("preserve_distribution_shape", False, CUT, "levels outside the range are drawn again"),
    waits("num_timestep_buckets", int, STRATIFIED, "an epoch's levels are spread evenly"),
    refused("show_timesteps", str, "prints noise levels and trains nothing; use mezzotint check"),
)

UPDATE = (
    row("learning_rate", 2e-6, "optim.lr", "of all trained weights", above=0),
    row("optimizer_type", str, "optim.optimizer.kind", "AdamW, AdamW8bit, Adafactor, or a class; see below"),
    row("optimizer_args", list, "optim.optimizer.betas optim.optimizer.weight_decay", "key=value, see below"),
    row("max_grad_norm", 1.0, "optim.clip.norm", "0 clips nothing", least=0),
    row("lr_scheduler", "constant", "optim.schedule.kind", "see below"),
    row("lr_warmup_steps", "0", "optim.schedule.warmup_steps optim.schedule.warmup_ratio",
        "steps; below 1, or like 10%, a share of the run"),
    row("lr_decay_steps", "0", "optim.schedule.cooldown_steps optim.schedule.cooldown_ratio",
        "of warmup_stable_decay: steps of the decay, or a share"),
    row("lr_scheduler_num_cycles", 1, "optim.schedule.cycles", "of cosine_with_restarts", least=1),
    row("lr_scheduler_power", 1.0, "optim.schedule.power", "of polynomial", above=0),
    row("lr_scheduler_min_lr_ratio", float, "optim.schedule.floor",
        "of cosine_with_min_lr and warmup_stable_decay", least=0, most=1),
    row("lr_scheduler_timescale", int, "optim.schedule.timescale_steps", "of inverse_sqrt: steps", least=1),
    refused("lr_scheduler_type", str, "schedules of other packages are not supported; use --lr_scheduler"),
    refused("lr_scheduler_args", list, "arguments of schedules are not supported; set optim.schedule before the --"),
    mapped("gradient_accumulation_steps", 1, "optim.accumulation", "batches of a step, averaged", least=1),
)

RUN = (
    row("output_dir", str, "run.folder run.export.folder", "gets the finished model; the run is in a folder in it"),
    row("output_name", str, "run.name run.folder run.export.name", "`last` if it is not given"),
    row("max_train_steps", 1600, "run.steps", "optimizer steps", least=1),
    row("max_train_epochs", int, "run.epochs", "overrides --max_train_steps", least=1),
    row("seed", int, "run.seed", "a random one if it is not given", least=0),
    row("mixed_precision", str, "run.precision", "the launcher's without it, otherwise fp32",
        choices=("no", "fp16", "bf16")),
    ignored("save_precision", str, "it has no effect in the scripts: adapters are saved in the type of the "
            "transformer, models in that of their weights", choices=("float", "fp32", "fp16", "bf16")),
    row("save_every_n_epochs", int, "run.export.every", "in addition to the end", least=1),
    row("save_every_n_steps", int, "run.export.every", "in addition to the end", least=1),
    waits("save_last_n_epochs", int, "deleting older exports", "models of the last n epochs are kept"),
    waits("save_last_n_steps", int, "deleting older exports", "models of the last n steps are kept"),
    row("save_state", False, "run.save.every", "a checkpoint with each exported model"),
    ignored("save_state_on_train_end", False, "the end of a run always writes a checkpoint"),
    ignored("save_last_n_epochs_state", int, "run.save.keep is the number of checkpoints"),
    ignored("save_last_n_steps_state", int, "run.save.keep is the number of checkpoints"),
    row("resume", str, "run.resume", "a checkpoint or run folder of Mezzotint"),
    mapped("max_data_loader_n_workers", 8, "data.workers", "processes that read the data", least=0),
    ignored("persistent_data_loader_workers", False, "loader processes always stay"),
    row("logging_dir", str, "run.tensorboard", "curves are in the run folder"),
    row("log_with", str, "run.tensorboard run.wandb.mode", "tensorboard if only logging_dir is given",
        choices=("tensorboard", "wandb", "all")),
    row("log_tracker_name", str, "run.wandb.project", "with wandb"),
    ignored("log_prefix", str, "curves are named by their folder"),
    ignored("log_tracker_config", str, "trackers take their settings from the environment"),
    ignored("log_config", False, "the run folder always has every setting, in recipe.yaml"),
    ignored("wandb_run_name", str, "the run is called by --output_name"),
    refused("wandb_api_key", str, "a key on a command line ends up in logs; set WANDB_API_KEY in the environment"),
    row("sample_prompts", str, "sample.prompts sample.size sample.seed sample.steps sample.guidance sample.clip.frames "
        "sample.negative_prompt", "a .txt, .toml or .json file"),
    row("sample_every_n_steps", int, "run.preview.every", "unless --sample_every_n_epochs is given", least=1),
    row("sample_every_n_epochs", int, "run.preview.every", "epochs between samples", least=1),
    row("sample_at_first", False, "run.preview.every", "Mezzotint always samples before the first step, too"),
)
# fmt: on
