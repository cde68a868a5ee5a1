"""Small copies of clips, for a report: fewer frames, fewer pixels, no sound."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from mezzotint import outside
from mezzotint.data.files.listing import Unusable
from mezzotint.data.media import clip_files
from mezzotint.errors import DatasetError

FRAMES = 48
_READ = 2000
_QUALITY = 16


def small(file: Path, side: int) -> bytes | None:
    """A copy of a clip with at most 48 of its frames, evenly chosen, and sides of at most `side`, as H.264 in MP4, as
    long as the clip is. None for what is no clip that can be read, and without PyAV (extra `video`) or its encoder."""
    try:
        clips = clip_files.decoder()
        from mezzotint.sampling import video
    except (DatasetError, ModuleNotFoundError):
        return None
    if video.encoder("h264")[1]:
        return None
    try:
        with outside.open_plain(file) as opened, clips.opened(opened) as (container, stream):
            rate = float(stream.average_rate or 8)
            pictures: list[Image.Image] = []
            for number, frame in enumerate(container.decode(stream)):
                if number >= _READ:
                    break
                picture = frame.to_image()
                picture.thumbnail((side, side))
                pictures.append(picture)
    except (OSError, ValueError, Unusable):
        return None
    if not pictures:
        return None
    places = np.unique(np.linspace(0, len(pictures) - 1, min(FRAMES, len(pictures))).round().astype(int))
    width, height = (max(2, length - length % 2) for length in pictures[0].size)
    frames = np.stack([np.asarray(pictures[place].convert("RGB"))[:height, :width] for place in places.tolist()])
    return video.mp4(frames, {}, rate=max(0.1, rate * len(places) / len(pictures)), quality=_QUALITY)
