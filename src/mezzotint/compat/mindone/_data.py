"""The section `data` of MindONE's YAML files, with its flags: data set, transforms, caches."""

from __future__ import annotations

import csv
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mezzotint.compat.kit.derived import bucket_step
from mezzotint.compat.kit.dialect import Draft
from mezzotint.compat.mindone._config import Config, Node, as_list, ignored, params

DATA = {
    **params(per_batch_size=int, total_step=1000, num_epochs=0, num_parallel_workers=8, shuffle=True),
    **params(drop_remainder=True),
    **ignored("workers are always processes", python_multiprocessing=False),
    **params(dataset_config=dict),
}
"""The keys of `data`."""

CACHE_FLAGS = "--cache_latent True --cache_text_embedding True"
_THEIRS = ("latent_cache", "vector_cache", "crossattn_cache")
_OURS = ("latents", "text")
_ROWS = 100

_FILTERS = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic", 4: "area", 5: "bicubic"}
_PLAIN = (0, 2, 3)
"""Codes of filters without antialiasing."""
_CROPS = {"AddOriginalImageSizeAsTupleAndCropToSquare": "random", "CenterCrop": "center"}
_BATCHED = ["BatchedResizedAndRandomCrop", "BatchedRescaler", "BatchedTranspose"]


def cached_by(name: str) -> str:
    """Which program has written a cache into a folder: "MindONE", "Mezzotint", or "" if there is no cache."""
    folder = Path(name).expanduser()
    if any((folder / one).is_dir() for one in _THEIRS):
        return "MindONE"
    return "Mezzotint" if any(next((folder / one).glob("*/layout.json"), None) for one in _OURS) else ""


def cache_holds(cache: str, data: str) -> bool:
    """Whether a cache of MindONE has latents of the images in the first rows of a data set's table."""
    latents = Path(cache).expanduser() / _THEIRS[0]
    try:
        table = min(Path(data).expanduser().glob("*.csv"))
        with open(table, encoding="utf-8-sig", newline="") as file:
            rows = list(itertools.islice(csv.DictReader(file), _ROWS))
    except (OSError, ValueError, csv.Error):
        return False
    names = [Path(row.get("dir") or "").name.partition(".")[0] for row in rows]
    return bool(names) and all((latents / f"{name}.npy").is_file() for name in names)


def data(config: Config) -> Node:
    """Sets the section `data` of the recipe, without length and batches. Returns the keys of the YAML section."""
    section = config.section(("data",), DATA)
    section.copy("data.workers", "num_parallel_workers")
    section.copy("data.shuffle", "shuffle")
    keep = "drop" if section["drop_remainder"] else "short"
    config.draft.set("data.remainder", keep, section.flag("drop_remainder"))
    dataset = config.require(("data", "dataset_config"), "data set")
    if dataset is not None:
        _set_captions(config.draft, dataset)
        _set_transforms(config, dataset)
        _set_files(config.draft, dataset)
    return section


def _set_captions(draft: Draft, dataset: Node) -> None:
    share = "prompt_empty_probability"
    if "dropout" not in draft.settings.get("data", {}).get("captions", {}):
        dataset.copy("data.captions.dropout", share)
        draft.set("data.captions.dropped", "empty", dataset.flag(share))
        draft.set("data.captions.missing", "empty", dataset.flag())
    elif dataset[share]:
        dataset.refuse(share, "ucg_rate of the embedders drops captions, too; use one of them", code="E1081")


# files


def _set_files(draft: Draft, dataset: Node) -> None:
    is_web = dataset.name.startswith("T2I_Webdataset")
    folder, latents, text = draft.text("data_path"), draft.values["cache_latent"], draft.values["cache_text_embedding"]
    cache = draft.text("cache_path")
    theirs = next((name for name in (cache, folder) if name and cached_by(name) == "MindONE"), "")
    if theirs and (latents or text or theirs == folder) and draft.text("task") == "txt2img":
        flag = "cache_path" if theirs == cache else "data_path"
        draft.set_all({"data.format": "mindone-cache", "data.path": theirs}, flag)
        draft.note(flag, f"{theirs} is a cache of MindONE; it is used unchanged, and its age is unknown")
        _use_foreign_cache(draft, flag)
        _export_unet(draft)
    elif not folder:
        draft.refuse("data_path", "is missing; name the folder with the .csv files", code="E1017")
    else:
        draft.set("data.format", "webdataset" if is_web else "mindone", dataset.flag())
        draft.set("data.path", folder, "data_path")
        if is_web:
            dataset.copy("data.columns.caption", "caption_key")
        _set_cache(draft, latents=bool(latents), text=bool(text))


def _use_foreign_cache(draft: Draft, flag: str) -> None:
    """Sets what a cache has already decided: crop, mirror, caption."""
    draft.set_all({"data.cache.latents": True, "data.cache.text": True, "data.cache.content": "sample"}, flag)
    data = draft.settings["data"]
    if data.get("flip") or data["captions"]["dropout"]:
        draft.note(flag, "images in it are mirrored and captions dropped as when it was written")
    draft.set_all({"data.crop": "center", "data.flip": 0.0, "data.captions.dropout": 0.0}, flag)


def _set_cache(draft: Draft, *, latents: bool, text: bool) -> None:
    draft.set("data.cache.latents", latents, "cache_latent")
    draft.set("data.cache.text", text, "cache_text_embedding")
    fills, cache = draft.text("task") == "cache", draft.text("cache_path")
    if latents or text or fills:
        draft.set("data.cache.path", cache, "cache_path")
    elif draft.is_given("cache_path"):
        draft.note("cache_path", "without cache_latent and cache_text_embedding nothing is cached")
    whose = "" if latents or text or fills else cached_by(cache)
    if whose:
        unused = f"{cache} is a cache of {whose}, which this command does not use"
        draft.note("cache_path", f"{unused}; add {CACHE_FLAGS} to train from it")
    if latents and text and not fills:
        _export_unet(draft)
    if latents:
        draft.note("cache_latent", "each image has one cached crop, as in MindONE; data.cache.crops=4 caches four")
    if latents != text:
        draft.note(
            "cache_latent" if latents else "cache_text_embedding", "only this is cached; in MindONE, both or none are"
        )
    if fills:
        draft.verb = "cache"
        if not latents and not text:
            draft.refuse("task", "cache needs --cache_latent True, --cache_text_embedding True, or both", code="E1017")


def _export_unet(draft: Draft) -> None:
    """Sets the export of the UNet, the only file that MindONE saves in a cached run."""
    draft.set("run.export.trained_file", "mindspore", "cache_latent", "cache_text_embedding")
    draft.note("cache_latent", "weights/ contains unet_N.ckpt as well as whole models; MindONE saves only unet_N.ckpt")


# placement


def _set_transforms(config: Config, dataset: Node) -> None:
    """Translates transforms to settings of crops and resizing. Any order with the same result is accepted."""
    config.draft.set("data.original_size", "stored", dataset.flag())
    params_path = dataset.params_path
    single = list(config.nodes((*params_path, "transforms"), "transform"))
    batched = list(config.nodes((*params_path, "batched_transforms"), "transform of batches"))
    written = [
        one for key in ("transforms", "batched_transforms") for one in as_list(config.at((*params_path, key)) or [])
    ]
    if len(single) + len(batched) < len(written):
        return  # some are unknown, which is reported already
    if dataset["multi_aspect"]:
        _set_multi_aspect(config.draft, dataset, single, batched)
    else:
        _set_square(config.draft, dataset, single, batched)


def _set_multi_aspect(draft: Draft, dataset: Node, single: Sequence[Node], batched: Sequence[Node]) -> None:
    for one in single:
        if one.name != "RandomHorizontalFlip":
            message = f"{one.name} comes before multi_aspect selects sizes"
            one.refuse("", message, "move it to batched_transforms", "E1082")
    if [one.name for one in batched] != _BATCHED:
        message = f"with multi_aspect it must be {', '.join(_BATCHED)}; got {_names(batched)}"
        dataset.refuse("batched_transforms", message, code="E1082")
    sizes = []
    for pair in dataset["multi_aspect"]:
        if not (isinstance(pair, list) and len(pair) == 2 and all(_is_side(side) for side in pair)):
            message = f"must contain pairs of height and width in multiples of 8, got {pair}"
            dataset.refuse("multi_aspect", message, code="E1017")
            return
        if pair not in sizes:
            sizes.append(pair)
    flag = dataset.flag("multi_aspect")
    draft.set_all({"data.buckets.shape": "list", "data.buckets.sizes": sizes, "data.crop": "random"}, flag)
    draft.set_all({"data.resize": "bilinear", "data.antialias": False}, flag)
    _set_flip(draft, dataset, single)
    message = (
        "each image is trained at the size nearest to its own aspect ratio; in MindONE, at a random size per batch"
    )
    draft.note(flag, message)


def _names(nodes: Sequence[Node]) -> str:
    return ", ".join(one.name for one in nodes) or "none"


def _is_side(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 16 and value % 8 == 0


def _set_square(draft: Draft, dataset: Node, single: Sequence[Node], batched: Sequence[Node]) -> None:
    for one in batched:
        one.refuse("", f"{one.name} needs multi_aspect", code="E1082")
    names = [one.name for one in single]
    named = {one.name: one for one in single}
    order = [name for name in names if name not in ("RandomHorizontalFlip", "Rescaler", "Transpose")]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        dataset.refuse("transforms", f"{', '.join(twice)} is listed more than once", code="E1082")
    is_placed = len(order) == 2 and order[0] == "Resize" and order[1] in _CROPS
    if not is_placed or not {"Rescaler", "Transpose"} <= named.keys():
        message = (
            "images must be resized, cropped to a square and scaled to [-1, 1]: Resize, then CenterCrop or "
            f"AddOriginalImageSizeAsTupleAndCropToSquare, with Rescaler and Transpose; got {_names(single)}"
        )
        dataset.refuse("transforms", message, code="E1082")
        return
    for one in single[names.index("Transpose") + 1 :]:  # transforms of rows and columns must come before it
        if one.name != "Rescaler":
            one.refuse("", f"{one.name} comes after Transpose", "move it before", "E1082")
    resize = named["Resize"]
    side = _read_side(dataset, resize, named.get("CenterCrop"))
    if side is None:
        return
    draft.set("data.resolution", side, resize.flag("size"))
    draft.set("data.buckets.shape", "square", dataset.flag("transforms"))
    draft.set("data.buckets.step", bucket_step(side), resize.flag("size"))
    draft.set("data.crop", _CROPS[order[1]], named[order[1]].flag())
    code = resize["interpolation"]
    if code in _FILTERS:
        values = {"data.resize": _FILTERS[code], "data.antialias": code not in _PLAIN}
        draft.set_all(values, resize.flag("interpolation"))
    else:
        resize.refuse("interpolation", f"takes 0 to 5, got {code}", code="E1017")
    _set_flip(draft, dataset, single)
    _set_small_images(draft, dataset, side)


def _read_side(dataset: Node, resize: Node, crop: Node | None) -> int | None:
    """The side of the square, or None if sizes are inconsistent."""
    side = _single(resize["size"])
    if not _is_side(side):
        resize.refuse("size", f"must be a multiple of 8, got {resize['size']}", code="E1017")
    elif _single(dataset["target_size"]) != side:
        message = f"is {dataset['target_size']}, but images are resized to {side}"
        dataset.refuse("target_size", message, f"write {side}", "E1082")
    elif crop is not None and _single(crop["size"]) != side:
        remedy = f"write {side}; the crop must be the whole square"
        crop.refuse("size", f"is {crop['size']}, but images are resized to {side}", remedy, "E1082")
    else:
        return int(side)
    return None


def _single(value: Any) -> Any:
    """The number of a size that is a number or a pair of equal numbers."""
    return value[0] if isinstance(value, list) and len(value) == 2 and value[0] == value[1] else value


def _set_flip(draft: Draft, dataset: Node, single: Sequence[Node]) -> None:
    flip = next((one for one in single if one.name == "RandomHorizontalFlip"), None)
    share, flag = (flip["p"], flip.flag("p")) if flip else (0.0, dataset.flag("transforms"))
    draft.set("data.flip", share, flag)


def _set_small_images(draft: Draft, dataset: Node, side: int) -> None:
    least, is_on = dataset["image_filter_size"], dataset["filter_small_size"]
    if is_on and least and least != side:
        message = f"is {least}, but images smaller than {side} are left out"
        dataset.refuse("image_filter_size", message, code="E1082")
    else:
        draft.set("data.small_images", "skip" if is_on and least else "upscale", dataset.flag("filter_small_size"))
