"""One folder of images, as the settings of a set and the rules of its folder."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from mezzotint.compat.kit.dialect import Draft
from mezzotint.compat.kohya._buckets import parse_resolution, settings_of_sizes
from mezzotint.compat.kohya._data_rows import FILTERS
from mezzotint.compat.kohya._dataset_file import Subset

EXTENSIONS = (".caption", ".txt")
"""Ends of the names of caption files."""
_TEXTS = {
    "prefix": "caption_prefix", "suffix": "caption_suffix", "keep_separator": "keep_tokens_separator",
    "second_separator": "secondary_separator",
}  # fmt: skip
"""Keys of texts, by name below `data.captions`."""
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
    if subset.text("class_tokens"):
        one.rules["class_tokens"] = subset.text("class_tokens")
    return one


def _sizes(draft: Draft, subset: Subset) -> dict[str, Any]:
    if not subset.text("resolution"):
        draft.refuse("resolution", "is missing", "write a side such as 512, or width,height", "E1017")
        return {}
    buckets, enlarges = subset.is_on("enable_bucket"), not subset.is_on("bucket_no_upscale")
    if not enlarges:
        _note_own_sizes(draft, subset)
    if not buckets and subset.is_on("random_crop"):
        text = "images are resized to cover the size before they are cropped; without buckets the scripts only crop"
        note_once(draft, "random_crop", text)
    try:
        width, height = parse_resolution(subset.text("resolution"))
        sizes = settings_of_sizes(
            width, height, buckets=buckets, least=subset.integer("min_bucket_reso"), enlarges=enlarges,
            most=subset.integer("max_bucket_reso"), step=max(1, subset.integer("bucket_reso_steps")),
        )  # fmt: skip
    except ValueError as error:
        draft.refuse("resolution", str(error), code="E1017")
        return {}
    side = sizes["resolution"]
    if buckets and enlarges and "buckets.sizes" in sizes:
        text = "an image goes to the size nearest in log(width / height); in the scripts, in width / height"
        note_once(draft, "resolution", text)
    elif buckets and side**2 != width * height:
        note_once(draft, "resolution", f"images with more than {side}×{side} pixels are reduced to about that many")
    return sizes


def _note_own_sizes(draft: Draft, subset: Subset) -> None:
    if not subset.is_on("enable_bucket"):
        note_once(draft, "bucket_no_upscale", "has no effect without enable_bucket, as in the scripts")
        return
    for flag in ("min_bucket_reso", "max_bucket_reso"):
        if flag in subset.sources or draft.is_given(flag):
            note_once(draft, flag, f"{flag} has no effect with bucket_no_upscale, as in the scripts")


def splits_tags(subset: Subset) -> bool:
    return subset.is_on("shuffle_caption") or subset.number_of("caption_tag_dropout_rate") > 0


def _captions(draft: Draft, subset: Subset) -> dict[str, Any]:
    keep, wildcards, splits = subset.integer("keep_tokens"), subset.is_on("enable_wildcard"), splits_tags(subset)
    for key in ("caption_dropout_rate", "caption_tag_dropout_rate"):
        if not 0 <= subset.number_of(key) <= 1:
            draft.refuse(key, f"must be 0 to 1, got {subset.number_of(key):g}", code="E1017")
    for key in ("keep_tokens", "caption_dropout_every_n_epochs"):
        if subset.integer(key) < 0:
            draft.refuse(key, f"must be 0 or more, got {subset.integer(key)}", code="E1017")
    if subset.text("caption_extension") not in EXTENSIONS:
        message = f"must be {' or '.join(EXTENSIONS)}, got {subset.text('caption_extension')}"
        draft.refuse("caption_extension", message, "name the caption files so", "E1017")
    if subset.text("secondary_separator") and not splits:
        message = "only acts on captions whose tags are shuffled or dropped here; in the scripts on all"
        draft.refuse("secondary_separator", message, "add shuffle_caption, or leave it out")
    if subset.text("keep_tokens_separator") and not splits:
        note_once(draft, "keep_tokens_separator", "only acts with shuffle_caption or caption_tag_dropout_rate")
    texts = {name: subset.text(key) for name, key in _TEXTS.items() if splits or not name.endswith("separator")}
    return {
        "captions.extension": subset.text("caption_extension"),
        **{f"captions.{name}": text for name, text in texts.items() if text},
        "captions.shuffle_tags": subset.is_on("shuffle_caption"),
        "captions.keep_tags": max(0, keep) - 1 if splits else 0,
        "captions.wildcards": wildcards,
        "captions.lines": "random" if wildcards else "first",
        "captions.dropout": subset.number_of("caption_dropout_rate"),
        "captions.dropout_every": max(0, subset.integer("caption_dropout_every_n_epochs")),
        "captions.tag_dropout": subset.number_of("caption_tag_dropout_rate"),
    }


def note_once(draft: Draft, flag: str, text: str) -> None:
    if all(note.text != text for note in draft.notes):
        draft.note(flag, text)
