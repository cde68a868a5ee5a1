"""The loss on held-out samples at fixed timesteps and noise, so that its curve can be read and compared; and on others
in the same way.

Every measurement of a sample has the same noise, addressed by (seed, "validation", the sample's key, timestep): it
depends on nothing that training does, and two runs of one seed and one held-out set measure the same thing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mezzotint import draws
from mezzotint.diffusion import pyramid
from mezzotint.diffusion.objective import StepDraws
from mezzotint.errors import StorageError
from mezzotint.recipe.base import Every
from mezzotint.stages import Batch, Condition, StepReport, TextEmbedding
from mezzotint.training.callbacks._evaluating import (
    WRITTEN,
    Weights,
    evaluating,
    skipped_when_out_of_memory,
    weights_in_use,
)
from mezzotint.training.callbacks._overfit_warning import OverfitWarning
from mezzotint.training.callbacks.base import Action, Callback, Setup, StandsIn
from mezzotint.training.latents import latents_of
from mezzotint.training.model import TrainableModel
from mezzotint.training.progress import Progress

NumberSink = Callable[[int, Mapping[str, float]], None]
"""Where measured numbers go, by tag: (steps done, numbers)."""


class Validation(Callback):
    """Measures before the first step, every so often, and at the end. The first process looks alone.

    sets: samples by name, made once and kept in the host's memory (pixels, moments or latents; text, or captions to be
    encoded); "loss" are those held out of the data set, "train" are trained as well, others come from elsewhere. None
    at all means that nothing is ever due. timesteps: how many, evenly spread over the schedule.
    The loss is the mean squared error of the prediction, unweighted, whatever the objective weighs; noise offset and
    pyramid noise count as the objective's. sinks: get `val/NAME`, `val/NAME_at/T` and, with an average,
    `val/NAME_shadow`, `val/NAME_shadow_at/T`; and `val/all`, the mean over sets that are not trained, of several. tell:
    gets a line for each measurement; warn: when one of the trained weights' curves rises again.
    """

    at_start = True
    at_end = True
    place = 1

    def __init__(
        self,
        sets: Mapping[str, Sequence[Batch]],
        *,
        every: Every | None,
        timesteps: int,
        seed: int,
        model: TrainableModel,
        device: torch.device,
        sinks: Sequence[NumberSink],
        warn: Callable[[str], None],
        tell: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.every = every
        used = {name: [batch for batch in batches if batch.size] for name, batches in sets.items()}
        self._sets = {name: batches for name, batches in used.items() if batches}
        self._timesteps = spread(timesteps, model.objective.schedule.num_timesteps)
        self._seed = seed
        self._model = model
        self._device = device
        self._sinks = sinks
        self._warn = warn
        self._tell = tell
        self._overfit = OverfitWarning()

    def due(self, progress: Progress) -> bool:
        """As other callbacks; never without an interval or without samples."""
        return bool(self._sets) and self.every is not None and super().due(progress)

    def on_step(self, report: StepReport | None, progress: Progress) -> Action:
        """Measures and hands the numbers to the sinks. Raises StorageError when one of them does, after the others."""
        with skipped_when_out_of_memory(f"held-out loss of step {progress.step}", self._warn):
            losses = self.measure()
            self._say(progress.step, losses)
            _hand_out(progress.step, losses, self._sinks)
        return Action.NOTHING

    def state(self) -> dict[str, Any]:
        return self._overfit.state()

    def load(self, state: Mapping[str, Any]) -> None:
        self._overfit.load(state)

    def _say(self, step: int, losses: Mapping[str, float]) -> None:
        words = "  ".join(f"{tag} {loss:.4f}" for tag, loss in losses.items() if "_at/" not in tag)
        self._tell(f"measured at step {step:,}  {words}")
        for sentence in self._overfit.take(step, {tag: losses[tag] for tag in (f"val/{name}" for name in self._sets)}):
            self._warn(sentence)

    def measure(self) -> dict[str, float]:
        """The numbers by tag. Changes nothing: no gradient, no mode, no random state."""
        losses: dict[str, float] = {}
        kinds: tuple[Weights, ...] = ("raw",) if self._model.update.ema is None else ("raw", "ema")
        with evaluating(self._model.family.parts()):
            for kind in kinds:
                suffix = "" if kind == "raw" else f"_{WRITTEN[kind]}"
                with weights_in_use(self._model.update, kind):
                    for name, batches in self._sets.items():
                        by_timestep = self._means(batches)
                        tag = f"val/{name}{suffix}"
                        losses[tag] = sum(by_timestep) / len(by_timestep)
                        losses |= {f"{tag}_at/{t}": mean for t, mean in zip(self._timesteps, by_timestep, strict=True)}
                untrained = [losses[f"val/{name}{suffix}"] for name in self._sets if name != "train"]
                if len(untrained) > 1:
                    losses[f"val/all{suffix}"] = sum(untrained) / len(untrained)
        return losses

    def _means(self, batches: list[Batch]) -> list[float]:
        """The mean over all samples of a set, for each timestep."""
        sums = torch.zeros(len(self._timesteps), dtype=torch.float64, device=self._device)
        for number, batch in enumerate(batches):
            if batch.latents is None:  # once: the VAE is never trained; what it was made of is let go
                latents = latents_of(self._model.family, batch, self._device).to("cpu")
                batches[number] = batch = replace(batch, pixels=None, moments=None, latents=latents, stills=None)
            x_0 = latents_of(self._model.family, batch, self._device)
            with self._model.precision.autocast(self._device):
                condition = self._model.family.condition(self._text(batch), batch)
                for place, timestep in enumerate(self._timesteps):
                    sums[place] += self._errors(x_0, condition, batch, timestep).double().sum()
        count = sum(batch.size for batch in batches)
        return [float(total) / count for total in sums.tolist()]

    def _errors(self, x_0: Tensor, condition: Condition, batch: Batch, timestep: int) -> Tensor:
        """Mean squared error of each sample, (B,) float32."""
        drawn = self._draws(batch.keys, timestep)
        at = torch.full((batch.size,), timestep, dtype=torch.int64, device=self._device)
        noised = self._model.objective.noise_at(x_0, drawn, at)
        predicted = self._model.family.predict(noised, condition)[
            :, : x_0.shape[1]
        ]  # a learnt variance is not measured
        with torch.autocast(self._device.type, enabled=False):
            return (predicted.float() - self._model.objective.target(noised)).square().flatten(1).mean(1)

    def _draws(self, keys: Sequence[str], timestep: int) -> StepDraws:
        addresses = [
            np.array([draws.key(self._seed, purpose, key, timestep) for key in keys], dtype=np.uint64)
            for purpose in ("validation", "validation-offset", "validation-pyramid")
        ]
        levels = [draws.key(self._seed, "validation-pyramid-size", timestep, level) for level in range(pyramid.LEVELS)]
        on_device = [torch.from_numpy(a.view(np.int64)).to(self._device) for a in addresses]
        return StepDraws(
            noise=on_device[0],
            offset=on_device[1],
            timestep=addresses[0],
            pyramid=on_device[2],
            shrinking=pyramid.ratios([draws.uniform(level) for level in levels]),
        )

    def _text(self, batch: Batch) -> TextEmbedding:
        if batch.text is None:
            return self._model.family.encode_text(batch.captions)
        text = batch.text
        return TextEmbedding(
            text.states.to(self._device),
            None if text.mask is None else text.mask.to(self._device),
            None if text.pooled is None else text.pooled.to(self._device),
        )


def spread(count: int, num_timesteps: int) -> tuple[int, ...]:
    """The middles of `count` equal parts of [0, num_timesteps), or every timestep when there are no more."""
    count = min(count, num_timesteps)
    return tuple((2 * place + 1) * num_timesteps // (2 * count) for place in range(count))


def _hand_out(step: int, values: Mapping[str, float], sinks: Sequence[NumberSink]) -> None:
    failed: StorageError | None = None
    for sink in sinks:
        try:
            sink(step, values)
        except StorageError as error:
            failed = error
    if failed is not None:
        raise failed


def opened(setup: Setup) -> Iterator[Callback]:
    """With `run.validation.every`, where something is held out."""
    every = setup.run.validation.every
    if not setup.measures:
        return
    if not setup.computes:
        yield StandsIn(every, place=Validation.place)
        return
    validation = Validation(
        setup.held_out(),
        every=every,
        timesteps=setup.run.validation.timesteps,
        seed=setup.run.seed,
        model=setup.model,
        device=setup.runtime.device,
        sinks=[setup.numbers],
        warn=setup.warn,
        tell=setup.say,
    )
    validation.on_all_ranks = bool(setup.runtime.shares)
    yield validation
