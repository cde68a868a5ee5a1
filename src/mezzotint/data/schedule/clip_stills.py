"""Which pictures of a data set stand beside a clip at a visit. Pure functions of numbers and addresses."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mezzotint import draws


def chosen(num_pictures: int, per_sample: int, *, address: int) -> NDArray[np.int64]:
    """Pictures drawn for a visit, (per_sample,) different ones of [0, num_pictures), in an order drawn as well.
    address: of the draw (`draws.key`)."""
    assert 0 < per_sample <= num_pictures
    found: list[int] = []
    for place in range(per_sample):
        # Floyd's sample: each set of that many is equally likely, however large the data set
        last = num_pictures - per_sample + place
        drawn = draws.below(draws.key(address, "still", place), last + 1)
        found.append(last if drawn in found else drawn)
    order = np.argsort(draws.keys(address, "still-order", np.arange(per_sample)), kind="stable")
    return np.asarray(found, dtype=np.int64)[order]


def groups_of_stills(num_pictures: int, per_sample: int) -> tuple[range, ...]:
    """The pictures that are trained together beside one clip (`use_image_num`), by number: consecutive groups of
    `per_sample`. The last group is left out, full or not, as in Open-Sora-Plan; a list of just one group has none."""
    assert per_sample > 0
    ends = range(per_sample, num_pictures + per_sample, per_sample)
    return tuple(range(end - per_sample, end) for end in ends)[:-1]


def stills_beside(clip: int, groups: Sequence[range]) -> range:
    """The group of pictures beside the clip of a number: groups in turn, from the first on again when there are more
    clips."""
    return groups[clip % len(groups)]
