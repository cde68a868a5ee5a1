"""Every key of a job file: those that act, each with what it changes; those without effect, refused, or waiting."""

from __future__ import annotations

from typing import Any

import pytest
from foreign_lines import GONE
from jobs import FLUX, changed, job, notes, problems

from mezzotint.compat.ai_toolkit._model_rows import DATASETS, MODEL
from mezzotint.compat.ai_toolkit._rows import SAMPLES, TRAINING
from mezzotint.compat.kit.dialect import Row

Case = tuple[dict[str, Any], dict[str, Any]]

WAN = {"model.arch": "wan22_14b", "train.noise_scheduler": "flowmatch", "sample.sampler": "flowmatch"}
LOKR = {"network.type": "lokr", "network.lokr_full_rank": False}
PRODIGY = {"train.optimizer": "prodigy"}
FACTOR = {"train.optimizer": "adafactor"}
FULL = {"network": GONE}
BESIDE: dict[str, dict[str, Any]] = {
    "network.rank": {"network.linear": GONE},
    "network.alpha": {"network.linear_alpha": GONE},
    "network.conv_alpha": {"network.conv": 4},
    "network.lokr_full_rank": LOKR,
    "network.lokr_factor": LOKR,
    "network.transformer_only": {},
    "network.all_layers": {},
    "save.save_format": FULL,
    "logging.project_name": {"logging.use_wandb": True},
    "sample.num_frames": WAN,
    "sample.fps": WAN,
    "sample.samples": {"sample.prompts": GONE},
    "train.timestep_type": FLUX,
    "train.text_encoder_lr": {"train.train_text_encoder": True},
    **dict.fromkeys(
        (f"train.optimizer_params.{key}" for key in ("d0", "d_coef", "beta3", "use_bias_correction",
                                                      "safeguard_warmup", "decouple")), PRODIGY),
    **dict.fromkeys(
        (f"train.optimizer_params.{key}" for key in ("relative_step", "scale_parameter", "warmup_init",
                                                      "clip_threshold", "decay_rate")), FACTOR),
    "train.lr_scheduler_params.num_warmup_steps": {"train.lr_scheduler": "constant_with_warmup"},
    "train.lr_scheduler_params.eta_min": {"train.lr_scheduler": "cosine"},
    "train.lr_scheduler_params.start_factor": {"train.lr_scheduler": "linear"},
    "train.lr_scheduler_params.end_factor": {"train.lr_scheduler": "linear",
                                             "train.lr_scheduler_params.start_factor": 1.0},
    "train.reg_weight": {"datasets.1.folder_path": "kind", "datasets.1.is_reg": True},
    "train.ema_config.ema_decay": {"train.ema_config.use_ema": True},
    "model.use_text_encoder_1": {"model.is_xl": True, "train.train_text_encoder": True},
    "model.use_text_encoder_2": {"model.is_xl": True, "train.train_text_encoder": True},
    "model.quantize_te": FULL | {"train.dtype": "bf16"},
    "model.qtype": {"model.quantize": True},
    "model.qtype_te": FULL | {"model.quantize_te": True},
    "model.only_if_contains": FULL,
    "model.layer_offloading_transformer_percent": {"model.layer_offloading": True},
    "model.model_kwargs.train_high_noise": WAN,
    "model.model_kwargs.train_low_noise": WAN,
    "datasets.keep_tokens": {"datasets.0.shuffle_tokens": True, "datasets.0.keep_tokens": 1},
    "datasets.mask_min_value": {"datasets.0.alpha_mask": True},
    "datasets.num_frames": WAN | {"datasets.0.shrink_video_to_frames": False},
    "datasets.fps": WAN | {"datasets.0.shrink_video_to_frames": False, "datasets.0.num_frames": 17},
    "datasets.do_i2v": {**WAN, "model.arch": "wan22_5b", "datasets.0.num_frames": 17,
                        "datasets.0.shrink_video_to_frames": False},
    **dict.fromkeys(("samples.fps", "samples.num_frames"), WAN | {"sample.prompts": GONE,
                                                                  "sample.samples.0.prompt": "a"}),
    **{f"samples.{row.flag}": {"sample.prompts": GONE, "sample.samples.0.prompt": "a"} for row in SAMPLES
       if row.flag not in ("fps", "num_frames", "prompt")},
}  # fmt: skip
"""What else the file has, both times."""

_TARGETS = "model.adapter.targets"
_UNET = [
    "denoiser/all-linear", "denoiser/*.proj_in", "denoiser/*.proj_out", "denoiser/*.conv_shortcut",
    "denoiser/time_embedding.*",
]  # fmt: skip
_SDXL = [*_UNET, "denoiser/add_embedding.*"]
ACTS: dict[str, tuple[Any, dict[str, Any]]] = {
    "training_folder": ("out/", {"run.folder": "out/fox", "run.export.folder": "out/fox"}),
    "device": ("cpu", {"run.device": "cpu"}),
    "training_seed": (7, {"run.seed": 7}),
    "trigger_word": ("p3r", {"data.captions.trigger": "p3r", "data.captions.template": "{trigger} {caption}"}),
    "network.type": ("lokr", {"model.adapter.kind": "lokr", "model.adapter.rank": 100_000, "model.adapter.factor": -1,
                              "model.adapter.alpha": GONE}),
    "network.rank": (8, {"model.adapter.rank": 8}),
    "network.linear": (8, {"model.adapter.rank": 8}),
    "network.alpha": (2, {"model.adapter.alpha": 2.0}),
    "network.linear_alpha": (2, {"model.adapter.alpha": 2.0}),
    "network.conv": (4, {_TARGETS: ["denoiser/*"],
                         "model.adapter.rank_pattern.denoiser/*conv*": 4,
                         "model.adapter.rank_pattern.denoiser/*conv_shortcut": 16,
                         "model.adapter.alpha_pattern.denoiser/*conv*": 4.0,
                         "model.adapter.alpha_pattern.denoiser/*conv_shortcut": 8.0}),
    "network.conv_alpha": (1, {"model.adapter.alpha_pattern.denoiser/*conv*": 1.0}),
    "network.dropout": (0.1, {"model.adapter.dropout": 0.1}),
    "network.transformer_only": (False, {}),
    "network.all_layers": (True, {}),
    "network.lokr_full_rank": (True, {"model.adapter.rank": 100_000, "model.adapter.alpha": GONE}),
    "network.lokr_factor": (8, {"model.adapter.factor": 8}),
    "network.pretrained_lora_path": ("a.safetensors", {
        "model.adapter.path": "a.safetensors", "model.adapter.kind": GONE, "model.adapter.rank": GONE,
        "model.adapter.alpha": GONE, _TARGETS: GONE}),
    "network.network_kwargs.only_if_contains": (["unet.down_blocks.1"], {_TARGETS: ["denoiser/*down_blocks.1*"]}),
    "network.layer_offloading": (True, {"run.offload.blocks": "auto"}),
    "save.save_every": (50, {"run.save.every": "50 steps", "run.export.every": "50 steps"}),
    "save.dtype": ("bf16", {"run.export.dtype": "bf16"}),
    "save.max_step_saves_to_keep": (2, {"run.save.keep": 2}),
    "save.save_format": ("diffusers", {"run.export.single_file": False}),
    "logging.log_every": (5, {"run.log_every": 5}),
    "logging.use_wandb": (True, {"run.wandb.mode": "online", "run.wandb.project": "ai-toolkit"}),
    "logging.project_name": ("foxes", {"run.wandb.project": "foxes"}),
    "sample.sampler": ("euler_a", {"sample.solver": "euler-a"}),
    "sample.sample_every": (50, {"run.preview.every": "50 steps"}),
    "sample.width": (770, {"sample.size": [768, 512]}),
    "sample.height": (1024, {"sample.size": [512, 1024]}),
    "sample.neg": ("blurry", {"sample.negative_prompt": "blurry"}),
    "sample.seed": (42, {"sample.seed": 42}),
    "sample.guidance_scale": (4, {"sample.guidance": 4.0}),
    "sample.sample_steps": (30, {"sample.steps": 30}),
    "sample.guidance_rescale": (0.7, {"sample.guidance_rescale": 0.7}),
    "sample.num_frames": (17, {"sample.clip.frames": 17}),
    "sample.fps": (24, {"sample.clip.rate": 24.0}),
    "sample.prompts": ([], {"run.preview.every": None, "sample.prompts": GONE, "sample.negative_prompt": GONE,
                            "sample.guidance": GONE, "sample.size": GONE, "sample.solver": GONE}),
    "sample.samples": ([{"prompt": "a"}], {"run.preview.every": "100 steps", "sample.prompts": ["a"],
                       "sample.negative_prompt": "", "sample.guidance": 7.0, "sample.size": [512, 512],
                       "sample.solver": "ddpm"}),
    "train.timestep_type": ("linear", {"objective.flow.density": "uniform", "objective.flow.grid": "table"}),
    "train.steps": (300, {"run.steps": 300}),
    "train.lr": (1e-4, {"optim.lr": 1e-4}),
    "train.unet_lr": (1e-4, {"optim.lr": 1e-4}),
    "train.text_encoder_lr": (5e-6, {"optim.part_lr.text_encoder": 5e-6}),
    "train.optimizer": ("adamw8bit", {"optim.optimizer.kind": "adamw-8bit-or-adamw"}),
    "train.optimizer_params.weight_decay": (0.1, {"optim.optimizer.weight_decay": 0.1}),
    "train.optimizer_params.betas": ([0.9, 0.99], {"optim.optimizer.betas": [0.9, 0.99]}),
    "train.optimizer_params.relative_step": (True, {"optim.optimizer.options.relative_step": True}),
    "train.optimizer_params.scale_parameter": (True, {"optim.optimizer.options.scale_parameter": True}),
    "train.optimizer_params.warmup_init": (True, {"optim.optimizer.options.warmup_init": True}),
    "train.optimizer_params.clip_threshold": (2.0, {"optim.optimizer.options.clip_threshold": 2.0}),
    "train.optimizer_params.decay_rate": (-0.5, {"optim.optimizer.options.decay_rate": -0.5}),
    "train.optimizer_params.d0": (1e-5, {"optim.optimizer.d0": 1e-5}),
    "train.optimizer_params.d_coef": (2, {"optim.optimizer.d_coef": 2.0}),
    "train.optimizer_params.beta3": (0.9, {"optim.optimizer.d_beta": 0.9}),
    "train.optimizer_params.use_bias_correction": (True, {"optim.optimizer.bias_correction": True}),
    "train.optimizer_params.safeguard_warmup": (True, {"optim.optimizer.safeguard_warmup": True}),
    "train.optimizer_params.decouple": (False, {}),
    "train.lr_scheduler": ("cosine", {"optim.schedule.kind": "cosine", "optim.schedule.floor": 0.0}),
    "train.lr_scheduler_params.num_warmup_steps": (50, {"optim.schedule.warmup_steps": 50}),
    "train.lr_scheduler_params.eta_min": (1e-7, {"optim.schedule.floor": pytest.approx(0.1)}),
    "train.lr_scheduler_params.start_factor": (0.5, {"optim.schedule.warmup_from": 0.5}),
    "train.lr_scheduler_params.end_factor": (0.1, {
        "optim.schedule.kind": "linear", "optim.schedule.floor": 0.1, "optim.schedule.warmup_steps": GONE,
        "optim.schedule.warmup_from": GONE}),
    "train.min_denoising_steps": (100, {"objective.timesteps": [2, 899]}),
    "train.max_denoising_steps": (500, {"objective.timesteps": [501, 999]}),
    "train.batch_size": (4, {"data.batch_size": 4}),
    "train.dtype": ("bf16", {"run.precision": "bf16"}),
    "train.xformers": (True, {"model.attention": "xformers"}),
    "train.attention_backend": ("flash", {"model.attention": "flash"}),
    "train.train_text_encoder": (True, {
        "model.train": ["denoiser", "text_encoder"],
        _TARGETS: [*_UNET, "text_encoder/attention+mlp"]}),
    "train.min_snr_gamma": (5, {"objective.min_snr_gamma": 5.0, "objective.min_snr_form": "ratio"}),
    "train.noise_offset": (0.05, {"objective.noise_offset": 0.05}),
    "train.disable_sampling": (True, {"run.preview.every": None, "sample.prompts": GONE,
        "sample.negative_prompt": GONE, "sample.guidance": GONE, "sample.size": GONE, "sample.solver": GONE}),
    "train.gradient_checkpointing": (False, {"run.gradient_checkpointing.enabled": False}),
    "train.max_grad_norm": (0, {"optim.clip.norm": None}),
    "train.gradient_accumulation": (4, {"optim.accumulation": 4}),
    "train.gradient_accumulation_steps": (3, {
        "optim.accumulation": 3, "run.steps": 334, "run.save.every": "334 steps", "run.export.every": "334 steps",
        "run.preview.every": "34 steps"}),
    "train.single_item_batching": (True, {"run.micro_batch": 1}),
    "train.reg_weight": (0.5, {"data.prior.weight": 0.5}),
    "train.prompt_dropout_prob": (0.1, {"data.captions.dropout": pytest.approx(0.1)}),
    "train.loss_type": ("mae", {"objective.loss": "l1"}),
    "train.ema_config.use_ema": (True, {"optim.ema.rule": "constant", "optim.ema.decay": 0.999,
                                        "run.preview.weights": "ema"}),
    "train.ema_config.ema_decay": (0.99, {"optim.ema.decay": 0.99}),
    "train.unload_text_encoder": (True, {"data.captions.dropout": 1.0}),
    "train.cache_text_embeddings": (True, {"data.cache.text": True}),
    "model.name_or_path": ("sd21", {"model.path": "sd21"}),
    "model.is_v2": (True, {}),
    "model.is_v_pred": (True, {"model.prediction": "v"}),
    "model.vae_path": ("vae", {"model.vae": "vae"}),
    "model.use_text_encoder_1": (False, {"model.train": ["denoiser", "text_encoder_2"],
                                   _TARGETS: [*_SDXL, "text_encoder_2/attention+mlp"]}),
    "model.use_text_encoder_2": (False, {"model.train": ["denoiser", "text_encoder"],
                                   _TARGETS: [*_SDXL, "text_encoder/attention+mlp"]}),
    "model.vae_dtype": ("float32", {"run.vae_dtype": "fp32"}),
    "model.quantize": (True, {"run.frozen_dtype": "int8"}),
    "model.quantize_te": (True, {"run.frozen_dtype": "int8"}),
    "model.qtype": ("uint4", {"run.frozen_dtype": "nf4"}),
    "model.qtype_te": ("qint4", {"run.frozen_dtype": "nf4"}),
    "model.only_if_contains": (["up_blocks"], {"model.freeze": ["denoiser/*", "!denoiser/*up_blocks*"]}),
    "model.auto_memory": (True, {"run.offload.blocks": "auto"}),
    "model.layer_offloading": (True, {"run.offload.blocks": "auto"}),
    "model.layer_offloading_transformer_percent": (0, {"run.offload.blocks": GONE}),
    "model.compile": (True, {"run.compile": True}),
    "model.block_compile": (True, {"run.compile": True}),
    "model.model_kwargs.train_high_noise": (False, {"model.train": ["denoiser_2"],
                                                    _TARGETS: ["denoiser_2/all-linear"]}),
    "model.model_kwargs.train_low_noise": (False, {"model.train": ["denoiser"], _TARGETS: ["denoiser/all-linear"]}),
    "datasets.folder_path": ("foxes", {"data.path": "foxes"}),
    "datasets.batch_size": (2, {"data.batch_size": 2}),
    "datasets.resolution": ([512, 768], {"data.resolution": [512, 768], "data.resolution_mode": "each"}),
    "datasets.num_repeats": (3, {"data.repeats": 3}),
    "datasets.caption_dropout_rate": (0.05, {"data.captions.dropout": pytest.approx(0.05)}),
    "datasets.token_dropout_rate": (0.1, {"data.captions.tag_dropout": 0.1, "data.captions.shuffle_tags": False,
                                          "data.captions.keep_tags": -1}),
    "datasets.shuffle_tokens": (True, {"data.captions.tag_dropout": 0.0, "data.captions.shuffle_tags": True,
                                       "data.captions.keep_tags": -1}),
    "datasets.keep_tokens": (3, {"data.captions.keep_tags": 2}),
    "datasets.trigger_word": ("p3r", {"data.captions.trigger": "p3r",
                                      "data.captions.template": "{trigger} {caption}"}),
    "datasets.caption_ext": ("caption", {"data.captions.extension": ".caption"}),
    "datasets.caption_type": ("caption", {"data.captions.extension": ".caption"}),
    "datasets.buckets": (False, {"data.buckets.shape": "square"}),
    "datasets.square_crop": (True, {"data.buckets.shape": "square"}),
    "datasets.bucket_tolerance": (32, {"data.buckets.step": 32}),
    "datasets.random_crop": (True, {"data.crop": "random"}),
    "datasets.flip_x": (True, {"data.flip": 0.5}),
    "datasets.alpha_mask": (True, {"data.mask.source": "alpha", "data.mask.background": 0.0}),
    "datasets.mask_path": ("masks", {"data.mask.source": "files", "data.mask.path": "masks",
                                     "data.mask.background": 0.0}),
    "datasets.mask_min_value": (0.1, {"data.mask.background": 0.1}),
    "datasets.cache_latents": (True, {"data.cache.latents": True}),
    "datasets.cache_latents_to_disk": (True, {"data.cache.latents": True}),
    "datasets.cache_text_embeddings": (True, {"data.cache.text": True}),
    "datasets.num_frames": (17, {"data.format": "videofolder", "data.clips.frames": 17, "data.clips.fps": 24.0,
                                 "data.buckets.shape": "aspect", "data.buckets.max_aspect": 4.0}),
    "datasets.fps": (16, {"data.clips.fps": 16.0}),
    "datasets.do_i2v": (True, {"model.wan.first_frame_prob": 1.0}),
    "samples.width": (768, {"sample.size": [768, 512]}),
    "samples.height": (768, {"sample.size": [512, 768]}),
    "samples.neg": ("blurry", {"sample.negative_prompt": "blurry"}),
    "samples.seed": (3, {"sample.seed": 3}),
    "samples.guidance_scale": (3, {"sample.guidance": 3.0}),
    "samples.sample_steps": (9, {"sample.steps": 9}),
    "samples.fps": (8, {"sample.clip.rate": 8}),
    "samples.num_frames": (9, {"sample.clip.frames": 9}),
}  # fmt: skip
"""A value of each key that acts, and the settings that it changes."""

ELSEWHERE = {
    "train.bypass_guidance_embedding",
    "datasets.dataset_path",
    "type", "datasets", "train.noise_scheduler", "train.content_or_style", "train.train_unet", "model.arch",
    "train.lr_scheduler_params.factor", "model.is_xl", "model.is_v3", "model.is_flux", "datasets.type",
    "datasets.is_reg", "datasets.loss_multiplier", "datasets.shrink_video_to_frames", "samples.prompt",
    *(f"model.is_{name}" for name in ("pixart", "pixart_sigma", "auraflow", "lumina2", "ssd", "vega")),
}  # fmt: skip
"""Keys with tests of their own."""

ROWS: dict[str, Row] = (
    {row.flag: row for row in (*TRAINING, *MODEL)}
    | {f"datasets.{row.flag}": row for row in DATASETS}
    | {f"samples.{row.flag}": row for row in SAMPLES}
)


def of(*outcomes: str) -> list[str]:
    return [key for key, row in ROWS.items() if row.outcome in outcomes]


def path_of(key: str) -> str:
    """The key of the first entry of a list."""
    name, _, rest = key.partition(".")
    if name == "datasets" and rest:
        return f"datasets.0.{rest}"
    return f"sample.samples.0.{rest}" if name == "samples" else key


def other(row: Row) -> Any:
    """A value that is not the default."""
    if row.choices:
        return next(choice for choice in row.choices if choice != row.default)
    if row.form == "switch":
        return not row.default
    if row.form in ("texts", "numbers"):
        return [7] if row.form == "numbers" else ["7"]
    return 7 if row.form in ("whole", "number") else "7"


def test_each_acting_key_has_a_case() -> None:
    assert ACTS.keys() | ELSEWHERE == set(of("mapped", "computed"))
    assert not ACTS.keys() & ELSEWHERE
    assert BESIDE.keys() <= ROWS.keys()


@pytest.mark.parametrize("key", list(ACTS))
def test_key_changes_only_its_settings(key: str) -> None:
    value, expected = ACTS[key]
    assert changed({path_of(key): value}, BESIDE.get(key)) == expected


@pytest.mark.parametrize("key", of("without effect"))
def test_key_without_effect_is_noted(key: str) -> None:
    change, beside = {path_of(key): other(ROWS[key])}, BESIDE.get(key)
    assert changed(change, beside) == {}
    assert notes(change, beside) == [f"{path_of(key)} in job.yaml: {ROWS[key].about}"]


@pytest.mark.parametrize("key", of("refused", "waits"))
def test_refused_and_waiting_keys_are_errors_with_their_line(key: str) -> None:
    row = ROWS[key]
    found = problems(job({**BESIDE.get(key, {}), path_of(key): other(row)}))
    [(_, code, message, line)] = [one for one in found if one[0] == f"{path_of(key)} in job.yaml"]
    waiting = f"needs {row.feature}, which Mezzotint does not have yet; leave it out"
    assert (code, message) == ("E1018", waiting if row.feature else row.about)
    assert line is not None
