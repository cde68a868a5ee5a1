"""The way back: the data sets and previews of a recipe, as options, as a data set file and as a file of prompts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from mezzotint.compat.kit.caption_templates import SENTENCES
from mezzotint.compat.kit.sample_prompts import NEVER
from mezzotint.compat.kit.toml_writing import write_toml
from mezzotint.compat.kohya._buckets import find_options
from mezzotint.compat.kohya._data_rows import DATA, FILTERS, SAMPLERS
from mezzotint.compat.kohya._dataset_file import DEFAULTS, GENERAL, SUBSET
from mezzotint.compat.kohya._datasets import ALL_HELD_OUT
from mezzotint.compat.kohya._rows import ROWS
from mezzotint.compat.kohya._scripts import Script
from mezzotint.compat.kohya.subsets_format_spec import FolderRules, KohyaSubsetsSettings
from mezzotint.errors import RecipeError
from mezzotint.settings.base import Every
from mezzotint.settings.reading.translation import Launched
from mezzotint.settings.recipe import Recipe
from mezzotint.settings.sections.captions import CaptionSettings
from mezzotint.settings.sections.data import DataSettings, ImageSet

Values = dict[str, Any]

_SETS = "sets:"
_OF_GROUPS = [key for key in GENERAL if key not in SUBSET]
"""Keys that belong to data sets, not to their subsets."""
_OF_SUBSETS = [key for key in SUBSET if key not in GENERAL]
_ORDER = [*_OF_SUBSETS, "class_tokens", "num_repeats", *GENERAL]
_TEMPLATES = tuple("{" + "|".join(one.format("{trigger}") for one in every) + "}" for every in SENTENCES.values())
"""Templates that are options of textual inversion."""
_WIDEST = 4.0
"""The largest aspect ratio of the sizes of `data.buckets.shape=table`."""


def write_data(recipe: Recipe, script: Script, launched: Launched) -> Values:
    """The options of the data, and the keys of its sets by `sets:NUMBER.KEY`. Raises RecipeError for data that the
    scripts cannot read."""
    data = recipe.data
    sets = _list_sets(recipe)
    batch = _divide(data.batch_size, launched)
    splits = any(one.settings.captions.shuffle_tags or one.settings.captions.tag_dropout for one in sets)
    values: Values = dict.fromkeys(row.flag for row in DATA)
    values |= {
        "train_batch_size": batch,
        "cache_latents": data.cache.latents or None,
        "cache_text_encoder_outputs": (data.cache.text and not splits) or None,
        "masked_loss": any(one.settings.mask.source == "files" for one in sets) or None,
        "max_validation_steps": _divide(data.holdout.max_samples, Launched(batch or 1)),
    }
    entries = [_write_set(recipe, script, one, launched) for one in sets]
    if script.method != "adapter" or data.holdout.max_samples == ALL_HELD_OUT:
        values |= dict.fromkeys(("validation_split", "max_validation_steps"))
        entries = [{**one, "validation_split": data.holdout.fraction or None} for one in entries]
    if data.format == "kohya":
        folders = {"train_data_dir": entries[0].pop("image_dir"), "reg_data_dir": str(sets[-1].settings.path)}
        return values | entries[0] | {"num_repeats": None} | (folders if sets[-1].is_class else {**folders, "reg_data_dir": None})
    for number, entry in enumerate(entries):
        values |= {f"{_SETS}{number}.{key}": value for key, value in entry.items() if value != DEFAULTS.get(key, False)}
    return values


def has_metadata_files(recipe: Recipe) -> bool:
    """Whether every set of images has a metadata file."""
    return all(_rules_of(recipe, one.settings).metadata_file is not None for one in recipe.data.image_sets())


def _rules_of(recipe: Recipe, data: DataSettings) -> FolderRules:
    is_kohya = recipe.data.format == "kohya-subsets"
    return recipe.data.get_section(KohyaSubsetsSettings).of(data.path) if is_kohya else FolderRules()


def _list_sets(recipe: Recipe) -> list[ImageSet]:
    """The sets of images, one for each of their sizes."""
    data = recipe.data
    if data.path is None and not data.sets:
        raise RecipeError("the recipe has no data set; write data.path=FOLDER", code="E1026")
    if data.format not in ("image-folder", "kohya", "kohya-subsets"):
        message = f"kohya reads folders of images, and the recipe has data.format={data.format}"
        raise RecipeError(message, code="E1026")
    sets = data.image_sets()
    if data.format == "kohya" and (len(sets) > 2 or (len(sets) == 2 and not sets[1].is_class)):
        message = "kohya reads one folder of numbered folders, and the recipe has several"
        remedy = "list the numbered folders in data.sets with data.format=kohya-subsets"
        raise RecipeError(f"{message}; {remedy}", code="E1026")
    return [ImageSet(size, one.weight, one.is_class) for one in sets for size in _sizes_of(one)]


def _sizes_of(one: ImageSet) -> Sequence[DataSettings]:
    return one.sizes if one.settings.resolution_mode == "each" else one.sizes[:1]


def _divide(batch: int, launched: Launched) -> int | None:
    """The batch of one process."""
    return batch // launched.processes if batch % launched.processes == 0 else None


def _write_set(recipe: Recipe, script: Script, one: ImageSet, launched: Launched) -> Values:
    """The keys of a set of images."""
    data, rules = one.settings, _rules_of(recipe, one.settings)
    entry: Values = {
        "image_dir": str(data.path),
        "metadata_file": str(rules.metadata_file) if rules.metadata_file is not None else None,
        "is_reg": one.is_class or None,
        "class_tokens": rules.class_tokens or None,
        "num_repeats": max(1, int(data.repeats)),
        "batch_size": None if data.batch_size == recipe.data.batch_size else _divide(data.batch_size, launched),
        **_write_sizes(data),
        "flip_aug": data.flip == 0.5 or None,
        "random_crop": data.crop == "random" or None,
        "resize_interpolation": next((name for name, ours in FILTERS.items() if ours == data.resize != "area"), None),
        "alpha_mask": data.mask.source == "alpha" or None,
        **_write_captions(data.captions),
    }
    if data.mask.source == "files" and data.mask.path is not None:
        entry["conditioning_data_dir"] = str(data.mask.path)
    if script.method == "embeddings":
        entry = {key: value for key, value in entry.items() if "dropout" not in key}
    return entry


def _write_sizes(data: DataSettings) -> Values:
    side, buckets = data.resolution[0], data.buckets
    found: Values = {}
    square, sizes = {"resolution": str(side)}, [(wide, high) for high, wide in buckets.sizes or ()]
    in_buckets = {**square, "enable_bucket": True, "bucket_reso_steps": buckets.step}
    match buckets.shape:
        case "square":
            return {**square}
        case "own":
            return {**in_buckets, "bucket_no_upscale": True}
        case "range":
            return {**in_buckets, "min_bucket_reso": buckets.min_side, "max_bucket_reso": buckets.max_side}
        case "list":
            found = find_options(sizes, side)
            ratio = max(max(one) / min(one) for one in sizes)
        case _:
            ratio = buckets.max_aspect if buckets.shape == "aspect" else _WIDEST
    least = max(1, math.floor(side / math.sqrt(ratio) / buckets.step)) * buckets.step
    most = math.ceil(side * math.sqrt(ratio) / buckets.step) * buckets.step
    return found or {**in_buckets, "min_bucket_reso": least, "max_bucket_reso": most}


def _write_captions(captions: CaptionSettings) -> Values:
    splits = bool(captions.shuffle_tags or captions.tag_dropout)
    is_option = captions.template in _TEMPLATES
    before, sign, after = captions.full_template.partition("{caption}")
    words = ("", "") if is_option or not captions.trigger else (before, after)
    before, after = (text.replace("{trigger}", captions.trigger).strip() for text in words)
    return {
        "caption_extension": ".txt" if captions.extension == "any" else captions.extension,
        "caption_prefix": " ".join(filter(None, (before, captions.prefix))) or None,
        "caption_suffix": " ".join(filter(None, (captions.suffix, after))) or None,
        "keep_tokens_separator": (splits and captions.keep_separator) or None,
        "secondary_separator": (splits and captions.second_separator) or None,
        "shuffle_caption": captions.shuffle_tags or None,
        "keep_tokens": captions.keep_tags + 1 if splits else None,
        "enable_wildcard": (captions.wildcards and not is_option) or None,
        "caption_dropout_rate": captions.dropout or None,
        "caption_dropout_every_n_epochs": captions.dropout_every or None,
        "caption_tag_dropout_rate": captions.tag_dropout or None,
    }


# --- previews ---------------------------------------------------------------------------------------------------------


def write_prompts(recipe: Recipe, script: Script) -> Values:
    """The options of previews; the prompts as lines of their file."""
    sample, every = recipe.sample, recipe.run.preview.every
    lines = [*_prompt_lines(recipe, script)]
    values: Values = dict.fromkeys(("sample_prompts", "prompt", "sample_at_first", "sample_sampler"))
    if every is None or not (lines or sample.prompt_file):
        return values | split_intervals("sample_every_n", ())
    solver = next((name for name, ours in SAMPLERS.items() if ours == sample.solver), None)
    return values | {
        "sample_prompts": str(sample.prompt_file) if sample.prompt_file else lines,
        "sample_sampler": None if script.is_flow else solver,
        "sample_at_first": True,
        **split_intervals("sample_every_n", () if every == Every.parse(NEVER) else (every,)),
    }


def _prompt_lines(recipe: Recipe, script: Script) -> Iterator[str]:
    """Each prompt with its options; not those that a line cannot have."""
    sample, side = recipe.sample, recipe.data.resolution[0]
    width, height = sample.size or (side, side)
    solver = next((name for name, ours in SAMPLERS.items() if ours == sample.solver), None)
    options = {
        "n": _one_line(sample.negative_prompt) or None, "w": width, "h": height,
        "d": sample.seed if sample.seed >= 0 else None, "s": sample.steps,
        ("g" if script.family == "flux" else "l"): f"{sample.guidance[0]:g}",
        "ss": solver if script.family != "flux" else None,
    }  # fmt: skip
    end = "".join(f" --{name} {value}" for name, value in options.items() if value is not None)
    yield from (text + end for text in map(_one_line, sample.prompts) if text and not text.startswith(("#", "--")))


def _one_line(text: str) -> str:
    return " ".join(text.split()).replace(" --", " -")


def split_intervals(prefix: str, intervals: Sequence[Every | None]) -> Values:
    """The options of intervals in steps and in epochs."""
    counts = {one.unit: int(one.count) for one in intervals if one is not None and one.count == int(one.count)}
    return {f"{prefix}_{unit}": counts.get(unit) for unit in ("steps", "epochs")}  # type: ignore[call-overload]


# --- files ------------------------------------------------------------------------------------------------------------


def write_files(values: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """The files of these values, (name, text) by the option that names them."""
    lines = values.get("sample_prompts")
    files = {}
    options = {row.flag: values[row.flag] for row in ROWS if row.flag in values}
    if isinstance(lines, list):
        del options["sample_prompts"]
        files["sample_prompts"] = ("prompts.txt", "".join(f"{line}\n" for line in lines))
    if any(flag.startswith(_SETS) for flag in values):
        files["dataset_config"] = ("dataset.toml", write_toml(_group_sets(values)))
    return {"config_file": ("config.toml", write_toml(options)), **files}


def _group_sets(values: Mapping[str, Any]) -> Values:
    """`[general]`, and the sets in groups that have the keys of a data set in common."""
    sets: dict[str, Values] = {}
    for flag, value in values.items():
        if flag.startswith(_SETS):
            number, _, key = flag.removeprefix(_SETS).partition(".")
            sets.setdefault(number, {})[key] = value
    entries = [{key: one[key] for key in _ORDER if key in one} for one in sets.values()]
    for one in entries:
        width, _, height = one.get("resolution", "").partition(",")
        one |= {"resolution": [int(width), int(height)] if height else int(width)} if width else {}
    general = _take_common(entries, lambda key: key in GENERAL and key not in ("class_tokens", "num_repeats"))
    groups: list[list[Values]] = []
    for one in entries:
        group = next((group for group in groups if _fits(one, group)), None)
        groups.append([one]) if group is None else group.append(one)
    datasets = [{**_take_common(group, _OF_GROUPS.__contains__), "subsets": group} for group in groups]
    return {**({"general": general} if general else {}), "datasets": datasets}


def _take_common(entries: Sequence[Values], is_taken: Callable[[str], bool]) -> Values:
    """Removes the keys that all entries have in common, and returns them."""
    first, *others = entries
    common = {key: value for key, value in first.items()
              if is_taken(key) and all(key in one and one[key] == value for one in others)}  # fmt: skip
    for one in entries:
        for key in common:
            del one[key]
    return common


def _fits(one: Values, group: Sequence[Values]) -> bool:
    """Whether a set may be in a data set with others: with the same sizes and batches, and other images."""
    same = all(one.get(key) == group[0].get(key) for key in _OF_GROUPS)
    is_alike = ("metadata_file" in one) == ("metadata_file" in group[0])
    return same and is_alike and all(one.get("image_dir") != other.get("image_dir") for other in group)
