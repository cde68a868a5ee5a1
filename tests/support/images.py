"""Images with four coloured quarters, and how crops and flips change them."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from mezzotint.data.media import decoding
from mezzotint.shapes import Size
from mezzotint.stages import Placement

LIMIT = 1_000_000


def whole(size: Size, flipped: bool = False) -> Placement:
    return Placement(size, size, (0, 0), flipped)


def pixels_of(path: Path, background: str = "#ffffff", limit: int = LIMIT) -> np.ndarray[Any, Any]:
    """(H, W, 3) of the whole image."""
    size = decoding.probe(path, limit).size
    pixels = decoding.decode_image(path, whole(size), resize="lanczos", background=background, max_pixels=limit)
    return pixels.transpose(1, 2, 0)


def corners(width: int = 30, height: int = 20) -> Image.Image:
    """An image of four plain quarters: red, green / blue, yellow."""
    image = Image.new("RGB", (width, height))
    for colour, box in (
        ("#ff0000", (0, 0, width // 2, height // 2)),
        ("#00ff00", (width // 2, 0, width, height // 2)),
        ("#0000ff", (0, height // 2, width // 2, height)),
        ("#ffff00", (width // 2, height // 2, width, height)),
    ):
        image.paste(colour, box)
    return image


def broken_inside(path: Path) -> None:
    """Damages the pixels of a PNG with one chunk of them; its header and its checksums are sound."""
    data = path.read_bytes()
    at = data.index(b"IDAT")
    [length] = struct.unpack(">I", data[at - 4 : at])
    body = b"IDAT" + b"\xff" * length
    path.write_bytes(data[:at] + body + struct.pack(">I", zlib.crc32(body)) + data[at + 8 + length :])
