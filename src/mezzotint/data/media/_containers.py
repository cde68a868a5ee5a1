"""Opening a clip's file: its kind is told by its first bytes and opened as nothing else, so that a playlist that calls
itself .mp4 can make nobody fetch what it names. Used by `clips.py` alone, as is PyAV (the extra `video`).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader
from typing import Any

import av
import av.error
from av.container import InputContainer
from av.stream import Disposition
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

from mezzotint.data.files.listing import Unusable

_BOXES = (b"ftyp", b"moov", b"mdat", b"free", b"skip", b"wide", b"pnot")
_PICTURES = (b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"BM", b"II*\x00", b"MM\x00*")
_PICTURE_BRANDS = (b"avif", b"avis", b"heic", b"heix", b"mif1", b"msf1")
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


@dataclass(frozen=True, slots=True)
class Turn:
    """How a stored frame becomes the shown one: rows and columns change places, then it is mirrored left to right, then
    upside down."""

    transposed: bool = False
    mirrored: bool = False
    upended: bool = False


@contextmanager
def opened(file: BufferedReader) -> Iterator[tuple[InputContainer, VideoStream]]:
    """The container in a file, and its first stream of moving pictures. Raises Unusable with the reason there is none,
    also for what goes wrong while it is read."""
    kind = kind_of(file)
    file.seek(0)
    try:
        with av.open(file, format=kind, metadata_errors="replace") as container:
            yield container, _video(container)
    except av.error.FFmpegError as error:
        raise Unusable(f"damaged: {(error.strerror or type(error).__name__).lower()}") from error


def kind_of(file: BufferedReader) -> str:
    """FFmpeg's name for what the first bytes are. Raises Unusable for what is no clip."""
    file.seek(0)
    head = file.read(600)
    if not head:
        raise Unusable("empty file")
    if head[4:8] in _BOXES:
        if head[4:8] == b"ftyp" and head[8:12] in _PICTURE_BRANDS:
            raise Unusable("a picture, not a clip")
        return "mov"
    for magic, at, kind in _MAGIC:
        if head[at : at + len(magic)] == magic:
            return kind
    if any(head[at::size][:3] == b"\x47\x47\x47" for at, size in ((0, 188), (4, 192))):
        return "mpegts"
    raise Unusable(_why_not(head))


def _why_not(head: bytes) -> str:
    if head.startswith(_PICTURES) or head[8:12] == b"WEBP":
        return "a picture, not a clip"
    if head.startswith(_SOUNDS) or head[8:12] == b"WAVE":
        return "sound, not a clip"
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    if text.startswith(_PLAYLISTS) or (text.startswith(b"<?xml") and any(tag in text for tag in _PLAYLISTS[-4:-1])):
        return "a playlist, not a clip; put the clips that it names there"
    if not head.strip(b"\0"):
        return "damaged: begins with zero bytes"
    return "not a clip of a known format"


def _video(container: InputContainer) -> VideoStream:
    """The stream to read; one thread decodes it, since loaders are processes already."""
    for stream in container.streams.video:
        if Disposition.attached_pic in stream.disposition:
            continue  # the cover of a piece of music
        if stream.codec_context is None:
            raise Unusable("its codec is not known to this build of FFmpeg")
        stream.codec_context.thread_count = 1
        return stream
    raise Unusable("holds sound and no moving picture" if container.streams.audio else "holds no moving picture")


def turn_of(frame: VideoFrame) -> Turn:
    """How a frame is turned by its display matrix. Raises Unusable for an angle that is no multiple of 90°."""
    matrix_data: Any = frame.side_data.get("DISPLAYMATRIX")
    if matrix_data is None:
        return Turn()
    # a stored point (x, y), y downwards, is shown at (a x + c y, b x + d y)
    a, b, _, c, d = struct.unpack_from("5i", bytes(matrix_data))
    if not (b or c) and a and d:
        return Turn(False, a < 0, d < 0)
    if not (a or d) and b and c:
        return Turn(True, c < 0, b < 0)
    raise Unusable(f"turned by {-frame.rotation % 360}°; only multiples of 90° can be undone")
