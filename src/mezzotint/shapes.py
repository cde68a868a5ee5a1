"""Plain geometry: sizes and crops. No tensors, no files."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Size:
    """Width and height in pixels, and a number of frames (1 for a picture)."""

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


def cover(image: Size, target: Size) -> Size:
    """The smallest size of `image`'s aspect ratio that covers `target`: resize to it, then crop.

    One side equals the target's exactly; the other is rounded to the nearest pixel and is never smaller than the
    target's.
    """
    scale = max(target.width / image.width, target.height / image.height)
    return Size(
        max(target.width, round(image.width * scale)), max(target.height, round(image.height * scale)), target.frames
    )


def latent_size(size: Size, pixels_per_latent: int, frames_per_latent: int = 1) -> Size:
    """The size in latent units. Frames follow (n − 1) / k + 1, the law of causal video autoencoders."""
    frames = (size.frames - 1) // frames_per_latent + 1
    return Size(size.width // pixels_per_latent, size.height // pixels_per_latent, frames)
