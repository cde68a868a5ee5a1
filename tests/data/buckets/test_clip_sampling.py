"""Sampling of frames: within the clip, at every position, and determined by the address."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mezzotint import draws
from mezzotint.data.buckets.clip_sampling import (
    draw_frames,
    num_starts,
    stills_of_clip,
    times_at_rate,
    times_of,
    why_unusable,
    window,
)
from mezzotint.settings.sections.clips import ClipsSettings


@given(
    available=st.integers(1, 400),
    num_frames=st.integers(1, 65),
    stride=st.integers(1, 4),
    start=st.sampled_from(["random", "not-last"]),
    address=st.integers(0, 2**64 - 1),
)
def test_frames_are_within_the_clip_and_one_window(
    available: int, num_frames: int, stride: int, start: str, address: int
) -> None:
    clips = ClipsSettings(interval=stride, start=start, short="repeat")  # type: ignore[arg-type]
    numbers = draw_frames(available, num_frames, clips, address=address)
    assert len(numbers) == num_frames
    assert numbers.min() >= 0
    assert numbers.max() < available
    assert (np.diff(numbers) >= 0).all()
    assert numbers[-1] - numbers[0] < window(num_frames, clips)
    assert numbers.tolist() == draw_frames(available, num_frames, clips, address=address).tolist()


ANYWHERE, NOT_LAST = ClipsSettings(start="random"), ClipsSettings(start="not-last")


def test_every_start_is_sampled_and_not_last_omits_the_last() -> None:
    begins = [
        {int(draw_frames(12, 5, clips, address=draws.key(0, "frames", n))[0]) for n in range(400)}
        for clips in (ANYWHERE, NOT_LAST)
    ]
    assert begins == [set(range(8)), set(range(7))]
    assert num_starts(5, 5, ANYWHERE) == num_starts(5, 5, NOT_LAST) == 1


def test_too_short_clip_is_refused_with_the_reason() -> None:
    every_second = ClipsSettings(interval=2)
    assert why_unusable(17, 17, ANYWHERE) is None
    assert why_unusable(16, 17, ANYWHERE) == "too short: 16 frames, but 17 are needed"
    assert why_unusable(1, 17, ANYWHERE) == "too short: 1 frame, but 17 are needed"
    assert why_unusable(32, 17, every_second) == "too short: 32 frames, but 33 are needed (17 at a stride of 2)"
    assert why_unusable(33, 17, every_second) is None
    assert why_unusable(33, 17, ClipsSettings(interval=2, start="not-last")) is not None
    assert why_unusable(16, 17, ClipsSettings(short="repeat")) is None
    assert why_unusable(40, 17, ANYWHERE, start=23) is None
    assert why_unusable(40, 17, ANYWHERE, start=24) == "too short: frames 24 to 40 are needed, it has 40"


def test_images_of_a_clip_include_its_first_and_last_frame() -> None:
    for num in range(2, 18):
        numbers = stills_of_clip(17, num)
        assert (numbers[0], numbers[-1]) == (0, 16)
        assert len(set(numbers.tolist())) == num


def test_frame_time_is_the_middle_of_the_frame() -> None:
    assert times_of([0, 1, 29], begin=2.0, rate=10).tolist() == pytest.approx([2.05, 2.15, 4.95])


@given(
    rate=st.sampled_from([10.0, 24.0, 30000 / 1001, 60.0]),
    new_rate=st.sampled_from([4.0, 8.0, 24.0, 30.0]),
    frames=st.integers(1, 300),
    address=st.integers(0, 2**64 - 1),
)
def test_frames_at_a_rate_are_evenly_spaced_within_the_clip(
    rate: float, new_rate: float, frames: int, address: int
) -> None:
    seconds = frames / rate
    numbers = times_at_rate(seconds, num_frames=9, new_rate=new_rate, begin=1.5, rate=rate, address=address)
    if numbers is None:
        assert 8 / new_rate + 1 / rate > seconds
        return
    assert np.diff(numbers) == pytest.approx(1 / new_rate)
    assert 1.5 < numbers[0] <= numbers[-1] < 1.5 + seconds
