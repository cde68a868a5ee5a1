"""Images that are held out of training."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, PositiveInt, WithJsonSchema, field_validator

from mezzotint.settings.base import ALLOW, FREE, DataPath, Section


def _name_single_folder(value: Any) -> Any:
    """A single folder is named `val`."""
    return {"val": value} if isinstance(value, (str, Path)) else value


HeldOutFolders = Annotated[
    dict[str, DataPath],
    BeforeValidator(_name_single_folder),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "object", "additionalProperties": {"type": "string"}}]}),
]
"""Folders by name; a single folder is named `val`."""

_TAKEN = frozenset({"loss", "all", "train"})


class HoldoutSettings(Section):
    """Images that are never trained and measure the loss on data the model has not seen."""

    fraction: Annotated[Annotated[float, Field(ge=0.0, lt=1.0)], ALLOW] = 0.0
    """The fraction of images held out: ⌈fraction · n⌉ of n images, chosen by address, so every start holds out the same
    ones."""

    max_samples: Annotated[PositiveInt, ALLOW] = 64
    """The largest number of images held out, whatever the fraction. Also the largest number measured of each folder of
    `data.holdout.path` and for `val/train`, drawn by address."""

    path: Annotated[HeldOutFolders, FREE] = Field(default_factory=dict)
    """Folders of images that are measured and never trained, in the format of the data set: one folder, which is named
    `val`, or several by name, such as {faces: FOLDER, places: FOLDER}. Each is logged as `val/NAME`."""

    @field_validator("path")
    @classmethod
    def _check_names(cls, value: dict[str, Path]) -> dict[str, Path]:
        for name in value:
            if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,49}", name):
                raise ValueError(f"the name of a held-out set has only letters, digits, - and _, got {name!r}")
            if name in _TAKEN or name.endswith("_shadow"):
                raise ValueError(f"{name!r} is a reserved name in the logs; give the set another name")
        return value
