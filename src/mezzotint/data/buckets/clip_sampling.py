"""The frames of a clip that a visit uses, by number or by presentation time: pure functions of the clip's length and an
address. Clips are read by time (`_clips.frames`).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mezzotint import draws
from mezzotint.settings.counting import format_count
from mezzotint.settings.sections.clips import ClipsSettings

_TOLERANCE = 1e-6
"""Fraction of a frame by which rounding may miss a whole number of frames."""


def window(num_frames: int, clips: ClipsSettings) -> int:
    """Number of frames of a clip over which the `num_frames` of a sample are spread, from the first to the last;
    Open-Sora-Plan's windows are one step longer."""
    if clips.start == "not-last":
        return num_frames * clips.interval
    return (num_frames - 1) * clips.interval + 1


def why_unusable(
    available: int, num_frames: int, clips: ClipsSettings, start: int | None = None, step: float = 1.0
) -> str | None:
    """Why a clip of `available` frames has no samples, or None. start: the first frame of its annotation, from which
    every `step`-th frame is read."""
    if start is not None:
        end = start + math.ceil((num_frames - 1) * step - _TOLERANCE) + 1
        return f"too short: frames {start} to {end - 1} are needed, it has {available}" if end > available else None
    needed = window(num_frames, clips)
    if available < needed and clips.short == "skip":
        stride = f" ({num_frames} at a stride of {clips.interval})" if clips.interval > 1 else ""
        return f"too short: {format_count(available, 'frame')}, but {needed} are needed{stride}"
    return None


def draw_frames(available: int, num_frames: int, clips: ClipsSettings, *, address: int) -> NDArray[np.int64]:
    """The numbers of a visit's frames, (num_frames,) int64, ascending, each in [0, available).

    available: frames of the clip, above 0. address: of the draw (`draws.key`). Of a clip shorter than its window all
    frames are used, some of them several times.
    """
    begin = draws.below(address, num_starts(available, num_frames, clips))
    return spread(begin, min(begin + window(num_frames, clips), available), num_frames)


def num_starts(available: int, num_frames: int, clips: ClipsSettings) -> int:
    """Number of frames at which a window may start, the first being frame 0. Open-Sora-Plan's PyTorch project never
    uses the last."""
    room = max(0, available - window(num_frames, clips))
    return {"random": room + 1, "first": 1, "not-last": max(1, room)}[clips.start]


def starts_of_pieces(available: int, rate: float, clips: ClipsSettings) -> NDArray[np.int64]:
    """The first frames of a clip's pieces (`data.clips.pieces`, `piece_stride`), ascending; none if no piece fits.
    available, rate: its frames, and frames per second."""
    step = frame_step(rate, clips)
    last = math.floor((available - 1) / step + _TOLERANCE) + 1 - clips.frames
    if last < 0:
        return np.zeros(0, np.int64)
    firsts = (
        np.linspace(0, last, clips.pieces) if clips.pieces else np.arange(0, last + 1, clips.piece_stride)
    ).astype(np.int64)
    return np.unique(np.floor(firsts * step + _TOLERANCE).astype(np.int64))


def frame_step(rate: float, clips: ClipsSettings) -> float:
    """Frames of a clip from one frame of a sample to the next. rate: its frames per second."""
    return rate / clips.fps if clips.fps is not None else float(clips.interval)


def spread(begin: int, end: int, num: int) -> NDArray[np.int64]:
    """`num` evenly spaced numbers from `begin` to `end` − 1, rounded down to integers."""
    return np.linspace(begin, end - 1, num).astype(np.int64)


def annotated_frames(start: int, num_frames: int) -> NDArray[np.int64]:
    """The frames of an entry with `frame_idx`: `num_frames` consecutive frames from `start`."""
    return np.arange(start, start + num_frames, dtype=np.int64)


def stills_of_clip(num_frames: int, num_stills: int) -> NDArray[np.int64]:
    """The frames of a sample that are also trained as images (`use_img_from_vid`), counted within the sample.
    num_stills: from 1 to num_frames."""
    assert 0 < num_stills <= num_frames
    return spread(0, num_frames, num_stills)


def times_of(numbers: ArrayLike, *, begin: float, rate: float) -> NDArray[np.float64]:
    """The times of frames, in seconds on the clip's clock: the middle of each frame, so rounded times in the file do
    not lead to a neighbour. begin: time of frame 0. rate: frames per second. Frames of a clip with a variable rate are
    treated as evenly spaced at its mean rate."""
    return begin + (np.asarray(numbers, dtype=np.float64) + 0.5) / rate


def times_at_rate(
    seconds: float, *, num_frames: int, new_rate: float, begin: float, rate: float, address: int
) -> NDArray[np.float64] | None:
    """Times of frames `1 / new_rate` seconds apart, independent of the clip's rate, from a randomly drawn start; None
    if the clip is too short. seconds: its length. begin, rate: time of its first frame, and frames per second."""
    span = (num_frames - 1) / new_rate
    room = seconds - span - 1 / rate  # the last time is within the last frame
    if room < -1e-6 / rate:
        return None
    start = begin + draws.uniform(address) * max(room, 0.0) + 0.5 / rate
    times: NDArray[np.float64] = start + np.arange(num_frames, dtype=np.float64) / new_rate
    assert math.isfinite(times[-1])
    return times
