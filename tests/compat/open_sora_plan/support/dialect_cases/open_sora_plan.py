"""Expectations of the flags of `open-sora-plan`."""

from __future__ import annotations

from typing import Any

import pytest
from foreign_lines import Lines

BAREST = ("--video_data=clips.txt",)

DEFAULTS: dict[str, Any] = {
    # the document's, in its order
    "image_data": None, "video_data": None, "max_image_size": 512, "num_frames": 17, "use_img_from_vid": False,
    "use_image_num": 0, "text_embed_cache": True, "enable_flip": False, "model_max_length": 300,
    "filter_nonexistent": True, "pretrained": None, "text_encoder_name": "DeepFloyd/t5-v1_1-xxl",
    "ae": "CausalVAEModel_4x8x8", "ae_path": "LanguageBind/Open-Sora-Plan-v1.1.0", "dataset": "t2v",
    "use_rope": False, "compress_kv": False, "compress_kv_factor": 1, "model": "LatteT2V-XL/122", "multi_scale": False,
    "enable_tiling": False, "tile_overlap_factor": 0.25, "use_recompute": False, "num_no_recompute": 0,
    "precision": "bf16", "amp_level": "O1", "text_encoder_precision": "bf16", "vae_precision": "fp16",
    "vae_keep_gn_fp32": False, "loss_scaler_type": "dynamic", "loss_scale_factor": 2, "scale_window": 2000,
    "init_loss_scale": 65536, "dataset_sink_mode": False, "sink_size": -1, "dataloader_num_workers": 4,
    "max_rowsize": 4, "batch_size": 32, "dataloader_prefetch_size": None, "optim": "adamw", "betas": (0.9, 0.999),
    "optim_eps": 1e-8, "group_strategy": "norm_and_bias", "clip_grad": False, "max_grad_norm": 1.0, "use_ema": True,
    "ema_decay": 0.9999, "gradient_accumulation_steps": 1, "weight_decay": 0.01, "lr_scheduler": "cosine_decay",
    "start_learning_rate": 1e-5, "end_learning_rate": 1e-6, "lr_warmup_steps": 0, "lr_decay_steps": 0,
    "scale_lr": False, "device": "Ascend", "max_device_memory": None, "mode": 0, "use_parallel": False,
    "parallel_mode": "data", "seed": 3407, "mempool_block_size": "9GB", "optimizer_weight_shard_size": 8,
    "max_train_steps": None, "epochs": 10, "step_mode": False, "resume_from_checkpoint": "False",
    "ckpt_save_interval": 1, "checkpointing_steps": None, "ckpt_max_keep": 10, "log_level": "logging.INFO",
    "log_interval": 1, "profile": False,
}  # fmt: skip

OUTSIDE: dict[str, Any] = {
    # what the port's scripts use besides
    "output_dir": "output", "output_path": None, "enable_flash_attention": False, "global_bf16": False,
    "drop_overflow_update": True, "jit_level": None, "enable_dvm": False, "enable_parallel_fusion": True, "sp_size": 1,
    "vae_latent_folder": None,
}  # fmt: skip

EXPECTED: dict[str, Any] = {
    "schema": 1,
    "model.family": "latte", "model.train": ["denoiser"], "model.path": "latte-17f", "model.weights": "random",
    "model.vae": "LanguageBind/Open-Sora-Plan-v1.1.0", "model.latte.max_tokens": 300, "model.latte.rope": False,
    "model.latte.compress_kv": 1, "model.latte.video_length": 5, "model.latte.tiling.enabled": False,
    "model.latte.tiling.overlap": 0.25, "model.latte.vae_norms": "same",
    "data.format": "clip-list", "data.path": "clips.txt", "data.clips.frames": 17, "data.clip_list.missing": "skip",
    "data.clips.images": 0, "data.clip_list.text_embeddings": True, "data.cache.text": True,
    "data.captions.clean": True, "data.captions.dropout": 0.0,
    "data.resolution": 512, "data.buckets.shape": "square", "data.buckets.step": 64,
    "data.resize": "square-then-bilinear", "data.flip": 0.0, "data.batch_size": 32, "data.remainder": "drop",
    "data.workers": 4,
    "optim.optimizer.kind": "adamw", "optim.optimizer.betas": [0.9, 0.999], "optim.optimizer.eps": 1e-8,
    "optim.optimizer.weight_decay": 0.01, "optim.optimizer.no_decay": ["@norm-and-bias"], "optim.lr": 1e-5,
    "optim.schedule.kind": "cosine", "optim.schedule.floor": pytest.approx(0.1), "optim.schedule.warmup_steps": 0,
    "optim.accumulation": 1, "optim.clip.norm": None, "optim.clip.scope": "all", "optim.ema.rule": "saturating",
    "optim.ema.decay": 0.9999,
    "run.epochs": 10, "run.seed": 3407, "run.precision": "bf16", "run.half_precision": "matmuls",
    "run.weight_dtype": "fp32",
    "run.frozen_dtype": "bf16", "run.vae_dtype": "fp16", "run.scaler.kind": "dynamic", "run.scaler.init": 65536,
    "run.scaler.growth": 2.0, "run.scaler.growth_interval": 2000, "run.device": "auto", "run.memory_limit": None,
    "run.device_prefetch": 0, "run.compile": True, "run.runtime": "auto", "run.gradient_checkpointing.enabled": False,
    "run.gradient_checkpointing.skip_last": 0, "run.save.every": "1 epoch", "run.save.keep": 10, "run.log_every": 1,
    "run.preview.every": None, "run.resume": "never", "run.folder": "output", "run.name": "output",
    "run.export.link": "ckpt",
    "sample.seed": 3407,
}  # fmt: skip

STILLS = ("--use_image_num=4", "--image_data=images.txt")

ACTS: dict[str, tuple[tuple[str, ...], list[str], dict[str, Any]]] = {
    # flag: words in both commands, the flag, what it changes
    "video_data": ((), ["--video_data=b.txt"], {"data.path": "b.txt"}),
    "image_data": (STILLS, ["--image_data=b.txt"], {"data.clips.images_path": ["b.txt"]}),
    "max_image_size": ((), ["--max_image_size=240"], {"data.resolution": 240, "data.buckets.step": 16}),
    "num_frames": ((), ["--num_frames=65"], {"data.clips.frames": 65, "model.latte.video_length": 17}),
    "use_img_from_vid": (STILLS, ["--use_img_from_vid=True"], {
        "data.clips.images_from": "clips", "data.clips.images_path": "gone", "data.clips.images_order": "gone"}),
    "use_image_num": (STILLS, ["--use_image_num=8"], {"data.clips.images": 8}),
    "text_embed_cache": ((), ["--text_embed_cache=False"], {
        "data.cache.text": False, "data.clip_list.text_embeddings": False,
        "model.latte.text_encoder": "DeepFloyd/t5-v1_1-xxl"}),
    "enable_flip": ((), ["--enable_flip=True"], {"data.flip": 0.5}),
    "model_max_length": ((), ["--model_max_length=120"], {"model.latte.max_tokens": 120}),
    "filter_nonexistent": ((), ["--filter_nonexistent=False"], {"data.clip_list.missing": "count"}),
    "pretrained": ((), ["--pretrained=a/65x512x512"], {"model.path": "a/65x512x512", "model.weights": "gone"}),
    "text_encoder_name": ((), ["--text_encoder_name=t5"], {"model.latte.text_encoder": "t5"}),
    "ae_path": ((), ["--ae_path=vae"], {"model.vae": "vae"}),
    "use_rope": ((), ["--use_rope=True"], {"model.latte.rope": True}),
    "compress_kv": (("--compress_kv_factor=2",), ["--compress_kv=True"], {"model.latte.compress_kv": 2}),
    "compress_kv_factor": (("--compress_kv=True",), ["--compress_kv_factor=2"], {"model.latte.compress_kv": 2}),
    "enable_tiling": ((), ["--enable_tiling=True"], {"model.latte.tiling.enabled": True}),
    "tile_overlap_factor": ((), ["--tile_overlap_factor=0.5"], {"model.latte.tiling.overlap": 0.5}),
    "use_recompute": ((), ["--use_recompute=True"], {"run.gradient_checkpointing.enabled": True}),
    "num_no_recompute": (("--use_recompute=True",), ["--num_no_recompute=4"],
        {"run.gradient_checkpointing.skip_last": 4}),
    "precision": ((), ["--precision=fp32"], {"run.precision": "fp32", "run.half_precision": "autocast"}),
    "amp_level": ((), ["--amp_level=O2"], {"run.half_precision": "most"}),
    "text_encoder_precision": ((), ["--text_encoder_precision=fp32"], {"run.frozen_dtype": "fp32"}),
    "vae_precision": ((), ["--vae_precision=bf16"], {"run.vae_dtype": "bf16"}),
    "vae_keep_gn_fp32": ((), ["--vae_keep_gn_fp32=True"], {"model.latte.vae_norms": "fp32"}),
    "loss_scaler_type": ((), ["--loss_scaler_type=static"], {"run.scaler.kind": "static"}),
    "loss_scale_factor": ((), ["--loss_scale_factor=4"], {"run.scaler.growth": 4.0}),
    "scale_window": ((), ["--scale_window=100"], {"run.scaler.growth_interval": 100}),
    "init_loss_scale": ((), ["--init_loss_scale=1024"], {"run.scaler.init": 1024}),
    "dataset_sink_mode": ((), ["--dataset_sink_mode=True"], {"run.device_prefetch": 2}),
    "sink_size": (("--dataset_sink_mode=True",), ["--sink_size=50"], {"run.log_every": 50}),
    "dataloader_num_workers": ((), ["--dataloader_num_workers=8"], {"data.workers": 8}),
    "batch_size": ((), ["--batch_size=2"], {"data.batch_size": 2}),
    "dataloader_prefetch_size": (("--dataset_sink_mode=True",), ["--dataloader_prefetch_size=3"], {
        "data.prefetch": 3, "run.device_prefetch": 3}),
    "optim": ((), ["--optim=AdamWeightDecay"], {"optim.optimizer.kind": "adam-weight-decay"}),
    "betas": ((), ["--betas", "0.8", "0.99"], {"optim.optimizer.betas": [0.8, 0.99]}),
    "optim_eps": ((), ["--optim_eps=1e-6"], {"optim.optimizer.eps": 1e-6}),
    "group_strategy": ((), ["--group_strategy=None"], {"optim.optimizer.no_decay": ["*bias", "~*layernorm*"]}),
    "clip_grad": ((), ["--clip_grad=True"], {"optim.clip.norm": 1.0}),
    "max_grad_norm": (("--clip_grad=True",), ["--max_grad_norm=0.5"], {"optim.clip.norm": 0.5}),
    "use_ema": ((), ["--use_ema=False"], {"optim.ema.rule": "none"}),
    "ema_decay": ((), ["--ema_decay=0.99"], {"optim.ema.decay": 0.99}),
    "gradient_accumulation_steps": ((), ["--gradient_accumulation_steps=4"], {"optim.accumulation": 4}),
    "weight_decay": ((), ["--weight_decay=0"], {"optim.optimizer.weight_decay": 0.0}),
    "lr_scheduler": ((), ["--lr_scheduler=polynomial_decay"], {
        "optim.schedule.kind": "polynomial", "optim.schedule.power": 0.9}),
    "start_learning_rate": ((), ["--start_learning_rate=2e-5"], {
        "optim.lr": 2e-5, "optim.schedule.floor": pytest.approx(0.05)}),
    "end_learning_rate": ((), ["--end_learning_rate=0"], {"optim.schedule.floor": 0.0}),
    "lr_warmup_steps": ((), ["--lr_warmup_steps=500"], {"optim.schedule.warmup_steps": 500}),
    "lr_decay_steps": (("--lr_warmup_steps=500",), ["--lr_decay_steps=1000"], {"optim.schedule.decay_steps": 1500}),
    "scale_lr": ((), ["--scale_lr=True"], {"optim.lr": pytest.approx(32e-5)}),
    "device": ((), ["--device=cpu"], {"run.device": "cpu", "run.compile": False}),
    "max_device_memory": ((), ["--max_device_memory=59GB"], {"run.memory_limit": "59GB"}),
    "mode": ((), ["--mode=1"], {"run.compile": False}),
    "seed": ((), ["--seed=1"], {"run.seed": 1, "sample.seed": 1}),
    "max_train_steps": ((), ["--max_train_steps=1000"], {
        "run.steps": 1000, "run.whole_epochs": True, "run.epochs": "gone"}),
    "epochs": ((), ["--epochs=3"], {"run.epochs": 3}),
    "resume_from_checkpoint": ((), ["--resume_from_checkpoint=True"], {"run.resume": "auto"}),
    "ckpt_save_interval": ((), ["--ckpt_save_interval=2"], {"run.save.every": "2 epochs"}),
    "checkpointing_steps": ((), ["--checkpointing_steps=100"], {"run.save.every": "100 steps"}),
    "ckpt_max_keep": ((), ["--ckpt_max_keep=3"], {"run.save.keep": 3}),
    "log_interval": ((), ["--log_interval=10"], {"run.log_every": 10}),
    "profile": ((), ["--profile=True"], {"run.profile.steps": 3, "run.profile.folder": "profile_data"}),
    "output_dir": ((), ["--output_dir=a/b c"], {"run.folder": "a/b c", "run.name": "b-c"}),
    "output_path": ((), ["--output_path=there"], {"run.folder": "there", "run.name": "there"}),
    "global_bf16": ((), ["--global_bf16=True"], {"run.half_precision": "all"}),
}  # fmt: skip


MANY: dict[str, tuple[tuple[str, ...], list[str], dict[str, Any]]] = {
    "use_parallel": ((), [], {}),
    "parallel_mode": (("--use_parallel=True",), ["--parallel_mode=optim"], {
        "run.runtime": "fsdp", "run.shard.parameters": False, "run.shard.group": 4}),
    "optimizer_weight_shard_size": (("--use_parallel=True", "--parallel_mode=optim"), [
        "--optimizer_weight_shard_size=2"], {"run.shard.group": 2}),
}  # fmt: skip

LINES = Lines(
    "open-sora-plan",
    barest=BAREST,
    defaults=DEFAULTS | OUTSIDE,
    settings=EXPECTED,
    acts={flag: (words, moved) for flag, (_, words, moved) in ACTS.items()},
    beside={flag: beside for flag, (beside, _, _) in ACTS.items()},
    impossible=(
        (["--num_frames=18"], "--num_frames"), (["--use_image_num=4"], "--use_image_num"),
        (["--use_image_num=20", "--use_img_from_vid=True"], "--use_image_num"),
        (["--max_image_size=250"], "--max_image_size"),
        (["--use_rope=True", "--compress_kv=True", "--compress_kv_factor=2"], "--use_rope"),
        (["--tile_overlap_factor=1"], "--tile_overlap_factor"), (["--num_no_recompute=29"], "--num_no_recompute"),
        (["--dataloader_prefetch_size=0"], "--dataloader_prefetch_size"),
        (["--end_learning_rate=1"], "--end_learning_rate"), (["--betas=0.9"], "--betas"), (["--mode=2"], "--mode"),
        (["--sink_size=0"], "--sink_size"), (["--precision=fp32", "--global_bf16=True"], "--global_bf16"),
        (["--video_data="], "--video_data"), (["--num_frames=1"], "--image_data"),
    ),
    elsewhere=frozenset(MANY),
)  # fmt: skip
