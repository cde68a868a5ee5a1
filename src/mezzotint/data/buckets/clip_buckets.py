"""Sizes of clips in frames, height and width, and which of them a clip falls into. Beside `buckets.py`, which has the
shapes.

A clip has frames for a size or has not; that is told from its length, before a visit draws where it begins.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mezzotint.data.buckets.clip_sampling import unusable, window
from mezzotint.settings.sections.clips import ClipsSettings
from mezzotint.shapes import Size

_HARDLY = 1e-6
"""Of a frame: so much may be missing to a clip that is read at another rate."""


def out_of_limits(size: Size, clips: ClipsSettings) -> str | None:
    """Why a clip or picture of this size, as shown, is left out, or None."""
    short, long = sorted((size.width, size.height))
    shown = f"{size.width}×{size.height}"
    if clips.min_size is not None and short < clips.min_size:
        return f"{shown}: its shorter side is below {clips.min_size}"
    if clips.max_size is not None and long > clips.max_size:
        return f"{shown}: its longer side is above {clips.max_size}"
    if clips.max_aspect is not None and long > clips.max_aspect * short:
        return f"{shown}: its sides are more than {clips.max_aspect:g} to 1"
    return None


def table(clips: ClipsSettings, shapes: Sequence[Size]) -> tuple[Size, ...]:
    """The sizes of clips: those listed, from few frames to many and from tall to wide; or `shapes`, each of
    `clips.frames` frames, in their order."""
    if clips.buckets:
        listed = (Size(width, height, frames) for frames, height, width in clips.buckets)
        return tuple(sorted(listed, key=lambda size: (size.frames, size.aspect, size.pixels)))
    return tuple(Size(shape.width, shape.height, clips.frames) for shape in shapes)


def counts(clips: ClipsSettings) -> tuple[int, ...]:
    """The numbers of frames that samples may have, ascending."""
    return tuple(sorted({frames for frames, _, _ in clips.buckets} or {clips.frames}))


def most_frames(
    frames: NDArray[np.int32], rate: NDArray[np.float64], start: NDArray[np.int32], clips: ClipsSettings
) -> NDArray[np.int32]:
    """The most frames that a sample of each clip may have, of `counts(clips)`; 0 where it has too few for any.

    frames, rate: (n,) of the clip, its frames and how many of them a second; a picture has rate 0. start: (n,) the
    frame that its entry begins at, −1 for none.
    """
    most = np.zeros(len(frames), np.int32)
    for count in counts(clips):
        if clips.fps is not None:
            is_enough = (frames - 1) - (count - 1) * rate / clips.fps >= -_HARDLY
        elif clips.short == "repeat":
            is_enough = frames > 0
        else:
            is_enough = frames >= window(count, clips)
        is_enough = np.where(start >= 0, start + count <= frames, is_enough)
        most[np.where(rate == 0, (count == 1) & (frames > 0), is_enough)] = count
    return most


def too_short(frames: int, rate: float, start: int, clips: ClipsSettings) -> str:
    """Why a clip for which `most_frames` is 0 makes no sample, in words."""
    least = counts(clips)[0]
    if rate == 0:
        return f"a picture, and {least} frames are needed"
    if clips.fps is not None and start < 0:
        return (
            f"too short: {frames / rate:.2f} s, and {(least - 1) / clips.fps + 1 / rate:.2f} s are needed ({least} "
            f"frames at {clips.fps:g} a second)"
        )
    return unusable(frames, least, clips, start if start >= 0 else None) or "too short"


def of_clips(
    widths: NDArray[np.int32], heights: NDArray[np.int32], most: NDArray[np.int32], sizes: Sequence[Size]
) -> NDArray[np.int16]:
    """The index in `sizes` of each clip's bucket, (n,) int16: of those with as many frames as it may have, the nearest
    in log(width / height); of several as near, the largest that it need not be enlarged for, else the smallest.

    most: (n,) of `most_frames`, above 0.
    """
    bucket = np.zeros(len(widths), np.int16)
    log_aspects = np.log(widths.astype(np.float64)) - np.log(heights.astype(np.float64))
    for count in np.unique(most).tolist():
        places = [place for place, size in enumerate(sizes) if size.frames == count]
        places.sort(key=lambda place: sizes[place].pixels)
        here = np.flatnonzero(most == count)
        apart = np.stack([np.abs(log_aspects[here] - np.log(sizes[place].aspect)) for place in places], axis=1)
        is_near = apart <= apart.min(axis=1, keepdims=True) + 1e-9
        is_whole = np.stack(
            [(widths[here] >= sizes[place].width) & (heights[here] >= sizes[place].height) for place in places], axis=1
        )
        # ascending in size: the last that is near and whole, else the first that is near
        last = len(places) - 1 - (is_near & is_whole)[:, ::-1].argmax(axis=1)
        best = np.where((is_near & is_whole).any(axis=1), last, is_near.argmax(axis=1))
        bucket[here] = np.asarray(places, np.int16)[best]
    return bucket
