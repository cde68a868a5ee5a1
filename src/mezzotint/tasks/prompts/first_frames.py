"""Pictures from outside that drawing begins with: brought to a size, and what clips of a model begin with."""

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


def begun(
    family: ModelFamily, encoder: Callable[[], ModelFamily], requests: Sequence[Request], recipe: Recipe
) -> list[Request]:
    """The requests with the first latent frame that `sample.clip.first_frame` gives, as the autoencoder takes it most
    likely to be. encoder: gives a family with its VAE. Raises RecipeError E1480 for models that take none and for
    pictures, E1091 for a picture that cannot be read."""
    path = recipe.sample.clip.first_frame
    assert path is not None
    refuse(family, requests)
    model, latents = encoder(), {}
    vae = next(model.parts()["vae"].parameters()).device
    for size in dict.fromkeys(request.size for request in requests):
        pixels = pixels_of(path, replace(size, frames=1), recipe.data, "sample.clip.first_frame")
        mean, _ = model.encode_media(pixels.to(vae)).chunk(2, dim=1)
        latents[size] = mean[:, :, None].cpu()
    return [replace(request, first_frame=latents[request.size]) for request in requests]


def refuse(family: ModelFamily, requests: Sequence[Request]) -> None:
    """Raises RecipeError E1480 where no clip can begin with a picture."""
    if not family.takes_first_frame:
        why = "this model is given one level of noise for a whole clip, so that no first frame can be given"
    elif any(request.size.frames < 2 for request in requests):
        why = "a picture has no frames that come after it; write sample.clip.frames"
    else:
        return
    raise RecipeError(f"sample.clip.first_frame: {why}; leave it out", code="E1480")


def pixels_of(path: Path, size: Size, data: DataSettings, setting: str) -> Tensor:
    """(1, 3, H, W) in [−1, 1]: the picture made to cover the size, and cut in the middle. Raises RecipeError E1091."""
    own = probed(path, setting)
    factor = max(size.width / own.width, size.height / own.height)
    covering = Size(max(size.width, round(own.width * factor)), max(size.height, round(own.height * factor)))
    corner = (covering.height - size.height) // 2, (covering.width - size.width) // 2
    placed = Placement(size, covering, corner)
    levels = decoding.picture(path, placed, resize=data.resize, background=data.background, max_pixels=data.max_pixels)
    return torch.from_numpy(levels)[None].float() / 127.5 - 1.0


def probed(path: Path, setting: str) -> Size:
    """A picture's own size. setting: what names it. Raises RecipeError E1091."""
    try:
        return decoding.probe(path, DataSettings().max_pixels).size
    except DatasetError as error:
        raise RecipeError(f"{setting}: {error.message}; take another picture", code="E1091") from None
