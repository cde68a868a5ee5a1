"""Data sets of a command line or of a data set file, as `data`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mezzotint.compat.kit.dialect import Draft
from mezzotint.compat.kit.setting_files import SettingsFile
from mezzotint.compat.kohya._data_rows import (
    COLORS,
    NO_FACES,
    PRESERVATION,
    SEPARATORS,
    SPLITS,
    WARM_UP,
)
from mezzotint.compat.kohya._dataset_file import DEFAULTS, DatasetFile, Subset, fall_back, read_dataset_file
from mezzotint.compat.kohya._run import set_held_out_images, set_validation_interval
from mezzotint.compat.kohya._scripts import Script
from mezzotint.compat.kohya._subsets import ImageFolder, read_subset, splits_tags
from mezzotint.errors import Problem

ALL_HELD_OUT = 1_000_000
"""A number of held-out images that is never reached."""
_CACHED_CROPS = 4
"""Crops of each image in a cache, of which about half are mirrored."""

_AWAITED = {
    "color_aug": COLORS,
    "token_warmup_step": WARM_UP,
    "custom_attributes": PRESERVATION,
}
"""Keys of data set files that wait for a feature."""


def set_data(draft: Draft, script: Script) -> None:
    """Sets the section `data`."""
    if draft.values.get("dataset_config") is not None:
        _set_from_file(draft, script)
    else:
        _set_from_line(draft, script)
    _set_caches(draft)
    if "data.captions.template" in draft.origin:
        draft.set("data.captions.wildcards", True, "use_object_template", "use_style_template")  # of its alternatives
    is_numbered = not draft.text("dataset_config") and not draft.text("in_json")
    draft.set("data.format", "kohya" if is_numbered else "kohya-subsets", "dataset_config", "in_json", "train_data_dir")
    draft.set("data.captions.missing", "empty", "caption_extension")


# --- command lines --------------------------------------------------------------------------------------------------


def _set_from_line(draft: Draft, script: Script) -> None:
    folder, metadata = draft.text("train_data_dir"), draft.text("in_json")
    if not folder and not any(problem.where == "--train_data_dir" for problem in draft.problems):
        draft.refuse("train_data_dir", "neither it nor --dataset_config is given; the script needs one", code="E1017")
        return
    if script.name == "fine_tune" and not metadata:
        message = "fine_tune.py needs it, or --dataset_config"
        draft.refuse("in_json", f"is missing; {message}", code="E1017")
    values = fall_back(draft)
    if not metadata:
        values["num_repeats"] = 1
        if draft.is_given("dataset_repeats"):
            draft.note("dataset_repeats", "has no effect without --in_json; the folders' names have the repeats")
    one = read_subset(draft, Subset(0, values), folder, is_class=False)
    draft.set("data.path", folder, "train_data_dir")
    for path, value in one.settings.items():
        draft.set(f"data.{path}", value, *_flags_of(path))
    if metadata:
        draft.set("data.kohya_subsets.metadata_file", metadata, "in_json")
    if reg := draft.text("reg_data_dir"):
        if metadata:
            draft.note("reg_data_dir", "has no effect with --in_json, as in the scripts")
        else:
            draft.set("data.prior.path", reg, "reg_data_dir")
    _check_prior_weight(draft, is_used="data.prior.path" in draft.origin)
    if draft.values.get("masked_loss") and not draft.values.get("alpha_mask"):
        message = "has no effect here: masks are in conditioning_data_dir of a data set file, or in the alpha channel"
        draft.note("masked_loss", f"{message} with --alpha_mask")


def _flags_of(path: str) -> tuple[str, ...]:
    """The options that a setting comes from, the most important first."""
    return {
        "repeats": ("dataset_repeats",),
        "batch_size": ("train_batch_size",),
        "resolution": ("resolution",),
        "buckets.shape": ("enable_bucket", "bucket_no_upscale", "resolution"),
        "buckets.sizes": ("enable_bucket", "resolution", "min_bucket_reso", "max_bucket_reso", "bucket_reso_steps"),
        "buckets.step": ("bucket_reso_steps", "resolution"),
        "buckets.min_side": ("min_bucket_reso",),
        "buckets.max_side": ("max_bucket_reso",),
        "crop": ("random_crop",),
        "flip": ("flip_aug",),
        "resize": ("resize_interpolation",),
        "captions.extension": ("caption_extension",),
        "captions.prefix": ("caption_prefix",),
        "captions.suffix": ("caption_suffix",),
        "captions.keep_separator": ("keep_tokens_separator",),
        "captions.second_separator": ("secondary_separator",),
        "captions.dropout": ("caption_dropout_rate",),
        "captions.dropout_every": ("caption_dropout_every_n_epochs",),
        "captions.tag_dropout": ("caption_tag_dropout_rate",),
        "captions.shuffle_tags": ("shuffle_caption",),
        "captions.keep_tags": ("keep_tokens",),
        "captions.wildcards": ("enable_wildcard",),
        "captions.lines": ("enable_wildcard",),
        "mask.source": ("alpha_mask", "masked_loss"),
        "mask.mean": ("alpha_mask", "masked_loss"),
    }[path]


# --- data set files -------------------------------------------------------------------------------------------------


def _set_from_file(draft: Draft, script: Script) -> None:
    flag = "dataset_config"
    for other in ("train_data_dir", "reg_data_dir", "in_json"):
        if draft.is_given(other):
            draft.note(other, "has no effect with --dataset_config, as in the scripts")
    contents = read_dataset_file(draft, script)
    draft.problems += contents.problems
    if contents.problems or contents.file is None:
        return
    sets = _read_sets(draft, contents)
    if not any(not one.is_class for one in sets):
        draft.refuse(flag, "has no folder of images that are not class images", code="E1017")
        return
    _set_shared(draft, sets)
    _set_folder_rules(draft, sets)
    entries = [_entry(one) for one in sets]
    if len(entries) == 1 and list(entries[0]) == ["path"]:
        draft.set("data.path", entries[0]["path"], flag)
    else:
        draft.set("data.sets", entries, flag)
    has_class = any(one.is_class for one in sets)
    _check_prior_weight(draft, is_used=has_class)
    if has_class and len({one.subset.number for one in sets}) > 1:
        text = "class images are visited as often as all others together; the scripts count each [[datasets]]"
        draft.note(flag, text)
    batches = {(one.subset.text("resolution"), one.subset.integer("batch_size")) for one in sets}
    if len(batches) < len({one.subset.number for one in sets}):
        draft.note(flag, "data sets of one batch size share batches, so an epoch may have fewer steps")
    _set_holdout(draft, contents)


def _read_sets(draft: Draft, contents: DatasetFile) -> list[ImageFolder]:
    """The sets of a file; problems are added to the draft."""
    assert contents.file is not None
    file, sets = contents.file, []
    read: set[tuple[int, str]] = set()
    for subset in contents.subsets:
        where = file.where(subset.key_path)
        if subset.integer("num_repeats") < 1:
            draft.note("dataset_config", f"{where} is left out: num_repeats is {subset.integer('num_repeats')}")
            continue
        identity = (subset.number, subset.text("metadata_file") or subset.text("image_dir"))
        if identity in read:
            draft.note("dataset_config", f"{where} is left out: its data set has the same images already")
            continue
        read.add(identity)
        for key, feature in _find_awaited(subset).items():
            key_path = subset.sources.get(key)
            if key_path is not None:  # others are refused by their rows
                message = f"needs {feature}, which Mezzotint does not have yet"
                draft.problems.append(file.problem(key_path, message, "leave it out"))
        if subset.number_of("network_multiplier") != 1.0:
            key_path = subset.sources["network_multiplier"]
            draft.problems.append(file.problem(key_path, "other multipliers than 1 are not supported", "leave it out"))
        if key_path := subset.sources.get("face_crop_aug_range"):
            draft.problems.append(file.problem(key_path, NO_FACES))
        metadata, folder = subset.text("metadata_file"), subset.text("image_dir")
        if not folder:
            folder = metadata.replace("\\", "/").rpartition("/")[0] or "."
        before = len(draft.problems)
        one = read_subset(draft, subset, folder, is_class=subset.is_on("is_reg"))
        draft.problems[before:] = [_in_file(draft, file, subset, one) for one in draft.problems[before:]]
        if metadata:
            one.rules["metadata_file"] = metadata
        _read_masks(draft, contents, one)
        sets.append(one)
    _set_preservation(draft, file, sets)
    return sets


def _set_preservation(draft: Draft, file: SettingsFile, sets: Sequence[ImageFolder]) -> None:
    """Regularization images whose target is the prediction without the network."""
    of_classes = [one.subset for one in sets if one.subset.is_on("is_reg")]
    preserved = [subset for subset in of_classes if subset.values["custom_attributes"]]
    if not preserved:
        return
    if len(preserved) < len(of_classes):
        message = "diff_output_preservation is on for some sets with is_reg and not for others"
        key_path = preserved[0].sources["custom_attributes"]
        draft.problems.append(file.problem(key_path, message, "write it for all of them, or for none"))
        return
    draft.set("objective.preserve.kind", "class-images", "dataset_config")


def _needs_feature(subset: Subset, key: str) -> bool:
    if key == "custom_attributes" and subset.is_on("is_reg"):
        return False
    return subset.values[key] not in (None, "", DEFAULTS.get(key), False)


def _in_file(draft: Draft, file: SettingsFile, subset: Subset, problem: Problem) -> Problem:
    """A problem of an option, as one of the file unless the command line has the option."""
    key = problem.where.removeprefix("--").replace("train_batch_size", "batch_size")
    if key not in subset.sources and draft.is_given(key):
        return problem
    key_path = subset.sources.get(key, (*subset.key_path[:2], key))
    return file.problem(key_path, problem.message, problem.remedy, problem.code)


def _find_awaited(subset: Subset) -> dict[str, str]:
    """The keys of a subset that wait for a feature, by key."""
    names = dict(_AWAITED)
    if splits_tags(subset):
        names["caption_separator"] = SEPARATORS
    return {key: feature for key, feature in names.items() if _needs_feature(subset, key)}


def _read_masks(draft: Draft, contents: DatasetFile, one: ImageFolder) -> None:
    folder = one.subset.text("conditioning_data_dir")
    if not folder:
        return
    if draft.values.get("masked_loss"):
        one.settings |= {"mask.source": "files", "mask.path": folder, "mask.mean": "image"}
        return
    assert contents.file is not None
    key_path = (*one.subset.key_path, "conditioning_data_dir")
    message = "is a folder of masks only with --masked_loss"
    draft.problems.append(contents.file.problem(key_path, message, "add --masked_loss, or leave it out"))


def _set_shared(draft: Draft, sets: list[ImageFolder]) -> None:
    """Sets what all sets have in common, and removes it from them."""
    if any("mask.source" in one.settings for one in sets):
        for one in sets:  # files of which there are none: images without a mask count in full
            one.settings = {"mask.source": "files", "mask.mean": "image", **one.settings}
    values = {path: [one.settings.get(path) for one in sets] for one in sets for path in one.settings}
    common = {path for path, every in values.items() if all(value == every[0] for value in every)}
    if any(path.startswith("buckets.") for path in values.keys() - common):
        common = {path for path in common if not path.startswith("buckets.")}
    for path, every in values.items():
        if path in common or path == "mask.source":
            draft.set(f"data.{path}", every[0], "dataset_config", *_flags_of_file(path))
        elif path == "resize":
            draft.refuse("dataset_config", "has several values of resize_interpolation; all images have the same one")
    for one in sets:
        one.settings = {path: value for path, value in one.settings.items() if path not in common}
    for one in sets:
        one.settings.pop("resize", None)
    draft.origin |= (
        {"data.resolution": draft.display_name("dataset_config")} if "data.resolution" in draft.origin else {}
    )


def _flags_of_file(path: str) -> tuple[str, ...]:
    return () if path == "mask.path" else _flags_of(path)


def _set_folder_rules(draft: Draft, sets: list[ImageFolder]) -> None:
    """Sets the rules that all folders have in common, and those of single folders."""
    by_folder: dict[str, dict[str, Any]] = {}
    for one in sets:
        if by_folder.setdefault(one.path, one.rules) != one.rules:
            message = f"has {one.path} several times, with other captions"
            draft.refuse("dataset_config", message, "use one value of class_tokens")
    names = dict.fromkeys(name for rules in by_folder.values() for name in rules)
    folders: dict[str, dict[str, Any]] = {path: {} for path in by_folder}
    for name in names:
        values = [rules.get(name) for rules in by_folder.values()]
        if all(value == values[0] for value in values):
            draft.set(f"data.kohya_subsets.{name}", values[0], "dataset_config")
        else:
            for path, value in zip(by_folder, values, strict=True):
                folders[path] |= {name: value} if value is not None else {}
    entries = [{"path": path, **rules} for path, rules in folders.items() if rules]
    if entries:
        draft.set("data.kohya_subsets.folders", entries, "dataset_config")


def _entry(one: ImageFolder) -> dict[str, Any]:
    """An entry of `data.sets`."""
    entry: dict[str, Any] = {"path": one.path}
    if one.is_class:
        entry["class_images"] = True
    for path, value in one.settings.items():
        *sections, last = path.split(".")
        inner = entry
        for section in sections:
            inner = inner.setdefault(section, {})
        inner[last] = value
    return entry


def _set_holdout(draft: Draft, contents: DatasetFile) -> None:
    shares = {subset.number_of("validation_split") for subset in contents.subsets}
    if shares == {0.0} or not any("validation_split" in subset.sources for subset in contents.subsets):
        return
    if len(shares) > 1 or not 0 < next(iter(shares)) < 1:
        remedy = "write one share below 1 for all, in [general]"
        draft.refuse("dataset_config", f"needs {SPLITS}, which Mezzotint does not have yet", remedy)
        return
    draft.set("data.holdout.fraction", shares.pop(), "dataset_config")
    set_validation_interval(draft, "dataset_config")
    draft.set("data.holdout.max_samples", ALL_HELD_OUT, "dataset_config")
    set_held_out_images(draft)


def _check_prior_weight(draft: Draft, *, is_used: bool) -> None:
    """Drops the weight of class images if there are none."""
    if not is_used and draft.values.get("prior_loss_weight") != 1.0:
        draft.set("data.prior.weight", 1.0, "prior_loss_weight")
        draft.note("prior_loss_weight", "has no effect without class images")


def _set_caches(draft: Draft) -> None:
    flags = ("cache_latents", "cache_latents_to_disk")
    is_cached = any(draft.values.get(flag) for flag in flags)
    for flag in flags:
        if flag in draft.rows:
            draft.set("data.cache.latents", is_cached, *flags)
    data: Mapping[str, Any] = draft.settings.get("data", {})
    every = [data, *data.get("sets", ())]
    if is_cached:
        draft.set("data.cache.content", "sample", *flags)
        if any(one.get("crop") == "random" for one in every):
            draft.refuse("cache_latents", "cannot be combined with random_crop, as in the scripts", "leave out one")
        if any(one.get("flip") for one in every):
            draft.set("data.cache.crops", _CACHED_CROPS, "flip_aug", *flags)
            draft.note("flip_aug", f"{_CACHED_CROPS} latents of each image are cached, each mirrored or not by chance")
    if draft.values.get("cache_text_encoder_outputs") or draft.values.get("cache_text_encoder_outputs_to_disk"):
        captions = [one.get("captions", {}) for one in every]
        named = {"shuffle_tags": "shuffle_caption", "tag_dropout": "caption_tag_dropout_rate"}
        for name, flag in named.items():
            if any(one.get(name) for one in captions):
                message = "cannot be combined with cache_text_encoder_outputs, as in the scripts"
                draft.refuse(flag, message, "leave out one of them")
