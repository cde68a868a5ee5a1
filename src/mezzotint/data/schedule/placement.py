"""The crop of an image: at a visit, or in one of the views of a latent cache. Pure functions of sizes and addresses,
between the catalogue and the pixels."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from mezzotint import draws
from mezzotint.data.buckets import own_sizes
from mezzotint.data.schedule import condition_shapes
from mezzotint.data.schedule.plan import Visit
from mezzotint.settings.sections.data import DataSettings
from mezzotint.shapes import Size, cover
from mezzotint.stages import Placement

if TYPE_CHECKING:
    from mezzotint.data.catalogue.catalogue import Catalogue


def place(
    size: Size, bucket: Size, *, crop: str, jitter: float, flip: float, crop_key: int, flip_key: int,
    resized: Size | None = None,
) -> Placement:  # fmt: skip
    """The placement of an image of `size` in `bucket`: resized to the smallest size that covers it, cropped, then
    mirrored; with `stretch` resized to the bucket.

    crop, jitter: as in the recipe. flip: probability that it is mirrored. crop_key, flip_key: addresses of the two
    draws (`draws.key`). A centre crop starts at half of the excess, rounded half to even, as in torchvision's
    CenterCrop. resized: the size that it is resized to, at least the bucket's; None for the smallest that covers the
    bucket.
    """
    flipped = draws.uniform(flip_key) < flip
    if crop == "stretch":
        return Placement(bucket, bucket, (0, 0), flipped)
    if crop == "triangular":
        return _triangular(size, bucket, jitter, crop_key, flipped)
    resized = resized or cover(size, bucket)
    rows, columns = resized.height - bucket.height, resized.width - bucket.width
    if crop == "center":
        corner = (round(rows / 2), round(columns / 2))
    else:  # if one of the two is 0, both can use the same draw
        column_key = draws.key(crop_key, "column") if rows and columns else crop_key
        corner = (draws.below(crop_key, rows + 1), draws.below(column_key, columns + 1))
    return Placement(bucket, resized, corner, flipped)


def at_visit(catalogue: Catalogue, visit: Visit, bucket: Size, settings: DataSettings) -> Placement:
    """The placement of an image in its bucket at a visit, drawn at the visit's address."""
    return _of_row(catalogue, visit.row, bucket, settings, visit.draw("crop"), visit.draw("flip"))


def cached_view(
    catalogue: Catalogue, row: int, bucket: Size, settings: DataSettings, *, seed: int, view: int
) -> Placement:
    """The placement of a sample in its bucket in one of the views of a latent cache, the same in every epoch."""
    key_hash = int(catalogue.key_hash[row])
    crop_key = draws.key(seed, "crop-variant", key_hash, view)
    return _of_row(catalogue, row, bucket, settings, crop_key, draws.key(seed, "flip-variant", key_hash, view))


def _of_row(
    catalogue: Catalogue, row: int, bucket: Size, settings: DataSettings, crop_key: int, flip_key: int
) -> Placement:
    flip = catalogue.overrides.flip_of(row)
    size, resized = Size(int(catalogue.width[row]), int(catalogue.height[row])), None
    if settings.buckets.shape == "own":
        resized = own_sizes.find_resized_size(size, bucket, settings.resolution, settings.buckets.step)
    return place(
        size,
        bucket,
        crop=settings.crop,
        jitter=settings.jitter,
        flip=settings.flip if flip is None else flip,
        crop_key=crop_key,
        flip_key=flip_key,
        resized=resized,
    )


def of_condition(catalogue: Catalogue, row: int, name: str, placed: Placement, settings: DataSettings) -> Placement:
    """The placement of a condition image of a sample that is `placed`: the same, or with `align: own` the whole image,
    cropped to the middle to a size of its own, and not mirrored. For a missing image that of the sample. settings: of
    the data set."""
    condition = catalogue.settings_of(row, settings).conditions[name]
    paired = catalogue.conditions[name]
    image = int(paired.rows[row])
    if condition.align == "target" or image < 0:
        return placed
    size = Size(int(paired.images.width[image]), int(paired.images.height[image]))
    bucket = condition_shapes.fit_one(size, placed.bucket.pixels, settings)
    return place(size, bucket, crop="center", jitter=0.0, flip=0.0, crop_key=0, flip_key=0)


def _triangular(size: Size, bucket: Size, jitter: float, crop_key: int, flipped: bool) -> Placement:
    """Crops each edge, then trims to the bucket's aspect ratio at a position with triangular density around the middle,
    then resizes."""
    room = min((size.width - bucket.width) / bucket.width, (size.height - bucket.height) / bucket.height)
    most = math.floor(min(size.width, size.height) * min(max(room, 0.0), jitter))
    left, right, top, bottom = (round(most * draws.uniform(draws.key(crop_key, "edge", i))) for i in range(4))
    width, height = size.width - left - right, size.height - top - bottom
    crop_width = min(width, max(1, math.floor(height * bucket.aspect)))
    crop_height = min(height, max(1, math.floor(width / bucket.aspect))) if crop_width == width else height
    drawn = draws.uniform(draws.key(crop_key, "trim"))
    # triangular density with its peak at ½, by inversion of a uniform number
    position = math.sqrt(drawn / 2) if drawn < 0.5 else 1 - math.sqrt((1 - drawn) / 2)
    left += math.floor((width - crop_width) * position)
    top += math.floor((height - crop_height) * position)
    across, down = bucket.width / crop_width, bucket.height / crop_height
    resized = Size(max(bucket.width, round(size.width * across)), max(bucket.height, round(size.height * down)))
    corner = (
        min(round(top * down), resized.height - bucket.height),
        min(round(left * across), resized.width - bucket.width),
    )
    return Placement(bucket, resized, corner, flipped)
