"""The data sets of a file, as `data`."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

from mezzotint import outside
from mezzotint.compat.kit.derived import bucket_step
from mezzotint.compat.kit.dialect import Draft
from mezzotint.compat.musubi._dataset_file import SetsFile, TrainingSet, read_dataset_file
from mezzotint.compat.musubi._model import animates, count_images
from mezzotint.compat.musubi._rows_model import FUN_CONTROL, LAYERED
from mezzotint.compat.musubi._scripts import TrainingScript

BOUNDS = "clips that are not enlarged"
EXTENSION = "caption extension"
AREA = "sizes of condition images apart from those of the samples"
BOTH = "images and clips in one run"
FILES = "metadata files of any name"
FORMATS = "data sets of several formats"
SOME = "data sets with and without condition images in one run"
"""Features that keys wait for."""

_CELL = 16
"""Sides in pixels are multiples of it."""
_WAN_FPS = 16.0
_LINE = 100_000
_WHOLE = ("no_resize_control", "flux_kontext_no_resize_control", "qwen_image_edit_no_resize_control")
_SIZED = ("control_resolution", "qwen_image_edit_control_resolution")
_CONDITIONED = ("control_directory", *_WHOLE, *_SIZED)
_CONTROL_COLUMN = re.compile(r"control_path(_\d{1,3})?")
_NUMBERED = re.compile(r"(.+)(_\d{1,3})")
_OF_FRAMEPACK = ("fp_latent_window_size", "fp_1f_clean_indices", "fp_1f_target_index", "fp_1f_no_post")
_READ_EXTENSIONS = (".txt", ".caption")


def set_data(draft: Draft, script: TrainingScript) -> None:
    """Sets the section `data`."""
    contents = read_dataset_file(draft)
    if contents is None:
        return
    entries = [
        _read_set(draft, script, contents, one) | clips for one in contents.sets for clips in _read_clips(draft, one)
    ]
    if contents.sets:
        _set_format(draft, script, contents)
    if len({"conditions" in entry for entry in entries}) > 1 and not contents.problems:
        contents.add_awaited(contents.sets[-1], "control_directory", SOME, "write it in all data sets or in none")
    draft.problems += contents.problems
    if not contents.problems:
        _set_sets(draft, contents, entries)
    shared = {"resize": "area", "crop": "center", "cache.latents": True, "cache.text": True}
    draft.set_all({f"data.{path}": value for path, value in shared.items()}, "dataset_config")


def _read_set(draft: Draft, script: TrainingScript, contents: SetsFile, one: TrainingSet) -> dict[str, Any]:
    """The settings of a data set, by path below an entry of `data.sets`."""
    if one.is_on("multiple_target"):
        contents.add_awaited(one, "multiple_target", LAYERED)
    if one.is_on("bucket_no_upscale") and one.is_on("enable_bucket") and one.has_clips:
        contents.add_awaited(one, "bucket_no_upscale", BOUNDS)
    for key in _OF_FRAMEPACK:
        if key in one.sources:
            draft.note("dataset_config", f"{contents.file.where(one.sources[key])} acts only with FramePack")
    for key in ("batch_size", "num_repeats"):
        if one.integer(key) < 1:
            contents.add(one.sources[key], f"must be 1 or more, got {one.integer(key)}")
    return {
        "path": _path(contents, one),
        **({"captions.extension": one.text("caption_extension")} if one.source.endswith("directory") else {}),
        "repeats": float(one.integer("num_repeats")),
        "batch_size": one.integer("batch_size") * draft.launched.processes,
        **_sizes(draft, contents, one),
        **_read_conditions(draft, script, contents, one),
    }


def _path(contents: SetsFile, one: TrainingSet) -> str:
    """The folder of a data set."""
    written = one.text(one.source)
    if one.source.endswith("directory"):
        extension = one.text("caption_extension")
        if not extension:
            message = "is missing; it is the end of the names of caption files"
            contents.add((*one.key_path, "caption_extension"), message, 'write caption_extension = ".txt"')
        elif extension not in _READ_EXTENSIONS:
            contents.add_awaited(one, "caption_extension", EXTENSION, f"name them {' or '.join(_READ_EXTENSIONS)}")
        return written
    if Path(written).name != "metadata.jsonl":
        contents.add_awaited(one, one.source, FILES, "name it metadata.jsonl, in the folder of the files that it names")
    return str(Path(written).parent)


# --- control images -------------------------------------------------------------------------------------------------


def _read_conditions(
    draft: Draft, script: TrainingScript, contents: SetsFile, one: TrainingSet
) -> dict[str, dict[str, Any]]:
    """The condition images of a data set."""
    keys = [key for key in _CONDITIONED if one.values.get(key)]
    least, most = count_images(draft, script)
    if not most:
        for key in keys:
            if script.family == "wan":
                contents.add_awaited(one, key, FUN_CONTROL)
            else:
                message = f"is for models that edit; {script.name}.py trains from text alone"
                is_qwen = script.family == "qwen-image"
                contents.add(one.sources[key], message, "write --model_version=edit" if is_qwen else "leave it out")
        return {}
    is_table = one.source == "image_jsonl_file"
    sources = (
        [{"column": column} for column in _control_columns(one)] if is_table
        else _find_control_files(one) if "control_directory" in keys
        else []
    )  # fmt: skip
    if len(sources) < least:
        lacking = "control_path in the first line of its file" if is_table else "control_directory"
        message = f"has no {lacking}, and {script.name}.py trains a model that edits images"
        contents.add(one.key_path, message, "write it: the images before the edits")
    if len(sources) > most:
        message = f"has {len(sources)} control images, and {script.name}.py trains a model that takes one"
        contents.add(one.sources[one.source], message, "write one")
    align = {"align": "own"} if sources and _keeps_shape(draft, contents, one) else {}
    names = ["source", *(f"source_{number}" for number in range(2, len(sources) + 1))]
    conditions = {name: {**source, **align} for name, source in zip(names, sources, strict=False)}
    return {"conditions": conditions} if conditions else {}


def _find_control_files(one: TrainingSet) -> list[dict[str, Any]]:
    """The condition images of a folder: of the same name as their sample, or `NAME_0`, `NAME_1` and so on."""
    folder = one.text("control_directory")
    try:
        names, controls = (
            {path.stem for path in Path(text).expanduser().iterdir()} for text in (one.text("image_directory"), folder)
        )
    except OSError:
        return [{"folder": folder}]
    matches = (_NUMBERED.fullmatch(stem) for stem in controls)
    suffixes = {match[2] for match in matches if match is not None and match[1] in names}
    if not suffixes or names & controls:
        return [{"folder": folder}]
    return [{"folder": folder, "suffix": suffix} for suffix in sorted(suffixes, key=lambda text: int(text[1:]))]


def _keeps_shape(draft: Draft, contents: SetsFile, one: TrainingSet) -> bool:
    """Whether control images keep their shape, instead of that of their samples."""
    area = math.prod(one.numbers("resolution"))
    sized = [key for key in _SIZED if one.values.get(key)]
    whole = [key for key in _WHOLE if one.is_on(key)]
    for key in sized if not whole else ():
        if math.prod(one.numbers(key)) != area:
            contents.add_awaited(one, key, AREA, "write that of the samples, or leave it out")
    if whole:
        text = "control images have about the area of resolution; in the scripts, their own"
        draft.note("dataset_config", f"{contents.file.where(one.sources[whole[0]])}: {text}")
    return bool(sized or whole)


def _control_columns(one: TrainingSet) -> list[str]:
    """The columns of control images in the first line of a metadata file, in their order."""
    try:
        with outside.open_plain(Path(one.text(one.source)).expanduser()) as file:
            first = json.loads(file.readline(_LINE))
    except (OSError, ValueError):
        return []
    columns = [key for key in first if _CONTROL_COLUMN.fullmatch(key)] if isinstance(first, dict) else []
    return sorted(columns, key=lambda key: int(key.removeprefix("control_path").lstrip("_") or -1))


# --- sizes ----------------------------------------------------------------------------------------------------------


def _sizes(draft: Draft, contents: SetsFile, one: TrainingSet) -> dict[str, Any]:
    width, height = one.numbers("resolution")
    key_path = one.sources.get("resolution", (*one.key_path, "resolution"))
    if not all(64 <= side <= 4096 for side in (width, height)):
        contents.add(key_path, f"must be 64 to 4096, got {width}, {height}")
        return {}
    side = max(_CELL, round(math.sqrt(width * height) / 8) * 8)
    if one.is_on("enable_bucket") and one.is_on("bucket_no_upscale"):
        text = (
            "bucket_no_upscale: an image above the area keeps its shape; in the scripts, it goes to the nearest bucket"
        )
        if all(note.text != text for note in draft.notes):
            draft.note("dataset_config", text)
        return {"resolution": side, "buckets.shape": "own", "buckets.step": _CELL}
    if one.is_on("enable_bucket"):
        text = "an image goes to the bucket nearest in log(width / height); in the scripts, in width / height"
        if all(note.text != text for note in draft.notes):
            draft.note("dataset_config", text)
        sizes = [[high, wide] for wide, high in bucket_sizes(width, height)]
        return {"resolution": side, "buckets.shape": "list", "buckets.sizes": sizes}
    if width % _CELL or height % _CELL:
        contents.add(key_path, f"must be multiples of {_CELL}, got {width}, {height}")
        return {}
    if width == height:
        return {"resolution": side, "buckets.shape": "square", "buckets.step": bucket_step(side)}
    return {"resolution": side, "buckets.shape": "list", "buckets.sizes": [[height, width]]}


def bucket_sizes(width: int, height: int) -> list[tuple[int, int]]:
    """Widths and heights of the buckets of a resolution. For each width from half the side of a square of its area to
    that side: the greatest height whose area is at most that of the resolution. Each size also turned; all are
    multiples of 16."""
    area = width * height
    side = math.isqrt(area)
    sizes = set()
    for wide in range(side // 2 // _CELL * _CELL, side + _CELL, _CELL):
        high = area // wide // _CELL * _CELL
        sizes |= {(wide, high), (high, wide)}
    return sorted(sizes)


# --- images and clips -----------------------------------------------------------------------------------------------


def _set_format(draft: Draft, script: TrainingScript, contents: SetsFile) -> None:
    """Sets what is common to all data sets in Mezzotint: the format, and the frames of clips."""
    first, last = contents.sets[0], contents.sets[-1]
    clips = [one for one in contents.sets if one.has_clips]
    if 0 < len(clips) < len(contents.sets):
        contents.add_awaited(last, last.source, BOTH, "train them in two runs")
        return
    if clips and script.family != "wan":
        contents.add(first.sources[first.source], f"{script.name}.py trains images", "write image_directory")
        return
    if not clips and animates(draft, script):
        message = f"--task={draft.text('task')} continues the first frame of clips"
        contents.add(first.sources[first.source], message, "write video_directory")
        return
    tables = [one.source.endswith("file") for one in contents.sets]
    if len(set(tables)) > 1:
        contents.add_awaited(last, last.source, FORMATS, "write all as folders, or all as .jsonl files")
        return
    flag = "dataset_config"
    if tables[0]:
        column = "video_path" if clips else "image_path"
        draft.set_all({"data.columns.image": column, "data.columns.caption": "caption"}, flag)
        draft.note(flag, "paths in metadata.jsonl are below its folder; in the scripts, below the current folder")
    draft.set("data.format", "videofolder" if clips else "metadata" if tables[0] else "image-folder", flag)
    draft.set("data.captions.missing", "error" if clips or tables[0] else "skip", flag)
    if clips:
        lengths = [entry["clips.frames"] for one in clips for entry in _read_clips(draft, one)]
        draft.set("data.clips.frames", max(lengths), flag)
        _note_clips(draft, clips)
    elif not tables[0]:
        _note_subfolders(draft, contents)


def _note_subfolders(draft: Draft, contents: SetsFile) -> None:
    for one in contents.sets:
        folder, cache = Path(one.text(one.source)).expanduser(), Path(one.text("cache_directory")).expanduser()
        try:
            inside = [path.name for path in folder.iterdir() if path.is_dir() and path != cache]
        except OSError:
            continue
        if inside:
            text = f"images in subfolders of {folder} are used, too, such as {inside[0]}; the scripts leave them out"
            draft.note("dataset_config", text)


def _read_clips(draft: Draft, one: TrainingSet) -> list[dict[str, Any]]:
    """The frames of a data set's samples, by path below an entry of `data.sets`: an entry for each length."""
    if not one.has_clips:
        return [{}]
    rate = {} if one.values.get("source_fps") is None else {"clips.fps": _WAN_FPS}
    extraction = one.text("frame_extraction")
    if extraction == "full":
        longest = _cut_length(one.integer("max_frames"))
        return [{"clips.frames": longest, "clips.short": "trim", "clips.start": "first", **rate}]
    entries = []
    for frames in sorted(set(map(_cut_length, one.numbers("target_frames")))):
        match extraction:
            case "chunk":
                which: dict[str, Any] = {"clips.piece_stride": frames}
            case "slide":
                which = {"clips.piece_stride": one.integer("frame_stride")}
            case "uniform" if one.integer("frame_sample") > 1:
                which = {"clips.pieces": one.integer("frame_sample")}
            case _:
                which = {"clips.start": "first"}
        entries.append({"clips.frames": frames, **which, **rate})
    return entries


def _cut_length(frames: int) -> int:
    """The largest number of the form 4 k + 1 up to this one."""
    return (frames - 1) // 4 * 4 + 1


def _note_clips(draft: Draft, clips: list[TrainingSet]) -> None:
    flag = "dataset_config"
    for frames in dict.fromkeys(frames for one in clips for frames in one.numbers("target_frames")):
        if _cut_length(frames) != frames:
            draft.note(flag, f"target_frames {frames} is cut to {_cut_length(frames)}, as in the scripts")
    if any(one.values.get("source_fps") is not None for one in clips):
        draft.note(flag, f"clips are read at {_WAN_FPS:g} frames a second by their own rates, not source_fps")


def _set_sets(draft: Draft, contents: SetsFile, entries: list[dict[str, Any]]) -> None:
    """Sets what all data sets have in common in `data`, and `data.sets` if there are several."""
    flag = "dataset_config"
    paths = dict.fromkeys(path for entry in entries for path in entry if path != "path")
    common = [path for path in paths if all(entry.get(path) == entries[0].get(path) for entry in entries)]
    if any(path.startswith("buckets.") for path in paths.keys() - set(common)):
        common = [path for path in common if not path.startswith("buckets.")]
    for path in common:
        draft.set(f"data.{path}", entries[0][path], flag)
    if len(entries) == 1:
        draft.set("data.path", entries[0]["path"], flag)
        return
    draft.set("data.sets", [_entry({path: value for path, value in entry.items() if path not in common})
                            for entry in entries], flag)  # fmt: skip
    sizes = {
        (entry["batch_size"], str(entry.get("buckets.sizes")), entry["resolution"], entry.get("clips.frames"))
        for entry in entries
    }
    if len(sizes) < len(entries):
        draft.note(flag, "data sets of one size and batch size share batches, so an epoch may have fewer steps")


def _entry(values: dict[str, Any]) -> dict[str, Any]:
    entry: dict[str, Any] = {}
    for path, value in values.items():
        *sections, last = path.split(".")
        inner = entry
        for section in sections:
            inner = inner.setdefault(section, {})
        inner[last] = value
    return entry
