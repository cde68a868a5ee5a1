"""One folder of images, as the settings of a set and the rules of its folder."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from mezzotint.compat.kit.dialect import Draft
from mezzotint.compat.kohya._buckets import parse_resolution, settings_of_sizes
from mezzotint.compat.kohya._data_rows import FILTERS
from mezzotint.compat.kohya._dataset_file import Subset

_HALF = 0.5


@dataclass(slots=True)
class ImageFolder:
    """A set of images. settings: by path below an entry of `data.sets`. rules: by path below `data.kohya_subsets`.
    path: its folder. origin: of its key in messages."""

    subset: Subset
    path: str
    is_class: bool
    settings: dict[str, Any] = field(default_factory=dict)
    rules: dict[str, Any] = field(default_factory=dict)


def read_subset(draft: Draft, subset: Subset, path: str, *, is_class: bool) -> ImageFolder:
    """The settings and rules of a subset. Problems are added to the draft under the names of options."""
    one = ImageFolder(subset, path, is_class)
    if subset.integer("batch_size") < 1:
        draft.refuse("train_batch_size", f"must be 1 or more, got {subset.integer('batch_size')}", code="E1017")
    one.settings = {
        "repeats": float(subset.integer("num_repeats")),
        "batch_size": subset.integer("batch_size") * draft.launched.processes,
        **_sizes(draft, subset),
        "crop": "random" if subset.is_on("random_crop") else "center",
        "flip": _HALF if subset.is_on("flip_aug") else 0.0,
        "resize": FILTERS.get(subset.text("resize_interpolation"), "area"),
        **_captions(draft, subset),
    }
    if subset.is_on("alpha_mask"):
        one.settings |= {"mask.source": "alpha", "mask.mean": "image"}
    one.rules = _rules(draft, subset)
    return one


def _sizes(draft: Draft, subset: Subset) -> dict[str, Any]:
    if not subset.text("resolution"):
        draft.refuse("resolution", "is missing", "write a side such as 512, or width,height", "E1017")
        return {}
    if subset.is_on("enable_bucket"):
        text = "an image goes to the bucket nearest in log(width / height); in the scripts, in width / height"
        note_once(draft, "enable_bucket", text)
    elif subset.is_on("random_crop"):
        text = "images are resized to cover the size before they are cropped; without buckets the scripts only crop"
        note_once(draft, "random_crop", text)
    try:
        width, height = parse_resolution(subset.text("resolution"))
        return settings_of_sizes(
            width, height, buckets=subset.is_on("enable_bucket"), least=subset.integer("min_bucket_reso"),
            most=subset.integer("max_bucket_reso"), step=max(1, subset.integer("bucket_reso_steps")),
        )  # fmt: skip
    except ValueError as error:
        draft.refuse("resolution", str(error), code="E1017")
        return {}


def splits_tags(subset: Subset) -> bool:
    return subset.is_on("shuffle_caption") or subset.number_of("caption_tag_dropout_rate") > 0


def _captions(draft: Draft, subset: Subset) -> dict[str, Any]:
    keep, wildcards = subset.integer("keep_tokens"), subset.is_on("enable_wildcard")
    for key in ("caption_dropout_rate", "caption_tag_dropout_rate"):
        if not 0 <= subset.number_of(key) <= 1:
            draft.refuse(key, f"must be 0 to 1, got {subset.number_of(key):g}", code="E1017")
    if keep < 0:
        draft.refuse("keep_tokens", f"must be 0 or more, got {keep}", code="E1017")
    if splits_tags(subset) and wildcards and keep == 0:
        note_once(draft, "enable_wildcard", "the first tag of a caption stays where it is, as with keep_tokens 1")
    first = splits_tags(subset) and not wildcards
    values: dict[str, Any] = {
        "captions.shuffle_tags": subset.is_on("shuffle_caption"),
        "captions.keep_tags": max(0, keep if first else keep - 1) if splits_tags(subset) else 0,
        "captions.wildcards": wildcards,
        "captions.lines": "random" if wildcards else "first",
        "captions.dropout": subset.number_of("caption_dropout_rate"),
        "captions.tag_dropout": subset.number_of("caption_tag_dropout_rate"),
    }
    return values


def note_once(draft: Draft, flag: str, text: str) -> None:
    if all(note.text != text for note in draft.notes):
        draft.note(flag, text)


def _rules(draft: Draft, subset: Subset) -> dict[str, Any]:
    rules: dict[str, Any] = {"shuffle_first": splits_tags(subset) and not subset.is_on("enable_wildcard")}
    extension = subset.text("caption_extension")
    if not extension.startswith(".") or "/" in extension or "\\" in extension:
        draft.refuse("caption_extension", f"must begin with a dot, got {extension}", "write .txt", "E1017")
    rules["caption_extension"] = extension
    for key in ("class_tokens", "caption_prefix", "caption_suffix"):
        if subset.text(key):
            rules[key] = subset.text(key)
    return rules
