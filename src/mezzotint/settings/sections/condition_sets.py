"""Condition images of all sets of a recipe: what does not go together, and the section that reads their files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from mezzotint.settings.base import with_values
from mezzotint.settings.formats.base import format_spec
from mezzotint.settings.sections.captions import CaptionSettings
from mezzotint.settings.sections.sets import SetSettings
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
    is_own = any(one.folder is None for each in sets for one in each.settings.conditions.values())
    if is_own and not spec.own_conditions:
        yield f"data.conditions need a folder with data.format={data.format}; write data.conditions.NAME.folder"


def images_settings(data: DataSettings, name: str) -> DataSettings:
    """The section for the images of a condition: every image of its folders, or of its column."""
    sets = data.image_sets()
    plain: dict[str, Any] = {
        "path": None, "sets": (), "conditions": {}, "condition_dropout": 0.0, "repeats": 1.0,
        "small_images": "upscale", "prior": PriorSettings(), "mask": MaskSettings(),
        "captions": CaptionSettings(missing="empty"),
    }  # fmt: skip
    folders = [one.settings.conditions[name].folder for one in sets]
    if all(folder is not None for folder in folders):
        paths = tuple(SetSettings(path=folder) for folder in folders if folder is not None)
        return with_values(data, {**plain, "format": type(data).model_fields["format"].default, "sets": paths})
    paths = tuple(SetSettings(path=path) for one in sets if (path := one.settings.path) is not None)
    return with_values(data, {**plain, "sets": paths, "columns.image": name})
