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
    "data.path": "images",
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
    "data.captions.extension": ".caption",
    "data.captions.dropout": 0.0,
    "data.captions.dropout_every": 0,
    "data.captions.tag_dropout": 0.0,
    "data.captions.missing": "empty",
    "data.cache.latents": False,
    "data.format": "kohya",
}

_RANGE: dict[str, Any] = {
    "data.buckets.shape": "range", "data.buckets.min_side": 256, "data.buckets.max_side": 1024,
}  # fmt: skip
_SHUFFLED = {"data.captions.shuffle_tags": True, "data.captions.keep_tags": -1}
_CACHED = {"data.cache.latents": True, "data.cache.content": "sample"}
_SAMPLED: dict[str, Any] = {
    "sample.size": [512, 512], "sample.seed": -1, "sample.steps": 30, "sample.guidance": [7.5],
    "sample.negative_prompt": "", "sample.solver": "ddim",
}  # fmt: skip
_FILE = "--sample_prompts=prompts.txt"
_EPOCHS = "--sample_every_n_epochs=2"


ACTS: dict[str, tuple[Sequence[str], Mapping[str, Any]]] = {
    "train_data_dir": (["--train_data_dir=my images"], {"data.path": "my images"}),
    "reg_data_dir": (["--reg_data_dir=reg"], {"data.prior.path": "reg"}),
    "in_json": (
        ["--in_json=meta.json"],
        {"data.kohya_subsets.metadata_file": "meta.json", "data.format": "kohya-subsets"},
    ),
    "dataset_repeats": (["--dataset_repeats=3"], {"data.repeats": 3.0}),
    "resolution": (["--resolution=768"], {"data.resolution": 768}),
    "enable_bucket": (["--enable_bucket"], _RANGE),
    "min_bucket_reso": (["--min_bucket_reso=384"], {"data.buckets.min_side": 384}),
    "max_bucket_reso": (["--max_bucket_reso=640"], {"data.buckets.max_side": 640}),
    "bucket_reso_steps": (["--bucket_reso_steps=128"], {"data.buckets.step": 128}),
    "bucket_no_upscale": (
        ["--bucket_no_upscale"],
        {"data.buckets.shape": "own", "data.buckets.min_side": "gone", "data.buckets.max_side": "gone"},
    ),
    "resize_interpolation": (["--resize_interpolation=cubic"], {"data.resize": "bicubic"}),
    "caption_extension": (["--caption_extension=.txt"], {"data.captions.extension": ".txt"}),
    "caption_extention": (["--caption_extention=.txt"], {"data.captions.extension": ".txt"}),
    "caption_prefix": (["--caption_prefix=sks"], {"data.captions.prefix": "sks"}),
    "caption_suffix": (["--caption_suffix=photo"], {"data.captions.suffix": "photo"}),
    "shuffle_caption": (["--shuffle_caption"], _SHUFFLED),
    "keep_tokens": (["--keep_tokens=2"], {"data.captions.keep_tags": 1}),
    "keep_tokens_separator": (["--keep_tokens_separator=|||"], {"data.captions.keep_separator": "|||"}),
    "secondary_separator": (["--secondary_separator=;;;"], {"data.captions.second_separator": ";;;"}),
    "enable_wildcard": (["--enable_wildcard"], {"data.captions.wildcards": True, "data.captions.lines": "random"}),
    "caption_dropout_rate": (["--caption_dropout_rate=0.1"], {"data.captions.dropout": 0.1}),
    "caption_dropout_every_n_epochs": (
        ["--caption_dropout_every_n_epochs=3"],
        {"data.captions.dropout_every": 3},
    ),
    "caption_tag_dropout_rate": (
        ["--caption_tag_dropout_rate=0.1"],
        {"data.captions.tag_dropout": 0.1, "data.captions.keep_tags": -1},
    ),
    "flip_aug": (["--flip_aug"], {"data.flip": 0.5}),
    "random_crop": (["--random_crop"], {"data.crop": "random"}),
    "alpha_mask": (["--alpha_mask"], {"data.mask.source": "alpha", "data.mask.mean": "image"}),
    "cache_latents": (["--cache_latents"], _CACHED),
    "cache_latents_to_disk": (["--cache_latents_to_disk"], _CACHED),
    "sample_prompts": ([_FILE], {"run.preview.every": "2 epochs", "sample.prompt_file": "prompts.txt", **_SAMPLED}),
    "prompt": (
        ["--prompt", "a fox --w 768", "a dog --w 768"],
        {"run.preview.every": "2 epochs", **_SAMPLED, "sample.prompts": ["a fox", "a dog"], "sample.size": [768, 512]},
    ),
    "sample_every_n_steps": (
        ["--sample_every_n_steps=20"],
        {"run.preview.every": "20 steps", **_SAMPLED, "sample.prompt_file": "prompts.txt"},
    ),
    "sample_every_n_epochs": (
        [_EPOCHS],
        {"run.preview.every": "2 epochs", **_SAMPLED, "sample.prompt_file": "prompts.txt"},
    ),
    "sample_at_first": (
        ["--sample_at_first"],
        {"run.preview.every": "1000000 epochs", **_SAMPLED, "sample.prompt_file": "prompts.txt"},
    ),
    "sample_sampler": (["--sample_sampler=k_euler_a"], {"sample.solver": "euler-a"}),
}
BESIDE: dict[str, Sequence[str]] = {
    "prior_loss_weight": ["--reg_data_dir=reg"],
    "dataset_repeats": ["--in_json=meta.json"], "min_bucket_reso": ["--enable_bucket"],
    "max_bucket_reso": ["--enable_bucket"], "bucket_reso_steps": ["--enable_bucket"],
    "bucket_no_upscale": ["--enable_bucket"], "keep_tokens_separator": ["--shuffle_caption"],
    "secondary_separator": ["--shuffle_caption"], "keep_tokens": ["--shuffle_caption"],
    "sample_prompts": [_EPOCHS], "prompt": [_EPOCHS],
    "sample_every_n_steps": [_FILE], "sample_every_n_epochs": [_FILE], "sample_at_first": [_FILE],
    "sample_sampler": [_FILE, _EPOCHS],
}  # fmt: skip
IMPOSSIBLE: tuple[tuple[Any, ...], ...] = (
    (["--resolution=1,2,3"], "--resolution"), (["--resolution=514"], "--resolution"),
    (["--enable_bucket", "--bucket_reso_steps=1"], "--resolution"),
    (["--caption_extension=txt"], "--caption_extension"), (["--keep_tokens=-1"], "--keep_tokens"),
    (["--caption_dropout_rate=1.5"], "--caption_dropout_rate", "E1017"),
    (["--cache_latents", "--random_crop"], "--cache_latents", "E1018"),
    (["--dataset_config=none.toml"], "--dataset_config", "E1017"),
    (["--sample_every_n_steps=0", "--sample_prompts=prompts.txt"], "--sample_every_n_steps", "E1017"),
    (["--sample_sampler=eulerr"], "--sample_sampler", "E1017"),
    (["--sample_every_n_epochs=1", "--sample_prompts=none.txt"], "--sample_prompts", "E1017"),
)  # fmt: skip
FILES: dict[str, str] = {"prompts.txt": "a fox\na dog --w 768 --h 512 --d 3\n"}

ELSEWHERE = {"dataset_config", "masked_loss"}
"""Options that act only with a data set file."""
