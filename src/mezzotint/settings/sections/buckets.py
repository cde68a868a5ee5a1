"""The sizes of images."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PositiveInt, WithJsonSchema

from mezzotint.settings.base import ALLOW, Section
from mezzotint.settings.counting import nearest_multiples

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

MOST_SIZES = 32_767
"""Buckets are numbered with 16 bits."""

_DEFAULT_SIDES = {"min_side": 256, "max_side": 1024}


def count_own_heights(resolution: int, step: int) -> Iterator[int]:
    """The sizes that `shape: own` may give: for each width, a multiple of `step` in ascending order, the number of
    heights, which are the multiples of `step` from one step up.

    A reduced side is rounded to whole pixels, so a size may have a little more than resolution² pixels. Either the
    width w is at most ½ pixel above √(area · aspect) and the height at most w / aspect + ½, or the same with the sides
    exchanged.
    """
    area = resolution**2
    for width in count(step, step):
        low = width - 0.5
        ratio = 1 + area / low
        highest = max(area * width / low**2 + 0.5, (ratio + math.sqrt(ratio**2 - 1)) / 2)
        heights = int(highest * (1 + 1e-9)) // step
        if not heights:
            return
        yield heights


def has_too_many_sizes(resolution: int, step: int) -> bool:
    """Whether `shape: own` may give more than `MOST_SIZES` sizes."""
    total = 0
    return any((total := total + heights) > MOST_SIZES for heights in count_own_heights(resolution, step))


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

    shape: Annotated[Literal["aspect", "square", "table", "list", "range", "own"], ALLOW] = "aspect"
    """`aspect` puts each image into the bucket with the nearest aspect ratio; all buckets have about `data.resolution`²
    pixels. `square` crops every image to a square. `table` uses EveryDream2's sizes for the resolution, up to 1:4, and
    its rule, the nearest width / height. `list` uses `data.buckets.sizes` and ignores `data.resolution`. `range` has
    one size for each width from `min_side` to `max_side`, and its transpose, of at most `data.resolution`² pixels, and
    uses the nearest width / height. `own` keeps the size of each image, or reduces it to about `data.resolution`²
    pixels, and cuts both sides to multiples of `step`: no image is enlarged."""

    sizes: Annotated[Sizes | None, ALLOW] = None
    """With `shape: list`: the sizes in pixels, each as [height, width], such as [[1024, 1024], [832, 1216]]; or `sdxl`,
    the 40 sizes that SDXL was trained on (Podell et al. 2023, arXiv:2307.01952, appendix I). An image goes to the size
    nearest in log(width / height); among sizes of that shape to the largest that it fills, otherwise to the
    smallest."""

    step: Annotated[PositiveInt, Field(multiple_of=8), ALLOW] = 64
    """With `shape: aspect`, `range` and `own`: sides of buckets are multiples of this many pixels. 64 fits every UNet
    of the SD family; small models accept 8 or 16."""

    max_aspect: Annotated[float, Field(ge=1.0, le=8.0), ALLOW] = 2.0
    """With `shape: aspect`: the largest aspect ratio of a bucket, longer side over shorter. More elongated images are
    cropped to it."""

    min_side: Annotated[PositiveInt, ALLOW] = 256
    """With `shape: range`: the shortest side of a bucket in pixels, a multiple of `step`."""

    max_side: Annotated[PositiveInt, ALLOW] = 1024
    """With `shape: range`: the longest side of a bucket in pixels, a multiple of `step`, and at least
    `data.resolution`."""

    def contradictions(self) -> Iterator[str]:
        yield from self._side_contradictions()
        if self.shape == "list" and self.sizes is None:
            yield ("data.buckets.shape=list needs sizes; write data.buckets.sizes=sdxl, or a list of [height, width]")
        if self.shape != "list" and self.sizes is not None:
            yield (
                f"data.buckets.sizes has no effect with data.buckets.shape={self.shape}; "
                "write data.buckets.shape=list, or leave it out"
            )

    def _side_contradictions(self) -> Iterator[str]:
        if self.shape != "range":
            for name, default in _DEFAULT_SIDES.items():
                if getattr(self, name) != default:
                    yield (
                        f"data.buckets.{name} has no effect with data.buckets.shape={self.shape}; write "
                        "data.buckets.shape=range, or leave it out"
                    )
            return
        for name in _DEFAULT_SIDES:
            side = getattr(self, name)
            if side % self.step:
                near = nearest_multiples(side, self.step)
                yield f"data.buckets.{name} ({side}) must be a multiple of data.buckets.step ({self.step}); {near}"
        if self.min_side > self.max_side:
            yield (
                f"data.buckets.min_side ({self.min_side}) is above data.buckets.max_side ({self.max_side}); lower "
                "min_side, or raise max_side"
            )

    def with_resolution(self, resolutions: Sequence[int]) -> Iterator[str]:
        """Contradictions of `range` and `own` with the base sizes."""
        least, most, step = min(resolutions), max(resolutions), self.step
        if self.shape in ("range", "own") and least < step:
            yield (
                f"data.resolution ({least}) is below data.buckets.step ({step}), so there is no bucket; raise "
                "data.resolution, or lower data.buckets.step"
            )
        if self.shape == "range" and most > self.max_side:
            yield (
                f"data.resolution ({most}) is above data.buckets.max_side ({self.max_side}); raise "
                "data.buckets.max_side, or lower data.resolution"
            )
        if self.shape == "own" and has_too_many_sizes(most, step):
            larger = next(number for number in count(step, 8) if not has_too_many_sizes(most, number))
            yield (
                f"data.buckets.shape=own with data.buckets.step={step} and data.resolution={most} has more than "
                f"{MOST_SIZES:,} sizes; write data.buckets.step={larger} or more"
            )

    def own_with_images(self, crop: str, small_images: str, *, clips: str) -> Iterator[str]:
        """Settings of images that contradict `shape: own`. clips: the format of the data set if it has clips."""
        if small_images == "skip":
            yield (
                "data.small_images=skip has no effect with data.buckets.shape=own, where no image is smaller than its "
                "bucket; leave it out"
            )
        if crop == "triangular":
            yield (
                "data.crop=triangular may enlarge images, and data.buckets.shape=own never does; set data.crop to "
                "center or random, or another data.buckets.shape"
            )
        if clips:
            yield (
                f"data.buckets.shape=own is for images, and data.format={clips} has clips; set "
                "data.buckets.shape=aspect, or data.clips.buckets"
            )
