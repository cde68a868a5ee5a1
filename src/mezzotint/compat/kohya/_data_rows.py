"""Options of data sets, captions, buckets, augmentation and masks, and of sample prompts."""

from __future__ import annotations

from mezzotint.compat.kit.dialect import Row, ignored, refused, row, waits

SEPARATORS = "other caption separators"
WARM_UP = "tag warm-up"
COLORS = "color augmentation"
SPLITS = "validation splits of single data sets"
PRESERVATION = "differential output preservation of images without is_reg"
"""Features that options wait for."""
NO_FACES = "crops around faces are not supported; crop the images beforehand"

SAMPLERS = {
    "ddim": "ddim", "pndm": "pndm", "lms": "lms", "euler": "euler", "euler_a": "euler-a", "heun": "heun",
    "dpm_2": "dpm2", "dpm_2_a": "dpm2-a", "dpmsolver": "dpm++", "dpmsolver++": "dpm++", "dpmsingle": "dpm++-single",
    "k_lms": "lms", "k_euler": "euler", "k_euler_a": "euler-a", "k_dpm_2": "dpm2", "k_dpm_2_a": "dpm2-a",
}  # fmt: skip
"""Solvers by the scripts' names."""

FILTERS = {
    "lanczos": "lanczos", "nearest": "nearest", "bilinear": "bilinear", "linear": "bilinear", "bicubic": "bicubic",
    "cubic": "bicubic", "area": "area",
}  # fmt: skip
"""Filters by the scripts' names."""

# fmt: off
_SOURCES = (
    row("dataset_config", str, "data.sets data.path",
        "a TOML file of data sets; replaces --train_data_dir, --reg_data_dir and --in_json"),
    row("train_data_dir", str, "data.path data.format",
        "a folder of folders such as `10_sks dog`; with --in_json the folder of images"),
    row("reg_data_dir", str, "data.prior.path", "class images, in folders such as `1_dog`"),
    row("in_json", str, "data.kohya_subsets.metadata_file", "captions and tags of images; sizes in it are not used"),
    row("dataset_repeats", 1, "data.repeats", "for --in_json, and for data sets of a file without num_repeats"),
    refused("dataset_class", str, "Python classes of data sets cannot be loaded; write a data set file"),
    refused("debug_dataset", False, "use mezzotint check, which counts images, captions and buckets"),
)

_SIZES = (
    row("resolution", str, "data.resolution data.buckets.shape data.buckets.sizes data.buckets.step",
        "a side, or width,height"),
    row("enable_bucket", False, "data.buckets.shape",
        "the scripts' list of sizes; without it every image is cropped to --resolution"),
    row("min_bucket_reso", 256, "data.buckets.min_side data.buckets.sizes", "the shortest side of a bucket", least=64),
    row("max_bucket_reso", 1024, "data.buckets.max_side data.buckets.sizes", "the longest side of a bucket", least=64),
    row("bucket_reso_steps", 64, "data.buckets.step data.buckets.sizes", "sides of buckets are multiples of it",
        least=1),
    row("bucket_no_upscale", False, "data.buckets.shape", "small images keep their size; with --enable_bucket"),
    row("resize_interpolation", str, "data.resize", "area without it", choices=tuple(FILTERS)),
)

_CAPTIONS = (
    row("caption_extension", ".caption", "data.captions.extension",
        ".caption or .txt; images without a file have their folder's words"),
    row("caption_extention", str, "data.captions.extension", "its old name", now="caption_extension"),
    row("caption_prefix", str, "data.captions.prefix", "text before each caption"),
    row("caption_suffix", str, "data.captions.suffix", "text after each caption"),
    row("shuffle_caption", False, "data.captions.shuffle_tags",
        "the tags after --keep_tokens, at each visit"),
    row("keep_tokens", 0, "data.captions.keep_tags", "leading tags that stay", least=0),
    row("keep_tokens_separator", "", "data.captions.keep_separator", "text that divides kept tags from others",
        may_be_empty=True),
    row("secondary_separator", str, "data.captions.second_separator",
        "text that joins tags; with shuffled or dropped tags"),
    waits("caption_separator", ",", SEPARATORS, "text between tags"),
    row("enable_wildcard", False, "data.captions.wildcards data.captions.lines",
        "`{a|b}`, and one line of several, at each visit"),
    row("caption_dropout_rate", 0.0, "data.captions.dropout", "the empty caption instead", least=0, most=1),
    row("caption_dropout_every_n_epochs", 0, "data.captions.dropout_every", "every n-th epoch has no captions",
        least=0),
    row("caption_tag_dropout_rate", 0.0, "data.captions.tag_dropout", "of each tag after --keep_tokens",
        least=0, most=1),
    waits("token_warmup_step", 0.0, WARM_UP, "the step from which all tags are used"),
    ignored("token_warmup_min", 1, "has no effect without --token_warmup_step"),
)

_IMAGES = (
    row("flip_aug", False, "data.flip", "half of the visits are mirrored"),
    row("random_crop", False, "data.crop", "instead of the middle"),
    waits("color_aug", False, COLORS, "random changes of color"),
    refused("face_crop_aug_range", str, NO_FACES),
    row("alpha_mask", False, "data.mask.source data.mask.mean", "the alpha channel weights the loss"),
    row("masked_loss", False, "data.mask.source data.mask.mean",
        "mask files weight the loss, in conditioning_data_dir of a data set file"),
    ignored("conditioning_data_dir", str, "is only read from a data set file, with --masked_loss"),
    row("cache_latents", False, "data.cache.latents data.cache.content", "one sample of each latent"),
    row("cache_latents_to_disk", False, "data.cache.latents data.cache.content",
        "as --cache_latents: the cache is on disk, in its own folder"),
    ignored("vae_batch_size", 1, "only changes the speed of caching"),
    ignored("skip_cache_check", False, "entries of the cache are addressed by what they depend on"),
    ignored("cache_info", False, "images are listed once and remembered"),
)

DATA: tuple[Row, ...] = (*_SOURCES, *_SIZES, *_CAPTIONS, *_IMAGES)
"""Options that describe the data."""

PREVIEWS: tuple[Row, ...] = (
    row("sample_prompts", str, "sample.prompt_file sample.prompts sample.size sample.seed sample.steps sample.guidance "
        "sample.negative_prompt", "a .txt, .toml or .json file"),
    row("prompt", list, "sample.prompts sample.size sample.seed sample.steps sample.guidance sample.negative_prompt",
        "prompts as in the lines of the file, as the GUI's settings files have them"),
    row("sample_every_n_steps", int, "run.preview.every", "unless --sample_every_n_epochs is given", least=1),
    row("sample_every_n_epochs", int, "run.preview.every", "epochs between samples", least=1),
    row("sample_at_first", False, "run.preview.every", "Mezzotint always samples before the first step, too"),
    row("sample_sampler", "ddim", "sample.solver", "flow-matching models use Euler", choices=tuple(SAMPLERS)),
)
"""Options of sampling during training."""
# fmt: on

DATA_SCRIPTS: dict[str, str] = {
    "reg_data_dir": "adapter embeddings train_db sdxl_train flux_train sd3_train",
    "in_json": "adapter embeddings fine_tune sdxl_train flux_train sd3_train",
    "dataset_repeats": "adapter embeddings fine_tune sdxl_train flux_train sd3_train",
    "caption_dropout_rate": "adapter weights",
    "caption_dropout_every_n_epochs": "adapter weights",
    "caption_tag_dropout_rate": "adapter weights",
    "masked_loss": "adapter embeddings train_db sdxl_train flux_train sd3_train",
    "conditioning_data_dir": "adapter embeddings train_db sdxl_train flux_train sd3_train",
}
"""Selectors (`Script.is_one_of`) of options in these tables that only some scripts have, by flag."""
