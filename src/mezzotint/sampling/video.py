"""A drawn clip as a file: an MP4 that says how it was drawn, by PyAV (extra `video`).

The file's `comment` holds the texts that a picture's PNG chunks hold, as JSON: `ffprobe clip.mp4` shows it.
"""

from __future__ import annotations

import io
import json
from collections.abc import Collection, Mapping
from fractions import Fraction

import numpy as np
from av import VideoFrame
from av import open as open_container
from av.codec.codec import codecs_available
from numpy.typing import NDArray

from mezzotint.errors import RecipeError
from mezzotint.settings.sections.sample import Codec

_ENCODERS: Mapping[Codec, tuple[str, ...]] = {
    "h264": ("libx264", "libopenh264", "h264_videotoolbox"),
    "mpeg4": ("mpeg4",),
}


def encoder(usual: Codec, available: Collection[str] | None = None) -> tuple[str, str]:
    """The encoder of this PyAV for a codec, and a sentence for the reader when it had to be another codec's, else "".

    available: names of encoders; None asks PyAV. Raises RecipeError E1467 when there is none at all.
    """
    there = codecs_available if available is None else available
    for codec in (usual, *(other for other in _ENCODERS if other != usual)):
        name = next((name for name in _ENCODERS[codec] if name in there), None)
        if name is not None:
            note = f"this PyAV has no encoder for {usual}: clips are written as {codec} (sample.clip.codec={codec})"
            return name, "" if codec == usual else note
    raise RecipeError(
        "this PyAV can write neither h264 nor mpeg4; install another build of it: `pip install av`", code="E1467"
    )


def mp4(
    frames: NDArray[np.uint8], texts: Mapping[str, str], *, rate: float, codec: Codec = "h264", quality: int = 10
) -> bytes:
    """The file. frames: (F, H, W, 3) uint8, H and W even. texts: texts by name. rate: frames a second. quality: 1 …
    31, see `sample.clip.quality`. Raises RecipeError E1467."""
    name = encoder(codec)[0]
    exact = Fraction(rate).limit_denominator(1001)
    file = io.BytesIO()
    with open_container(file, "w", format="mp4") as container:
        container.metadata["title"] = texts.get("prompt", "")[:200]
        container.metadata["comment"] = json.dumps(dict(texts), ensure_ascii=False)
        stream = container.add_stream(name, rate=exact, options=_options(name, quality))
        stream.height, stream.width = frames.shape[1:3]
        stream.pix_fmt = "yuv420p"  # what every player knows
        stream.codec_context.thread_count = 1
        for picture in frames:
            container.mux(stream.encode(VideoFrame.from_ndarray(np.ascontiguousarray(picture), format="rgb24")))
        container.mux(stream.encode())
    return file.getvalue()


def _options(name: str, quality: int) -> dict[str, str]:
    match name:
        case "libx264":
            return {"crf": str(8 + quality), "preset": "medium"}
        case "mpeg4":
            return {"qmin": str(quality), "qmax": str(quality)}
        case _:
            return {}
