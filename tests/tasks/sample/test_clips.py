"""`mezzotint sample` for clips: video files with metadata, contact sheets, codecs."""

from __future__ import annotations

import numpy as np
import pytest

from mezzotint.errors import RecipeError
from mezzotint.sampling import image_files, video


def test_missing_video_encoder_falls_back_with_message() -> None:
    assert video.encoder("h264", {"libx264", "mpeg4"}) == ("libx264", "")
    name, said = video.encoder("h264", {"mpeg4", "libvpx-vp9"})
    assert name == "mpeg4"
    assert "sample.clip.codec=mpeg4" in said
    with pytest.raises(RecipeError, match="neither") as met:
        video.encoder("h264", {"libvpx-vp9"})
    assert met.value.code == "E1467"


def test_strip_shows_first_and_last_frame() -> None:
    frames = np.stack([np.full((8, 8, 3), 10 * n, np.uint8) for n in range(9)])
    strip = image_files.film_strip(frames)
    assert strip.shape == (8, 4 * 8 + 3 * 2, 3)
    assert (strip[0, 0, 0], strip[0, -1, 0]) == (0, 80)
    assert image_files.film_strip(frames[0]).shape == (8, 8, 3)
