"""Options of the noise, the loss, the optimizer, the length of a run, and its files."""

from __future__ import annotations

from mezzotint.compat.kit.dialect import ignored, mapped, refused, row, waits

_OLD = "optim.optimizer.kind"
_LOGGING = "Mezzotint prints and records its own messages"

# fmt: off
NOISE = (
    row("loss_type", "l2", "objective.loss", "huber is pseudo-huber", choices=("l1", "l2", "huber", "smooth_l1")),
    row("huber_c", 0.1, "objective.huber_delta", "of huber and smooth_l1", above=0),
    row("huber_scale", 1.0, "objective.huber_scale", "of huber and smooth_l1; not with the schedule snr", above=0),
    row("huber_schedule", "snr", "objective.huber_schedule", "of huber and smooth_l1; snr is not for SD3 and FLUX.1",
        choices=("constant", "exponential", "snr")),
    row("noise_offset", float, "objective.noise_offset", "noise that is constant over each channel", least=0),
    row("noise_offset_random_strength", False, "objective.noise_offset_random_strength",
        "a random share of noise_offset"),
    row("adaptive_noise_scale", float, "objective.noise_offset_adaptive_scale",
        "more offset for bright and dark images; needs noise_offset"),
    row("multires_noise_iterations", int, "objective.pyramid_discount", "above 0 is on; as many levels as the image "
        "has", least=0),
    row("multires_noise_discount", 0.3, "objective.pyramid_discount", "factor of each level", least=0),
    row("ip_noise_gamma", float, "objective.input_perturbation", "more noise on the input only", least=0),
    row("ip_noise_gamma_random_strength", False, "objective.input_perturbation_random_strength",
        "a random share of ip_noise_gamma"),
    row("min_snr_gamma", float, "objective.min_snr_gamma objective.min_snr_form",
        "min(SNR, γ)/SNR for epsilon, min(SNR, γ)/(SNR + 1) for v; not for SD3 and FLUX.1"),
    row("debiased_estimation_loss", False, "objective.weighting", "1/√SNR for epsilon, 1/(SNR + 1) for v; not for SD3 "
        "and FLUX.1"),
    row("scale_v_pred_loss_like_noise_pred", False, "objective.weighting", "SNR/(SNR + 1) for v"),
    waits("v_pred_like_loss", float, "v-like loss terms", "a second term of the loss"),
    row("zero_terminal_snr", False, "objective.zero_terminal_snr", "the last timestep is pure noise"),
    row("min_timestep", int, "objective.timesteps objective.flow.sigmas", "inclusive", least=0, most=999),
    row("max_timestep", int, "objective.timesteps objective.flow.sigmas", "exclusive", least=1, most=1000),
)

WEIGHTED_CAPTIONS = (waits("weighted_captions", False, "weighted captions", "(words:1.3) in captions"),)
CLASS_IMAGES = (mapped("prior_loss_weight", 1.0, "data.prior.weight", "of the loss of class images", least=0),)

FLOW_NOISE = (
    row("weighting_scheme", "uniform", "objective.flow.density objective.weighting",
        "of SD3; of FLUX.1 only the density, with --timestep_sampling=sigma",
        choices=("sigma_sqrt", "logit_normal", "mode", "cosmap", "none", "uniform")),
    row("logit_mean", 0.0, "objective.flow.mean", "with logit_normal; a larger one is more noise in SD3, less in "
        "FLUX.1"),
    row("logit_std", 1.0, "objective.flow.std", "with logit_normal", above=0),
    row("mode_scale", 1.29, "objective.flow.mode_scale", "with mode"),
)
FLUX_NOISE = (
    row("timestep_sampling", "sigma", "objective.flow.density objective.flow.shift objective.flow.grid",
        "how noise levels are drawn", choices=("sigma", "uniform", "sigmoid", "shift", "flux_shift")),
    row("discrete_flow_shift", 3.0, "objective.flow.shift", "with sigma and shift", above=0),
    row("sigmoid_scale", 1.0, "objective.flow.sigmoid_scale", "with sigmoid, shift and flux_shift", above=0),
    row("model_prediction_type", "sigma_scaled", "objective.flow.preconditioned",
        "raw; the default of the script is read as raw", choices=("raw", "additive", "sigma_scaled")),
)
SD3_NOISE = (row("training_shift", 1.0, "objective.flow.shift", "s of the shift of noise levels", above=0),)

UPDATE = (
    row("learning_rate", 2e-6, "optim.lr", "of all parts that have no rate of their own", least=0),
    row("optimizer_type", str, "optim.optimizer.kind", "AdamW if it is not given; see below"),
    row("optimizer_args", list, "optim.optimizer.betas optim.optimizer.weight_decay", "key=value, see below"),
    row("use_8bit_adam", False, _OLD, "old for --optimizer_type=AdamW8bit"),
    row("use_lion_optimizer", False, _OLD, "old for --optimizer_type=Lion"),
    row("max_grad_norm", 1.0, "optim.clip.norm", "0 clips nothing", least=0),
    row("fused_backward_pass", False, "optim.clip.scope", "gradients are clipped by tensor"),
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
    row("train_batch_size", 1, "data.batch_size", "of each process", least=1, unit="processes"),
    row("seed", int, "run.seed", "a random one if it is not given", least=0),
    row("mixed_precision", "no", "run.precision", "fp32 without it; the launcher's, if it has one",
        choices=("no", "fp16", "bf16")),
    row("save_precision", str, "run.export.dtype", "float32 without it, or that of the trained weights",
        choices=("float", "fp16", "bf16")),
    row("save_model_as", str, "run.export.single_file run.export.adapter",
        "safetensors; ckpt and pt are written as safetensors; diffusers is a folder",
        choices=("ckpt", "pt", "safetensors", "diffusers", "diffusers_safetensors")),
    row("save_every_n_epochs", int, "run.export.every", "in addition to the end", least=1),
    row("save_every_n_steps", int, "run.export.every", "in addition to the end", least=1),
    refused("save_n_epoch_ratio", int, "a number of saves; write the interval, --save_every_n_epochs"),
    waits("save_last_n_epochs", int, "deleting older exports", "models of the last n epochs are kept"),
    waits("save_last_n_steps", int, "deleting older exports", "models of the last n steps are kept"),
    row("save_state", False, "run.save.every", "a checkpoint with each exported model"),
    ignored("save_state_on_train_end", False, "the end of a run always writes a checkpoint"),
    ignored("save_last_n_epochs_state", int, "run.save.keep is the number of checkpoints"),
    ignored("save_last_n_steps_state", int, "run.save.keep is the number of checkpoints"),
    row("resume", str, "run.resume", "a checkpoint or run folder of Mezzotint"),
    mapped("max_data_loader_n_workers", 8, "data.workers", "processes that read images", least=0),
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
    ignored("console_log_level", str, _LOGGING, choices=("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")),
    ignored("console_log_file", str, _LOGGING),
    ignored("console_log_simple", False, _LOGGING),
)
# fmt: on
