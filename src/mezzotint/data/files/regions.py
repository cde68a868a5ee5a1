"""The part of an image that is used, and how it is turned: metadata beside the image, which itself is never changed."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from PIL import Image

WHOLE = (0.0, 0.0, 1.0, 1.0)
TURNS = (0, 90, 180, 270)

_TRANSPOSE = {
    90: Image.Transpose.ROTATE_270, 180: Image.Transpose.ROTATE_180, 270: Image.Transpose.ROTATE_90,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Region:
    """crop: left, top, right and bottom edge as shares of the image as displayed, 0 to 1. rotate: degrees clockwise,
    one of `TURNS`, after the crop."""

    crop: tuple[float, float, float, float] = WHOLE
    rotate: int = 0

    def box(self, width: int, height: int) -> tuple[int, int, int, int]:
        """The edges in pixels, rounded; at least one pixel on a side."""
        left, top = min(round(self.crop[0] * width), width - 1), min(round(self.crop[1] * height), height - 1)
        return left, top, max(round(self.crop[2] * width), left + 1), max(round(self.crop[3] * height), top + 1)

    def size(self, width: int, height: int) -> tuple[int, int]:
        """Width and height of the result for an image of this size."""
        left, top, right, bottom = self.box(width, height)
        sides = right - left, bottom - top
        return sides if self.rotate in (0, 180) else sides[::-1]

    def apply(self, image: Image.Image) -> Image.Image:
        """The region of an image as displayed."""
        image = image if self.crop == WHOLE else image.crop(self.box(*image.size))
        return image.transpose(_TRANSPOSE[self.rotate]) if self.rotate else image

    def address(self, digest: bytes) -> bytes:
        """A hash of the region of a file, 32 bytes. digest: of the file."""
        return hashlib.sha256(digest + self.encoded.encode("ascii")).digest()

    @property
    def encoded(self) -> str:
        """As text, for a column."""
        return " ".join(map(repr, (*self.crop, self.rotate)))

    @classmethod
    def decoded(cls, text: str) -> Region:
        """The inverse of `encoded`."""
        left, top, right, bottom, rotate = text.split(" ")
        return cls((float(left), float(top), float(right), float(bottom)), int(rotate))
