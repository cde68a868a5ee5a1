"""The way back: the data sets and previews of a recipe, as options, as a data set file and as a file of prompts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mezzotint.compat.kit.caption_templates import SENTENCES
from mezzotint.compat.kit.run_files import split_intervals
from mezzotint.compat.kit.sample_prompts import NEVER
from mezzotint.compat.kit.toml_writing import write_toml
from mezzotint.compat.kohya._buckets import write_sizes
from mezzotint.compat.kohya._data_rows import DATA, FILTERS
from mezzotint.compat.kohya._dataset_file import DEFAULTS, write_dataset_file
from mezzotint.compat.kohya._datasets import ALL_HELD_OUT
from mezzotint.compat.kohya._prompts import find_sampler, write_lines
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
_TEMPLATES = tuple("{" + "|".join(one.format("{trigger}") for one in every) + "}" for every in SENTENCES.values())
"""Templates that are options of textual inversion."""


def write_data(recipe: Recipe, script: Script, launched: Launched) -> Values:
    """The options of the data, and the keys of its sets by `sets:NUMBER.KEY`. Raises RecipeError for data that the
    scripts cannot read."""
    data = recipe.data
    sets = _list_sets(recipe)
    batch = _divide(data.batch_size, launched)
    captions = [one.settings.captions for one in sets]
    is_fixed = not any(one.shuffle_tags or one.tag_dropout or one.dropout for one in captions)
    values: Values = dict.fromkeys(row.flag for row in DATA)
    values |= {
        "train_batch_size": batch,
        "cache_latents": data.cache.latents or None,
        "cache_text_encoder_outputs": (data.cache.text and is_fixed) or None,
        "cache_text_encoder_outputs_to_disk": None,
        "masked_loss": any(one.settings.mask.source == "files" for one in sets) or None,
        "max_validation_steps": _divide(data.holdout.max_samples, Launched(batch or 1)),
    }
    entries = [_write_set(recipe, script, one, launched) for one in sets]
    if script.method != "adapter" or data.holdout.max_samples == ALL_HELD_OUT:
        values |= dict.fromkeys(("validation_split", "max_validation_steps"))
        entries = [{**one, "validation_split": data.holdout.fraction or None} for one in entries]
    if data.format == "kohya":
        prior = str(sets[-1].settings.path) if sets[-1].is_class else None
        folders = {"train_data_dir": entries[0].pop("image_dir"), "reg_data_dir": prior, "num_repeats": None}
        return values | entries[0] | folders
    for number, entry in enumerate(entries):
        values |= {f"{_SETS}{number}.{key}": value for key, value in entry.items() if value != DEFAULTS.get(key, False)}
    return values


def has_metadata_files(recipe: Recipe) -> bool:
    """Whether the sets of images have metadata files. Raises RecipeError if only some have one."""
    have = {_rules_of(recipe, one.settings).metadata_file is not None for one in recipe.data.image_sets()}
    if len(have) > 1:
        raise RecipeError("a script of kohya for sd reads folders of images or metadata files, not both", code="E1026")
    return True in have


def _rules_of(recipe: Recipe, data: DataSettings) -> FolderRules:
    is_kohya = recipe.data.format == "kohya-subsets"
    return recipe.data.get_section(KohyaSubsetsSettings).of(data.path) if is_kohya else FolderRules()


def _list_sets(recipe: Recipe) -> list[ImageSet]:
    """The sets of images, one for each of their sizes."""
    data = recipe.data
    if data.path is None and not data.sets:
        raise RecipeError("the recipe has no data set; write data.path=FOLDER", code="E1026")
    if data.condition_names:
        raise RecipeError("kohya trains from text alone, and the recipe has data.conditions", code="E1026")
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
        **write_sizes(data.resolution[0], data.buckets),
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


def _write_captions(captions: CaptionSettings) -> Values:
    splits = bool(captions.shuffle_tags or captions.tag_dropout)
    is_option = captions.template in _TEMPLATES
    template = "" if is_option or not captions.trigger else captions.full_template
    before, _, after = (text.strip() for text in template.replace("{trigger}", captions.trigger).partition("{caption}"))
    return {
        "caption_extension": ".txt" if captions.extension == "any" else captions.extension,
        "caption_prefix": " ".join(filter(None, (before, captions.prefix))) or None,
        "caption_suffix": " ".join(filter(None, (captions.suffix, after))) or None,
        "keep_tokens_separator": (splits and captions.keep_separator) or None,
        "secondary_separator": (splits and captions.second_separator) or None,
        "shuffle_caption": captions.shuffle_tags or None,
        "keep_tokens": captions.keep_tags + 1 if splits else None,
        "enable_wildcard": (captions.wildcards and (not is_option or captions.lines == "random")) or None,
        "caption_dropout_rate": captions.dropout or None,
        "caption_dropout_every_n_epochs": captions.dropout_every or None,
        "caption_tag_dropout_rate": captions.tag_dropout or None,
    }


# --- previews ---------------------------------------------------------------------------------------------------------


def write_prompts(recipe: Recipe, script: Script) -> Values:
    """The options of previews; the prompts as lines of their file."""
    sample, every = recipe.sample, recipe.run.preview.every
    lines = write_lines(sample, script, recipe.data.resolution[0])
    values: Values = dict.fromkeys(("sample_prompts", "prompt", "sample_at_first", "sample_sampler"))
    if every is None or not (lines or sample.prompt_file):
        return values | split_intervals("sample_every_n", ())
    return values | {
        "sample_prompts": str(sample.prompt_file) if sample.prompt_file else lines,
        "sample_sampler": None if script.is_flow else find_sampler(sample.solver),
        "sample_at_first": True,
        **split_intervals("sample_every_n", () if every == Every.parse(NEVER) else (every,)),
    }


# --- files ------------------------------------------------------------------------------------------------------------


def write_files(values: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """The files of these values, (name, text) by the option that names them."""
    options = {row.flag: values[row.flag] for row in ROWS if row.flag in values}
    files, sets = {}, dict[str, Values]()
    if isinstance(values.get("sample_prompts"), list):
        files["sample_prompts"] = ("prompts.txt", "".join(f"{line}\n" for line in options.pop("sample_prompts")))
    for flag in (flag for flag in values if flag.startswith(_SETS)):
        number, _, key = flag.removeprefix(_SETS).partition(".")
        sets.setdefault(number, {})[key] = values[flag]
    if sets:
        files["dataset_config"] = ("dataset.toml", write_dataset_file(sets.values()))
    return {"config_file": ("config.toml", write_toml(options)), **files}
