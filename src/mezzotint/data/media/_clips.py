"""From a clip file to frames: every file is used or rejected with a reason, and only the needed frames are decoded.
Needs the extra `video` (PyAV).

`probe` fully decodes a file once, when the catalogue is created; `frames` seeks to the key frame before the first time
and decodes forward to the last. Frames are selected by time, not by number: a file with a variable rate, or one whose
index is off by a frame, gives what a player would show. Frames are rotated according to their display matrix and
returned as 8-bit RGB, converted with the colour matrix of the file. Non-square pixels are not resampled. The kind of a
file is detected by its first bytes, and it is opened only as that kind: a playlist named .mp4 cannot make the decoder
open the files that it lists.
"""

from __future__ import annotations

import hashlib
import math
import struct
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from io import BufferedReader
from pathlib import Path
from typing import Any

import av
import av.error
import numpy as np
from av.container import InputContainer
from av.stream import Disposition
from av.video.frame import VideoFrame
from av.video.stream import VideoStream
from numpy.typing import NDArray

from mezzotint.data.files.listing import Unusable
from mezzotint.data.media import decoding
from mezzotint.data.media.colour import Conversion
from mezzotint.data.media.decoding import Probe
from mezzotint.settings.counting import format_duration
from mezzotint.shapes import Size

_STEPS_BACK = (0.0, 1.0, 4.0, 16.0)
"""Seconds before the first requested time at which a key frame is searched, tried in order."""

_BOXES = (b"ftyp", b"moov", b"mdat", b"free", b"skip", b"wide", b"pnot")
_IMAGES = (b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"BM", b"II*\x00", b"MM\x00*")
_IMAGE_BRANDS = (b"avif", b"avis", b"heic", b"heix", b"mif1", b"msf1")
_SOUNDS = (b"ID3", b"\xff\xfb", b"\xff\xf3", b"\xff\xf1", b"fLaC")
_PLAYLISTS = (b"#extm3u", b"ffconcat", b"file '", b"[playlist]", b"<asx", b"<mpd", b"<smil", b"<?wpl")
_MAGIC: tuple[tuple[bytes, int, str], ...] = (
    (b"\x1aE\xdf\xa3", 0, "matroska"),
    (b"AVI ", 8, "avi"),
    (b"FLV\x01", 0, "flv"),
    (b"OggS", 0, "ogg"),
    (b"\x30\x26\xb2\x75\x8e\x66\xcf\x11", 0, "asf"),
    (b"\x00\x00\x01\xba", 0, "mpeg"),
)

Each = Callable[[NDArray[np.uint8]], NDArray[np.generic]]


@dataclass(frozen=True, slots=True)
class Orientation:
    """The transformation from a stored frame to the displayed one: transpose, then mirror left to right, then flip
    upside down."""

    transposed: bool = False
    mirrored: bool = False
    upended: bool = False


def _ignore() -> None:
    """The default for `moved`."""


def probe(path: Path, *, max_pixels: int, moved: Callable[[], None] = _ignore) -> Probe:
    """Fully decodes a clip and returns its facts. Raises DatasetError E1230 with the reason why it cannot be used: not
    a regular file, empty, unknown format, a playlist, only sound, more than `max_pixels` in a frame, damaged or
    truncated, frames of different sizes. A broadcast stream (.ts) does not contain its length; if it is truncated
    between two frames, it counts as a shorter clip. Damage that the decoder conceals silently is not detected. moved:
    called as decoding progresses."""
    with decoding.readable_file(path, code="E1230", most=None) as file:
        kind_of(file)  # before a large file is read completely
        file.seek(0)
        hasher = hashlib.sha256()
        while block := file.read(1 << 20):
            hasher.update(block)
            moved()
        digest = hasher.digest()
        with open_video(file) as (container, stream):
            clip = _DecodedClip(max_pixels)
            for frame in _decode(container, stream, moved):
                clip.add(frame)
            return clip.probe(container, stream, digest)


def frames(
    path: Path,
    times: Sequence[float] | NDArray[np.float64],
    *,
    each: Each | None = None,
    moved: Callable[[], None] = _ignore,
) -> NDArray[np.generic]:
    """The frames displayed at `times`, stacked in that order; (F, 3, H, W) uint8 RGB, unless `each` converts frames.

    times: F seconds on the clip's clock (`Probe.begin` is the time of its first frame), in any order. Times before the
    first frame give the first frame. each: receives every requested frame as (H, W, 3) uint8, rotated for display, and
    returns the result (3, h, w); a large clip is thus reduced frame by frame. moved: called as decoding progresses.
    Raises DatasetError E1230, also for a time after the last frame.
    """
    order = np.argsort(np.asarray(times, dtype=np.float64), kind="stable")
    instants = [Fraction(float(times[i])) for i in order.tolist()]
    with decoding.readable_file(path, code="E1230", most=None) as file:
        shown = _from_key_frame(file, instants, each or (lambda image: image.transpose(2, 0, 1)), moved)
    stacked = np.stack(shown)
    in_order = np.empty_like(stacked)
    in_order[order] = stacked
    return in_order


def _from_key_frame(
    file: BufferedReader, instants: Sequence[Fraction], each: Each, moved: Callable[[], None]
) -> list[NDArray[np.generic]]:
    """The frames at ascending times. If a seek lands after the first of them, it is retried further back, and finally
    from the start of the file."""
    for back in _STEPS_BACK:
        with open_video(file) as (container, stream):
            assert stream.time_base is not None
            ticks = [math.floor(instant / stream.time_base) for instant in instants]
            target = ticks[0] - math.floor(Fraction(back) / stream.time_base)
            start = stream.start_time or 0
            if target <= start:
                break
            try:
                container.seek(target, stream=stream, backward=True)
            except OSError:  # this file, or this position in it, is not seekable
                break
            shown = _frames_at(_decode(container, stream, moved, from_key=True), ticks, each, is_whole=False)
            if shown is not None:
                return shown
    with open_video(file) as (container, stream):
        assert stream.time_base is not None
        ticks = [math.floor(instant / stream.time_base) for instant in instants]
        shown = _frames_at(_decode(container, stream, moved), ticks, each, is_whole=True)
        assert shown is not None
        return shown


def _frames_at(
    decoded: Iterator[VideoFrame], ticks: Sequence[int], each: Each, *, is_whole: bool
) -> list[NDArray[np.generic]] | None:
    """The frames displayed at ascending ticks: for each the last frame that starts no later. None if the frames start
    after the first tick, unless they are the start of the clip. Raises Unusable if they end before the last tick."""
    images: list[NDArray[np.generic]] = []
    last: VideoFrame | None = None
    last_tick = step = 0
    for frame in decoded:
        tick = _tick(frame)
        num = sum(instant < tick for instant in ticks[len(images) :])
        if num:
            if last is None and not is_whole:
                return None
            images += [_to_array(frame if last is None else last, each)] * num
        if len(images) == len(ticks):
            return images
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
        raise Unusable(f"ends at {seconds[0]:.3f} s, but a frame at {seconds[1]:.3f} s is needed")
    return images + [_to_array(last, each)] * (len(ticks) - len(images))


def _decode(
    container: InputContainer, stream: VideoStream, moved: Callable[[], None], *, from_key: bool = False
) -> Iterator[VideoFrame]:
    """Yields frames in display order. from_key: after a seek; skips frames before the first key frame, in decoding or
    display order, which may depend on frames that were not read. Raises Unusable at the first damaged frame."""
    earliest: int | None = None
    for packet in container.demux(stream):
        moved()
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
        raise Unusable("a frame without a time stamp")
    return tick


def _seconds(tick: int | None, stream: VideoStream) -> str:
    return (
        format_duration(float(tick * stream.time_base))
        if tick is not None and stream.time_base
        else "an unknown position"
    )


def _to_array(frame: VideoFrame, each: Each) -> NDArray[np.generic]:
    # one thread: freeing the frame in a process forked later would wait for threads that do not exist there
    image = frame.to_ndarray(format="rgb24", threads=1).astype(np.uint8, copy=False)
    return each(np.ascontiguousarray(_rotate(image, turn_of(frame))))


def _rotate(image: NDArray[np.uint8], turn: Orientation) -> NDArray[np.uint8]:
    if turn.transposed:
        image = image.transpose(1, 0, 2)
    return image[:: -1 if turn.upended else 1, :: -1 if turn.mirrored else 1]


class _DecodedClip:
    """State of the frames decoded so far."""

    def __init__(self, max_pixels: int) -> None:
        self._max_pixels = max_pixels
        self._size: tuple[int, int] | None = None
        self._turn = Orientation()
        self._ticks = array("q")

    def add(self, frame: VideoFrame) -> None:
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

    def probe(self, container: InputContainer, stream: VideoStream, digest: bytes) -> Probe:
        """The probe of a completely decoded clip. Raises Unusable if it is shorter than its header says."""
        if self._size is None:
            raise Unusable("damaged: no frame can be decoded")
        base = stream.time_base
        assert base is not None
        ticks = np.frombuffer(self._ticks, dtype=np.int64)
        num = len(ticks)
        span = int(ticks[-1] - ticks[0])
        if num > 1 and span <= 0:
            raise Unusable("all its frames have the same time stamp")
        rate = float((num - 1) / (span * base)) if num > 1 else float(stream.average_rate or 1)
        if num < stream.frames - 2:  # an edit list may skip a few
            raise Unusable(f"truncated: {num} of {stream.frames} frames exist")
        expected = _header_seconds(container, stream)
        if expected is not None and num / rate < 0.9 * expected - 2 / rate:
            raise Unusable(f"truncated: {format_duration(num / rate)} of {format_duration(expected)} exist")
        even = ticks[0] + np.arange(num) * (span / max(num - 1, 1))
        is_variable = num > 1 and bool(np.abs(ticks - even).max() > span / max(num - 1, 1) / 2)
        width, height = self._size
        shown = Size(height, width, num) if self._turn.transposed else Size(width, height, num)
        return Probe(shown, digest, int(Conversion.VARIABLE_RATE) if is_variable else 0, float(ticks[0] * base), rate)


def _header_seconds(container: InputContainer, stream: VideoStream) -> float | None:
    """The duration of the video stream in the file's header; None if there is only one for video and sound together."""
    if stream.duration is not None and stream.time_base is not None:
        return float(stream.duration * stream.time_base)
    hours, _, rest = stream.metadata.get("DURATION", "").partition(":")
    try:
        minutes, seconds = rest.split(":")
        return int(hours) * 3600 + int(minutes) * 60 + float(seconds)
    except ValueError:
        is_only_stream = len(container.streams.video) == 1 and not container.streams.audio
        return container.duration / 1e6 if is_only_stream and container.duration is not None else None


# --- opening ----------------------------------------------------------------------------------------------------------


@contextmanager
def open_video(file: BufferedReader) -> Iterator[tuple[InputContainer, VideoStream]]:
    """Opens a file as a container with its first video stream. Raises Unusable with the reason if there is none, also
    for errors while it is read."""
    kind = kind_of(file)
    file.seek(0)
    try:
        with av.open(file, format=kind, metadata_errors="replace") as container:
            yield container, _video(container)
    except av.error.FFmpegError as error:
        raise Unusable(f"damaged: {(error.strerror or type(error).__name__).lower()}") from error


def kind_of(file: BufferedReader) -> str:
    """FFmpeg's name of the format, detected from the first bytes. Raises Unusable for a file that is not a clip."""
    file.seek(0)
    head = file.read(600)
    if not head:
        raise Unusable("empty file")
    if head[4:8] in _BOXES:
        if head[4:8] == b"ftyp" and head[8:12] in _IMAGE_BRANDS:
            raise Unusable("an image, not a clip")
        return "mov"
    for magic, at, kind in _MAGIC:
        if head[at : at + len(magic)] == magic:
            return kind
    if any(head[at::size][:3] == b"\x47\x47\x47" for at, size in ((0, 188), (4, 192))):
        return "mpegts"
    raise Unusable(_rejection_reason(head))


def _rejection_reason(head: bytes) -> str:
    if head.startswith(_IMAGES) or head[8:12] == b"WEBP":
        return "an image, not a clip"
    if head.startswith(_SOUNDS) or head[8:12] == b"WAVE":
        return "sound, not a clip"
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    if text.startswith(_PLAYLISTS) or (text.startswith(b"<?xml") and any(tag in text for tag in _PLAYLISTS[-4:-1])):
        return "a playlist, not a clip; use the clips that it lists"
    if not head.strip(b"\0"):
        return "damaged: starts with zero bytes"
    return "not a clip of a known format"


def _video(container: InputContainer) -> VideoStream:
    """The stream to read, decoded with one thread, because loader workers already run in parallel."""
    for stream in container.streams.video:
        if Disposition.attached_pic in stream.disposition:
            continue  # the cover image of a music file
        if stream.codec_context is None:
            raise Unusable("this build of FFmpeg does not support its codec")
        stream.codec_context.thread_count = 1
        return stream
    raise Unusable("contains sound but no video" if container.streams.audio else "contains no video")


def turn_of(frame: VideoFrame) -> Orientation:
    """Orientation of a frame by its display matrix. Raises Unusable for an angle that is not a multiple of 90°."""
    matrix_data: Any = frame.side_data.get("DISPLAYMATRIX")
    if matrix_data is None:
        return Orientation()
    # a stored point (x, y), y downwards, is displayed at (a x + c y, b x + d y)
    a, b, _, c, d = struct.unpack_from("5i", bytes(matrix_data))
    if not (b or c) and a and d:
        return Orientation(False, a < 0, d < 0)
    if not (a or d) and b and c:
        return Orientation(True, c < 0, b < 0)
    raise Unusable(f"rotated by {-frame.rotation % 360}°; only multiples of 90° are supported")
