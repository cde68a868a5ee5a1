"""Sizes of buckets that are written into a recipe: pairs, or the name of a published list."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema

SDXL = (
    "512x2048 512x1984 512x1920 512x1856 576x1792 576x1728 576x1664 640x1600 640x1536 704x1472 704x1408 704x1344 "
    "768x1344 768x1280 832x1216 832x1152 896x1152 896x1088 960x1088 960x1024 1024x1024 1024x960 1088x960 1088x896 "
    "1152x896 1152x832 1216x832 1280x768 1344x768 1408x704 1472x704 1536x640 1600x640 1664x576 1728x576 1792x576 "
    "1856x512 1920x512 1984x512 2048x512"
)
"""Height by width, in the order of appendix I of Podell et al. 2023 (arXiv:2307.01952). 704x1344 alone has no mirror
there."""


def _of_name(value: Any) -> Any:
    """The list behind a name."""
    return [[int(side) for side in pair.split("x")] for pair in SDXL.split()] if value == "sdxl" else value


_Side = Annotated[int, Field(ge=16, le=8192, multiple_of=8)]
_PAIRS = {"type": "array", "minItems": 1, "items": {"type": "array", "items": {"type": "integer"}, "minItems": 2}}

Sizes = Annotated[
    tuple[tuple[_Side, _Side], ...],
    Field(min_length=1),
    BeforeValidator(_of_name),
    WithJsonSchema({"anyOf": [{"const": "sdxl"}, _PAIRS]}),
]
"""Sizes in pixels, height first, or the name of a list."""
