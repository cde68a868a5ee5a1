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
    *words: str,
    seed: int | Sequence[int] | None = None,
    negative: str | None = None,
    size: tuple[int, int] | None = None,
    adapters: Sequence[tuple[str | Path, float]] = (),
    weights: Weights | None = None,
) -> list[Image.Image]:
    """Generates images: those that `mezzotint sample` writes, as PIL images, prompt by prompt and for each prompt seed
    by seed.

    source: a model's folder or file, the name of a model that ships, a run folder, a checkpoint, or a recipe. prompts:
    without any, those of the recipe. words: settings, `key=value`, such as `sample.steps=30`. size: (width, height).
    adapters: (file or folder, strength) of each adapter. weights: "raw" or "ema" of a run, by default the better one.

    `image.info["mezzotint"]` of each image is a dictionary that says how it was generated. Warns of what is left out.
    Raises RecipeError (E1464 for a model of clips, see `sample_clips`), WeightsError, OutOfMemory.
    """
    images = []
    for pixels, facts in generate_pixels(
        source, prompts, words, seed=seed, negative=negative, size=size, adapters=adapters, weights=weights, say=_warn
    ):
        if pixels.ndim != 3:
            raise RecipeError(f"{source} generates clips; use mezzotint.sample_clips", code="E1464")
        images.append(_image(pixels, facts))
    return images


def sample_clips(
    source: str | Path,
    prompts: str | Sequence[str] = (),
    *words: str,
    seed: int | Sequence[int] | None = None,
    negative: str | None = None,
    size: tuple[int, int] | None = None,
    adapters: Sequence[tuple[str | Path, float]] = (),
    weights: Weights | None = None,
) -> list[list[Image.Image]]:
    """The same for models of clips: the frames of each."""
    clips = []
    for pixels, facts in generate_pixels(
        source, prompts, words, seed=seed, negative=negative, size=size, adapters=adapters, weights=weights, say=_warn
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
