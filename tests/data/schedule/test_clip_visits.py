"""Images that are joined to a clip."""

from __future__ import annotations

import numpy as np

from mezzotint import draws
from mezzotint.data.schedule.clip_visits import draw_images, groups_of_stills


def test_images_are_grouped_like_in_the_reference() -> None:
    assert groups_of_stills(10, 4) == (range(4), range(4, 8))
    assert groups_of_stills(8, 4) == (range(4),)  # the last group is never used, full or not
    assert groups_of_stills(4, 4) == groups_of_stills(3, 4) == groups_of_stills(0, 4) == ()


def test_images_of_a_visit_are_distinct_and_uniform() -> None:
    chosen = np.array([draw_images(7, 3, address=draws.key(1, "t", n)) for n in range(4000)])
    assert all(len(set(line)) == 3 for line in chosen.tolist())
    for place in range(3):
        shares = np.bincount(chosen[:, place], minlength=7) / len(chosen)
        assert np.abs(shares - 1 / 7).max() < 5 * (1 / 7 * 6 / 7 / len(chosen)) ** 0.5
    assert sorted(draw_images(4, 4, address=9).tolist()) == [0, 1, 2, 3]
