"""From decoded frames to a sample's pixels: resized, cropped, mirrored. Between `_clips.py` and the batch.

Pixels keep the range 0 to 255; `worker.to_pixels` converts them to [−1, 1] on the device. `frame_transform` selects
the method of the recipe: the same as for images, or one of Open-Sora-Plan's: `project_square` of its PyTorch project,
`port_square` of its MindSpore port. Those two give different pixels."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch.nn import functional

from mezzotint.data.media import decoding
from mezzotint.stages import Placement

_Bytes = NDArray[np.uint8]


def frame_transform(placed: Placement, *, resize: str, antialias: bool = True) -> Callable[[_Bytes], _Bytes]:
    """The transformation of a frame, (H, W, 3) RGB → (3, h, w), the size of `placed.bucket`. resize, antialias: of
    `data`; except for Open-Sora-Plan's two methods, the same as `decoding.decode_image` for an image with the same
    pixels."""
    if resize not in _SQUARES:
        return lambda frame: decoding.place_image(Image.fromarray(frame), placed, resize=resize, antialias=antialias)

    def squared(frame: _Bytes) -> _Bytes:
        pixels = _SQUARES[resize](torch.from_numpy(frame.copy()).permute(2, 0, 1)[None], placed.bucket.width)[0]
        return np.ascontiguousarray((pixels.flip(-1) if placed.flipped else pixels).numpy())

    return squared


def project_square(clip: Tensor, side: int) -> Tensor:
    """Crops the middle square of each frame, then resizes it to `side`, bilinear with aligned corners.

    clip: (F, 3, H, W) uint8. Returns (F, 3, side, side) float32, 0 to 255. The position of the square is rounded half
    to even.
    """
    height, width = clip.shape[-2:]
    short = min(height, width)
    top, left = round((height - short) / 2), round((width - short) / 2)
    square = clip[..., top : top + short, left : left + short].float()
    return functional.interpolate(square, size=(side, side), mode="bilinear", align_corners=True, antialias=True)


def port_square(clip: Tensor, side: int) -> Tensor:
    """Resizes the shorter side of each frame to `side`, bicubic without antialiasing as in OpenCV (a = −0.75), then
    crops the middle square.

    clip: (F, 3, H, W) uint8. Returns (F, 3, side, side) uint8. The longer side is rounded half to even; the crop starts
    at half of the excess, rounded down.
    """
    height, width = clip.shape[-2:]
    scale = side / min(height, width)
    height, width = (side, round(width * scale)) if height <= width else (round(height * scale), side)
    # float64: OpenCV's whole-number arithmetic rounds halves that float32 would miss
    resized = functional.interpolate(clip.double(), size=(height, width), mode="bicubic", align_corners=False)
    top, left = (height - side) // 2, (width - side) // 2
    return to_bytes(resized[..., top : top + side, left : left + side])


def to_bytes(clip: Tensor) -> Tensor:
    """Rounds to uint8, half to even: a quarter of the bytes to copy to the device, at most half a level from the
    reference."""
    return clip.round().clamp(0, 255).to(torch.uint8)


_SQUARES: dict[str, Callable[[Tensor, int], Tensor]] = {
    "square-then-bilinear": lambda clip, side: to_bytes(project_square(clip, side)),
    "bicubic-then-square": port_square,
}
"""Values of `data.resize` with their own square crop, for clips and images joined to video batches."""
