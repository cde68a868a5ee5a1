"""Clips of every kind are read by time, or refused with the reason."""

from __future__ import annotations

import gc
import hashlib
import os
import re
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from mezzotint.data.buckets.clip_sampling import times_of
from mezzotint.data.media import _clips
from mezzotint.data.media.colour import Conversion
from mezzotint.errors import DatasetError
from mezzotint.shapes import Size
from support.messages import refused

SHADE = 12
KINDS: dict[str, dict[str, Any]] = {
    "a.mp4": {},
    "a.mov": {},
    "a.mkv": {"rate": 30},
    "h264.avi": {},
    "mpeg4.avi": {"codec": "mpeg4", "pix_fmt": "yuv420p"},
    "a.webm": {"codec": "libvpx-vp9", "options": {"lossless": "1"}},
    "a.ts": {"rate": 25},
    "a.mpg": {"codec": "mpeg2video", "pix_fmt": "yuv420p", "rate": 25},
    "a.flv": {"pix_fmt": "yuv420p"},
    "bframes.mp4": {"options": {"bf": "3", "g": "8"}},
    "bframes.mkv": {"options": {"bf": "3", "g": "250"}, "rate": 24},
    "odd.mkv": {"codec": "ffv1", "size": (47, 31), "pix_fmt": "bgr0"},
}

ClipWriter = Callable[..., Path]


def shades(images: NDArray[Any]) -> list[int]:
    """The number of each frame (3, H, W), encoded in the shade of its lower right corner."""
    return [round(float(image[:, -4:, -4:].mean()) / SHADE) for image in images]


def reason_of(path: Path, max_pixels: int = 10**6) -> str:
    with refused("E1230") as caught:
        _clips.probe(path, max_pixels=max_pixels)
    assert str(path) in caught.value.message
    return caught.value.message.removeprefix(f"{path}: ")


@pytest.mark.parametrize("name", KINDS)
def test_probe_reports_size_rate_and_digest(name: str, tmp_path: Path, write_clip: ClipWriter) -> None:
    path = write_clip(tmp_path / name, 20, **KINDS[name])
    probe = _clips.probe(path, max_pixels=10**6)
    size = KINDS[name].get("size", (48, 32))
    rate = KINDS[name].get("rate", 10)
    assert probe.size == Size(*size, 20)
    assert probe.rate == pytest.approx(rate, rel=1e-3)
    assert probe.size.frames / probe.rate == pytest.approx(20 / rate, rel=1e-3)
    assert not probe.conversions
    assert probe.digest == hashlib.sha256(path.read_bytes()).digest()


@pytest.mark.parametrize("name", KINDS)
def test_frames_are_read_by_time_in_any_order(name: str, tmp_path: Path, write_clip: ClipWriter) -> None:
    path = write_clip(tmp_path / name, 20, **KINDS[name])
    probe = _clips.probe(path, max_pixels=10**6)
    for numbers in ([*range(20)], [0], [19], [13, 4, 4, 17], [9, 10, 11]):
        images = _clips.frames(path, times_of(numbers, begin=probe.begin, rate=probe.rate))
        assert images.shape == (len(numbers), 3, probe.size.height, probe.size.width)
        assert images.dtype == np.uint8
        assert shades(images) == numbers


def test_lossless_codec_keeps_colours(tmp_path: Path, write_clip: ClipWriter) -> None:
    path = write_clip(tmp_path / "odd.mkv", 3, **KINDS["odd.mkv"])
    image = _clips.frames(path, [0.15])[0]
    expected = np.full((3, 31, 47), SHADE, np.uint8)
    expected[:, :15, :23] = 255
    assert np.array_equal(image, expected)


def test_decoding_starts_at_the_key_frame_and_stops_early(
    tmp_path: Path, write_clip: ClipWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_clip(tmp_path / "long.mp4", 200, options={"g": "10", "bf": "0", "sc_threshold": "0"})
    seen: list[int] = []
    decoded = _clips._decode

    def counted(*options: Any, **named: Any) -> Iterator[Any]:
        for frame in decoded(*options, **named):
            seen.append(1)
            yield frame

    monkeypatch.setattr(_clips, "_decode", counted)
    assert shades(_clips.frames(path, times_of([153, 155], begin=0, rate=10))) == [153 % 20, 155 % 20]
    assert len(seen) == 7  # from 150, a key frame, to 156, which ends 155


def test_every_requested_frame_is_transformed_once(tmp_path: Path, write_clip: ClipWriter) -> None:
    path = write_clip(tmp_path / "a.mp4", 10)
    sizes = []

    def corner(image: NDArray[np.uint8]) -> NDArray[np.float32]:
        sizes.append(image.shape)
        return image[-2:, -2:].transpose(2, 0, 1).astype(np.float32)

    pixels = _clips.frames(path, times_of([2, 5, 5], begin=0, rate=10), each=corner)
    assert pixels.dtype == np.float32
    assert pixels.shape == (3, 3, 2, 2)
    assert sizes == [(32, 48, 3)] * 2


def test_variable_rate_frames_are_those_on_screen(tmp_path: Path, write_clip: ClipWriter) -> None:
    ticks = [0, 100, 200, 1200, 1300, 3000]
    path = write_clip(tmp_path / "vfr.mkv", 6, ticks=ticks, options={"bf": "0"})
    probe = _clips.probe(path, max_pixels=10**6)
    assert probe.conversions == Conversion.VARIABLE_RATE
    assert probe.rate == pytest.approx(5 / 3)
    images = _clips.frames(path, [0.05, 0.25, 1.1, 1.25, 1.35, 2.9, 3.05])
    assert shades(images) == [0, 2, 2, 3, 4, 4, 5]


def test_clip_with_late_start_time_is_read_by_its_clock(tmp_path: Path, write_clip: ClipWriter) -> None:
    path = write_clip(tmp_path / "a.mpg", 20, **KINDS["a.mpg"])
    probe = _clips.probe(path, max_pixels=10**6)
    assert probe.begin > 0.1
    assert shades(_clips.frames(path, [0.0, probe.begin + 0.06])) == [0, 1]


TURNS = {
    "quarter right": ((0, 1, -1, 0), lambda p: np.rot90(p, -1)),
    "quarter left": ((0, -1, 1, 0), lambda p: np.rot90(p, 1)),
    "half": ((-1, 0, 0, -1), lambda p: np.rot90(p, 2)),
    "mirrored": ((-1, 0, 0, 1), lambda p: p[:, ::-1]),
    "upside down": ((1, 0, 0, -1), lambda p: p[::-1]),
    "transposed": ((0, 1, 1, 0), lambda p: p.transpose(1, 0, 2)),
}


@pytest.mark.parametrize("turn", TURNS)
def test_rotated_clip_is_read_upright(turn: str, tmp_path: Path, write_clip: ClipWriter) -> None:
    (a, b, c, d), expected = TURNS[turn]
    path = write_clip(tmp_path / "a.mp4", 6)
    stored = _clips.frames(path, [0.25])[0].transpose(1, 2, 0)
    turn_to(path, a, b, c, d)
    shown = expected(stored)
    assert _clips.probe(path, max_pixels=10**6).size == Size(shown.shape[1], shown.shape[0], 6)
    assert np.array_equal(_clips.frames(path, [0.25])[0], shown.transpose(2, 0, 1))


def turn_to(path: Path, a: float, b: float, c: float, d: float) -> None:
    """Writes a display matrix into the track of an mp4."""
    data = bytearray(path.read_bytes())
    at = data.index(b"tkhd") + 44
    one = 1 << 16
    struct.pack_into(">6i", data, at, round(a * one), round(b * one), 0, round(c * one), round(d * one), 0)
    path.write_bytes(data)


def test_clip_rotated_by_another_angle_is_refused(tmp_path: Path, write_clip: ClipWriter) -> None:
    path = write_clip(tmp_path / "a.mp4", 6)
    turn_to(path, 0.7071, 0.7071, -0.7071, 0.7071)
    assert reason_of(path) == "rotated by 45°; only multiples of 90° are supported"


def test_files_that_are_not_clips_are_refused(tmp_path: Path, write_clip: ClipWriter) -> None:
    Image.new("RGB", (8, 8)).save(tmp_path / "image.png")
    texts = {
        "empty.mp4": (b"", "empty file"),
        "zeros.mp4": (bytes(5000), "damaged: starts with zero bytes"),
        "text.mp4": (b"dear diary", "not a clip of a known format"),
        "image.mp4": ((tmp_path / "image.png").read_bytes(), "an image, not a clip"),
        "sound.mp4": (b"ID3\x04" + bytes(500), "sound, not a clip"),
    }
    for text in ("#EXTM3U\nhttp://127.0.0.1:9/a.ts\n", "ffconcat version 1.0\nfile /etc/passwd\n", "\n[playlist]\n",
                 '<?xml version="1.0"?>\n<MPD>'):  # fmt: skip
        texts[f"list{len(texts)}.mp4"] = (text.encode(), "a playlist, not a clip; use the clips that it lists")
    for name, (data, reason) in texts.items():
        (tmp_path / name).write_bytes(data)
        assert reason_of(tmp_path / name) == reason, name
    assert reason_of(tmp_path / "nothing.mp4") == "No such file or directory"
    os.mkfifo(tmp_path / "pipe.mp4")
    assert reason_of(tmp_path / "pipe.mp4") == "not a regular file"
    assert reason_of(write_clip(tmp_path / "heard.mp4", 0, sound=True)) == "contains sound but no video"


def test_clip_with_sound_is_accepted(tmp_path: Path, write_clip: ClipWriter) -> None:
    path = write_clip(tmp_path / "a.mp4", 5, sound=True)
    assert _clips.probe(path, max_pixels=10**6).size == Size(48, 32, 5)


def test_frames_above_max_pixels_are_refused(tmp_path: Path, write_clip: ClipWriter) -> None:
    path = write_clip(tmp_path / "a.mp4", 3)
    assert reason_of(path, 48 * 32 - 1) == "48 × 32 pixels are more than data.max_pixels (1,535)"
    assert _clips.probe(path, max_pixels=48 * 32).size == Size(48, 32, 3)


@pytest.mark.parametrize("name", ["a.mp4", "front.mp4", "mpeg4.avi", "a.mkv", "a.webm", "a.mpg"])
def test_truncated_clip_is_refused(name: str, tmp_path: Path, write_clip: ClipWriter) -> None:
    options = {"container": {"movflags": "faststart"}} if name == "front.mp4" else KINDS[name]
    path = write_clip(tmp_path / name, 60, **options)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) * 3 // 5])
    assert reason_of(path).startswith(("damaged", "truncated"))


@pytest.mark.parametrize("name", ["a.mp4", "a.ts"])
def test_damage_in_the_middle_is_refused(name: str, tmp_path: Path, write_clip: ClipWriter) -> None:
    path = write_clip(tmp_path / name, 60, **KINDS[name])
    data = bytearray(path.read_bytes())
    for i in range(len(data) // 2, len(data) // 2 + 200):
        data[i] ^= 0x5A
    path.write_bytes(data)
    reason = reason_of(path)
    assert re.match(r"damaged (or cut off )?at \d\.\d+ s", reason), reason


def test_time_after_the_end_is_an_error(tmp_path: Path, write_clip: ClipWriter) -> None:
    path = write_clip(tmp_path / "a.mp4", 10)
    assert shades(_clips.frames(path, [0.999])) == [9]
    with pytest.raises(DatasetError, match=r"a\.mp4: ends at 1\.000 s, but a frame at 2\.000 s is needed"):
        _clips.frames(path, [0.5, 2.0])


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="threads are counted where the system lists them")
def test_decoding_leaves_no_threads(tmp_path: Path, write_clip: ClipWriter) -> None:
    path = write_clip(tmp_path / "large.mp4", 6, size=(320, 320))
    gc.disable()  # frames have reference cycles, which keep their converters alive until they are collected
    try:
        before = len(os.listdir("/proc/self/task"))
        _clips.frames(path, times_of(range(6), begin=0.0, rate=10.0))
        assert len(os.listdir("/proc/self/task")) == before
    finally:
        gc.enable()
