"""The stages of the command `sample`: a start image, the model, and a second model for the last steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from mezzotint import draws
from mezzotint.diffusion.noise import normal
from mezzotint.errors import RecipeError
from mezzotint.families.base import ModelFamily, posterior_sample
from mezzotint.sampling.requests import GeneratedImage, Request, Sampling, Span, batch_requests, embed_prompts
from mezzotint.sampling.sample import as_bytes, describe_non_finite, sample_latents
from mezzotint.settings.base import with_values
from mezzotint.settings.recipe import Recipe
from mezzotint.settings.sections.sample import SampleSettings
from mezzotint.shapes import Size
from mezzotint.tasks.prompts import condition_images, first_frames
from mezzotint.tasks.prompts.first_frames import pixels_of, probe_size
from mezzotint.tasks.sample._model import SampledModel, find_refiner, open_model

_MULTIPLE = 64  # pixels; a start image is resized to sides of such multiples


def generate_images(
    model: SampledModel, requests: Sequence[Request], recipe: Recipe, say: Callable[[str], None]
) -> Iterator[GeneratedImage]:
    """Generates the images, in the order of the requests. say: prints what is loaded.

    Raises RecipeError E1070, E1090 for a second model that does not match the first, E1091 for a start image that
    cannot be used.
    """
    settings, refiner = recipe.sample, recipe.sample.refiner
    if settings.image is not None:
        requests = _with_start_image(model, requests, recipe)
    if settings.clip.first_frame is not None and not model.family.animates:
        requests = first_frames.with_first_frames(model.family, lambda: model.family, requests, recipe)
    inpaints, animates = model.family.inpaints, model.family.animates
    condition_images.require_taken(model.family, condition_images.files_by_name(settings, animates=animates))
    requests = condition_images.with_images(
        requests, recipe, lambda: model.family, {}, inpaints=inpaints, animates=animates
    )
    requests = condition_images.with_whole_images(requests, recipe, model.family.text_images)
    leave = refiner.strength if refiner.path is not None and refiner.finish else 0.0
    span = Span(strength=settings.strength if settings.image is not None else 1.0, refiner_share=leave)
    if refiner.path is None:
        yield from _generate_stage(model, requests, settings, span, say)
        return
    starts: list[Tensor] = []
    for group in batch_requests(requests, settings.batch_size):
        batch = _latents(model, group, settings, span)
        starts += [latents[None].cpu() for latents in batch]
    for part in model.family.parts().values():
        part.to("cpu")
    say(f"the second model: {refiner.path}")
    other = open_model(find_refiner(recipe), None)
    _require_same_latents(model.family, other.family, refiner.path)
    model.facts |= {"refiner.model": other.facts["model"]}
    second_requests = [
        replace(r, start=x, guidance=refiner.guidance, text=None, negative_text=None, images={}, whole_images=())
        for r, x in zip(requests, starts, strict=True)
    ]
    span = Span(strength=refiner.strength, is_noised=refiner.finish, stage=1)
    plain = with_values(settings, {"unconditional": "caption"})
    first = {id(new): old for new, old in zip(second_requests, requests, strict=True)}
    for image in _generate_stage(other, second_requests, plain, span, say):
        yield GeneratedImage(first[id(image.request)], image.pixels)


def size_of(path: Path) -> Size:
    """The default size of a start image: its own, sides rounded down to multiples of 64. Raises RecipeError E1091."""
    image_size = probe_size(path, "sample.image")
    return Size(*(max(_MULTIPLE, side // _MULTIPLE * _MULTIPLE) for side in (image_size.width, image_size.height)))


def _generate_stage(
    model: SampledModel, requests: Sequence[Request], settings: SampleSettings, span: Span, say: Callable[[str], None]
) -> Iterator[GeneratedImage]:
    for group in batch_requests(requests, settings.batch_size):
        latents = _latents(model, group, settings, span)
        # frozen parts compute in the type they are kept in: the VAE outside of autocast
        for request, pixels in zip(group, model.family.decode_media(latents), strict=True):
            if problem := describe_non_finite(pixels):
                say(f"warning: {problem}")
            yield GeneratedImage(request, as_bytes(pixels, request.size.frames))


def _latents(model: SampledModel, requests: Sequence[Request], settings: SampleSettings, span: Span) -> Tensor:
    embedded = embed_prompts(model.family, requests)
    sampling = Sampling(
        model.objective.schedule, model.objective.parameterization, model.device, settings, span, model.on_step
    )
    with model.precision.autocast(model.device):
        return sample_latents(model.family, embedded, sampling)


def _with_start_image(model: SampledModel, requests: Sequence[Request], recipe: Recipe) -> list[Request]:
    """The requests with latents of the start image, each a separate draw from the autoencoder's distribution."""
    path = recipe.sample.image
    assert path is not None
    moments: dict[Size, Tensor] = {}
    requested = []
    for request in requests:
        if request.size.frames != 1:
            raise RecipeError("sample.image: clips cannot start from an image; leave it out", code="E1091")
        if request.size not in moments:
            pixels = pixels_of(path, request.size, recipe.data, "sample.image")
            moments[request.size] = model.family.encode_media(pixels.to(model.device)).cpu()
        latent_moments = moments[request.size]
        address = np.array([draws.key(request.seed, "sample-image", request.index)], dtype=np.uint64)
        eps = normal(
            torch.from_numpy(address.view(np.int64)), (latent_moments.shape[1] // 2, *latent_moments.shape[2:])
        )
        requested.append(replace(request, start=posterior_sample(latent_moments, eps)))
    return requested


def _require_same_latents(family: ModelFamily, other: ModelFamily, path: Path) -> None:
    if family.grid != other.grid:
        raise RecipeError(
            f"sample.refiner.path: {path} has latents of {other.grid.channels} channels, one for {other.grid.pixels} "
            f"pixels, the first model {family.grid.channels} and {family.grid.pixels}; use a refiner of its kind",
            code="E1090",
        )
