"""Expectations of the options of data and previews of `kohya`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

DOCUMENTED: dict[str, Any] = {
    "alpha_mask": False, "bucket_no_upscale": False, "bucket_reso_steps": 64, "cache_info": False,
    "cache_latents": False, "cache_latents_to_disk": False, "caption_dropout_every_n_epochs": 0,
    "caption_dropout_rate": 0.0, "caption_extension": ".caption", "caption_extention": None, "caption_prefix": None,
    "caption_separator": ",", "caption_suffix": None, "caption_tag_dropout_rate": 0.0, "color_aug": False,
    "conditioning_data_dir": None, "dataset_class": None, "dataset_config": None, "dataset_repeats": 1,
    "debug_dataset": False, "enable_bucket": False, "enable_wildcard": False, "face_crop_aug_range": None,
    "flip_aug": False, "in_json": None, "keep_tokens": 0, "keep_tokens_separator": "", "masked_loss": False,
    "max_bucket_reso": 1024, "min_bucket_reso": 256, "prompt": None, "random_crop": False, "reg_data_dir": None,
    "resize_interpolation": None, "resolution": None, "sample_at_first": False, "sample_every_n_epochs": None,
    "sample_every_n_steps": None, "sample_prompts": None, "sample_sampler": "ddim", "secondary_separator": None,
    "shuffle_caption": False, "skip_cache_check": False, "token_warmup_min": 1, "token_warmup_step": 0.0,
    "train_data_dir": None, "vae_batch_size": 1,
}  # fmt: skip

EXPECTED: dict[str, Any] = {
    "data.path": ["images"],
    "data.repeats": 1.0,
    "data.resolution": 512,
    "data.buckets.shape": "square",
    "data.buckets.step": 64,
    "data.crop": "center",
    "data.flip": 0.0,
    "data.resize": "area",
    "data.captions.shuffle_tags": False,
    "data.captions.keep_tags": 0,
    "data.captions.wildcards": False,
    "data.captions.lines": "first",
    "data.captions.dropout": 0.0,
    "data.captions.tag_dropout": 0.0,
    "data.captions.missing": "empty",
    "data.kohya_subsets.shuffle_first": False,
    "data.kohya_subsets.caption_extension": ".caption",
    "data.kohya_subsets.numbered": True,
    "data.cache.latents": False,
    "data.format": "kohya-subsets",
}

ACTS: dict[str, tuple[Sequence[str], Mapping[str, Any]]] = {}
BESIDE: dict[str, Sequence[str]] = {}
IMPOSSIBLE: tuple[tuple[Any, ...], ...] = ()
FILES: dict[str, str] = {}

ELSEWHERE = {
    "dataset_config",
    "train_data_dir",
    "reg_data_dir",
    "in_json",
    "dataset_repeats",
    "resolution",
    "enable_bucket",
    "min_bucket_reso",
    "max_bucket_reso",
    "bucket_reso_steps",
    "resize_interpolation",
    "caption_extension",
    "caption_extention",
    "caption_prefix",
    "caption_suffix",
    "shuffle_caption",
    "keep_tokens",
    "enable_wildcard",
    "caption_dropout_rate",
    "caption_tag_dropout_rate",
    "flip_aug",
    "random_crop",
    "alpha_mask",
    "masked_loss",
    "cache_latents",
    "cache_latents_to_disk",
    "sample_prompts",
    "prompt",
    "sample_every_n_steps",
    "sample_every_n_epochs",
    "sample_at_first",
    "sample_sampler",
}
