"""From decoded frames to a sample's pixels: resized, cropped, mirrored. Between `clips.py` and the batch.

Frames are resized one by one, so each function takes a whole clip or, as `clips.frames(each=…)` wants it, a single
frame in a clip of one. Everything stays on the scale of bytes, 0 to 255; `pieces.to_pixels` brings it to [−1, 1] on the
device. `place` is the native way, the same as a picture's; the others are Open-Sora-Plan's: `project_…` those of its
PyTorch project, `port_square` that of its MindSpore port. Those two give different pixels.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch.nn import functional

from mezzotint.data.media import decoding
from mezzotint.stages import Placement


def place(
    frame: NDArray[np.uint8], placement: Placement, *, resize: str, antialias: bool = True
) -> NDArray[np.uint8]:  # fmt: skip
    """A frame in its bucket, as `media.picture` places a picture of the same pixels.

    frame: (H, W, 3) RGB. resize, antialias: of `data`. Returns (3, h, w), the size of `placement.bucket`.
    """
    return decoding.placed(Image.fromarray(frame), placement, resize=resize, antialias=antialias)


def project_square(clip: Tensor, side: int) -> Tensor:
    """The middle square of each frame, then bilinear to `side`, corners on corners.

    clip: (F, 3, H, W) uint8. Returns (F, 3, side, side) float32, 0 to 255. Where the square cannot lie in the middle,
    halves are rounded to even.
    """
    height, width = clip.shape[-2:]
    short = min(height, width)
    top, left = round((height - short) / 2), round((width - short) / 2)
    return _bilinear(clip[..., top : top + short, left : left + short], side, side)


def project_long_side(clip: Tensor, side: int, step: int) -> Tensor:
    """The whole of each frame with its longer side brought down to `side`, never up, then cut at the right and the
    bottom to multiples of `step` (the reference's multi-scale training).

    clip: (F, 3, H, W) uint8. step: pixels of a patch, 16. Returns float32, 0 to 255; no pixels at all when a side is
    below `step`.
    """
    height, width = clip.shape[-2:]
    long = max(height, width)
    if long > side:
        height, width = (side, int(width * side / height)) if height > width else (int(height * side / width), side)
        resized = _bilinear(clip, height, width)
    else:
        resized = clip.float()
    return resized[..., : height // step * step, : width // step * step]


def port_square(clip: Tensor, side: int) -> Tensor:
    """Each frame with its shorter side brought to `side`, bicubic without antialiasing as OpenCV does it (a = −0.75),
    then its middle square.

    clip: (F, 3, H, W) uint8. Returns (F, 3, side, side) uint8. The longer side is rounded to even halves, the crop
    begins at half of what is too much, rounded down.
    """
    height, width = clip.shape[-2:]
    scale = side / min(height, width)
    height, width = (side, round(width * scale)) if height <= width else (round(height * scale), side)
    # float64: OpenCV's whole-number arithmetic rounds halves that float32 would miss
    resized = functional.interpolate(clip.double(), size=(height, width), mode="bicubic", align_corners=False)
    top, left = (height - side) // 2, (width - side) // 2
    return to_bytes(resized[..., top : top + side, left : left + side])


def mirrored(clip: Tensor) -> Tensor:
    """All frames left to right."""
    return clip.flip(-1)


def to_bytes(clip: Tensor) -> Tensor:
    """Rounded to uint8, halves to even: a quarter of the bytes on the way to the device, at most half a level away from
    the reference."""
    return clip.round().clamp(0, 255).to(torch.uint8)


def _bilinear(clip: Tensor, height: int, width: int) -> Tensor:
    return functional.interpolate(
        clip.float(), size=(height, width), mode="bilinear", align_corners=True, antialias=True
    )
