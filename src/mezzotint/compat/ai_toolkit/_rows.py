"""The keys of ai-toolkit's job files except those of the model and of data sets, a row for each."""

from __future__ import annotations

from typing import Any

from mezzotint.compat.kit.dialect import Row, ignored, mapped, refused, row, waits

# names of awaited features
WEIGHTS = "other loss weights by SNR"
DENSITY = "other noise levels"
CONTENT = "content and style timesteps"
OPTIMIZERS = "Automagic and 8-bit Prodigy"
PRESERVATION = "output preservation"
GUIDANCE = "guidance in the training loss"
NOISE = "noise and latent multipliers"
LOSSES = "wavelet, feature and other losses"
CONTROL = "other kinds of control images"
ADAPTERS = "reference adapters"
SLIDERS = "concept sliders"
SHORT = "short captions"
OWN = "previews with own settings"
ASSISTANTS = "assistant adapters"
EXCLUSION = "layers left out of adapters"

_UNSHOWN = "it changes no number of the training"
_DTYPES = {"fp32": "fp32", "float32": "fp32", "fp16": "fp16", "float16": "fp16", "bf16": "bf16", "bfloat16": "bf16"}
DTYPES = tuple(_DTYPES)


def note_section(raw: Any) -> str | None:
    """A value for a section whose keys are not read, None without content."""
    return "a section" if raw else None


def count(raw: Any) -> int:
    """The number of objects of a list."""
    if not isinstance(raw, list):
        raise ValueError("must be a list of objects")
    return len(raw)


def of(flag: str, default: Any, owner: str) -> Row:
    """A key that only acts with another one, which is off or refused."""
    return ignored(flag, default, f"it only acts with {owner}")


def _section(name: str, feature: str, about: str) -> Row:
    return waits(name, str, feature, about, from_json=note_section)


def _waiting(feature: str, about: str, **defaults: Any) -> tuple[Row, ...]:
    """Keys of `train` that wait for the same feature, with their defaults."""
    return tuple(waits(f"train.{name}", default, feature, about) for name, default in defaults.items())


# fmt: off
FLAGS = (
    row("config_file", str, "run.folder", "a YAML or JSON file, or its name in config/; written without the option",
        required=True),
    row("name", str, "run.name", "replaces [name] in the file"),
    ignored("recover", False, "it is for several files; Mezzotint reads one"),
    ignored("log", str, "the run folder has run.log"),
)

JOB = (
    row("job", str, "run.folder", "extension; other jobs are refused by name"),
    row("config.name", str, "run.name run.folder", "the name of the run and its files"),
    row("config.process", 0, "run.folder", "a list with one training", from_json=count),
    ignored("meta", str, "metadata of files; those of Mezzotint record the recipe", from_json=note_section),
)

_PROCESS = (
    row("type", str, "run.folder", "sd_trainer, ui_trainer or diffusion_trainer; others are refused by name"),
    row("training_folder", "output", "run.folder", "the run folder is TRAINING_FOLDER/NAME"),
    row("device", "cpu", "run.device", "cuda is the accelerator if there is one"),
    row("training_seed", int, "run.seed", "without it 0"),
    row("trigger_word", str, "data.captions.trigger data.captions.template",
        "put before each caption; replaces [trigger] in prompts"),
    row("datasets", 0, "data.path data.sets", "the data sets", from_json=count),
    ignored("name", str, "the run has the job's name"),
    ignored("log_dir", str, "logs are in the run folder"),
    ignored("performance_log_every", 0, _UNSHOWN),
    ignored("sqlite_db_path", str, "it belongs to the user interface (unverified)"),
    ignored("torch_profiler", False, "run.profile is Mezzotint's"),
    _section("adapter", ADAPTERS, "control, IP and other adapters: its 50 keys"),
    _section("slider", SLIDERS, "its keys"),
    _section("guidance", SLIDERS, "its keys"),
    _section("decorator", "text decorators", "num_tokens"),
    _section("validation", "validation at fixed noise levels of listed images", "its keys"),
    _section("first_sample", OWN, "previews of step 0 with settings of their own"),
    refused("embedding", str, "textual inversion is not translated; train it with model.train=[tokens], see "
            "docs/guides/textual-inversion.md", from_json=note_section),
    waits("do_lorm", False, "LoRM adapters", "extracts an adapter from trained layers"),
    of("lorm_extract_mode", "ratio", "do_lorm"),
    of("lorm_extract_mode_param", 0.25, "do_lorm"),
)

_NETWORK = (
    row("network.type", "lora", "model.adapter.kind", "without a network the whole model is trained",
        choices=("lora", "locon", "lokr", "lorm")),
    row("network.rank", int, "model.adapter.rank", "another name of linear"),
    row("network.linear", int, "model.adapter.rank", "not given: 4", above=0),
    row("network.alpha", 1.0, "model.adapter.alpha", "the default of linear_alpha", above=0),
    row("network.linear_alpha", float, "model.adapter.alpha",
        "of SD, SDXL and LoKr; for LoRA of other families ai-toolkit uses the rank", above=0),
    row("network.conv", int, "model.adapter.targets model.adapter.rank_pattern", "of convolutions; not given: none",
        above=0),
    row("network.conv_alpha", float, "model.adapter.alpha_pattern", "not given: conv", above=0),
    row("network.dropout", float, "model.adapter.dropout", "of an adapter's inputs", least=0),
    row("network.transformer_only", True, "model.adapter.targets", "only the blocks of a transformer"),
    row("network.all_layers", False, "model.adapter.targets", "as transformer_only: false (unverified)"),
    row("network.lokr_full_rank", True, "model.adapter.rank", "the larger matrix of LoKr is not decomposed"),
    row("network.lokr_factor", -1, "model.adapter.factor", "of LoKr"),
    row("network.pretrained_lora_path", str, "model.adapter.path", "an adapter that is trained further"),
    row("network.network_kwargs.only_if_contains", list, "model.adapter.targets",
        "only layers whose name contains one of these texts"),
    waits("network.network_kwargs.ignore_if_contains", list, EXCLUSION, "layers whose name contains one of these"),
    waits("network.old_lokr_format", False, "old LoKr files", "files of early versions"),
    ignored("network.split_multistage_loras", True, "an adapter of two denoisers is written as two files"),
    row("network.layer_offloading", False, "run.offload.blocks", "as model.layer_offloading (unverified)"),
    waits("network.lorm", str, "LoRM adapters", "its keys", from_json=note_section),
)

_SAVE = (
    row("save.save_every", 1000, "run.save.every run.export.every", "steps", above=0),
    row("save.dtype", "float16", "run.export.dtype", "of exported weights", choices=DTYPES, values=_DTYPES),
    mapped("save.max_step_saves_to_keep", 5, "run.save.keep", "checkpoints; exported models are kept", above=0),
    row("save.save_format", "safetensors", "run.export.single_file",
        "of whole models: safetensors is one file, diffusers a folder", choices=("safetensors", "diffusers")),
    ignored("save.push_to_hub", False, "nothing is uploaded; `hf upload` does it"),
    ignored("save.hf_repo_id", str, "nothing is uploaded"),
    ignored("save.hf_private", False, "nothing is uploaded"),
)

_LOGGING = (
    mapped("logging.log_every", 100, "run.log_every", "steps", above=0),
    ignored("logging.verbose", False, _UNSHOWN),
    row("logging.use_wandb", False, "run.wandb.mode", "curves and previews for Weights & Biases"),
    ignored("logging.use_ui_logger", False, "it belongs to the user interface"),
    row("logging.project_name", "ai-toolkit", "run.wandb.project", "of use_wandb"),
    ignored("logging.run_name", str, "the run has its name everywhere"),
)

_SAMPLE = (
    row("sample.sampler", "ddpm", "sample.solver", "flowmatch is euler; others by their usual names"),
    row("sample.sample_every", 100, "run.preview.every", "steps", above=0),
    waits("sample.sample_start_step", 0, "a first step of previews", "the first step with previews"),
    row("sample.width", 512, "sample.size", "pixels, rounded down to multiples of 8", least=64),
    row("sample.height", 512, "sample.size", "pixels, rounded down to multiples of 8", least=64),
    row("sample.neg", "", "sample.negative_prompt", "the negative prompt", from_json=lambda raw: str(raw or "")),
    mapped("sample.seed", 0, "sample.seed", "the noise is that of Mezzotint"),
    ignored("sample.walk_seed", False, "each image has noise of its own, which stays the same in a run"),
    row("sample.guidance_scale", 7.0, "sample.guidance", "classifier-free, or that given to a distilled model",
        least=0),
    mapped("sample.sample_steps", 20, "sample.steps", "of the sampler", above=0),
    waits("sample.network_multiplier", 1.0, OWN, "the strength of the adapter in previews"),
    mapped("sample.guidance_rescale", 0.0, "sample.guidance_rescale", "as in diffusers", least=0, most=1),
    ignored("sample.format", "jpg", "previews are PNG files", choices=("jpg", "png", "webp")),
    of("sample.adapter_conditioning_scale", 1.0, "an adapter"),
    of("sample.refiner_start_at", 0.5, "a refiner"),
    of("sample.extra_values", list, "an adapter"),
    row("sample.num_frames", 1, "sample.clip.frames", "of generated clips", above=0),
    row("sample.fps", 16, "sample.clip.rate", "of generated clips", above=0),
    row("sample.prompts", list, "sample.prompts", "without prompts nothing is sampled"),
    row("sample.samples", 0, "sample.prompts", "prompts, which may have settings of their own", from_json=count),
    waits("sample.do_cfg_norm", False, "guidance with its norm kept", "scales guidance to the norm of the output"),
)

SAMPLES = (
    row("prompt", "", "sample.prompts", "the prompt", may_be_empty=True),
    row("width", int, "sample.size", "one size for all samples", least=64),
    row("height", int, "sample.size", "one size for all samples", least=64),
    row("neg", str, "sample.negative_prompt", "the same for all samples"),
    row("seed", int, "sample.seed", "the same for all samples"),
    row("guidance_scale", float, "sample.guidance", "the same for all samples", least=0),
    row("sample_steps", int, "sample.steps", "the same for all samples", above=0),
    row("fps", int, "sample.clip.rate", "the same for all samples", above=0),
    row("num_frames", int, "sample.clip.frames", "the same for all samples", above=0),
    row("ctrl_img", str, "sample.conditions", "a control image of FLUX.1 Kontext and FLUX.2 Klein; also as "
        "--ctrl_img FILE behind a prompt"),
    row("ctrl_img_1", str, "sample.conditions", "the first control image; not given: ctrl_img"),
    row("ctrl_img_2", str, "sample.conditions", "the second control image"),
    row("ctrl_img_3", str, "sample.conditions", "the third control image"),
    of("ctrl_idx", 0, "a control image"),
    waits("network_multiplier", 1.0, OWN, "the strength of the adapter"),
    waits("do_cfg_norm", False, "guidance with its norm kept", "scales guidance to the norm of the output"),
)

_TRAIN = (
    row("train.noise_scheduler", "ddpm", "objective.timesteps objective.flow.density",
        "flowmatch for flow-matching models, ddpm for SD and SDXL"),
    row("train.timestep_type", "sigmoid", "objective.flow.density objective.flow.shift objective.flow.grid "
        "objective.weighting objective.weight_table", "how σ is drawn, and with weighted also loss weights; of "
        "flowmatch"),
    row("train.content_or_style", "balanced", "objective.timesteps", "only balanced, which prefers no noise level",
        choices=("balanced", "style", "content")),
    row("train.steps", 1000, "run.steps", "updates", above=0),
    row("train.lr", 1e-6, "optim.lr", "below 0.1 Prodigy and D-Adaptation use 1", least=0),
    row("train.unet_lr", float, "optim.lr", "of the denoiser; not given: lr", least=0),
    row("train.text_encoder_lr", float, "optim.part_lr", "of text encoders; not given: lr", least=0),
    refused("train.refiner_lr", float, "SDXL's refiner is not trained together with its base; leave it out"),
    refused("train.embedding_lr", float, "textual inversion is not translated; leave it out"),
    waits("train.adapter_lr", float, ADAPTERS, "the rate of an adapter"),
    row("train.optimizer", "adamw", "optim.optimizer.kind", "by its name; eps is 1e-6 in AdamW and Prodigy"),
    row("train.optimizer_params.weight_decay", float, "optim.optimizer.weight_decay",
        "not given: 0.01 with AdamW, else 0", least=0),
    row("train.optimizer_params.betas", tuple, "optim.optimizer.betas", "not given: those of the optimizer"),
    row("train.optimizer_params.relative_step", False, "optim.optimizer.options", "of Adafactor"),
    row("train.optimizer_params.scale_parameter", False, "optim.optimizer.options", "of Adafactor"),
    row("train.optimizer_params.warmup_init", False, "optim.optimizer.options", "of Adafactor"),
    row("train.optimizer_params.clip_threshold", 1.0, "optim.optimizer.options", "of Adafactor", above=0),
    row("train.optimizer_params.decay_rate", -0.8, "optim.optimizer.options", "of Adafactor"),
    row("train.optimizer_params.d0", 1e-6, "optim.optimizer.d0", "of Prodigy"),
    row("train.optimizer_params.d_coef", 1.0, "optim.optimizer.d_coef", "of Prodigy", above=0),
    row("train.optimizer_params.beta3", float, "optim.optimizer.d_beta", "of Prodigy"),
    row("train.optimizer_params.use_bias_correction", False, "optim.optimizer.bias_correction", "of Prodigy"),
    row("train.optimizer_params.safeguard_warmup", False, "optim.optimizer.safeguard_warmup", "of Prodigy"),
    row("train.optimizer_params.decouple", True, "optim.optimizer.weight_decay",
        "of Prodigy; false only without weight decay"),
    row("train.lr_scheduler", "constant", "optim.schedule.kind", "cosine ends with the run",
        choices=("constant", "constant_with_warmup", "cosine", "cosine_with_restarts", "linear", "step")),
    row("train.lr_scheduler_params.num_warmup_steps", int, "optim.schedule.warmup_steps",
        "of constant_with_warmup; not given: 1000", least=0),
    row("train.lr_scheduler_params.eta_min", 0.0, "optim.schedule.floor", "of cosine: the last rate", least=0),
    row("train.lr_scheduler_params.factor", 1.0, "optim.lr", "of constant: only 1"),
    row("train.lr_scheduler_params.start_factor", 1 / 3, "optim.schedule.warmup_from",
        "of linear, which rises to the rate over the run", least=0, most=1),
    row("train.lr_scheduler_params.end_factor", 1.0, "optim.schedule.floor", "of linear", least=0, most=1),
    row("train.min_denoising_steps", 0, "objective.timesteps objective.flow.sigmas",
        "counted from noise: the first of 1000 levels", least=0, most=999),
    row("train.max_denoising_steps", 999, "objective.timesteps objective.flow.sigmas",
        "counted from noise: the last of 1000 levels", above=0, most=1000),
    row("train.batch_size", 1, "data.batch_size", "of each process", above=0),
    row("train.dtype", "fp32", "run.precision", "of the arithmetic", choices=DTYPES, values=_DTYPES),
    row("train.xformers", False, "model.attention", "that package's attention"),
    ignored("train.sdp", False, "torch's attention is the default"),
    row("train.attention_backend", "native", "model.attention", "native is torch's", choices=("native", "flash")),
    row("train.train_unet", True, "model.train", "the denoiser"),
    row("train.train_text_encoder", False, "model.train", "the text encoders of SD and SDXL"),
    ignored("train.train_refiner", True, "the refiner is not trained together with SDXL's base"),
    row("train.min_snr_gamma", float, "objective.min_snr_gamma", "min(SNR, γ)/SNR; of ddpm", above=0),
    waits("train.snr_gamma", float, WEIGHTS, "γ/SNR"),
    waits("train.learnable_snr_gos", False, WEIGHTS, "learned weights"),
    row("train.linear_timesteps", False, "objective.weighting", "bell, with timestep_type: linear"),
    row("train.linear_timesteps2", False, "objective.weighting", "half-bell, with timestep_type: linear"),
    mapped("train.noise_offset", 0.0, "objective.noise_offset", "constant over each channel", least=0),
    ignored("train.skip_first_sample", False, "previews start at step 0"),
    ignored("train.force_first_sample", False, "previews start at step 0"),
    row("train.disable_sampling", False, "run.preview.every", "no previews"),
    row("train.gradient_checkpointing", True, "run.gradient_checkpointing.enabled", "less memory, more arithmetic"),
    row("train.max_grad_norm", 1.0, "optim.clip.norm", "0 clips nothing, and neither does Adafactor", least=0),
    refused("train.start_step", int, "is set by checkpoints; for weights of another run write run.start.step before "
            "the double dash"),
    row("train.gradient_accumulation", 1, "optim.accumulation", "micro-batches of an update", above=0),
    row("train.gradient_accumulation_steps", 1, "optim.accumulation run.steps",
        "an older name, with which steps count micro-batches (unverified)", above=0),
    mapped("train.single_item_batching", False, "run.micro_batch", "one sample at a time", on=1, off=None,
           optional=True),
    row("train.reg_weight", 1.0, "data.prior.weight", "of regularization images", least=0),
    refused("train.num_train_timesteps", 1000, "schedules have 1000 timesteps; leave it out"),
    row("train.prompt_dropout_prob", 0.0, "data.captions.dropout", "of all data sets", least=0, most=1),
    row("train.loss_type", "mse", "objective.loss", "mse, or mae, which is l1"),
    row("train.ema_config.use_ema", False, "optim.ema.rule", "an average of the weights, which is exported"),
    row("train.ema_config.ema_decay", 0.999, "optim.ema.decay", "of use_ema"),
    waits("train.ema_config.use_feedback", False, "feedback of the average", "moves weights towards the average"),
    waits("train.ema_config.param_multiplier", 1.0, "feedback of the average", "scales the average"),
    row("train.unload_text_encoder", False, "data.captions.template data.captions.dropout",
        "captions are not read: only the trigger word is trained, or the empty caption"),
    row("train.cache_text_embeddings", False, "data.cache.text", "captions are encoded once"),
    row("train.bypass_guidance_embedding", False, "model.flux.guidance",
        "of FLUX.1 not supported yet; of others without effect"),
    waits("train.do_paramiter_swapping", False, "training a changing part of the parameters", "saves memory"),
    of("train.paramiter_swapping_factor", 0.1, "do_paramiter_swapping"),
    ignored("train.switch_boundary_every", 1, "each sample trains the denoiser of its noise level"),
    ignored("train.max_loss_debug", False, _UNSHOWN),
    waits("train.max_loss", float, "a largest loss", "steps above it are left out"),
    of("train.next_sample_timesteps", 8, "timestep_type: next_sample"),
    waits("train.validation_config", str, "validation at fixed noise levels of listed images", "its keys",
          from_json=note_section),
    waits("train.merge_network_on_save", False, "models with their adapter merged on save", "exports whole models"),
    of("train.merge_network_on_save_strength", 1.0, "merge_network_on_save"),
    waits("train.weight_jitter", 0.0, "weight jitter", "noise on trained weights"),
    waits("train.free_u", False, "FreeU", "changes skip connections while sampling"),
    waits("train.train_turbo", False, "turbo training", "trains few-step sampling"),
    of("train.show_turbo_outputs", False, "train_turbo"),
    of("train.audio_loss_multiplier", 1.0, "do_audio"),
    row("train.diff_output_preservation", False, "objective.preserve.kind",
        "output: the trigger word is replaced where it stands as a whole word"),
    row("train.diff_output_preservation_multiplier", 1.0, "objective.preserve.weight", "with diff_output_preservation"),
    row("train.diff_output_preservation_class", "", "data.captions.class_word", "with diff_output_preservation"),
    row("train.blank_prompt_preservation", False, "objective.preserve.kind", "blank"),
    row("train.blank_prompt_preservation_multiplier", 1.0, "objective.preserve.weight",
        "with blank_prompt_preservation"),
    of("train.inverted_mask_prior_multiplier", 0.5, "inverted_mask_prior"),
    of("train.batch_noise_correction_scale", 0.1, "do_batch_noise_correction"),
    of("train.signal_amplification_strength", 0.5, "do_signal_amplification"),
    of("train.signal_correction_noise_scale", 1.0, "do_signal_correction_noise"),
    of("train.max_cfg_scale", float, "do_cfg"),
    of("train.cfg_rescale", float, "do_cfg"),
    of("train.guidance_loss_target", (3.0,), "do_guidance_loss"),
    of("train.do_guidance_loss_cfg_zero", False, "do_guidance_loss"),
    of("train.guidance_loss_schedule", "constant", "do_guidance_loss"),
    of("train.unconditional_prompt", "", "do_guidance_loss"),
    of("train.differential_guidance_scale", 3.0, "do_differential_guidance"),
    of("train.max_negative_prompts", 1, "negative_prompt"),
    of("train.correct_pred_norm_multiplier", 1.0, "correct_pred_norm"),
    of("train.target_norm_std_value", 1.0, "target_norm_std"),
    of("train.latent_feature_loss_weight", 1.0, "latent_feature_extractor_path"),
    of("train.diffusion_feature_extractor_weight", float, "diffusion_feature_extractor_path"),
    of("train.adapter_assist_type", "t2i", "adapter_assist_name_or_path"),
    of("train.match_adapter_chance", 0.0, "match_adapter_assist"),
    *_waiting(NOISE, "changes noise or latents",
              noise_multiplier=1.0, target_noise_multiplier=1.0, random_noise_multiplier=0.0,
              do_signal_correction_noise=False, do_batch_noise_correction=False, do_signal_amplification=False,
              random_noise_shift=0.0, img_multiplier=1.0, noisy_latent_multiplier=1.0, latent_multiplier=1.0,
              adaptive_scaling_factor=False, match_noise_norm=False, dynamic_noise_offset=False,
              optimal_noise_pairing_samples=1, force_consistent_noise=False, blended_blur_noise=False,
              standardize_images=False, standardize_latents=False),
    *_waiting(PRESERVATION, "keeps the output for other prompts",
              inverted_mask_prior=False,
              do_prior_divergence=False, do_blank_stabilization=False),
    *_waiting(GUIDANCE, "of guidance",
              negative_prompt=str, do_cfg=False, do_random_cfg=False, cfg_scale=1.0, do_guidance_loss=False,
              do_differential_guidance=False),
    *_waiting(LOSSES, "of other losses",
              loss_target="noise", t0_loss_target=False, t0_velocity_equiv_weight=False, do_fft_loss=False,
              do_fft_velocity_equiv_weight=False, pred_scaler=1.0, correct_pred_norm=False, target_norm_std=float,
              latent_feature_extractor_path=str, diffusion_feature_extractor_path=str),
    *_waiting(ADAPTERS, "of adapters", adapter_assist_name_or_path=str, match_adapter_assist=False),
    *_waiting(SHORT, "of captions in two lengths", short_and_long_captions=False,
              short_and_long_captions_encoder_split=False, prompt_saturation_chance=0.0),
)
# fmt: on

TRAINING = (*_PROCESS, *_NETWORK, *_SAVE, *_LOGGING, *_SAMPLE, *_TRAIN)
