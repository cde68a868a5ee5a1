"""Images that the model is given beside the caption: an image to edit, references."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from mezzotint.settings.base import ALLOW, FREE, DataPath, Section, take_only

FIRST_FRAME = "first_frame"
"""The condition of image-to-video models, in `sample.conditions`."""


class ConditionSettings(Section):
    """One condition image of each sample, such as the image before an edit."""

    folder: Annotated[DataPath | None, BeforeValidator(take_only), FREE] = None
    """The folder of these images. Looked up like `data.path`. None: they are in the data set itself, for tables in a
    column, in tar shards as `KEY.NAME.png`."""

    column: Annotated[str | None, ALLOW] = None
    """Without `folder`: the column of tables with these images, or with their file names below the table's folder; in
    tar shards the `NAME` of `KEY.NAME.png`. None is the condition's name."""

    match: Annotated[Literal["name"], ALLOW] = "name"
    """How an image of `folder` finds its sample: by its `name` below the folder, with any extension."""

    suffix: Annotated[str, Field(pattern=r"^[\w .-]{0,30}$"), ALLOW] = ""
    """With `folder`: what the names of these images have after that of their sample, such as `_0` for `cat_0.png` of
    `cat.png`; several conditions may so be in one folder."""

    align: Annotated[Literal["target", "own"], ALLOW] = "target"
    """`target`: the image is resized, cropped and mirrored like its sample, and needs its aspect ratio. `own`: it keeps
    its shape, at about as many pixels as `data.resolution` says, cropped to multiples of `data.buckets.step`, not
    mirrored; for models with references. A batch then has conditions of one size."""

    optional: Annotated[bool, ALLOW] = False
    """Whether samples may be without this image; they then get black. Otherwise a sample without it is an error."""

    def column_of(self, name: str) -> str:
        """The column of the condition with this name."""
        return self.column or name


def _name_single_folder(value: Any) -> Any:
    """`{source: before}` is short for `{source: {folder: before}}`."""
    if not isinstance(value, dict):
        return value
    return {name: {"folder": one} if isinstance(one, (str, Path)) else one for name, one in value.items()}


def _check_names(value: dict[str, ConditionSettings]) -> dict[str, ConditionSettings]:
    for name in value:
        if not re.fullmatch(r"[a-z][a-z0-9_]{0,29}", name):
            raise ValueError(f"the name of a condition has small letters, digits and _, got {name!r}")
    return value


Conditions = Annotated[
    dict[str, ConditionSettings],
    BeforeValidator(_name_single_folder),
    AfterValidator(_check_names),
]
"""Condition images by name, in the order in which a model with several gets them."""


def in_folders(conditions: dict[str, ConditionSettings]) -> Iterator[Path]:
    """The folders of conditions."""
    return (one.folder for one in conditions.values() if one.folder is not None)


def condition_columns(conditions: dict[str, ConditionSettings]) -> tuple[str, ...]:
    """The columns of conditions that are in the data set itself, each once."""
    return tuple(dict.fromkeys(one.column_of(name) for name, one in conditions.items() if one.folder is None))
