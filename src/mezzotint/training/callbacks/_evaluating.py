"""Evaluation of the networks by callbacks without side effects: no gradient, eval mode, raw or averaged weights, fixed
noise of held-out samples."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from mezzotint import draws
from mezzotint.diffusion import pyramid
from mezzotint.diffusion.objective import StepDraws
from mezzotint.families.base import ModelFamily, batch_latents, batch_text, condition_latents
from mezzotint.stages import Batch, ConditionImages, TextEmbedding
from mezzotint.training.model import TrainableModel
from mezzotint.training.update import Update

Weights = Literal["raw", "ema"]

NumberSink = Callable[[int, Mapping[str, float]], None]
"""Receives measured numbers by tag: (completed steps, numbers)."""

WRITTEN: Mapping[Weights, str] = {"raw": "raw", "ema": "shadow"}
"""The names of the two kinds of weights in file names, image metadata and curves."""


@contextmanager
def set_eval_mode(parts: Mapping[str, nn.Module]) -> Iterator[None]:
    """Context manager: the networks are in evaluation mode and no gradient is recorded; on exit every module returns to
    its previous mode."""
    switched = [module for part in parts.values() for module in part.modules() if module.training]
    for module in switched:
        module.training = False
    try:
        with torch.no_grad():
            yield
    finally:
        for module in switched:
            module.training = True


def _weights(update: Update, which: Weights) -> Mapping[str, Tensor]:
    if which == "raw":
        return update.evaluation_weights()
    assert update.ema is not None
    return update.ema.weights


@contextmanager
def weights_in_use(update: Update, which: Weights) -> Iterator[None]:
    """Context manager: the networks compute with the trained weights (raw), of an optimizer that averages them its
    average, or with their EMA."""
    with update.swap_in(_weights(update, which)):
        yield


@contextmanager
def skip_when_out_of_memory(subject: str, warn: Callable[[str], None]) -> Iterator[None]:
    """Context manager: if the device or the host runs out of memory, `subject` is skipped with a warning, the memory is
    freed and the run continues."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not isinstance(error, (torch.OutOfMemoryError, MemoryError)) and "can't allocate memory" not in str(error):
            raise  # torch's own class covers device memory only
        warn(f"{subject}: skipped, not enough memory; training continues")
    else:
        return
    # outside the handler: a live exception would keep the frames and their tensors alive
    gc.collect()
    if torch.accelerator.is_available():
        torch.accelerator.empty_cache()


def encode_once(model: TrainableModel, batch: Batch, device: torch.device) -> Batch:
    """A held-out batch with latents of its images and condition images, on the CPU, and no pixels, which are freed: the
    VAE is not trained. A batch with latents is returned unchanged."""
    if batch.latents is not None:
        return batch
    images = condition_latents(model.family, batch, device)
    is_kept = torch.ones(batch.size, dtype=torch.bool)
    conditions = {name: ConditionImages(None, image.to("cpu"), is_kept) for name, image in images.items()}
    return replace(
        batch, pixels=None, moments=None, latents=latents_of(model, batch, device).to("cpu"), joined_images=None,
        conditions=conditions, region=None,
    )  # fmt: skip


def latents_of(model: TrainableModel, batch: Batch, device: torch.device) -> Tensor:
    """The latents of a held-out batch on the device, (B, C, …)."""
    return batch_latents(model.family, batch, device, model.objective.settings.posterior)


def text_of(family: ModelFamily, batch: Batch, device: torch.device) -> TextEmbedding:
    """The embeddings of a held-out batch's captions, cached or by the family's encoder."""
    return batch_text(family, batch) if batch.text is None else batch.text.to(device)


def fixed_draws(seed: int, keys: Sequence[str], timestep: int, device: torch.device) -> StepDraws:
    """The noise of held-out samples, addressed by (seed, the sample's key, timestep): the same at every measurement."""
    addresses = [
        np.array([draws.key(seed, purpose, key, timestep) for key in keys], dtype=np.uint64)
        for purpose in ("validation", "validation-offset", "validation-pyramid")
    ]
    levels = [draws.key(seed, "validation-pyramid-size", timestep, level) for level in range(pyramid.LEVELS)]
    on_device = [torch.from_numpy(a.view(np.int64)).to(device) for a in addresses]
    return StepDraws(
        noise=on_device[0],
        offset=on_device[1],
        timestep=addresses[0],
        pyramid=on_device[2],
        shrinking=pyramid.ratios([draws.uniform(level) for level in levels]),
        offset_share=draws.uniform(draws.key(seed, "validation-offset-strength", timestep)),
    )


def spread(count: int, num_timesteps: int, span: tuple[float, float] = (0.0, 1.0)) -> tuple[int, ...]:
    """The centres of `count` equal parts of [0, num_timesteps), or every timestep if there are no more than `count`.
    span: start and end of the part of the schedule to measure, as fractions."""
    low, high = (round(end * num_timesteps) for end in span)
    count = min(count, high - low)
    return tuple(low + (2 * index + 1) * (high - low) // (2 * count) for index in range(count))
