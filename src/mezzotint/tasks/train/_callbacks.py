"""What a run's callbacks are made of; which there are, `training/callbacks/` says."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from mezzotint.families.base import ModelFamily
from mezzotint.recipe.recipe import Recipe
from mezzotint.run_folder import RunFolder
from mezzotint.runtimes.base import Runtime
from mezzotint.tasks import held_out
from mezzotint.tasks.assemble import Caches, Dataset, effective, encoders
from mezzotint.tasks.prompts.previews import PreviewPrompts
from mezzotint.training.callbacks.base import Callback, Setup, open_callbacks
from mezzotint.training.callbacks.progress_line import LiveLine
from mezzotint.training.model import TrainableModel


def callbacks(
    recipe: Recipe,
    runtime: Runtime,
    folder: RunFolder,
    dataset: Dataset,
    caches: Caches,
    model: TrainableModel,
    live: LiveLine,
    *,
    start_step: int,
) -> list[Callback]:
    """Every callback of a run, in the same order on every process."""

    def warn(text: str) -> None:
        live.say(f"warning: {text}")

    measures = held_out.is_measured(recipe, dataset)
    if measures and runtime.is_first:
        held_out.warn_of_trained(dataset, warn)
    return open_callbacks(
        Setup(
            run=recipe.run,
            recipe=effective(recipe),
            runtime=runtime,
            folder=folder,
            model=model,
            line=live,
            say=live.say,
            warn=warn,
            start_step=start_step,
            measures=measures,
            held_out=lambda: held_out.batches(recipe, dataset, caches),
            previews=lambda: PreviewPrompts(recipe, runtime, dataset, caches, model, warn),
            decode=decoder(recipe, model, runtime.device),
        )
    )


def decoder(recipe: Recipe, model: TrainableModel, device: torch.device) -> Callable[[Tensor], Tensor]:
    """Latents → pixels: by the family's own VAE, or, in a cached run, by one that is loaded at the first preview."""
    if "vae" in model.family.parts():
        return model.family.decode_media
    loaded: list[ModelFamily] = []

    def decode(latents: Tensor) -> Tensor:
        if not loaded:
            loaded.append(encoders(recipe, model.files, device)("media"))
        return loaded[0].decode_media(latents)

    return decode
