"""Which observers a recipe asks for, made ready: logs, live line, held-out loss, previews, saving."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from mezzotint.data.loader import held_out
from mezzotint.families.base import ModelFamily
from mezzotint.recipe.base import Every
from mezzotint.recipe.recipe import Recipe
from mezzotint.run_folder import RunFolder
from mezzotint.runtimes.base import Runtime
from mezzotint.sampling.sample import Request
from mezzotint.shapes import Size
from mezzotint.stages import StepReport, TextEmbedding
from mezzotint.tasks.assemble import Caches, Dataset, Model, encoders, family_class
from mezzotint.training.live import LiveLine
from mezzotint.training.metrics_log import MetricsLog, SampleLog
from mezzotint.training.observers import Exporter, Observer, Saver, Wish
from mezzotint.training.previews import Previews
from mezzotint.training.progress import Progress
from mezzotint.training.tensorboard_log import TensorBoardLog
from mezzotint.training.validation import Validation


def observers(
    recipe: Recipe,
    runtime: Runtime,
    folder: RunFolder,
    dataset: Dataset,
    caches: Caches,
    model: Model,
    live: LiveLine,
    *,
    start_step: int,
) -> list[Observer]:
    """Every observer, in the same order on every process: what looks in the first alone is there as a name in the
    others."""
    run, first = recipe.run, runtime.is_first
    metrics = MetricsLog(folder, run.log_every)
    found: list[Observer] = [metrics, live]
    board = None
    if run.tensorboard and first:
        board = TensorBoardLog(
            folder, run.log_every, num_timesteps=model.objective.schedule.num_timesteps, start_step=start_step
        )
        found.append(board)
    elif run.tensorboard:
        found.append(_absent(None, follows=True))
    if run.log_samples:
        found.append(SampleLog(folder, runtime.rank))
    timed: list[Observer] = []
    if run.validation.every is not None and len(dataset.held):
        sinks = [metrics.numbers, *([board.numbers] if board else [])]
        timed.append(
            _validation(recipe, runtime, dataset, caches, model, live, sinks)
            if first
            else _absent(run.validation.every)
        )
    if run.preview.every is not None:
        timed.append(
            _previews(recipe, runtime, folder, dataset, caches, model, live, board)
            if first
            else _absent(run.preview.every)
        )
    timed += [Exporter(run.export.every), Saver(run.save.every)]
    return [*found, *timed]


class _Absent(Observer):
    """Stands, in the other processes, for an observer that looks in the first alone: it is due when that one is."""

    at_start = True
    at_end = True

    def look(self, report: StepReport | None, progress: Progress) -> Wish:
        """Wishes for nothing; the trainer asks the first process alone."""
        return Wish.NOTHING


def _absent(every: Every | None, *, follows: bool = False) -> Observer:
    stand_in = _Absent()
    stand_in.every, stand_in.follows = every, follows
    return stand_in


def _validation(
    recipe: Recipe,
    runtime: Runtime,
    dataset: Dataset,
    caches: Caches,
    model: Model,
    live: LiveLine,
    sinks: Sequence[Callable[..., None]],
) -> Observer:
    batches = held_out(
        dataset.catalogue,
        dataset.held,
        recipe.data,
        seed=recipe.run.seed,
        latents=caches.latents,
        text=caches.text,
    )
    return Validation(
        batches,
        every=recipe.run.validation.every,
        timesteps=recipe.run.validation.timesteps,
        seed=recipe.run.seed,
        family=model.family,
        objective=model.objective,
        update=model.update,
        precision=model.precision,
        device=runtime.device,
        sinks=list(sinks),
        warn=lambda text: live.say(f"warning: {text}"),
    )


def _previews(
    recipe: Recipe,
    runtime: Runtime,
    folder: RunFolder,
    dataset: Dataset,
    caches: Caches,
    model: Model,
    live: LiveLine,
    board: TensorBoardLog | None,
) -> Observer:
    return Previews(
        folder,
        requests(recipe, dataset, caches, runtime.device),
        every=recipe.run.preview.every,
        weights=recipe.run.preview.weights,
        settings=recipe.sample,
        family=model.family,
        objective=model.objective,
        update=model.update,
        precision=model.precision,
        device=runtime.device,
        decode=decoder(recipe, model.family, runtime.device),
        warn=lambda text: live.say(f"warning: {text}"),
        sinks=[board.picture] if board else [],
    )


def prompts(recipe: Recipe, dataset: Dataset) -> tuple[str, ...]:
    """The prompts of previews: as written, or the captions of the first four samples."""
    if recipe.sample.prompts:
        return recipe.sample.prompts
    rows = np.sort(dataset.rows)[:4]
    return tuple(dataset.catalogue.captions(int(row))[0] for row in rows)


def preview_captions(recipe: Recipe, dataset: Dataset) -> tuple[str, ...]:
    """What previews need from a text cache."""
    if recipe.run.preview.every is None:
        return ()
    return (*prompts(recipe, dataset), recipe.sample.negative_prompt)


def requests(recipe: Recipe, dataset: Dataset, caches: Caches, device: torch.device) -> list[Request]:
    """One request a prompt, at fixed size and seed; with embeddings from the cache where the text encoder is not
    loaded."""
    width, height = recipe.sample.size or (recipe.data.resolution, recipe.data.resolution)
    made = []
    for index, prompt in enumerate(prompts(recipe, dataset)):
        request = Request(
            prompt=prompt,
            negative=recipe.sample.negative_prompt,
            size=Size(width, height),
            seed=recipe.sample.seed,
            index=index,
        )
        if caches.text is not None:
            text = caches.text.read([prompt, request.negative])
            request = replace(request, text=_row(text, 0, device), negative_text=_row(text, 1, device))
        made.append(request)
    return made


def _row(text: TextEmbedding, row: int, device: torch.device) -> TextEmbedding:
    def one(t: Tensor | None) -> Tensor | None:
        return None if t is None else t[row : row + 1].to(device)

    states = one(text.states)
    assert states is not None
    return TextEmbedding(states.float(), one(text.mask), one(text.pooled))


def decoder(recipe: Recipe, family: ModelFamily, device: torch.device) -> Callable[[Tensor], Tensor]:
    """Latents → pixels: by the family's own VAE, or, in a cached run, by one that is loaded at the first preview."""
    if "vae" in family.parts():
        return family.decode_media
    loaded: list[ModelFamily] = []

    def decode(latents: Tensor) -> Tensor:
        if not loaded:
            loaded.append(encoders(recipe, family_class(recipe), device)("media"))
        return loaded[0].decode_media(latents)

    return decode
