"""Which observers a recipe asks for, made ready: logs, live line, held-out loss, previews, saving."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from mezzotint.families.base import ModelFamily
from mezzotint.recipe.base import Every
from mezzotint.recipe.recipe import Recipe
from mezzotint.run_folder import RunFolder
from mezzotint.runtimes.base import Runtime
from mezzotint.stages import StepReport
from mezzotint.tasks import held_out
from mezzotint.tasks.assemble import Caches, Dataset, Model, effective, encoders
from mezzotint.tasks.prompts.previews import PreviewPrompts
from mezzotint.training.callbacks.base import Exporter, Observer, Saver, Wish
from mezzotint.training.callbacks.metrics_log import MetricsLog, SampleLog
from mezzotint.training.callbacks.previews import Previews, PreviewsElsewhere
from mezzotint.training.callbacks.profiling import Profiler
from mezzotint.training.callbacks.progress_line import LiveLine
from mezzotint.training.callbacks.tensorboard_log import TensorBoardLog
from mezzotint.training.callbacks.validation import Validation
from mezzotint.training.callbacks.wandb_log import WandbLog
from mezzotint.training.progress import Progress


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
    computes = first or bool(runtime.shares)  # who shares the weights computes along
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
    elsewhere = _wandb(recipe, folder, model) if first and run.wandb.mode != "off" else None
    if run.wandb.mode != "off":
        found.append(elsewhere or _absent(None, follows=True))
    boards = [log for log in (board, elsewhere) if log is not None]
    if run.log_samples:
        found.append(SampleLog(folder, runtime.rank))
    if run.profile.steps:
        place = run.profile.folder or folder.logs / "profile"
        found.append(Profiler(place, run.profile.steps, rank=runtime.rank, device=runtime.device, say=live.say))
    timed: list[Observer] = []
    warn = _warner(live)
    if held_out.is_measured(recipe, dataset):
        sinks = [metrics.numbers, *(log.numbers for log in boards)] if first else []
        timed.append(
            _validation(recipe, runtime, dataset, caches, model, warn, live.say, sinks)
            if computes
            else _absent(run.validation.every)
        )
    if run.preview.every is not None:
        prompts = PreviewPrompts(recipe, runtime, dataset, caches, model, warn)
        timed.append(
            _previews(recipe, runtime, folder, prompts, model, warn, boards) if computes else PreviewsElsewhere(prompts)
        )
    timed += [Exporter(run.export.every, run.export.from_epoch), Saver(run.save.every)]
    return [*found, *timed]


def _wandb(recipe: Recipe, folder: RunFolder, model: Model) -> WandbLog:
    return WandbLog(
        folder,
        recipe.run.wandb,
        recipe.run.log_every,
        name=recipe.run.name,
        told=effective(recipe),
        num_timesteps=model.objective.schedule.num_timesteps,
    )


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
    warn: Callable[[str], None],
    tell: Callable[[str], None],
    sinks: Sequence[Callable[..., None]],
) -> Observer:
    if runtime.is_first:
        held_out.warn_of_trained(dataset, warn)
    watched = Validation(
        held_out.batches(recipe, dataset, caches),
        every=recipe.run.validation.every,
        timesteps=recipe.run.validation.timesteps,
        seed=recipe.run.seed,
        family=model.family,
        objective=model.objective,
        update=model.update,
        precision=model.precision,
        device=runtime.device,
        sinks=list(sinks),
        warn=warn,
        tell=tell,
    )
    watched.on_all_ranks = bool(runtime.shares)
    return watched


def _previews(
    recipe: Recipe,
    runtime: Runtime,
    folder: RunFolder,
    prompts: PreviewPrompts,
    model: Model,
    warn: Callable[[str], None],
    boards: Sequence[TensorBoardLog | WandbLog],
) -> Observer:
    return Previews(
        folder,
        prompts,
        weights=recipe.run.preview.weights,
        family=model.family,
        objective=model.objective,
        update=model.update,
        precision=model.precision,
        device=runtime.device,
        decode=decoder(recipe, model, runtime.device),
        warn=warn,
        sinks=[board.picture for board in boards],
        only_draws=not runtime.is_first,
    )


def _warner(live: LiveLine) -> Callable[[str], None]:
    return lambda text: live.say(f"warning: {text}")


def decoder(recipe: Recipe, model: Model, device: torch.device) -> Callable[[Tensor], Tensor]:
    """Latents → pixels: by the family's own VAE, or, in a cached run, by one that is loaded at the first preview."""
    if "vae" in model.family.parts():
        return model.family.decode_media
    loaded: list[ModelFamily] = []

    def decode(latents: Tensor) -> Tensor:
        if not loaded:
            loaded.append(encoders(recipe, model.files, device)("media"))
        return loaded[0].decode_media(latents)

    return decode
