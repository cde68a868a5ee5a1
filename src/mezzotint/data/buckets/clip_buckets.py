"""Bucket sizes of clips in frames, height and width, and the assignment of clips to them. The sizes of images are in
`buckets.py`.

Whether a clip has enough frames for a size depends on its length, not on the start that a visit draws.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mezzotint.data.buckets.clip_sampling import frame_step, why_unusable, window
from mezzotint.settings.sections.clips import ClipsSettings
from mezzotint.shapes import Size

_TOLERANCE = 1e-6
"""Fraction of a frame that may be missing in a clip that is read at another frame rate."""


def out_of_limits(size: Size, clips: ClipsSettings) -> str | None:
    """Why a clip or image of this display size is skipped, or None."""
    short, long = sorted((size.width, size.height))
    text = f"{size.width}×{size.height}"
    if clips.min_size is not None and short < clips.min_size:
        return f"{text}: its shorter side is below {clips.min_size}"
    if clips.max_size is not None and long > clips.max_size:
        return f"{text}: its longer side is above {clips.max_size}"
    if clips.max_aspect is not None and long > clips.max_aspect * short:
        return f"{text}: its sides are more than {clips.max_aspect:g} to 1"
    return None


def table(clips: ClipsSettings, shapes: Sequence[Size]) -> tuple[Size, ...]:
    """The sizes of clips: those listed, from few frames to many and from tall to wide; or `shapes` in their order,
    with each of `counts` frames."""
    if clips.buckets:
        sizes = (Size(width, height, frames) for frames, height, width in clips.buckets)
        return tuple(sorted(sizes, key=lambda size: (size.frames, size.aspect, size.pixels)))
    return tuple(Size(shape.width, shape.height, frames) for frames in counts(clips) for shape in shapes)


def counts(clips: ClipsSettings) -> tuple[int, ...]:
    """The numbers of frames that samples may have, ascending."""
    trimmed = range(1, clips.frames, 4) if clips.short == "trim" else ()
    return tuple(sorted({frames for frames, _, _ in clips.buckets} or {clips.frames, *trimmed}))


def most_frames(
    frames: NDArray[np.int32], rate: NDArray[np.float64], start: NDArray[np.int32], clips: ClipsSettings
) -> NDArray[np.int32]:
    """The maximum number of frames of a sample of each clip, one of `counts(clips)`; 0 if the clip has too few.

    frames, rate: (n,) number of frames and frames per second of each clip; an image has rate 0. start: (n,) the first
    frame of its entry, −1 for none.
    """
    most = np.zeros(len(frames), np.int32)
    step = (rate / clips.fps if clips.fps is not None else clips.interval) if clips.is_cut else 1
    for count in counts(clips):
        if clips.fps is not None:
            is_enough = (frames - 1) - (count - 1) * rate / clips.fps >= -_TOLERANCE
        elif clips.short == "repeat":
            is_enough = frames > 0
        else:
            is_enough = frames >= window(count, clips)
        fits = start + (count - 1) * step <= frames - 1 + _TOLERANCE
        is_enough = np.where(start >= 0, fits, is_enough)
        most[np.where(rate == 0, (count == 1) & (frames > 0), is_enough)] = count
    return most


def too_short(frames: int, rate: float, start: int, clips: ClipsSettings) -> str:
    """The reason why a clip for which `most_frames` is 0 has no samples, as text."""
    least = counts(clips)[0]
    if rate == 0:
        return f"an image, but {least} frames are needed"
    if clips.fps is not None and start < 0:
        return (
            f"too short: {frames / rate:.2f} s, but {(least - 1) / clips.fps + 1 / rate:.2f} s are needed ({least} "
            f"frames at {clips.fps:g} fps)"
        )
    step = frame_step(rate, clips) if clips.is_cut else 1.0
    return why_unusable(frames, least, clips, start if start >= 0 else None, step) or "too short"


def of_clips(
    widths: NDArray[np.int32], heights: NDArray[np.int32], most: NDArray[np.int32], sizes: Sequence[Size]
) -> NDArray[np.int16]:
    """The index in `sizes` of each clip's bucket, (n,) int16: of the sizes with `most` frames, the nearest in
    log(width / height); of several equally near ones, the largest that needs no upscaling, otherwise the smallest.

    most: (n,) of `most_frames`, above 0.
    """
    bucket = np.zeros(len(widths), np.int16)
    log_aspects = np.log(widths.astype(np.float64)) - np.log(heights.astype(np.float64))
    for count in np.unique(most).tolist():
        indexes = [index for index, size in enumerate(sizes) if size.frames == count]
        indexes.sort(key=lambda index: sizes[index].pixels)
        rows = np.flatnonzero(most == count)
        distance = np.stack([np.abs(log_aspects[rows] - np.log(sizes[index].aspect)) for index in indexes], axis=1)
        is_near = distance <= distance.min(axis=1, keepdims=True) + 1e-9
        is_filled = np.stack(
            [(widths[rows] >= sizes[index].width) & (heights[rows] >= sizes[index].height) for index in indexes], axis=1
        )
        # sizes ascend: the last near one that is filled, otherwise the first near one
        last = len(indexes) - 1 - (is_near & is_filled)[:, ::-1].argmax(axis=1)
        best = np.where((is_near & is_filled).any(axis=1), last, is_near.argmax(axis=1))
        bucket[rows] = np.asarray(indexes, np.int16)[best]
    return bucket
