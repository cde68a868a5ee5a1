"""Clips drawn by the tests: every frame tells its number by its shade."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest

SHADE = 12

ClipWriter = Callable[..., Path]


@pytest.fixture(scope="session")
def write_clip() -> ClipWriter:
    """`write_clip(path, 20)` writes 20 frames, frame n of the shade 12 · n, its upper left quarter white, lossless
    unless the codec is not."""
    return _write


def _write(
    path: Path,
    num: int = 20,
    *,
    codec: str = "libx264",
    size: tuple[int, int] = (48, 32),
    rate: int = 10,
    pix_fmt: str = "yuv444p",
    options: Mapping[str, str] | None = None,
    ticks: Sequence[int] | None = None,
    sound: bool = False,
    container: Mapping[str, str] | None = None,
) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    chosen = {"qp": "0", "g": "5"} if codec == "libx264" else {}
    with av.open(str(path), "w", options=dict(container or {})) as file:
        if num:
            stream = file.add_stream(codec, rate=rate, options=chosen | dict(options or {}))
            stream.width, stream.height = size
            stream.pix_fmt = pix_fmt
            stream.codec_context.thread_count = 1
        if sound:
            heard = file.add_stream("aac", rate=8000)
        for number in range(num):
            picture = np.full((size[1], size[0], 3), SHADE * number % 240, np.uint8)
            picture[: size[1] // 2, : size[0] // 2] = 255
            frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
            if ticks is not None:
                frame.pts, frame.time_base = ticks[number], Fraction(1, 1000)
            file.mux(stream.encode(frame))
        if num:
            file.mux(stream.encode())
        if sound:
            for start in range(0, 8192, 1024):
                quiet = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), format="fltp", layout="mono")
                quiet.sample_rate, quiet.pts = 8000, start
                file.mux(heard.encode(quiet))
            file.mux(heard.encode())
    return path
