"""Settings of the data that depend on several flags: images, captions, sizes, caches, batches and class images."""

from __future__ import annotations

from mezzotint.compat.diffusers_scripts._scripts import ExampleScript
from mezzotint.compat.kit.caption_templates import SENTENCES
from mezzotint.compat.kit.derived import bucket_step
from mezzotint.compat.kit.dialect import Draft

_FLOW_CELL = 16
"""Sides are multiples of so many pixels for flow-matching models; of 8 for others."""
_RATIOS = ((1, 1), (4, 5), (5, 4), (2, 3), (3, 2), (3, 4), (4, 3), (9, 16), (16, 9), (1, 2), (2, 1))
"""Aspect ratios, width to height, of the scripts' default buckets."""


def compute_data(draft: Draft, script: ExampleScript) -> None:
    """Sets the section `data`, and the length of the run."""
    match script.data:
        case "captions":
            _set_captioned_images(draft)
        case "edits":
            _set_captioned_images(draft)
            column = draft.text("original_image_column")
            draft.set("data.conditions.source.column", column, "original_image_column")
        case "subject":
            _set_subject_images(draft)
        case "token":
            _set_token_images(draft)
    _set_sizes(draft, script)
    if script.encodes_first:
        _note_encoding(draft)
    if script.is_flow:
        _set_caches(draft, script)
    _set_batches(draft)
    _set_class_images(draft)


def _set_captioned_images(draft: Draft) -> None:
    """Sets a data set or a folder, with a caption for each image."""
    name, folder = draft.text("dataset_name"), draft.text("train_data_dir")
    misread = any(problem.where == "--dataset_name" for problem in draft.problems)
    if not name and not folder and not misread:
        draft.refuse(
            "train_data_dir", "neither it nor --dataset_name is given; the script needs one of them", code="E1017"
        )
    if name and folder:
        draft.note("train_data_dir", "--dataset_name is used; the data set is read without this folder")
    values = {"data.format": "metadata", "data.path": name or folder}
    draft.set_all(values, "dataset_name" if name else "train_data_dir")


def _set_subject_images(draft: Draft) -> None:
    """Sets a folder with one prompt for all images, or a data set that may have captions."""
    takes_table = "dataset_name" in draft.rows
    name, column = (draft.text(flag) if takes_table else "" for flag in ("dataset_name", "caption_column"))
    folder, prompt = draft.text("instance_data_dir"), draft.text("instance_prompt")
    if bool(name) == bool(folder):
        message = "and --dataset_name are both given" if name else "is not given, nor --dataset_name"
        draft.refuse("instance_data_dir", f"{message}; the script takes one of them", code="E1017")
    kind = "metadata" if name else "image-folder"
    draft.set_all({"data.path": name or folder, "data.format": kind}, "dataset_name" if name else "instance_data_dir")
    if takes_table:
        draft.set("data.columns.image", draft.text("image_column") if name else "image", "image_column")
        _set_repeats(draft)
    if name and column:
        draft.set("data.columns.caption", column, "caption_column")
        draft.note("instance_prompt", "--caption_column is used")
    else:
        draft.set_all({"data.captions.trigger": prompt, "data.captions.template": "{trigger}"}, "instance_prompt")


def _set_token_images(draft: Draft) -> None:
    """Sets a folder, with caption templates around the learned token for all images."""
    draft.set_all({"data.path": draft.text("train_data_dir"), "data.format": "image-folder"}, "train_data_dir")
    _set_repeats(draft)
    word, begins = draft.text("placeholder_token"), draft.text("initializer_token")
    draft.set("model.tokens.words", {word: begins}, "placeholder_token", "initializer_token")
    draft.set("data.captions.trigger", word, "placeholder_token")
    sentences = SENTENCES.get(draft.text("learnable_property"), SENTENCES["object"])
    template = f"{{{'|'.join(one.format('{trigger}') for one in sentences)}}}"
    draft.set_all({"data.captions.template": template, "data.captions.wildcards": True}, "learnable_property")
    unfit = sorted({*word} & {*"{|}"})
    if unfit:
        draft.refuse("placeholder_token", f"must be without {' '.join(unfit)}, got {word}", code="E1017")


def _set_repeats(draft: Draft) -> None:
    if draft.check_bounds("repeats"):
        draft.set("data.repeats", float(draft.integer("repeats")), "repeats")


def _set_sizes(draft: Draft, script: ExampleScript) -> None:
    """Sets crops to squares, or to shapes of about as many pixels."""
    cell = _FLOW_CELL if script.is_flow else 8
    side = draft.integer("resolution")
    if side < 16 or side % cell:
        near = max(16, round(side / cell) * cell)
        draft.refuse("resolution", f"must be a multiple of {cell}, at least 16, got {side}", f"write {near}", "E1017")
    else:
        draft.set_all({"data.resolution": side, "data.buckets.step": bucket_step(side)}, "resolution")
    if "use_aspect_ratio_buckets" in draft.rows:
        _set_buckets(draft)


def _set_buckets(draft: Draft) -> None:
    text, side = draft.text("aspect_ratio_buckets"), draft.integer("resolution")
    if not draft.values["use_aspect_ratio_buckets"]:
        if text:
            message = "needs --use_aspect_ratio_buckets, as in the script"
            draft.refuse("aspect_ratio_buckets", message, code="E1017")
        return
    if draft.values["with_prior_preservation"]:
        message = "class images have the same size as the subject's images; leave out --with_prior_preservation or this"
        draft.refuse("use_aspect_ratio_buckets", message)
    sizes = _parse_sizes(draft, text) if text else _default_sizes(side)
    flags = ("aspect_ratio_buckets",) if text else ("use_aspect_ratio_buckets", "resolution")
    draft.set_all({"data.buckets.shape": "list", "data.buckets.sizes": sizes}, *flags)
    if not text:
        message = "images smaller than --resolution are enlarged; in the script, each has its own size"
        draft.note("use_aspect_ratio_buckets", message)


def _parse_sizes(draft: Draft, text: str) -> list[list[int]]:
    """Height and width of each of `h1,w1;h2,w2;…`."""
    try:
        sizes = [[int(side) for side in pair.split(",")] for pair in text.strip().split(";")]
    except ValueError:
        sizes = [[]]
    if any(len(pair) != 2 or min(pair) < _FLOW_CELL or any(side % _FLOW_CELL for side in pair) for pair in sizes):
        message = f"has a size that is not height,width in multiples of {_FLOW_CELL}"
        draft.refuse("aspect_ratio_buckets", message, "write them like 1024,1024;768,1360", "E1017")
    return sizes


def _default_sizes(side: int) -> list[list[int]]:
    """Height and width of the scripts' default shapes of about side² pixels."""
    sizes = []
    for wide, high in _RATIOS:
        height = (side * side / (wide / high)) ** 0.5
        lengths = (height, height * (wide / high))
        pair = [max(_FLOW_CELL, round(length / _FLOW_CELL) * _FLOW_CELL) for length in lengths]
        sizes += [pair] if pair not in sizes else []
    return sizes


def _note_encoding(draft: Draft) -> None:
    """Adds a note about images that are encoded before the training."""
    crop, mirror = not draft.values["center_crop"], bool(draft.values["random_flip"])
    changes = " and ".join(["crop"] * crop + ["mirror"] * mirror)
    if changes:
        draft.note(
            "center_crop" if crop else "random_flip",
            f"images are encoded once, each with one {changes}, as in the script; the model is given the coordinates "
            "of this crop (in the script, of another one). data.cache.crops=4 caches four of each image",
        )


def _set_caches(draft: Draft, script: ExampleScript) -> None:
    """Sets caches: captions are encoded before the training, and images if a flag requests it."""
    flags = ("train_text_encoder",) if "train_text_encoder" in draft.rows else ()
    draft.set("data.cache.text", not draft.values.get("train_text_encoder"), *flags)
    keeps = [flag for flag in ("cache_latents", "offload") if flag in draft.rows]
    is_cached = any(draft.values[flag] for flag in keeps)
    mirror = bool(draft.values["random_flip"])
    is_drawn = mirror or not draft.values["center_crop"]
    if keeps:
        draft.set("data.cache.latents", is_cached, *keeps)
        draft.set("data.cache.crops", draft.integer("repeats") if is_cached and is_drawn else 1, *keeps, "repeats")
    if is_drawn and not is_cached:
        message = "crops and mirrors are random at each visit; in the script, once for the whole run"
        draft.note("random_flip" if mirror else "center_crop", message)
    if script.mean_when_cached:
        draft.set("objective.posterior", "mean" if draft.values["cache_latents"] else "sample", "cache_latents")


def _set_batches(draft: Draft) -> None:
    """Sets the last batch of an epoch, and the length of the run."""
    if "data.remainder" not in draft.origin:
        # in the scripts, several processes fill the last batches from the start; one process trains a smaller one
        draft.set("data.remainder", "fill" if draft.launched.processes > 1 else "short", "train_batch_size")
    has_steps = draft.values["max_train_steps"] is not None
    draft.apply("max_train_steps" if has_steps else "num_train_epochs")
    if has_steps and draft.is_given("num_train_epochs"):
        draft.note("num_train_epochs", "--max_train_steps is used")


def _set_class_images(draft: Draft) -> None:
    """Sets prior preservation: a batch has as many class images as images of the subject."""
    if not draft.values.get("with_prior_preservation"):
        return
    for flag in ("class_data_dir", "class_prompt"):
        if not draft.text(flag):
            draft.refuse(flag, "is not given; --with_prior_preservation needs it", code="E1017")
    draft.set("data.prior.path", draft.text("class_data_dir"), "class_data_dir")
    draft.set("data.prior.balance", "pairs", "with_prior_preservation")
    if "caption_dropout" in draft.rows:
        draft.set("data.prior.dropout", False, "caption_dropout")
    draft.apply("sample_batch_size")
    both = 2 * draft.integer("train_batch_size") * draft.launched.processes
    draft.set("data.batch_size", both, "with_prior_preservation", "train_batch_size")
    draft.note("train_batch_size", f"and as many class images: a batch of {both}")
