"""Which frames of a clip a visit sees. Pure functions of the clip's length and an address; nothing is opened.

Frames are named by their number, or by the instant at which they are shown. Open-Sora-Plan counts frames; `times_of`
turns numbers into instants, so that a clip is read by time (`clips.frames`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mezzotint import draws


@dataclass(frozen=True, slots=True)
class ClipSampling:
    """How frames are chosen. num_frames: of a sample. stride: every so many-th frame of the clip. starts: where a
    window may begin: "all" is anywhere in the clip, "first" at its first frame, "reference" as Open-Sora-Plan's PyTorch
    project draws, which never takes the last place. short: what becomes of a clip shorter than its window: it is left
    out ("skip"), or its frames are shown several times ("repeat", as in that project)."""

    num_frames: int = 17
    stride: int = 1
    starts: Literal["all", "first", "reference"] = "all"
    short: Literal["skip", "repeat"] = "skip"

    def __post_init__(self) -> None:
        assert self.num_frames > 0
        assert self.stride > 0

    @property
    def window(self) -> int:
        """Frames of the clip that a sample is spread over, from the first that is seen to the last; Open-Sora-Plan's
        windows have room for one more step."""
        if self.starts == "reference":
            return self.num_frames * self.stride
        return (self.num_frames - 1) * self.stride + 1


def unusable(available: int, sampling: ClipSampling, start: int | None = None) -> str | None:
    """Why a clip of `available` frames makes no sample, or None. start: the frame that its annotation begins at."""
    if start is not None:
        end = start + sampling.num_frames
        if end > available:
            return f"too short: frames {start} to {end - 1} are wanted and it has {available}"
        return None
    if available < sampling.window and sampling.short == "skip":
        stride = f" ({sampling.num_frames} at a stride of {sampling.stride})" if sampling.stride > 1 else ""
        return f"too short: {available} frame{'s' if available > 1 else ''}, and {sampling.window} are wanted{stride}"
    return None


def drawn(available: int, sampling: ClipSampling, address: int) -> NDArray[np.int64]:
    """The numbers of a visit's frames, (num_frames,) int64, ascending, each in [0, available).

    available: frames of the clip, above 0. address: of the draw (`draws.key`). A clip shorter than its window is taken
    whole and its frames come several times.
    """
    places = num_starts(available, sampling)
    begin = draws.below(address, places)
    return spread(begin, min(begin + sampling.window, available), sampling.num_frames)


def num_starts(available: int, sampling: ClipSampling) -> int:
    """How many places a window may begin at, the first being frame 0."""
    room = max(0, available - sampling.window)
    match sampling.starts:
        case "all":
            return room + 1
        case "first":
            return 1
        case "reference":
            return max(1, room)
        case _:
            raise AssertionError(sampling.starts)


def spread(begin: int, end: int, num: int) -> NDArray[np.int64]:
    """`num` numbers from `begin` to `end` − 1, evenly spread and cut to whole ones."""
    return np.linspace(begin, end - 1, num).astype(np.int64)


def annotated(start: int, num_frames: int) -> NDArray[np.int64]:
    """The frames of an entry with `frame_idx`: `num_frames` of them one after the other from its start on."""
    return np.arange(start, start + num_frames, dtype=np.int64)


def stills_of_clip(num_frames: int, num_stills: int) -> NDArray[np.int64]:
    """Which frames of a sample are trained as pictures, too (`use_img_from_vid`), counted within the sample. Above 0
    of them, at most as many as there are frames."""
    assert 0 < num_stills <= num_frames
    return spread(0, num_frames, num_stills)


def times_of(numbers: ArrayLike, *, begin: float, rate: float) -> NDArray[np.float64]:
    """The instants, in seconds on the clip's own clock, at which frames are shown: the middle of each, so that no
    rounding of times in the file leads to a neighbour. begin: of frame 0. rate: frames a second. A clip of variable
    rate is taken to be evenly spaced at its mean rate."""
    return begin + (np.asarray(numbers, dtype=np.float64) + 0.5) / rate


def times_at_rate(
    seconds: float, *, num_frames: int, new_rate: float, begin: float, rate: float, address: int
) -> NDArray[np.float64] | None:
    """Instants of frames `1 / new_rate` seconds apart, whatever the clip's own rate, from a place drawn anywhere in
    the clip; None when it is too short. seconds: its length. begin, rate: its first frame's time, its frames a second.
    """
    span = (num_frames - 1) / new_rate
    room = seconds - span - 1 / rate  # the last instant lies within the last frame
    if room < -1e-6 / rate:
        return None
    start = begin + draws.uniform(address) * max(room, 0.0) + 0.5 / rate
    times: NDArray[np.float64] = start + np.arange(num_frames, dtype=np.float64) / new_rate
    assert math.isfinite(times[-1])
    return times
