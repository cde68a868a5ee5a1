"""The frames of a clip at one visit, by time, and the images of a data set that are joined to it. Between the catalogue
and the decoder."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mezzotint import draws
from mezzotint.data.buckets.clip_sampling import annotated_frames, draw_frames, frame_step, times_at_rate, times_of
from mezzotint.settings.sections.clips import ClipsSettings

if TYPE_CHECKING:
    from mezzotint.data.catalogue.catalogue import Catalogue

Instants = NDArray[np.float64]


def frame_times(catalogue: Catalogue, row: int, frames: int, clips: ClipsSettings, *, address: int) -> Instants:
    """The times of the frames of a visit, (frames,) seconds on the clip's clock; empty for an image.

    address: of the draw of their start. The clip must have enough frames, see `clip_buckets.most_frames`.
    """
    rate, begin, available = float(catalogue.rate[row]), float(catalogue.begin[row]), int(catalogue.frames[row])
    start = int(catalogue.overrides.start[row])
    if rate == 0:
        return np.zeros(0)
    if start >= 0 and clips.is_cut:
        return times_of(start + np.arange(frames) * frame_step(rate, clips), begin=begin, rate=rate)
    if start >= 0:
        return times_of(annotated_frames(start, frames), begin=begin, rate=rate)
    if clips.fps is None:
        return times_of(draw_frames(available, frames, clips, address=address), begin=begin, rate=rate)
    span = (frames - 1) / clips.fps + 1 / rate
    seconds = span if clips.start == "first" else available / rate
    if clips.start == "not-last":
        seconds = max(span, seconds - 1 / rate)
    times = times_at_rate(seconds, num_frames=frames, new_rate=clips.fps, begin=begin, rate=rate, address=address)
    assert times is not None, f"{catalogue.key(row)}: too short"
    return times


def draw_images(num_images: int, per_sample: int, *, address: int) -> NDArray[np.int64]:
    """Random images for a visit, (per_sample,) different numbers in [0, num_images), in random order. address: of the
    draw (`draws.key`)."""
    assert 0 < per_sample <= num_images
    numbers: list[int] = []
    for index in range(per_sample):
        # Floyd's algorithm: each subset of this size is equally likely; the cost does not depend on the data set
        last = num_images - per_sample + index
        number = draws.below(draws.key(address, "still", index), last + 1)
        numbers.append(last if number in numbers else number)
    order = np.argsort(draws.keys(address, "still-order", np.arange(per_sample)), kind="stable")
    return np.asarray(numbers, dtype=np.int64)[order]


def groups_of_stills(num_images: int, per_sample: int) -> tuple[range, ...]:
    """The images that are joined to one clip (`use_image_num`), by number: consecutive groups of `per_sample`, assigned
    to clips in order. The last group is omitted, full or not, as in Open-Sora-Plan; a single group gives none."""
    assert per_sample > 0
    ends = range(per_sample, num_images + per_sample, per_sample)
    return tuple(range(end - per_sample, end) for end in ends)[:-1]
