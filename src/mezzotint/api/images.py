"""`mezzotint.sample` and `mezzotint.sample_clips`: images and clips from a model, a run or a recipe."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from mezzotint.errors import RecipeError
from mezzotint.tasks.sample.sample import Weights, generate_pixels


def sample(
    source: str | Path,
    prompts: str | Sequence[str] = (),
    *settings: str,
    seed: int | Sequence[int] | None = None,
    negative: str | None = None,
    size: tuple[int, int] | None = None,
    adapters: Sequence[tuple[str | Path, float]] = (),
    weights: Weights | None = None,
) -> list[Image.Image]:
    """Generates the images of `mezzotint sample` as PIL images: for each prompt, one per seed.

    source: a model's folder or file, the name of a model that ships, a run folder, a checkpoint, or a recipe. prompts:
    those of the recipe by default. settings: `key=value`, such as `sample.steps=30`. size: (width, height).
    adapters: (file or folder, strength) of each adapter. weights: "raw" or "ema" of a run, by default the better one.

    `image.info["mezzotint"]` of each image is a dictionary that describes how it was generated. Warns of ignored parts.
    Raises RecipeError (E1464 for a model of clips: use `sample_clips`), WeightsError, OutOfMemory.
    """
    images = []
    for pixels, facts in generate_pixels(
        source,
        prompts,
        settings,
        seed=seed,
        negative=negative,
        size=size,
        adapters=adapters,
        weights=weights,
        say=_warn,
    ):
        if pixels.ndim != 3:
            raise RecipeError(f"{source} generates clips; use mezzotint.sample_clips", code="E1464")
        images.append(_image(pixels, facts))
    return images


def sample_clips(
    source: str | Path,
    prompts: str | Sequence[str] = (),
    *settings: str,
    seed: int | Sequence[int] | None = None,
    negative: str | None = None,
    size: tuple[int, int] | None = None,
    adapters: Sequence[tuple[str | Path, float]] = (),
    weights: Weights | None = None,
) -> list[list[Image.Image]]:
    """As `sample`, for models of clips: the frames of each clip."""
    clips = []
    for pixels, facts in generate_pixels(
        source,
        prompts,
        settings,
        seed=seed,
        negative=negative,
        size=size,
        adapters=adapters,
        weights=weights,
        say=_warn,
    ):
        frames = pixels if pixels.ndim == 4 else pixels[None]
        clips.append([_image(frame, facts) for frame in frames])
    return clips


def _image(pixels: NDArray[np.uint8], facts: dict[str, str]) -> Image.Image:
    image = Image.fromarray(pixels)
    image.info["mezzotint"] = dict(facts)
    return image


def _warn(sentence: str) -> None:
    if sentence.startswith("note: "):
        warnings.warn(sentence.removeprefix("note: "), UserWarning, stacklevel=6)
