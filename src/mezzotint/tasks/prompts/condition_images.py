"""Condition images of requests (`sample.conditions`), as latents."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from torch import Tensor

from mezzotint.errors import RecipeError
from mezzotint.families.base import ModelFamily, encode_inpainting
from mezzotint.sampling.requests import Request
from mezzotint.settings.recipe import Recipe
from mezzotint.settings.sections.data import DataSettings
from mezzotint.shapes import Size
from mezzotint.tasks.prompts.first_frames import pixels_of, probe_size, region_of

Encoded = dict[tuple[tuple[str, Path], ...], dict[Size, Mapping[str, Tensor]]]
"""`Request.images`, (1, C, h, w) by name, of the files of all conditions by name and a size."""

_INPAINTING = ("source", "mask")
"""What a model that inpaints needs: an image, and the region to fill, white in a file of the same size."""


def require_taken(family: ModelFamily, conditions: Mapping[str, Sequence[Path]]) -> None:
    """Raises RecipeError E1296 if a model does not take these conditions, or needs others."""
    taken = _INPAINTING if family.inpaints else family.condition_names
    if unknown := [name for name in conditions if name not in taken]:
        what = f"takes {', '.join(taken)}" if taken else "takes no images"
        raise RecipeError(f"sample.conditions: this model {what}, got {', '.join(unknown)}", code="E1296")
    if missing := [name for name in taken if name not in conditions]:
        raise RecipeError(
            f"this model {'inpaints' if family.inpaints else 'edits images'}, and sample.conditions has no "
            f"{', '.join(missing)}; write "
            f"sample.conditions={{{missing[0]}: IMAGE}}, or --condition {missing[0]}=IMAGE",
            code="E1296",
        )


def with_images(
    requests: Sequence[Request], recipe: Recipe, encoder: Callable[[], ModelFamily], known: Encoded
) -> list[Request]:
    """The requests with their condition images. encoder: returns a family with its autoencoder, called for images that
    are not `known`, which are added to it. Raises RecipeError E1091 for an image that cannot be read, E1296 for fewer
    images than prompts."""
    conditions = recipe.sample.conditions.items()
    if not conditions:
        return list(requests)
    keys = [tuple((name, _file_of(name, files, request.line)) for name, files in conditions) for request in requests]
    for key, size in dict.fromkeys((key, request.size) for key, request in zip(keys, requests, strict=True)):
        if size not in known.setdefault(key, {}):
            known[key][size] = _encode(dict(key), replace(size, frames=1), recipe.data, encoder())
    return [replace(request, images=known[key][request.size]) for key, request in zip(keys, requests, strict=True)]


def _file_of(name: str, files: Sequence[Path], number: int) -> Path:
    if len(files) == 1:
        return files[0]
    if number >= len(files):
        raise RecipeError(
            f"sample.conditions.{name} has {len(files)} images, and there is a prompt {number + 1}; give one image for "
            "all, or one for each prompt",
            code="E1296",
        )
    return files[number]


def _encode(files: Mapping[str, Path], size: Size, data: DataSettings, model: ModelFamily) -> dict[str, Tensor]:
    """The condition images of one request. model: has its autoencoder."""
    device = next(model.parts()["vae"].parameters()).device
    if model.inpaints:
        region = region_of(files["mask"], size, data, "sample.conditions.mask")
        _require_one_size(files)
        pixels = pixels_of(files["source"], size, data, "sample.conditions.source")
        images = encode_inpainting(model, pixels.to(device), region.to(device))
        return {name: image.cpu() for name, image in images.items()}
    images = {}
    for name, path in files.items():
        pixels = pixels_of(path, size, data, f"sample.conditions.{name}")
        images[name] = model.encode_media(pixels.to(device)).chunk(2, dim=1)[0].cpu()
    return images


def _require_one_size(files: Mapping[str, Path]) -> None:
    """Raises RecipeError E1296 for a mask of another size than its image."""
    image, mask = (probe_size(files[name], f"sample.conditions.{name}") for name in _INPAINTING)
    if image != mask:
        raise RecipeError(
            f"sample.conditions.mask: {files['mask']} is {mask}, its image {image}; give a mask of the image's size",
            code="E1296",
        )
