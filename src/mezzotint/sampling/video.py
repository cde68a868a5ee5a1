"""A generated clip as a file: an MP4 that records how it was generated, written with PyAV (extra `video`).

The file's `comment` contains the texts of an image's PNG chunks, as JSON: `ffprobe clip.mp4` shows it.
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
    """PyAV's encoder for a codec, and a note for the user if another codec has to be used, else "".

    available: names of encoders; None asks PyAV. Raises RecipeError E1467 if there is none.
    """
    names = codecs_available if available is None else available
    for codec in (usual, *(other for other in _ENCODERS if other != usual)):
        name = next((name for name in _ENCODERS[codec] if name in names), None)
        if name is not None:
            note = f"this PyAV has no encoder for {usual}; writing clips as {codec} (sample.clip.codec={codec})"
            return name, "" if codec == usual else note
    raise RecipeError(
        "this PyAV can write neither h264 nor mpeg4; install another build: `pip install av`", code="E1467"
    )


def mp4(
    frames: NDArray[np.uint8], texts: Mapping[str, str], *, rate: float, codec: Codec = "h264", quality: int = 10
) -> bytes:
    """The bytes of the MP4. frames: (F, H, W, 3) uint8, H and W even. texts: by name. rate: frames per second. quality:
    1 … 31, see `sample.clip.quality`. Raises RecipeError E1467."""
    name = encoder(codec)[0]
    exact = Fraction(rate).limit_denominator(1001)
    file = io.BytesIO()
    with open_container(file, "w", format="mp4") as container:
        container.metadata["title"] = texts.get("prompt", "")[:200]
        container.metadata["comment"] = json.dumps(dict(texts), ensure_ascii=False)
        stream = container.add_stream(name, rate=exact, options=_options(name, quality))
        stream.height, stream.width = frames.shape[1:3]
        stream.pix_fmt = "yuv420p"  # supported by every player
        stream.codec_context.thread_count = 1
        for image in frames:
            container.mux(stream.encode(VideoFrame.from_ndarray(np.ascontiguousarray(image), format="rgb24")))
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
