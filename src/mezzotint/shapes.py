"""Plain geometry: sizes and crops. No tensors, no files."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Size:
    """Width and height in pixels, and a number of frames (1 for an image)."""

    width: int
    height: int
    frames: int = 1

    @property
    def aspect(self) -> float:
        """Width over height."""
        return self.width / self.height

    @property
    def pixels(self) -> int:
        """Pixels of one frame."""
        return self.width * self.height

    def __str__(self) -> str:
        return f"{self.width}×{self.height}" + (f"×{self.frames}" if self.frames > 1 else "")


@dataclass(frozen=True, slots=True)
class TextImages:
    """How a text encoder that sees condition images sees each of them: whole, in its own shape, at about `pixels`
    pixels, with sides that are multiples of `step`. tokens: that one image adds to a text, at most."""

    pixels: int
    step: int
    tokens: int

    def fit(self, image: Size) -> Size:
        """The size at which an image is seen."""
        width = math.sqrt(self.pixels * image.aspect)
        sides = (max(round(side / self.step), 1) * self.step for side in (width, width / image.aspect))
        return Size(*sides)


def cover(image: Size, target: Size) -> Size:
    """The size with `image`'s aspect ratio that covers `target`: resize to it, then crop.

    One side equals the target's exactly; the other is rounded down to whole pixels, as in torchvision, and is never
    smaller than the target's. Computed with integers, so that rounding cannot lose a pixel.
    """
    if image.width * target.height >= image.height * target.width:
        return Size(image.width * target.height // image.height, target.height, target.frames)
    return Size(target.width, image.height * target.width // image.width, target.frames)


def latent_size(size: Size, pixels_per_latent: int, frames_per_latent: int = 1) -> Size:
    """The size in latent units. The number of frames is (n − 1) / k + 1, as in causal video autoencoders."""
    frames = (size.frames - 1) // frames_per_latent + 1
    return Size(size.width // pixels_per_latent, size.height // pixels_per_latent, frames)
