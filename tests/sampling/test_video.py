"""Clips are written as playable files, with any of PyAV's encoders."""

from __future__ import annotations

import io
import json

import numpy as np
import pytest

from mezzotint.errors import RecipeError

pytest.importorskip("av")


def test_fallback_encoder_gives_a_note_and_none_an_error() -> None:
    from mezzotint.sampling.video import encoder

    assert encoder("h264", ["mpeg4", "libopenh264"]) == ("libopenh264", "")
    name, note = encoder("h264", ["mpeg4"])
    assert (name, "no encoder for h264; writing clips as mpeg4" in note) == ("mpeg4", True)
    with pytest.raises(RecipeError, match="can write neither") as caught:
        encoder("mpeg4", [])
    assert caught.value.code == "E1467"


def test_clip_has_frames_rate_and_recorded_settings() -> None:
    import av

    from mezzotint.sampling.video import mp4

    frames = np.repeat(np.arange(0, 250, 50, dtype=np.uint8), 16 * 32 * 3).reshape(5, 16, 32, 3)
    content = mp4(frames, {"prompt": "waves", "seed": "3"}, rate=8.0, codec="mpeg4")
    with av.open(io.BytesIO(content)) as container:
        shown = [frame.to_ndarray(format="rgb24").mean() for frame in container.decode(video=0)]
        stream = container.streams.video[0]
        assert (stream.width, stream.height, stream.average_rate) == (32, 16, 8)
        assert json.loads(container.metadata["comment"]) == {"prompt": "waves", "seed": "3"}
    assert len(shown) == 5
    assert shown == sorted(shown)
