"""The sizes of images."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PositiveInt, WithJsonSchema

from mezzotint.settings.base import ALLOW, Section

TABLES = (256, 320, 384, 448, 512, 576, 640, 704, 768, 832, 896, 960, 1024, 1088, 1152, 1280, 1536)
"""The resolutions for which `data.buckets.shape=table` has a list of sizes."""

SDXL = (
    "512x2048 512x1984 512x1920 512x1856 576x1792 576x1728 576x1664 640x1600 640x1536 704x1472 704x1408 704x1344 "
    "768x1344 768x1280 832x1216 832x1152 896x1152 896x1088 960x1088 960x1024 1024x1024 1024x960 1088x960 1088x896 "
    "1152x896 1152x832 1216x832 1280x768 1344x768 1408x704 1472x704 1536x640 1600x640 1664x576 1728x576 1792x576 "
    "1856x512 1920x512 1984x512 2048x512"
)
"""Height by width, in the order of appendix I of Podell et al. 2023 (arXiv:2307.01952). 704x1344 is the only one
without a mirrored entry."""


def _of_name(value: Any) -> Any:
    """The list of sizes that a name stands for."""
    return [[int(side) for side in pair.split("x")] for pair in SDXL.split()] if value == "sdxl" else value


_Side = Annotated[int, Field(ge=16, le=8192, multiple_of=8)]
_SIZE_PAIRS = {"type": "array", "minItems": 1, "items": {"type": "array", "items": {"type": "integer"}, "minItems": 2}}

Sizes = Annotated[
    tuple[tuple[_Side, _Side], ...],
    Field(min_length=1),
    BeforeValidator(_of_name),
    WithJsonSchema({"anyOf": [{"const": "sdxl"}, _SIZE_PAIRS]}),
]
"""Sizes in pixels, height first, or the name of a list."""


class BucketSettings(Section):
    """The image sizes of training. All images of a batch have one size."""

    shape: Annotated[Literal["aspect", "square", "table", "list"], ALLOW] = "aspect"
    """`aspect` puts each image into the bucket with the nearest aspect ratio; all buckets have about `data.resolution`²
    pixels. `square` crops every image to a square. `table` uses EveryDream2's sizes for the resolution, up to 1:4, and
    its rule, the nearest width / height. `list` uses `data.buckets.sizes` and ignores `data.resolution`."""

    sizes: Annotated[Sizes | None, ALLOW] = None
    """With `shape: list`: the sizes in pixels, each as [height, width], such as [[1024, 1024], [832, 1216]]; or `sdxl`,
    the 40 sizes that SDXL was trained on (Podell et al. 2023, arXiv:2307.01952, appendix I). An image goes to the size
    nearest in log(width / height); among sizes of that shape to the largest that it fills, otherwise to the
    smallest."""

    step: Annotated[PositiveInt, Field(multiple_of=8), ALLOW] = 64
    """With `shape: aspect`: sides of buckets are multiples of this many pixels. 64 fits every UNet of the SD family;
    small models accept 8 or 16."""

    max_aspect: Annotated[float, Field(ge=1.0, le=8.0), ALLOW] = 2.0
    """With `shape: aspect`: the largest aspect ratio of a bucket, longer side over shorter. More elongated images are
    cropped to it."""

    def contradictions(self) -> Iterator[str]:
        if self.shape == "list" and self.sizes is None:
            yield ("data.buckets.shape=list needs sizes; write data.buckets.sizes=sdxl, or a list of [height, width]")
        if self.shape != "list" and self.sizes is not None:
            yield (
                f"data.buckets.sizes has no effect with data.buckets.shape={self.shape}; "
                "write data.buckets.shape=list, or leave it out"
            )
