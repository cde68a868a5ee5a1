"""Condition images of requests (`sample.conditions`), as latents: of models that edit, inpaint or animate."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from mezzotint.data.media import decoding
from mezzotint.data.schedule import condition_shapes
from mezzotint.diffusion import inpainting
from mezzotint.diffusion.first_frame import FIRST_FRAME, VISION
from mezzotint.errors import RecipeError
from mezzotint.families.base import ModelFamily, encode_inpainting
from mezzotint.sampling.requests import Request
from mezzotint.settings.recipe import Recipe
from mezzotint.settings.sections.data import DataSettings
from mezzotint.settings.sections.sample import SampleSettings
from mezzotint.shapes import Size, TextImages
from mezzotint.stages import Placement
from mezzotint.tasks.prompts.first_frames import pixels_of, probe_size, refuse_images, region_of

Encoded = dict[tuple[str, Path, Size], Tensor]
"""Latents (1, C, h, w) by the condition's name, the file and the size of the generated image; of a model that inpaints
by the name with the mask's file, of one that animates what `encode_first_frames` returns."""

_INPAINTING = ("source", "mask")
"""What a model that inpaints needs: an image, and the region to fill, white in a file of the same size."""
_ANIMATING = (FIRST_FRAME,)
"""What a model that animates needs."""


def require_taken(family: ModelFamily, conditions: Mapping[str, Sequence[Path]]) -> None:
    """Raises RecipeError E1296 if a model does not take these conditions, or needs others."""
    taken = _INPAINTING if family.inpaints else _ANIMATING if family.animates else family.condition_names
    if family.min_conditions is not None:
        if len(conditions) < family.min_conditions:
            raise RecipeError(
                "this model edits images, and sample.conditions has none; write sample.conditions={NAME: IMAGE}, or "
                "--condition NAME=IMAGE",
                code="E1296",
            )
        return
    if unknown := [name for name in conditions if name not in taken]:
        what = f"takes {', '.join(taken)}" if taken else "takes no images"
        raise RecipeError(f"sample.conditions: this model {what}, got {', '.join(unknown)}", code="E1296")
    if missing := [name for name in taken if name not in conditions]:
        if family.animates:
            raise RecipeError(
                "this model continues an image, and the recipe has none; write sample.clip.first_frame=IMAGE, or "
                f"sample.conditions={{{FIRST_FRAME}: [IMAGE, …]}} with one for each prompt",
                code="E1296",
            )
        raise RecipeError(
            f"this model {'inpaints' if family.inpaints else 'edits images'}, and sample.conditions has no "
            f"{', '.join(missing)}; write "
            f"sample.conditions={{{missing[0]}: IMAGE}}, or --condition {missing[0]}=IMAGE",
            code="E1296",
        )


def with_images(
    requests: Sequence[Request], recipe: Recipe, encoder: Callable[[], ModelFamily], known: Encoded, *,
    inpaints: bool = False, animates: bool = False,
) -> list[Request]:  # fmt: skip
    """The requests with their condition images. encoder: returns a family with its autoencoder, called for images that
    are not `known`, which are added to it. inpaints, animates: whether the model does. Raises RecipeError E1091 for an
    image that cannot be read, E1296 for fewer images than prompts, and for a mask of another size than its image, E1480
    for images that are to continue a first frame."""
    conditions = _in_trained_order(recipe, animates=animates)
    files = [{name: _file_of(name, paths, request.line) for name, paths in conditions} for request in requests]
    if animates:
        refuse_images(requests)
    if inpaints or animates:
        encode = _inpainting if inpaints else _first_frames
        images = [encode(of_request, request.size, recipe.data, encoder, known)
                  for of_request, request in zip(files, requests, strict=True)]  # fmt: skip
        return [replace(request, images=of_request) for request, of_request in zip(requests, images, strict=True)]
    keys = [
        {name: (name, path, request.size) for name, path in of_request.items()}
        for request, of_request in zip(requests, files, strict=True)
    ]
    for key in dict.fromkeys(key for one in keys for key in one.values()):
        if key not in known:
            known[key] = _encode(*key, recipe, encoder())
    return [
        replace(request, images={name: known[key] for name, key in one.items()})
        for request, one in zip(requests, keys, strict=True)
    ]


def with_whole_images(requests: Sequence[Request], recipe: Recipe, seen: TextImages | None) -> list[Request]:
    """The requests with their condition images as the text encoder sees them; None: it sees none. Raises as
    `with_images`."""
    if seen is None:
        return list(requests)
    whole: dict[tuple[str, Path], Tensor] = {}
    complete = []
    for request in requests:
        keys = [(name, _file_of(name, files, request.line)) for name, files in _in_trained_order(recipe)]
        whole |= {key: _read_whole(*key, seen, recipe) for key in keys if key not in whole}
        complete.append(replace(request, whole_images=[whole[key] for key in keys]))
    return complete


def _read_whole(name: str, path: Path, seen: TextImages, recipe: Recipe) -> Tensor:
    data, setting = recipe.data, f"sample.conditions.{name}"
    size = seen.fit(probe_size(path, setting))
    placed = Placement(size, size, (0, 0))
    levels = decoding.decode_image(
        path, placed, resize=data.resize, background=data.background, max_pixels=data.max_pixels
    )
    return torch.from_numpy(levels)


def files_by_name(sample: SampleSettings, *, animates: bool) -> Mapping[str, tuple[Path, ...]]:
    """`sample.conditions`; of a model that animates `sample.clip.first_frame` is one. Raises RecipeError E1296 where
    both name first frames."""
    if not animates or sample.clip.first_frame is None:
        return sample.conditions
    if FIRST_FRAME in sample.conditions:
        raise RecipeError(
            f"sample.clip.first_frame and sample.conditions.{FIRST_FRAME} both name first frames; leave one out",
            code="E1296",
        )
    return {FIRST_FRAME: (sample.clip.first_frame,), **sample.conditions}


def _in_trained_order(recipe: Recipe, *, animates: bool = False) -> list[tuple[str, tuple[Path, ...]]]:
    """The files of conditions, those of the training data first and in their order, which some models distinguish."""
    order = {name: number for number, name in enumerate(recipe.data.condition_names)}
    files = files_by_name(recipe.sample, animates=animates)
    return sorted(files.items(), key=lambda item: order.get(item[0], len(order)))


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


def _encode(name: str, path: Path, size: Size, recipe: Recipe, model: ModelFamily) -> Tensor:
    device, setting = next(model.parts()["vae"].parameters()).device, f"sample.conditions.{name}"
    own = _find_own_size(name, path, size, recipe, model)
    pixels = pixels_of(path, replace(own or size, frames=1), recipe.data, setting)
    return model.encode_media(pixels.to(device)).chunk(2, dim=1)[0].cpu()


def _inpainting(
    files: Mapping[str, Path], size: Size, data: DataSettings, encoder: Callable[[], ModelFamily], known: Encoded
) -> dict[str, Tensor]:
    """`Request.images` of a model that inpaints. files: the image and its mask."""
    image, mask = (files[name] for name in _INPAINTING)
    keys = {name: (f"{name} {mask}", image, size) for name in (inpainting.MASK, inpainting.MASKED_IMAGE)}
    if not known.keys() >= set(keys.values()):
        _require_one_size(image, mask)
        model = encoder()
        device = next(model.parts()["vae"].parameters()).device
        region = region_of(mask, replace(size, frames=1), data, "sample.conditions.mask")
        pixels = pixels_of(image, replace(size, frames=1), data, "sample.conditions.source")
        encoded = encode_inpainting(model, pixels.to(device), region.to(device))
        known.update({keys[name]: tensor.cpu() for name, tensor in encoded.items()})
    return {name: known[key] for name, key in keys.items()}


def _first_frames(
    files: Mapping[str, Path], size: Size, data: DataSettings, encoder: Callable[[], ModelFamily], known: Encoded
) -> dict[str, Tensor]:
    """`Request.images` of a model that animates. files: the first frame."""
    path = files[FIRST_FRAME]
    if (FIRST_FRAME, path, size) not in known:
        model = encoder()
        pixels = pixels_of(path, replace(size, frames=1), data, "sample.clip.first_frame")
        encoded = model.encode_first_frames(pixels.to(next(model.parts()["vae"].parameters()).device), size.frames)
        known.update({(name, path, size): tensor.cpu() for name, tensor in encoded.items()})
    return {name: known[name, path, size] for name in (FIRST_FRAME, VISION) if (name, path, size) in known}


def _require_one_size(image: Path, mask: Path) -> None:
    """Raises RecipeError E1296 for a mask of another size than its image."""
    sizes = [
        probe_size(path, f"sample.conditions.{name}") for name, path in zip(_INPAINTING, (image, mask), strict=True)
    ]
    if sizes[0] != sizes[1]:
        raise RecipeError(
            f"sample.conditions.mask: {mask} is {sizes[1]}, its image {sizes[0]}; give a mask of the image's size",
            code="E1296",
        )


def _find_own_size(name: str, path: Path, size: Size, recipe: Recipe, model: ModelFamily) -> Size | None:
    """The size of an image that keeps its shape, None for one that gets the generated size. As in training; a condition
    that the recipe does not train keeps its shape, at about as many pixels as are generated, if the model allows it."""
    trained = [one.settings.conditions[name] for one in recipe.data.image_sets() if name in one.settings.conditions]
    is_own = trained[0].align == "own" if trained else not model.files.needs_aligned_conditions
    if not is_own:
        return None
    image = probe_size(path, f"sample.conditions.{name}")
    return condition_shapes.fit_one(image, size.pixels, recipe.data, is_exact=not trained)
