"""Expectations of the options of `musubi`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from foreign_lines import Lines

DATA = Path(__file__).parents[1] / "data.toml"
BAREST = (
    "--script=wan_train_network", "--dit=wan", f"--dataset_config={DATA}", "--network_module=networks.lora_wan",
    "--optimizer_type=AdamW", "--output_dir=out",
)  # fmt: skip

DOCUMENTED: dict[str, Any] = {
    "async_upload": False, "base_weights": None, "base_weights_multiplier": None, "block_swap_h2d_only": False,
    "block_swap_optimizer_patch_params": False, "block_swap_ring_size": 2, "blocks_to_swap": None, "clip": None,
    "compile": False, "compile_backend": "inductor", "compile_cache_size_limit": None, "compile_dynamic": None,
    "compile_fullgraph": False, "compile_mode": "default", "config_file": None, "cuda_allow_tf32": False,
    "cuda_cudnn_benchmark": False, "dataset_config": None, "ddp_gradient_as_bucket_view": False,
    "ddp_static_graph": False, "ddp_timeout": None, "dim_from_weights": False, "disable_numpy_memmap": False,
    "discrete_flow_shift": 1.0, "dit": None, "dit_high_noise": None, "dynamo_backend": "NO", "dynamo_dynamic": False,
    "dynamo_fullgraph": False, "dynamo_mode": None, "edit": False, "edit_plus": False, "flash3": False,
    "flash_attn": False, "force_v2_1_time_embedding": False, "fp8_base": False, "fp8_llm": False,
    "fp8_scaled": False, "fp8_t5": False, "fp8_text_encoder": False, "fp8_vl": False, "full_bf16": False,
    "fused_backward_pass": False, "gradient_accumulation_steps": 1, "gradient_checkpointing": False,
    "gradient_checkpointing_cpu_offload": False, "guidance_scale": 1.0, "huggingface_path_in_repo": None,
    "huggingface_repo_id": None, "huggingface_repo_type": None, "huggingface_repo_visibility": None,
    "huggingface_token": None, "img_in_txt_in_offloading": False, "learning_rate": 2e-06, "log_config": False,
    "log_prefix": None, "log_tracker_config": None, "log_tracker_name": None, "log_with": None, "logging_dir": None,
    "logit_mean": 0.0, "logit_std": 1.0, "lr_decay_steps": "0", "lr_scheduler": "constant",
    "lr_scheduler_args": None, "lr_scheduler_min_lr_ratio": None, "lr_scheduler_num_cycles": 1,
    "lr_scheduler_power": 1.0, "lr_scheduler_timescale": None, "lr_scheduler_type": None, "lr_warmup_steps": "0",
    "max_data_loader_n_workers": 8, "max_grad_norm": 1.0, "max_timestep": None, "max_train_epochs": None,
    "max_train_steps": 1600, "mem_eff_save": False, "metadata_arch": None, "metadata_author": None,
    "metadata_description": None, "metadata_license": None, "metadata_reso": None, "metadata_tags": None,
    "metadata_title": None, "min_timestep": None, "mixed_precision": None, "mode_scale": 1.29, "model_version": None,
    "network_alpha": 1.0, "network_args": None, "network_dim": None, "network_dropout": None, "network_module": None,
    "network_weights": None, "no_metadata": False, "num_layers": None, "num_timestep_buckets": None,
    "offload_inactive_dit": False, "one_frame": False, "optimizer_args": None, "optimizer_type": None,
    "output_dir": None, "output_name": None, "persistent_data_loader_workers": False,
    "preserve_distribution_shape": False, "remove_first_image_from_target": False, "resume": None,
    "resume_from_huggingface": False, "sage_attn": False, "sample_at_first": False, "sample_every_n_epochs": None,
    "sample_every_n_steps": None, "sample_prompts": None, "save_every_n_epochs": None, "save_every_n_steps": None,
    "save_last_n_epochs": None, "save_last_n_epochs_state": None, "save_last_n_steps": None,
    "save_last_n_steps_state": None, "save_precision": None, "save_state": False, "save_state_on_train_end": False,
    "save_state_to_huggingface": False, "scale_weight_norms": None, "script": None, "sdpa": False, "seed": None,
    "show_timesteps": None, "sigmoid_scale": 1.0, "split_attn": False, "t5": None, "task": "t2v-14B",
    "text_encoder": None, "text_encoder1": None,
    "text_encoder2": None, "timestep_boundary": None, "timestep_sampling": "sigma", "training_comment": None,
    "use_32bit_attention": False, "use_pinned_memory_for_block_swap": False, "vae": None, "vae_cache_cpu": False,
    "vae_dtype": None, "wandb_api_key": None, "wandb_run_name": None, "weighting_scheme": "none", "xformers": False,
}  # fmt: skip

EXPECTED: dict[str, Any] = {
    "schema": 1,
    "model.family": "wan", "model.path": "wan", "model.train": ["denoiser"], "model.adapter.kind": "lora",
    "model.adapter.rank": 4, "model.adapter.alpha": 1.0, "model.adapter.targets": ["denoiser/blocks.*"],
    "data.path": "images", "data.format": "image-folder", "data.captions.missing": "skip",
    "data.captions.extension": ".txt", "data.repeats": 1.0,
    "data.batch_size": 1, "data.resolution": 512, "data.buckets.shape": "square", "data.buckets.step": 64,
    "data.resize": "area", "data.crop": "center", "data.cache.latents": True, "data.cache.text": True,
    "data.workers": 8,
    "objective.loss": "mse", "objective.weighting": "prediction", "objective.flow.preconditioned": False,
    "objective.flow.grid": "table", "objective.flow.density": "uniform", "objective.flow.shift": 1.0,
    "optim.lr": 2e-6, "optim.accumulation": 1, "optim.clip.norm": 1.0, "optim.clip.scope": "all",
    "optim.optimizer.kind": "adamw", "optim.optimizer.betas": [0.9, 0.999], "optim.optimizer.eps": 1e-8,
    "optim.optimizer.weight_decay": 0.01,
    "optim.schedule.kind": "constant", "optim.schedule.warmup_steps": 0, "optim.schedule.warmup_ratio": 0.0,
    "run.steps": 1600, "run.seed": -1, "run.gradient_checkpointing.enabled": False, "run.compile": False,
    "run.tf32": False, "run.precision": "fp32", "run.vae_dtype": "same", "run.frozen_dtype": "same",
    "run.weight_dtype": "fp32", "run.name": "last", "run.folder": "out/last", "run.export.folder": "out",
    "run.export.every": [], "run.export.name": "{name}-{epoch:06}", "run.export.dtype": "bf16",
    "run.export.adapter": "kohya", "run.save.every": [], "run.resume": "never", "run.tensorboard": False,
}  # fmt: skip

_FILE = "--sample_prompts=prompts.txt"
_EPOCHS = "--sample_every_n_epochs=2"
_SAMPLED: dict[str, Any] = {
    "sample.prompts": ["a fox"], "sample.size": [640, 480], "sample.seed": 1, "sample.steps": 20,
    "sample.guidance": [5.0], "sample.clip.frames": 25,
}  # fmt: skip
_LOGSNR = {"objective.flow.density": "log-snr", "objective.flow.grid": "continuous"}
_SIGMOID = {"objective.flow.density": "sigmoid", "objective.flow.grid": "continuous"}
_LEVELS = {"objective.flow.mean": 0.0, "objective.flow.std": 1.0}

ACTS: dict[str, tuple[Sequence[str], Mapping[str, Any]]] = {
    "config_file": (["--config_file=all.toml"], {"run.seed": 7, "model.adapter.rank": 8}),
    "dit": (["--dit=m"], {"model.path": "m"}),
    "vae": (["--vae=v.safetensors"], {"model.vae": "v.safetensors"}),
    "vae_dtype": (["--vae_dtype=bfloat16"], {"run.vae_dtype": "bf16"}),
    "t5": (["--t5=umt5.safetensors"], {"model.over": ["umt5.safetensors"]}),
    "gradient_checkpointing": (["--gradient_checkpointing"], {"run.gradient_checkpointing.enabled": True}),
    "compile": (["--compile"], {"run.compile": True}),
    "dynamo_backend": (["--dynamo_backend=INDUCTOR"], {"run.compile": True}),
    "cuda_allow_tf32": (["--cuda_allow_tf32"], {"run.tf32": True}),
    "fp8_base": (["--fp8_base"], {"run.frozen_dtype": "int8"}),
    "blocks_to_swap": (["--blocks_to_swap=20"], {"run.offload.blocks": "auto"}),
    "network_module": (["--network_module=networks.lokr"],
                       {"model.adapter.kind": "lokr", "model.adapter.factor": -1}),
    "network_dim": (["--network_dim=32"], {"model.adapter.rank": 32}),
    "network_alpha": (["--network_alpha=0"], {"model.adapter.alpha": None}),
    "network_args": (["--network_args", "factor=8"], {"model.adapter.factor": 8}),
    "network_dropout": (["--network_dropout=0.1"], {"model.adapter.dropout": 0.1}),
    "scale_weight_norms": (["--scale_weight_norms=1"], {"model.adapter.max_norm": 1.0}),
    "network_weights": (["--network_weights=a.safetensors"],
                        {"model.adapter.path": "a.safetensors"}
                        | {f"model.adapter.{name}": "gone" for name in ("kind", "rank", "alpha", "targets")}),
    "timestep_sampling": (["--timestep_sampling=logsnr"], _LOGSNR | _LEVELS),
    "discrete_flow_shift": (["--discrete_flow_shift=3"], {"objective.flow.shift": 3.0}),
    "sigmoid_scale": (["--sigmoid_scale=1.5"], {"objective.flow.sigmoid_scale": 1.5}),
    "weighting_scheme": (["--weighting_scheme=sigma_sqrt"], {"objective.weighting": "sigma-sqrt"}),
    "logit_mean": (["--logit_mean=0.5"], {"objective.flow.mean": -0.5}),
    "logit_std": (["--logit_std=2"], {"objective.flow.std": 2.0}),
    "mode_scale": (["--mode_scale=1"], {"objective.flow.mode_scale": 1.0}),
    "min_timestep": (["--min_timestep=250"], {"objective.flow.sigmas": [0.25, 1.0]}),
    "max_timestep": (["--max_timestep=750"], {"objective.flow.sigmas": [0.0, 0.75]}),
    "learning_rate": (["--learning_rate=1e-4"], {"optim.lr": 1e-4}),
    "optimizer_type": (["--optimizer_type=adamw8bit"], {"optim.optimizer.kind": "adamw-8bit-or-adamw"}),
    "optimizer_args": (["--optimizer_args", "weight_decay=0.1"], {"optim.optimizer.weight_decay": 0.1}),
    "max_grad_norm": (["--max_grad_norm=0"], {"optim.clip.norm": None}),
    "lr_scheduler": (["--lr_scheduler=cosine"], {"optim.schedule.kind": "cosine"}),
    "lr_warmup_steps": (["--lr_warmup_steps=10"], {"optim.schedule.warmup_steps": 10}),
    "lr_scheduler_num_cycles": (["--lr_scheduler_num_cycles=3"], {"optim.schedule.cycles": 3}),
    "lr_scheduler_power": (["--lr_scheduler_power=2"], {"optim.schedule.power": 2.0}),
    "lr_decay_steps": (["--lr_scheduler=warmup_stable_decay", "--lr_decay_steps=10"],
                       {"optim.schedule.kind": "cosine", "optim.schedule.cooldown_steps": 10}),
    "lr_scheduler_timescale": (["--lr_scheduler=inverse_sqrt", "--lr_scheduler_timescale=30"],
                               {"optim.schedule.kind": "inverse-sqrt", "optim.schedule.timescale_steps": 30}),
    "lr_scheduler_min_lr_ratio": (["--lr_scheduler=cosine_with_min_lr", "--lr_scheduler_min_lr_ratio=0.1"],
                                  {"optim.schedule.kind": "cosine", "optim.schedule.floor": 0.1}),
    "gradient_accumulation_steps": (["--gradient_accumulation_steps=4"], {"optim.accumulation": 4}),
    "output_dir": (["--output_dir=models/"], {"run.folder": "models/last", "run.export.folder": "models"}),
    "output_name": (["--output_name=fox"], {"run.name": "fox", "run.folder": "out/fox"}),
    "max_train_steps": (["--max_train_steps=10"], {"run.steps": 10}),
    "max_train_epochs": (["--max_train_epochs=10"], {"run.epochs": 10, "run.steps": "gone"}),
    "seed": (["--seed=42"], {"run.seed": 42}),
    "mixed_precision": (["--mixed_precision=fp16"], {"run.precision": "fp16", "run.export.dtype": "fp16"}),
    "save_every_n_epochs": (["--save_every_n_epochs=2"], {"run.export.every": ["2 epochs"]}),
    "save_every_n_steps": (["--save_every_n_steps=50"],
                           {"run.export.every": ["50 steps"], "run.export.name": "{name}-step{step:08}"}),
    "save_state": (["--save_state"], {"run.save.every": ["2 epochs"]}),
    "resume": (["--resume=out/last"], {"run.resume": "out/last"}),
    "max_data_loader_n_workers": (["--max_data_loader_n_workers=2"], {"data.workers": 2}),
    "logging_dir": (["--logging_dir=logs"], {"run.tensorboard": True}),
    "log_with": (["--log_with=wandb"], {"run.wandb.mode": "online", "run.wandb.project": "network_train"}),
    "log_tracker_name": (["--log_with=wandb", "--log_tracker_name=foxes"],
                         {"run.wandb.mode": "online", "run.wandb.project": "foxes"}),
    "ddp_timeout": (["--ddp_timeout=30"], {"run.timeout_seconds": 1800}),
    "sample_prompts": ([_FILE], {"run.preview.every": "2 epochs", **_SAMPLED}),
    "sample_every_n_steps": (["--sample_every_n_steps=20"], {"run.preview.every": "20 steps", **_SAMPLED}),
    "sample_every_n_epochs": ([_EPOCHS], {"run.preview.every": "2 epochs", **_SAMPLED}),
    "sample_at_first": (["--sample_at_first"], {"run.preview.every": "1000000 epochs", **_SAMPLED}),
}  # fmt: skip

ELSEWHERE = {
    "script", "fp8_scaled", "text_encoder", "text_encoder1", "text_encoder2", "task", "model_version", "full_bf16",
    "fused_backward_pass", "dataset_config", "guidance_scale", "edit", "edit_plus",
    "clip",
}  # fmt: skip
"""Options of other scripts than that of `BAREST`, or with values of several; test_model.py, test_run.py and
test_datasets.py have them."""

_UNIFORM = ("--timestep_sampling=uniform",)
_LOGIT = ("--weighting_scheme=logit_normal",)

LINES = Lines(
    "musubi",
    barest=BAREST,
    defaults=DOCUMENTED,
    settings=EXPECTED,
    acts=ACTS,
    beside={
        "fp8_base": ("--mixed_precision=bf16",), "network_args": ("--network_module=networks.lokr",),
        "sigmoid_scale": ("--timestep_sampling=shift",), "logit_mean": _LOGIT, "logit_std": _LOGIT,
        "mode_scale": ("--weighting_scheme=mode",), "min_timestep": _UNIFORM, "max_timestep": _UNIFORM,
        "lr_warmup_steps": ("--lr_scheduler=linear",), "lr_scheduler_power": ("--lr_scheduler=polynomial",),
        "lr_scheduler_num_cycles": ("--lr_scheduler=cosine_with_restarts",),
        "save_state": ("--save_every_n_epochs=2",), "sample_prompts": (_EPOCHS,), "sample_every_n_steps": (_FILE,),
        "sample_every_n_epochs": (_FILE,), "sample_at_first": (_FILE,),
    },
    elsewhere=frozenset(ELSEWHERE),
    impossible=(
        (["--network_module=networks.lora_zimage"], "--network_module", "E1017"),
        (["--network_module=networks.loraa"], "--network_module", "E1018"),
        (["--network_module=lycoris.kohya"], "--network_module", "E1018"),
        (["--network_args", "rank_dropout=1"], "--network_args", "E1017"),
        (["--network_module=networks.loha", "--network_args", "loraplus_lr_ratio=4"], "--network_args", "E1018"),
        (["--network_args", "factors=1"], "--network_args", "E1016"),
        (["--network_module=networks.lokr", "--network_dropout=0.1"], "--network_dropout", "E1018"),
        (["--network_dim=0"], "--network_dim"), (["--network_alpha=-1"], "--network_alpha"),
        (["--task=flf2v-14B"], "--task", "E1018"), (["--task=t2v-A14B"], "--task", "E1017"),
        (["--model_version=original"], "--model_version", "E1016"),
        (["--timestep_sampling=qinglong_flux"], "--timestep_sampling", "E1018"),
        (["--timestep_sampling=krea2_shift"], "--timestep_sampling", "E1018"),
        (["--timestep_sampling=qwen_shift"], "--timestep_sampling", "E1018"),
        (["--discrete_flow_shift=0"], "--discrete_flow_shift", "E1017"),
        (["--timestep_sampling=shift", "--discrete_flow_shift=3", "--min_timestep=9"], "--min_timestep", "E1018"),
        (["--min_timestep=500", "--max_timestep=400"], "--min_timestep", "E1017"),
        (["--learning_rate=0"], "--learning_rate"), (["--optimizer_type=AdamX"], "--optimizer_type", "E1018"),
        (["--optimizer_type=lion_pytorch.Lion"], "--optimizer_args", "E1017"),
        (["--optimizer_type=torch.optim.NAdam", "--optimizer_args", "eps=x"], "--optimizer_args", "E1017"),
        (["--optimizer_args", "momentum=0.9"], "--optimizer_args", "E1016"),
        (["--lr_scheduler=cosin"], "--lr_scheduler"), (["--lr_warmup_steps=5"], "--lr_warmup_steps"),
        (["--fp8_base"], "--fp8_base", "E1017"), (["--fp8_scaled"], "--fp8_scaled", "E1017"),
        (["--vae_dtype=int8"], "--vae_dtype", "E1017"), (["--resume=out/last-state"], "--resume", "E1018"),
        (["--dataset_config=none.toml"], "--dataset_config", "E1017"),
        (["--sample_every_n_epochs=1", "--sample_prompts=none.txt"], "--sample_prompts", "E1017"),
    ),
    files={
        "all.toml": "[first]\nseed = 7\n[second]\nnetwork_dim = 8\n",
        "prompts.txt": "# one\na fox --w 640 --h 480 --f 25 --d 1\n",
    },
)  # fmt: skip
