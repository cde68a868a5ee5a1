"""The data sets of a job, as `data.path` for one and as `data.sets` for several."""

from __future__ import annotations

from typing import Any

from mezzotint.compat.ai_toolkit._control import FOLDERS, read_folders
from mezzotint.compat.ai_toolkit._keys import Keys
from mezzotint.compat.ai_toolkit._model import ANIMATING, Arch
from mezzotint.settings.sections.buckets import has_too_many_sizes

_MOST_ASPECT = 4.0
"""The longest usual buckets of ai-toolkit are 1:4."""
_EXTENSIONS = ("txt", "caption")


def set_data(process: Keys, arch: Arch) -> None:
    """Sets the section `data`."""
    draft = process.draft
    sets = [Keys(draft, f"datasets:datasets.{index}.") for index in range(process.integer("datasets"))]
    if not sets:
        process.refuse("datasets", "has no data set", "write a list with a folder_path", "E1017")
        return
    fitting = [one.check() for one in sets]
    if not all(fitting):
        return
    draft.set_batch("process:train.batch_size", process.integer("train.batch_size"), "processes")
    draft.set_all({"data.captions.missing": "empty", "data.resize": "bicubic"}, "process:datasets")
    entries = [_entry(one, process, arch) for one in sets]
    if len({tuple(path for path in entry if path.startswith("conditions.")) for entry in entries}) > 1:
        sets[-1].refuse(FOLDERS[0], "must have as many folders in each data set", "write them for all or none", "E1017")
        return
    if len(sets) == 1 and not entries[0].get("class_images", (False,))[0] and "weight" not in entries[0]:
        for path, (value, key) in entries[0].items():
            sets[0].set(f"data.{path}", value, key)
    else:
        trees = [_tree({path: value for path, (value, _) in entry.items()}) for entry in entries]
        draft.set("data.sets", trees, "process:datasets")
    _set_shared(process, arch, sets)


def _entry(one: Keys, process: Keys, arch: Arch) -> dict[str, tuple[Any, str]]:
    """Values and keys of a data set, by path inside `data`."""
    folder = one.text("folder_path") or one.text("dataset_path")
    if not folder:
        one.refuse("folder_path", "is missing", "name the folder of images", "E1017")
    if folder.endswith(".json"):
        one.refuse("dataset_path", "names a JSON file, which is not supported", "give a folder")
    entry: dict[str, tuple[Any, str]] = {"path": (folder, "folder_path" if one.text("folder_path") else "dataset_path")}
    resolutions = one["resolution"]
    assert isinstance(resolutions, tuple)
    if any(float(side) <= 0 for side in resolutions):
        one.refuse("resolution", f"must be above 0, got {min(map(float, resolutions)):g}", code="E1017")
        return entry
    sides = [_round_side(one, float(side)) for side in resolutions]
    entry["resolution"] = (sides if len(sides) > 1 else sides[0], "resolution")
    if len(sides) > 1:
        entry["resolution_mode"] = ("each", "resolution")
    if one.integer("num_repeats") != 1:
        entry["repeats"] = (one.integer("num_repeats"), "num_repeats")
    if one["batch_size"] is not None:
        entry["batch_size"] = (one.integer("batch_size") * one.draft.launched.processes, "batch_size")
    if one["is_reg"]:
        entry["class_images"] = (True, "is_reg")
    if one.number("loss_multiplier") != 1.0:
        entry["weight"] = (one.number("loss_multiplier"), "loss_multiplier")
    _add_buckets(one, entry, max(sides))
    _add_captions(one, process, entry)
    source = "alpha" if one["alpha_mask"] else "files" if one.text("mask_path") else ""
    if source:
        entry["mask.source"] = (source, "alpha_mask" if source == "alpha" else "mask_path")
    if source == "files":
        entry["mask.path"] = (one.text("mask_path"), "mask_path")
    return entry | read_folders(one, process, arch)


def _round_side(one: Keys, side: float) -> int:
    """A resolution whose square bucket has sides that are multiples of the tolerance, as in ai-toolkit."""
    step = one.integer("bucket_tolerance")
    rounded = max(step, int(side) // step * step)
    if rounded != side:
        one.note("resolution", f"{side:g} is rounded down to {rounded}, a multiple of {step}")
    return rounded


def _add_buckets(one: Keys, entry: dict[str, tuple[Any, str]], side: int) -> None:
    """Images keep their size or are reduced, unless there are clips or too many such sizes. side: the largest
    resolution."""
    step = one.integer("bucket_tolerance")
    if one["square_crop"] or not one["buckets"]:
        entry["buckets.shape"] = ("square", "square_crop" if one["square_crop"] else "buckets")
    elif one.integer("num_frames") > 1 or has_too_many_sizes(side, step):
        entry["buckets.shape"] = ("aspect", "buckets")
        entry["buckets.max_aspect"] = (_MOST_ASPECT, "buckets")
        key = "num_frames" if one.integer("num_frames") > 1 else "bucket_tolerance"
        one.note(key, "what is smaller than its bucket is enlarged; in ai-toolkit it is not")
    else:
        entry["buckets.shape"] = ("own", "buckets")
    entry["buckets.step"] = (step, "bucket_tolerance")
    if one["random_crop"]:
        entry["crop"] = ("random", "random_crop")
    if one["flip_x"]:
        entry["flip"] = (0.5, "flip_x")


def _add_captions(one: Keys, process: Keys, entry: dict[str, tuple[Any, str]]) -> None:
    key = "caption_type" if one.text("caption_type") else "caption_ext"
    extension = one.text(key).removeprefix(".")
    if extension not in _EXTENSIONS:
        one.refuse_until("other caption extensions", key, "name the files .txt")
    entry["captions.extension"] = (f".{extension}", key)
    drops = one.number("caption_dropout_rate"), process.number("train.prompt_dropout_prob")
    trigger = (one.text("trigger_word") or process.text("trigger_word")).strip()
    is_shuffled, is_split = bool(one["shuffle_tokens"]), bool(one["shuffle_tokens"] or one.number("token_dropout_rate"))
    has_template = bool(trigger and not one["is_reg"])
    is_blank = bool(process["train.unload_text_encoder"])
    if has_template:
        key = "trigger_word"
        entry["captions.trigger"] = (trigger, key)
        template = "{trigger}" if is_blank else "{trigger}, {caption}" if is_split else "{trigger} {caption}"
        entry["captions.template"] = (template, key)
        if not is_blank:
            owner = one if one.text("trigger_word") else process
            owner.note(key, "each caption starts with it, also one that has it already; [trigger] in captions stays")
    dropped = 1 - (1 - drops[0]) * (1 - drops[1]) if all(drops) else max(drops)
    if is_blank and not trigger:
        dropped = 1.0
    entry["captions.dropout"] = (dropped, "caption_dropout_rate")
    if is_split:
        kept = one.integer("keep_tokens")  # from the first tag, which follows the trigger word
        entry["captions.shuffle_tags"] = (is_shuffled, "shuffle_tokens")
        entry["captions.tag_dropout"] = (one.number("token_dropout_rate"), "token_dropout_rate")
        entry["captions.keep_tags"] = (kept if has_template else kept - 1, "keep_tokens")


def _set_shared(process: Keys, arch: Arch, sets: list[Keys]) -> None:
    """Sets what is common to all data sets in Mezzotint."""
    for path, keys in (("data.cache.latents", ("cache_latents", "cache_latents_to_disk")),
                       ("data.cache.text", ("cache_text_embeddings",))):  # fmt: skip
        flags = [one.flag(key) for one in sets for key in keys if one[key]]
        if path == "data.cache.text" and process["train.cache_text_embeddings"]:
            flags.insert(0, "process:train.cache_text_embeddings")
        if flags:
            process.draft.set(path, True, *flags)
    if any(one["is_reg"] for one in sets):
        process.set("data.prior.weight", process.number("train.reg_weight"), "train.reg_weight")
        process.note("datasets", "regularization images are visited as often as the others together")
    masked = [one for one in sets if one["alpha_mask"] or one.text("mask_path")]
    least = {one.number("mask_min_value") for one in masked}
    if len(least) > 1:
        masked[-1].refuse_until("a background weight for each data set", "mask_min_value", "write the same for all")
    elif least:
        masked[0].set("data.mask.background", least.pop(), "mask_min_value")
    if any(one.integer("num_frames") > 1 for one in sets):
        _set_clips(arch, sets)
    elif arch.name in ANIMATING:
        message = f"is 1, and {arch.name} continues the first frame of clips"
        sets[0].refuse("num_frames", message, "write the length of the clips, 4n + 1", "E1017")


def _set_clips(arch: Arch, sets: list[Keys]) -> None:
    first = sets[0]
    if arch.family != "wan":
        first.refuse("num_frames", "above 1 is for models of clips", "write 1", "E1017")
    elif len({(one.integer("num_frames"), one.integer("fps")) for one in sets}) > 1:
        sets[-1].refuse_until("clips of different lengths", "num_frames", "write the same for all sets")
    elif first["shrink_video_to_frames"]:
        first.refuse_until("frames spread over a whole clip", "num_frames", "write shrink_video_to_frames: false")
    else:
        first.set("data.format", "videofolder", "num_frames")
        first.set("data.clips.frames", first.integer("num_frames"), "num_frames")
        first.set("data.clips.fps", float(first.integer("fps")), "fps")
    if any(one["do_i2v"] for one in sets):
        if arch.name == "wan22_5b":
            first.set("model.wan.first_frame_prob", 1.0, "do_i2v")
        elif arch.name in ANIMATING:
            first.note("do_i2v", f"{arch.name} always continues the first frame")
        else:
            remedy = f"leave it out, or choose wan22_5b, {' or '.join(ANIMATING)}"
            first.refuse("do_i2v", f"{arch.name} generates from text alone", remedy, "E1017")


def _tree(flat: dict[str, Any]) -> dict[str, Any]:
    """Nested settings from dotted paths."""
    tree: dict[str, Any] = {}
    for path, value in flat.items():
        *sections, last = path.split(".")
        inner = tree
        for section in sections:
            inner = inner.setdefault(section, {})
        inner[last] = value
    return tree
