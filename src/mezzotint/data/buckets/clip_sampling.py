"""Which frames of a clip a visit sees, by number or by the instant at which they are shown: pure functions of
its length and an address. Clips are read by time (`_clips.frames`).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mezzotint import draws
from mezzotint.settings.counting import counted
from mezzotint.settings.sections.clips import ClipsSettings


def window(num_frames: int, clips: ClipsSettings) -> int:
    """Frames of a clip that a sample of so many is spread over, from the first that is seen to the last;
    Open-Sora-Plan's windows have room for one more step."""
    if clips.start == "not-last":
        return num_frames * clips.interval
    return (num_frames - 1) * clips.interval + 1


def unusable(available: int, num_frames: int, clips: ClipsSettings, start: int | None = None) -> str | None:
    """Why a clip of `available` frames makes no sample, or None. start: the frame that its annotation begins at."""
    if start is not None:
        end = start + num_frames
        return f"too short: frames {start} to {end - 1} are needed and it has {available}" if end > available else None
    needed = window(num_frames, clips)
    if available < needed and clips.short == "skip":
        stride = f" ({num_frames} at a stride of {clips.interval})" if clips.interval > 1 else ""
        return f"too short: {counted(available, 'frame')}, and {needed} are needed{stride}"
    return None


def drawn(available: int, num_frames: int, clips: ClipsSettings, *, address: int) -> NDArray[np.int64]:
    """The numbers of a visit's frames, (num_frames,) int64, ascending, each in [0, available).

    available: frames of the clip, above 0. address: of the draw (`draws.key`). A clip shorter than its window is taken
    whole and its frames come several times.
    """
    begin = draws.below(address, num_starts(available, num_frames, clips))
    return spread(begin, min(begin + window(num_frames, clips), available), num_frames)


def num_starts(available: int, num_frames: int, clips: ClipsSettings) -> int:
    """How many places a window may begin at, the first being frame 0. Open-Sora-Plan's PyTorch project never takes the
    last."""
    room = max(0, available - window(num_frames, clips))
    return {"random": room + 1, "first": 1, "not-last": max(1, room)}[clips.start]


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
