"""Condition images of all sets of a recipe: what does not go together, and the section that reads their files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from mezzotint.settings.base import with_values
from mezzotint.settings.formats.base import format_spec
from mezzotint.settings.sections.captions import CaptionSettings
from mezzotint.settings.sections.inpaint import InpaintSettings
from mezzotint.settings.sections.sets import SetMask, SetSettings
from mezzotint.settings.sections.subjects import MaskSettings, PriorSettings

if TYPE_CHECKING:
    from mezzotint.settings.sections.data import DataSettings


def contradictions(data: DataSettings) -> Iterator[str]:
    """Conditions of samples that have none, and sets with other conditions."""
    sets = data.image_sets()
    names = {tuple(one.settings.conditions) for one in sets}
    if len(names) > 1:
        listed = "; ".join(", ".join(some) or "none" for some in sorted(names, reverse=True))
        yield (
            f"data.sets have other condition images ({listed}); give all of them the same names, with optional=true "
            "for those that some samples lack"
        )
    if data.condition_dropout and not any(names):
        yield "data.condition_dropout has no effect without data.conditions; leave it out"
    if not any(names):
        return
    spec = format_spec(data.format)
    if data.holdout.path:
        yield (
            "data.holdout.path has no condition images; leave it out, and hold out some pairs with "
            "data.holdout.fraction"
        )
    if data.has_class_images:
        yield "data.conditions and class images (data.prior) do not go together; leave out one of them"
    if spec.has_clips or spec.is_encoded:
        yield f"data.conditions need images, and data.format={data.format} has none; leave them out"
    for name in data.condition_names:
        yield from _about_columns(data, name)


def _about_columns(data: DataSettings, name: str) -> Iterator[str]:
    """A condition that is both in a folder and in the data set, and a column that cannot hold it."""
    conditions, spec = [one.settings.conditions[name] for one in data.image_sets()], format_spec(data.format)
    if any(one.folder is not None and one.column is not None for one in conditions):
        yield f"data.conditions.{name} has a folder and a column; leave out one of them"
        return
    if not any(one.folder is None for one in conditions):
        return
    if not spec.own_conditions:
        yield f"data.conditions need a folder with data.format={data.format}; write data.conditions.NAME.folder"
    elif any(one.folder is not None for one in conditions):
        yield f"data.conditions.{name} has a folder in some sets and none in others; give all sets one, or none"
    elif spec.has_columns and any(one.column_of(name) == data.columns.image for one in conditions):
        yield f"data.conditions.{name} is the column of the samples (data.columns.image); write another column"


def is_in_data_set(data: DataSettings, name: str) -> bool:
    """Whether the images of a condition are in the data set itself, and in no folder."""
    return any(one.settings.conditions[name].folder is None for one in data.image_sets())


def images_settings(data: DataSettings, name: str) -> DataSettings:
    """The section for the images of a condition: every image of its folders; or those of its column, with captions as
    in the data set, since two rows of one image are told apart by them."""
    plain: dict[str, Any] = {
        "condition_dropout": 0.0, "repeats": 1.0, "small_images": "upscale", "prior": PriorSettings(),
        "mask": MaskSettings(), "inpaint": InpaintSettings(),
    }  # fmt: skip
    if is_in_data_set(data, name):
        same = {"repeats": None, "small_images": None, "mask": SetMask()}
        return with_values(data, {**plain, "sets": tuple(with_values(one, same) for one in data.sets)})
    folders = [one.settings.conditions[name].folder for one in data.image_sets()]
    paths = tuple(SetSettings(path=folder) for folder in folders if folder is not None)
    image_format = type(data).model_fields["format"].default
    no_others: dict[str, Any] = {"path": None, "conditions": {}, "captions": CaptionSettings(missing="empty")}
    return with_values(data, {**plain, **no_others, "format": image_format, "sets": paths})
