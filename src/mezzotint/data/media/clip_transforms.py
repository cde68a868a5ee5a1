"""From decoded frames to a sample's pixels: resized, cropped, mirrored. Between `_clips.py` and the batch.

Everything stays on the scale of bytes, 0 to 255; `worker.to_pixels` brings it to [−1, 1] on the device. `placer` is the
way of the recipe: the same as a picture's, or one of Open-Sora-Plan's: `project_square` of its PyTorch project,
`port_square` of its MindSpore port. Those two give different pixels.
"""

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


def placer(placed: Placement, *, resize: str, antialias: bool = True) -> Callable[[_Bytes], _Bytes]:
    """What becomes of a frame, (H, W, 3) RGB → (3, h, w), the size of `placed.bucket`. resize, antialias: of `data`;
    but for Open-Sora-Plan's two ways it is what `decoding.picture` makes of a picture of the same pixels."""
    if resize not in _SQUARES:
        return lambda frame: decoding.placed(Image.fromarray(frame), placed, resize=resize, antialias=antialias)

    def squared(frame: _Bytes) -> _Bytes:
        pixels = _SQUARES[resize](torch.from_numpy(frame.copy()).permute(2, 0, 1)[None], placed.bucket.width)[0]
        return np.ascontiguousarray((pixels.flip(-1) if placed.flipped else pixels).numpy())

    return squared


def project_square(clip: Tensor, side: int) -> Tensor:
    """The middle square of each frame, then bilinear to `side`, corners on corners.

    clip: (F, 3, H, W) uint8. Returns (F, 3, side, side) float32, 0 to 255. Where the square cannot lie in the middle,
    halves are rounded to even.
    """
    height, width = clip.shape[-2:]
    short = min(height, width)
    top, left = round((height - short) / 2), round((width - short) / 2)
    square = clip[..., top : top + short, left : left + short].float()
    return functional.interpolate(square, size=(side, side), mode="bilinear", align_corners=True, antialias=True)


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


def to_bytes(clip: Tensor) -> Tensor:
    """Rounded to uint8, halves to even: a quarter of the bytes on the way to the device, at most half a level away from
    the reference."""
    return clip.round().clamp(0, 255).to(torch.uint8)


_SQUARES: dict[str, Callable[[Tensor, int], Tensor]] = {
    "square-then-bilinear": lambda clip, side: to_bytes(project_square(clip, side)),
    "bicubic-then-square": port_square,
}
"""Values of `data.resize` that make squares by a rule of their own, for clips and the pictures beside them."""
