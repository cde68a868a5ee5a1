"""How well the images of a data set fill its batches: per name and bucket, images left over, and how many to add or
remove. Between the columns of a plan and the pages that show it.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from mezzotint.data.buckets import buckets
from mezzotint.data.schedule.columns import PlanColumns
from mezzotint.settings.sections.data import DataSettings
from mezzotint.shapes import Size

_FEW = 0.5
_LARGEST_DENOMINATOR = 32


@dataclass(frozen=True, slots=True)
class Fill:
    """The images of one name and bucket. group: its number, 0 for no name. over: images that do not fill a batch if
    each is used once. filled: number of visits repeated to fill the last batch; 0 for a named group, whose remaining
    images join the nameless ones of the bucket, where `joined` counts them."""

    group: int
    bucket: Size
    images: int
    over: int
    joined: int
    filled: int
    batch_size: int

    @property
    def missing(self) -> int:
        """Number of images to add to fill all batches."""
        return -self.over % self.batch_size

    @property
    def is_underfilled(self) -> bool:
        """Whether more than half as many images are missing as there are."""
        return self.missing > _FEW * self.images

    @property
    def multiplier(self) -> float:
        """The repeats with which these images fill their batches, to one decimal."""
        return round(1 + self.missing / self.images, 1)

    @property
    def ratio(self) -> Fraction:
        """Width over height as a simple fraction: denominators up to 32."""
        return Fraction(self.bucket.width, self.bucket.height).limit_denominator(_LARGEST_DENOMINATOR)


def fills(columns: PlanColumns, settings: DataSettings) -> tuple[Fill, ...]:
    """Every name and bucket with images, each used once, nameless ones first."""
    sizes, groups = buckets.table(settings), columns.groups(settings)
    images = groups.sizes(np.ones(len(columns), np.int64))
    after, bucket, batch = groups.after_spill(images), groups.bucket, groups.batch_size
    return tuple(
        Fill(
            group=int(groups.name[group]),
            bucket=sizes[int(bucket[group])],
            images=int(images[group]),
            over=int(images[group] % batch[group]),
            joined=int(max(0, after[group] - images[group])),
            filled=int(-after[group] % batch[group]) if settings.remainder in ("fill", "repeat") else 0,
            batch_size=int(batch[group]),
        )
        for group in np.flatnonzero(images + after).tolist()
    )
