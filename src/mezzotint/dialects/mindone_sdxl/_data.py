"""The `data` of a YAML of MindONE's, with the flags that belong to it: which pictures, how they are placed, what is
encoded once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mezzotint.dialects.base import Draft, bucket_step
from mezzotint.dialects.mindone_sdxl import _caches
from mezzotint.dialects.mindone_sdxl._targets import BATCH_TRANSFORM, DATASET, TRANSFORM
from mezzotint.dialects.shared.targets import Config, Node, Param, flag_of, lists
from mezzotint.recipe.reading.yaml_rules import Place

DATA = {
    "per_batch_size": Param("whole"),
    "total_step": Param("whole", 1000),
    "num_epochs": Param("whole", 0),
    "num_parallel_workers": Param("whole", 8),
    "shuffle": Param("switch", True),
    "drop_remainder": Param("switch", True),
    "python_multiprocessing": Param("switch", False, idle=True, about="workers are processes anyway"),
    "dataset_config": Param("object"),
}  # fmt: skip
"""The keys of `data`."""

_FILTERS = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic", 4: "area", 5: "bicubic"}
_PLAIN = (0, 2, 3)
"""Codes whose filters look at a few pixels however much a picture shrinks."""

_HERE: Place = ("data", "dataset_config")


def data(config: Config) -> Node:
    """Everything of `data` in the recipe but its length and batches. Returns the keys of the section."""
    section = config.section(("data",), DATA)
    draft = config.draft
    draft.set("data.workers", section.values["num_parallel_workers"], flag_of(("data", "num_parallel_workers")))
    draft.set("data.shuffle", section.values["shuffle"], flag_of(("data", "shuffle")))
    keep = "drop" if section.values["drop_remainder"] else "short"
    draft.set("data.remainder", keep, flag_of(("data", "drop_remainder")))
    dataset = config.node(_HERE, DATASET)
    if dataset is None:
        if config.at(_HERE) is None:
            config.refuse(_HERE, "is missing", "the YAML files that ship have it", "E1017")
        return section
    _captions(config, dataset)
    _placement(config, dataset)
    _files(config, dataset)
    return section


def _captions(config: Config, dataset: Node) -> None:
    share, flag = dataset.values["prompt_empty_probability"], dataset.flag("prompt_empty_probability")
    if "dropout" in config.draft.settings.get("data", {}).get("captions", {}):
        if share:
            here = (*_HERE, "params", "prompt_empty_probability")
            config.refuse(here, "ucg_rate of the embedders drops captions, too; keep one of them", code="E1081")
        return
    config.draft.set("data.captions.dropout", share, flag)
    config.draft.set("data.captions.dropped", "empty", flag)
    config.draft.set("data.captions.missing", "empty", flag_of((*_HERE, "target")))


# files


def _files(config: Config, dataset: Node) -> None:
    draft = config.draft
    is_web = dataset.name.startswith("T2I_Webdataset")
    folder, latents, text = draft.text("data_path"), draft.values["cache_latent"], draft.values["cache_text_embedding"]
    cache = draft.text("cache_path")
    theirs = next((name for name in (cache, folder) if name and _caches.is_theirs(name)), "")
    if theirs and (latents or text or theirs == folder) and draft.text("task") == "txt2img":
        flag = "cache_path" if theirs == cache else "data_path"
        draft.set("data.format", "mindone-cache", flag)
        draft.set("data.path", [theirs], flag)
        draft.note(flag, f"{theirs} holds what MindONE has encoded; it is trained as it is, and its age is not known")
        _taken_over(draft, flag)
        _unet_alone(draft)
        return
    if not folder:
        draft.refuse("data_path", "is missing; name the folder with the .csv files", code="E1017")
        return
    draft.set("data.format", "webdataset" if is_web else "mindone", flag_of((*_HERE, "target")))
    draft.set("data.path", [folder], "data_path")
    if is_web:
        draft.set("data.columns.caption", dataset.values["caption_key"], dataset.flag("caption_key"))
    _cached(config)


def _taken_over(draft: Draft, flag: str) -> None:
    """What is encoded is cut, mirrored and chosen already."""
    for path, value in (("latents", True), ("text", True), ("content", "sample")):
        draft.set(f"data.cache.{path}", value, flag)
    data = draft.settings["data"]
    if data.get("flip") or data["captions"]["dropout"]:
        draft.note(flag, "pictures in it are mirrored and captions dropped as they were when it was made")
    draft.set("data.crop", "center", flag)
    draft.set("data.flip", 0.0, flag)
    draft.set("data.captions.dropout", 0.0, flag)


def _cached(config: Config) -> None:
    draft = config.draft
    latents, text = bool(draft.values["cache_latent"]), bool(draft.values["cache_text_embedding"])
    draft.set("data.cache.latents", latents, "cache_latent")
    draft.set("data.cache.text", text, "cache_text_embedding")
    if latents or text or draft.text("task") == "cache":
        draft.set("data.cache.path", draft.text("cache_path"), "cache_path")
    elif draft.says("cache_path"):
        draft.note("cache_path", "without cache_latent and cache_text_embedding nothing is cached")
    if not (latents or text) and draft.text("task") == "txt2img":
        _left_alone(draft, draft.text("cache_path"))
    if latents and text and draft.text("task") == "txt2img":
        _unet_alone(draft)
    if latents:
        draft.note("cache_latent", "each picture keeps one crop, as there; data.cache.crops=4 keeps four")
    if latents != text:
        draft.note("cache_latent" if latents else "cache_text_embedding", "is cached alone; there, it is both or none")
    if draft.text("task") == "cache":
        draft.verb = "cache"
        if not latents and not text:
            draft.refuse("task", "cache needs --cache_latent True, --cache_text_embedding True, or both", code="E1017")


def _left_alone(draft: Draft, cache: str) -> None:
    """A cache that lies there, and a line that says nothing of it."""
    is_theirs = _caches.is_theirs(cache)
    if is_theirs or _caches.is_ours(cache):
        whose = "MindONE" if is_theirs else "Mezzotint"
        draft.note(
            "cache_path",
            f"{cache} holds what {whose} has encoded, and the line does not train on it; add "
            f"{_caches.FLAGS} to train on it",
        )


def _unet_alone(draft: Draft) -> None:
    """There, a cached run saves this and nothing else."""
    draft.set("run.export.trained_file", "mindspore", "cache_latent", "cache_text_embedding")
    draft.note("cache_latent", "beside whole models weights/ holds unet_N.ckpt, which is all that is saved there")


# placement


def _placement(config: Config, dataset: Node) -> None:
    """Transforms as settings of the placement: they may stand in any order that comes to the same."""
    draft = config.draft
    draft.set("data.original_size", "stored", flag_of((*_HERE, "target")))
    place = (*_HERE, "params")
    single = list(config.nodes((*place, "transforms"), TRANSFORM))
    batched = list(config.nodes((*place, "batched_transforms"), BATCH_TRANSFORM))
    written = [one for key in ("transforms", "batched_transforms") for one in lists(config.at((*place, key)) or [])]
    if len(single) + len(batched) < len(written):
        return  # some are not known, which is said already
    if dataset.values["multi_aspect"]:
        _multi_aspect(config, dataset, single, batched)
    else:
        _square(config, dataset, single, batched)


def _multi_aspect(config: Config, dataset: Node, single: Sequence[Node], batched: Sequence[Node]) -> None:
    draft, flag = config.draft, dataset.flag("multi_aspect")
    here = (*_HERE, "params", "multi_aspect")
    for one in single:
        if one.name not in ("RandomHorizontalFlip",):
            config.refuse(
                (*one.place, "target"), f"{one.name} stands before sizes are chosen by multi_aspect",
                "leave it to batched_transforms", "E1082",
            )  # fmt: skip
    names = [one.name for one in batched]
    if names != ["BatchedResizedAndRandomCrop", "BatchedRescaler", "BatchedTranspose"]:
        config.refuse(
            (*_HERE, "params", "batched_transforms"),
            f"with multi_aspect are BatchedResizedAndRandomCrop, BatchedRescaler, BatchedTranspose; got "
            f"{', '.join(names) or 'none'}",
            code="E1082",
        )
    sizes = []
    for pair in dataset.values["multi_aspect"]:
        if not (isinstance(pair, list) and len(pair) == 2 and all(_is_side(side) for side in pair)):
            config.refuse(here, f"holds pairs of height and width in multiples of 8, got {pair}", code="E1017")
            return
        if pair not in sizes:
            sizes.append(pair)
    draft.set("data.buckets.shape", "list", flag)
    draft.set("data.buckets.sizes", sizes, flag)
    draft.set("data.crop", "random", flag)
    draft.set("data.resize", "bilinear", flag)
    draft.set("data.antialias", False, flag)
    _flip(config, [one for one in single if one.name == "RandomHorizontalFlip"])
    draft.note(
        flag, "each picture is trained at the size nearest to its own shape; there, at any, one size drawn a batch"
    )


def _is_side(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 16 and value % 8 == 0


def _square(config: Config, dataset: Node, single: Sequence[Node], batched: Sequence[Node]) -> None:
    here = (*_HERE, "params", "transforms")
    for one in batched:
        config.refuse((*one.place, "target"), f"{one.name} needs multi_aspect", code="E1082")
    named = {one.name: one for one in single}
    order = [one.name for one in single if one.name not in ("RandomHorizontalFlip", "Rescaler", "Transpose")]
    twice = sorted({one.name for one in single if [two.name for two in single].count(one.name) > 1})
    if twice:
        config.refuse(here, f"{', '.join(twice)} stands there more than once", code="E1082")
    crops = {"AddOriginalImageSizeAsTupleAndCropToSquare": "random", "CenterCrop": "center"}
    if (
        len(order) != 2
        or order[0] != "Resize"
        or order[1] not in crops
        or not {"Rescaler", "Transpose"} <= named.keys()
    ):
        got = ", ".join(one.name for one in single) or "none"
        config.refuse(
            here,
            "pictures are resized, cut to a square and brought to [-1, 1]: Resize, then CenterCrop or "
            f"AddOriginalImageSizeAsTupleAndCropToSquare, with Rescaler and Transpose; got {got}",
            code="E1082",
        )
        return
    _after(config, single)
    resize = named["Resize"]
    side = _resized(config, dataset, resize, named.get("CenterCrop"))
    if side is None:
        return
    draft = config.draft
    draft.set("data.resolution", side, resize.flag("size"))
    draft.set("data.buckets.shape", "square", flag_of((*here,)))
    draft.set("data.buckets.step", bucket_step(side), resize.flag("size"))
    draft.set("data.crop", crops[order[1]], flag_of((*named[order[1]].place, "target")))
    _filter(config, resize)
    _flip(config, [one for one in single if one.name == "RandomHorizontalFlip"])
    _small(config, dataset, side)


def _after(config: Config, single: Sequence[Node]) -> None:
    """Nothing that looks at rows and columns may stand behind the exchange of axes."""
    names = [one.name for one in single]
    for one in single[names.index("Transpose") + 1 :]:
        if one.name != "Rescaler":
            config.refuse((*one.place, "target"), f"{one.name} stands behind Transpose", "put it before", "E1082")


def _resized(config: Config, dataset: Node, resize: Node, crop: Node | None) -> int | None:
    """The side of the square, or None when sizes do not fit together."""
    place = (*resize.place, "params", "size")
    side = _one(resize.values["size"])
    target = _one(dataset.values["target_size"])
    if not _is_side(side):
        config.refuse(place, f"must be a whole number in multiples of 8, got {resize.values['size']}", code="E1017")
        return None
    assert isinstance(side, int)
    if target != side:
        config.refuse(
            (*_HERE, "params", "target_size"), f"is {dataset.values['target_size']}, and pictures are made {side}",
            f"write {side}", "E1082",
        )  # fmt: skip
        return None
    if crop is not None and _one(crop.values["size"]) != side:
        config.refuse(
            (*crop.place, "params", "size"), f"is {crop.values['size']}, and pictures are resized to {side}",
            f"write {side}; what is cut off has to be outside of the square", "E1082",
        )  # fmt: skip
        return None
    return side


def _one(value: Any) -> Any:
    """A size: a number, or a pair of the same one."""
    if isinstance(value, list) and len(value) == 2 and value[0] == value[1]:
        return value[0]
    return value


def _filter(config: Config, resize: Node) -> None:
    code, flag = resize.values["interpolation"], resize.flag("interpolation")
    if code not in _FILTERS:
        config.refuse((*resize.place, "params", "interpolation"), f"takes 0 to 5, got {code}", code="E1017")
        return
    config.draft.set("data.resize", _FILTERS[code], flag)
    config.draft.set("data.antialias", code not in _PLAIN, flag)


def _flip(config: Config, flips: Sequence[Node]) -> None:
    share = flips[0].values["p"] if flips else 0.0
    flag = flips[0].flag("p") if flips else flag_of((*_HERE, "params", "transforms"))
    config.draft.set("data.flip", share, flag)


def _small(config: Config, dataset: Node, side: int) -> None:
    least, flag = dataset.values["image_filter_size"], dataset.flag("filter_small_size")
    if not dataset.values["filter_small_size"] or not least:
        config.draft.set("data.small", "upscale", flag)
        return
    if least != side:
        here = (*_HERE, "params", "image_filter_size")
        config.refuse(here, f"is {least}, and pictures are left out that are smaller than {side}", code="E1082")
        return
    config.draft.set("data.small", "skip", flag)
