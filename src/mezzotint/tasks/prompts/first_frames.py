"""Images that sampling starts from: resizing, and first-frame conditioning of clips."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from mezzotint.data.media import decoding
from mezzotint.errors import DatasetError, RecipeError
from mezzotint.families.base import ModelFamily
from mezzotint.sampling.requests import Request
from mezzotint.settings.recipe import Recipe
from mezzotint.settings.sections.data import DataSettings
from mezzotint.shapes import Size
from mezzotint.stages import Placement


def with_first_frames(
    family: ModelFamily, encoder: Callable[[], ModelFamily], requests: Sequence[Request], recipe: Recipe
) -> list[Request]:
    """The requests with the first latent frame of `sample.clip.first_frame`, the mean of the autoencoder's
    distribution. encoder: returns a family with its VAE. Raises RecipeError E1480 for models without first-frame
    conditioning and for images, E1091 for an image that cannot be read."""
    path = recipe.sample.clip.first_frame
    assert path is not None
    refuse_first_frames(family, requests)
    model, latents = encoder(), {}
    vae = next(model.parts()["vae"].parameters()).device
    for size in dict.fromkeys(request.size for request in requests):
        pixels = pixels_of(path, replace(size, frames=1), recipe.data, "sample.clip.first_frame")
        mean, _ = model.encode_media(pixels.to(vae)).chunk(2, dim=1)
        latents[size] = mean[:, :, None].cpu()
    return [replace(request, first_frame=latents[request.size]) for request in requests]


def refuse_first_frames(family: ModelFamily, requests: Sequence[Request]) -> None:
    """Raises RecipeError E1480 if no clip can start from an image."""
    if not family.takes_first_frame:
        reason = "this model has one noise level for a whole clip and does not support first-frame conditioning"
        raise RecipeError(f"sample.clip.first_frame: {reason}; leave it out", code="E1480")
    refuse_images(requests)


def refuse_images(requests: Sequence[Request]) -> None:
    """Raises RecipeError E1480 for images, which cannot continue a first frame."""
    if any(request.size.frames < 2 for request in requests):
        raise RecipeError(
            "sample.clip.first_frame: an image has no following frames; set sample.clip.frames, or leave it out",
            code="E1480",
        )


def pixels_of(path: Path, size: Size, data: DataSettings, setting: str) -> Tensor:
    """(1, 3, H, W) in [−1, 1]: the image resized to cover the size and center-cropped. Raises RecipeError E1091."""
    placed = _cover(size, probe_size(path, setting))
    levels = decoding.decode_image(
        path, placed, resize=data.resize, background=data.background, max_pixels=data.max_pixels
    )
    return torch.from_numpy(levels)[None].float() / 127.5 - 1.0


def region_of(path: Path, size: Size, data: DataSettings, setting: str) -> Tensor:
    """(1, H, W) uint8: the brightness of a mask file, placed like `pixels_of`. Raises RecipeError E1091."""
    placed = _cover(size, probe_size(path, setting))
    return torch.from_numpy(decoding.mask(path, placed, is_alpha=False, max_pixels=data.max_pixels))[None]


def _cover(size: Size, image_size: Size) -> Placement:
    """An image resized to cover a size, and cropped to its middle."""
    factor = max(size.width / image_size.width, size.height / image_size.height)
    covering = Size(
        max(size.width, round(image_size.width * factor)), max(size.height, round(image_size.height * factor))
    )
    return Placement(size, covering, ((covering.height - size.height) // 2, (covering.width - size.width) // 2))


def probe_size(path: Path, setting: str) -> Size:
    """The size of an image. setting: the one that names it. Raises RecipeError E1091."""
    try:
        return decoding.probe(path, DataSettings().max_pixels).size
    except DatasetError as error:
        raise RecipeError(f"{setting}: {error.message}; use another image", code="E1091") from None
