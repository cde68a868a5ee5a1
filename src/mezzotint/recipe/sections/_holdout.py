"""Which samples are kept out of training, or seen less often."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PositiveInt, WithJsonSchema, field_validator, model_validator

from mezzotint.recipe.base import ALLOW, FREE, DataPath, Section, Share


def _called_val(value: Any) -> Any:
    """One folder is the set `val`."""
    return {"val": value} if isinstance(value, (str, Path)) else value


HeldOutFolders = Annotated[
    dict[str, DataPath],
    BeforeValidator(_called_val),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "object", "additionalProperties": {"type": "string"}}]}),
]
"""Folders by name; one alone is called `val`."""

_TAKEN = frozenset({"loss", "all", "train"})


class RatingSettings(Section):
    """Fewer pictures from epoch to epoch, the better ones more often; for formats in which pictures are rated."""

    share: Annotated[Share | None, ALLOW] = None
    """Epoch n, from 0, uses the share 1 − (n − 1) · (1 − share) / `epochs` of the pictures, the first two epochs all
    of them. Which, is drawn anew each epoch, in proportion to the ratings. None does not look at ratings."""

    epochs: Annotated[PositiveInt | None, ALLOW] = None
    """Over so many epochs the share falls; afterwards it stays. Usually the length of the run."""

    @model_validator(mode="after")
    def _agree(self) -> RatingSettings:
        if (self.share is None) != (self.epochs is None):
            raise ValueError("data.rating.share and data.rating.epochs belong together; give both or none")
        return self


class HoldoutSettings(Section):
    """Pictures kept out of training to measure the loss on something the model has not seen."""

    share: Annotated[Annotated[float, Field(ge=0.0, lt=1.0)], ALLOW] = 0.0
    """The share of pictures held out, drawn by address, so that the same ones are held out on every start."""

    rule: Annotated[Literal["exact", "chance"], ALLOW] = "exact"
    """How many that are: `exact` holds out ⌈share · n⌉ of n pictures, those with the smallest draws; `chance` holds out
    each with the chance `share`, so that a small set may lose far more or fewer, and whether a picture is held out does
    not depend on the others. A run that was begun before there was this choice goes on by chance."""

    max_samples: Annotated[PositiveInt, ALLOW] = 64
    """At most so many pictures are held out, however large the share. Of each folder of `data.holdout.path`, and for
    `val/train`, at most so many are measured, drawn by address."""

    path: Annotated[HeldOutFolders, FREE] = Field(default_factory=dict)
    """Folders of pictures that are measured and never trained, in the format of the data set: one folder, which is then
    called `val`, or several by name, such as {faces: FOLDER, places: FOLDER}. Each is logged as `val/NAME`."""

    @field_validator("path")
    @classmethod
    def _names(cls, value: dict[str, Path]) -> dict[str, Path]:
        for name in value:
            if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,49}", name):
                raise ValueError(f"a set's name is letters, digits, - and _, got {name!r}")
            if name in _TAKEN or name.endswith("_shadow"):
                raise ValueError(f"{name!r} has a meaning of its own in the logs; give the set another name")
        return value
