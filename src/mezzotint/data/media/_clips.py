"""From a clip's file to frames: every file is used or refused with a reason, and only the frames that are needed are
decoded.

`probe` looks at a file once, with a full decode, when the catalogue is made; `frames` seeks to the key frame before the
first wanted instant and decodes forward to the last. Instants, not numbers: a file of variable rate, or one whose index
is off by a frame, gives what a viewer would see then. Frames are turned as their display matrix says and come as 8-bit
RGB, converted with the colour matrix that the file names. Pixels that are not square stay as they are stored. Needs the
extra `video` (PyAV).
"""

from __future__ import annotations

import hashlib
import math
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from io import BufferedReader
from pathlib import Path

import numpy as np
from av.container import InputContainer
from av.video.frame import VideoFrame
from av.video.stream import VideoStream
from numpy.typing import NDArray

from mezzotint.data.files.listing import Unusable
from mezzotint.data.media import decoding
from mezzotint.data.media._containers import Turn, opened, turn_of
from mezzotint.shapes import Size

_STEPS_BACK = (0.0, 1.0, 4.0, 16.0)
"""Seconds before the first wanted instant at which a key frame is looked for, one after the other."""

Each = Callable[[NDArray[np.uint8]], NDArray[np.generic]]


@dataclass(frozen=True, slots=True)
class ClipProbe:
    """What a full decode tells. size: as shown, with the number of frames. digest: SHA-256 of the file's bytes. begin:
    when the first frame is shown, in seconds on the clip's own clock. rate: mean frames a second. is_variable: frames
    stray from that rate by more than half a frame."""

    size: Size
    digest: bytes
    begin: float
    rate: float
    is_variable: bool

    @property
    def seconds(self) -> float:
        """Its length."""
        return self.size.frames / self.rate


def probe(path: Path, *, max_pixels: int) -> ClipProbe:
    """Decodes a clip entirely and says what it is. Raises DatasetError E1230 with the reason it cannot be used: not a
    regular file, empty, no known format, a playlist, sound alone, more than `max_pixels` in a frame, damaged or cut
    off, frames of different sizes. A broadcast stream (.ts) does not say how long it should be; cut between two frames
    it is a shorter clip. Damage that a decoder covers up without a word is not seen."""
    with decoding.readable_file(path, code="E1230") as file:
        digest = hashlib.file_digest(file, "sha256").digest()
        with opened(file) as (container, stream):
            looked = _Looked(max_pixels)
            for frame in _decoded(container, stream):
                looked.add(frame)
            return looked.probe(container, stream, digest)


def frames(
    path: Path, times: Sequence[float] | NDArray[np.float64], *, each: Each | None = None
) -> NDArray[np.generic]:
    """The frames shown at instants, stacked in the order of `times`; (F, 3, H, W) uint8 RGB unless `each` makes
    something else of a frame.

    times: F seconds on the clip's own clock (`ClipProbe.begin` is its first frame's), in any order. What is asked for
    before the first frame is the first frame. each: is given every wanted frame as (H, W, 3) uint8, turned as it is
    shown, and returns what is kept of it (3, h, w), so that a large clip is made small frame by frame. Raises
    DatasetError E1230 also for an instant after the last frame.
    """
    order = np.argsort(np.asarray(times, dtype=np.float64), kind="stable")
    instants = [Fraction(float(times[i])) for i in order.tolist()]
    with decoding.readable_file(path, code="E1230") as file:
        shown = _from_key_frame(file, instants, each or _channels_first)
    stacked = np.stack(shown)
    in_order = np.empty_like(stacked)
    in_order[order] = stacked
    return in_order


def _channels_first(picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return picture.transpose(2, 0, 1)


def _from_key_frame(file: BufferedReader, instants: Sequence[Fraction], each: Each) -> list[NDArray[np.generic]]:
    """The frames at ascending instants. Where a seek leads past the first of them, it is tried from further back, and
    last from the file's beginning."""
    for back in _STEPS_BACK:
        with opened(file) as (container, stream):
            assert stream.time_base is not None
            ticks = [math.floor(instant / stream.time_base) for instant in instants]
            target = ticks[0] - math.floor(Fraction(back) / stream.time_base)
            start = stream.start_time or 0
            if target <= start or not _sought(container, stream, target):
                break
            shown = _shown(_decoded(container, stream, from_key=True), ticks, each, is_whole=False)
            if shown is not None:
                return shown
    with opened(file) as (container, stream):
        assert stream.time_base is not None
        ticks = [math.floor(instant / stream.time_base) for instant in instants]
        shown = _shown(_decoded(container, stream), ticks, each, is_whole=True)
        assert shown is not None
        return shown


def _sought(container: InputContainer, stream: VideoStream, target: int) -> bool:
    try:
        container.seek(target, stream=stream, backward=True)
    except OSError:  # this kind of file, or this place in it, cannot be sought
        return False
    return True


def _shown(
    decoded: Iterator[VideoFrame], ticks: Sequence[int], each: Each, *, is_whole: bool
) -> list[NDArray[np.generic]] | None:
    """What is shown at ascending ticks: of each the last frame that begins no later. None when the frames begin after
    the first of them, unless they are the clip's beginning. Raises Unusable when they end before the last."""
    pictures: list[NDArray[np.generic]] = []
    last: VideoFrame | None = None
    last_tick = step = 0
    for frame in decoded:
        tick = _tick(frame)
        num = sum(instant < tick for instant in ticks[len(pictures) :])
        if num:
            if last is None and not is_whole:
                return None
            pictures += [_converted(frame if last is None else last, each)] * num
        if len(pictures) == len(ticks):
            return pictures
        step = tick - last_tick if last is not None else 0
        last, last_tick = frame, tick
    if last is None:
        if is_whole:
            raise Unusable("damaged: no frame can be decoded")
        return None
    end = last_tick + max(step, last.duration or 0, 1)
    if ticks[-1] > end:
        assert last.time_base is not None
        seconds = [float(tick * last.time_base) for tick in (end, ticks[-1])]
        raise Unusable(f"ends at {seconds[0]:.3f} s, and a frame at {seconds[1]:.3f} s is wanted")
    return pictures + [_converted(last, each)] * (len(ticks) - len(pictures))


def _decoded(container: InputContainer, stream: VideoStream, *, from_key: bool = False) -> Iterator[VideoFrame]:
    """Frames in the order in which they are shown. from_key: after a seek; what comes before the first key frame, or is
    shown before it, is left out, since it may be made from frames that were not read. Raises Unusable at the first
    damaged one."""
    earliest: int | None = None
    for packet in container.demux(stream):
        if from_key:
            if not packet.is_keyframe:
                continue
            from_key, earliest = False, packet.pts
        if packet.is_corrupt:
            raise Unusable(f"damaged or cut off at {_seconds(packet.pts, stream)}")
        for frame in packet.decode():
            assert isinstance(frame, VideoFrame)
            tick = _tick(frame)
            if earliest is not None and tick < earliest:
                continue
            if frame.is_corrupt:
                raise Unusable(f"damaged at {_seconds(tick, stream)}")
            yield frame


def _tick(frame: VideoFrame) -> int:
    tick = frame.pts if frame.pts is not None else frame.dts
    if tick is None:
        raise Unusable("a frame does not say when it is shown")
    return tick


def _seconds(tick: int | None, stream: VideoStream) -> str:
    return f"{float(tick * stream.time_base):.3f} s" if tick is not None and stream.time_base else "an unknown place"


def _converted(frame: VideoFrame, each: Each) -> NDArray[np.generic]:
    # one thread: a frame that a process forked after this lets go of would wait for threads that it has not got
    picture = frame.to_ndarray(format="rgb24", threads=1).astype(np.uint8, copy=False)
    return each(np.ascontiguousarray(_turned(picture, turn_of(frame))))


def _turned(picture: NDArray[np.uint8], turn: Turn) -> NDArray[np.uint8]:
    if turn.transposed:
        picture = picture.transpose(1, 0, 2)
    return picture[:: -1 if turn.upended else 1, :: -1 if turn.mirrored else 1]


class _Looked:
    """What is known of the frames decoded so far."""

    def __init__(self, max_pixels: int) -> None:
        self._max_pixels = max_pixels
        self._size: tuple[int, int] | None = None
        self._turn = Turn()
        self._ticks = array("q")

    def add(self, frame: VideoFrame) -> None:
        """One more frame. Raises Unusable."""
        if self._size is None:
            self._size, self._turn = (frame.width, frame.height), turn_of(frame)
            if frame.width * frame.height > self._max_pixels:
                raise Unusable(
                    f"{frame.width} × {frame.height} pixels are more than data.max_pixels ({self._max_pixels:,})"
                )
        if (frame.width, frame.height) != self._size:
            raise Unusable(
                f"changes its size from {self._size} to {(frame.width, frame.height)} at frame {len(self._ticks)}"
            )
        tick = _tick(frame)
        if self._ticks and tick < self._ticks[-1]:
            raise Unusable(f"its times go back at frame {len(self._ticks)}")
        self._ticks.append(tick)

    def probe(self, container: InputContainer, stream: VideoStream, digest: bytes) -> ClipProbe:
        """The probe of a clip that was decoded to its end. Raises Unusable for one that ends before its header says."""
        if self._size is None:
            raise Unusable("damaged: no frame can be decoded")
        base = stream.time_base
        assert base is not None
        ticks = np.frombuffer(self._ticks, dtype=np.int64)
        num = len(ticks)
        span = int(ticks[-1] - ticks[0])
        if num > 1 and span <= 0:
            raise Unusable("all its frames are shown at one instant")
        rate = float((num - 1) / (span * base)) if num > 1 else float(stream.average_rate or 1)
        if num < stream.frames - 2:  # an edit may leave out a few
            raise Unusable(f"cut off: {num} of {stream.frames} frames are there")
        promised = _promised_seconds(container, stream)
        if promised is not None and num / rate < 0.9 * promised - 2 / rate:
            raise Unusable(f"cut off: {num / rate:.2f} of {promised:.2f} seconds are there")
        even = ticks[0] + np.arange(num) * (span / max(num - 1, 1))
        is_variable = bool(np.abs(ticks - even).max() > span / max(num - 1, 1) / 2) if num > 1 else False
        width, height = self._size
        shown = Size(height, width, num) if self._turn.transposed else Size(width, height, num)
        return ClipProbe(shown, digest, float(ticks[0] * base), rate, is_variable)


def _promised_seconds(container: InputContainer, stream: VideoStream) -> float | None:
    """How long the file says that its pictures go on; None when it says so only of pictures and sound together."""
    if stream.duration is not None and stream.time_base is not None:
        return float(stream.duration * stream.time_base)
    hours, _, rest = stream.metadata.get("DURATION", "").partition(":")
    try:
        minutes, seconds = rest.split(":")
        return int(hours) * 3600 + int(minutes) * 60 + float(seconds)
    except ValueError:
        alone = len(container.streams.video) == 1 and not container.streams.audio
        return container.duration / 1e6 if alone and container.duration is not None else None
