"""Assignment of clips to buckets."""

from __future__ import annotations

import numpy as np

from mezzotint.data.buckets import buckets, clip_buckets
from mezzotint.settings.sections.data import DataSettings
from mezzotint.shapes import Size


def test_clip_bucket_is_chosen_by_frames_then_shape_then_size() -> None:
    listed = [[5, 32, 32], [5, 64, 64], [5, 128, 128], [5, 32, 64], [9, 32, 32]]
    settings = DataSettings(format="videofolder", clips={"frames": 9, "buckets": listed})
    table = buckets.table(settings)
    assert [size.frames for size in table] == [5, 5, 5, 5, 9]

    def bucket(width: int, height: int, most: int) -> Size:
        sides = (np.array([width], np.int32), np.array([height], np.int32), np.array([most], np.int32))
        return table[int(clip_buckets.of_clips(*sides, table)[0])]

    assert bucket(500, 500, 9) == Size(32, 32, 9)
    assert bucket(100, 100, 5) == Size(64, 64, 5)
    assert bucket(16, 16, 5) == Size(32, 32, 5)
    assert bucket(500, 480, 5) == Size(128, 128, 5)
    assert bucket(90, 50, 5) == Size(64, 32, 5)
    frames, rate, start = np.array([4, 5, 8, 9, 9, 1]), np.array([10.0] * 5 + [0.0]), np.array([-1, -1, -1, -1, 2, -1])
    most = clip_buckets.most_frames(frames.astype(np.int32), rate, start.astype(np.int32), settings.clips)
    assert most.tolist() == [0, 5, 5, 9, 5, 0]
