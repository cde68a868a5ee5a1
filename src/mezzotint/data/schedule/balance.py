"""How well the pictures of a data set fill its batches: per name and bucket, what fills none, and what to add or take
away. Between the columns of a plan and the pages that show it.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from mezzotint.data.buckets import buckets
from mezzotint.data.schedule._grouping import batch_groups
from mezzotint.data.schedule.plan import PlanColumns
from mezzotint.settings.sections.data import DataSettings
from mezzotint.shapes import Size

_FEW = 0.5
_LARGEST_DENOMINATOR = 32


@dataclass(frozen=True, slots=True)
class Fill:
    """The pictures of one name and bucket. group: its number, 0 nameless. over: pictures that fill no batch, if each
    is seen once. filled: places of the last batch that other visits have to fill; a named group's are filled by nobody,
    because what is over joins the nameless pictures of the bucket, which `joined` counts."""

    group: int
    bucket: Size
    pictures: int
    over: int
    joined: int
    filled: int
    batch_size: int

    @property
    def missing(self) -> int:
        """How many pictures to add, so that none is over."""
        return -self.over % self.batch_size

    @property
    def is_underfilled(self) -> bool:
        """Whether there are so few pictures that more than half as many again are missing."""
        return self.missing > _FEW * self.pictures

    @property
    def multiplier(self) -> float:
        """How often to see these pictures so that they fill their batches, to one decimal."""
        return round(1 + self.missing / self.pictures, 1)

    @property
    def ratio(self) -> Fraction:
        """Width over height in small numbers, for people: denominators up to 32."""
        return Fraction(self.bucket.width, self.bucket.height).limit_denominator(_LARGEST_DENOMINATOR)


def fills(columns: PlanColumns, settings: DataSettings) -> tuple[Fill, ...]:
    """Every name and bucket that has pictures, each seen once, nameless ones first."""
    sizes, batch = buckets.table(settings), settings.batch_size
    groups = batch_groups(columns.bucket, columns.group)
    pictures = groups.sizes(np.ones(len(columns), np.int64))
    after = groups.after_spill(pictures, batch)
    return tuple(
        Fill(
            group=int(groups.name[group]),
            bucket=sizes[int(groups.bucket[group])],
            pictures=int(pictures[group]),
            over=int(pictures[group] % batch),
            joined=int(max(0, after[group] - pictures[group])),
            filled=int(-after[group] % batch) if settings.remainder in ("fill", "repeat") else 0,
            batch_size=batch,
        )
        for group in np.flatnonzero(pictures + after).tolist()
    )
