"""The loss on held-out samples at fixed timesteps and noise, so that its curve can be read and compared; and on others
in the same way.

Every measurement of a sample has the same noise, addressed by (seed, "validation", the sample's key, timestep): it
depends on nothing that training does, and two runs of one seed and one held-out set measure the same thing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mezzotint import draws
from mezzotint.diffusion import learned_variance, pyramid
from mezzotint.diffusion.flow import FlowSchedule
from mezzotint.diffusion.objective import StepDraws
from mezzotint.families.base import latents_of
from mezzotint.settings.base import Every
from mezzotint.stages import Batch, Condition, StepReport, TextEmbedding
from mezzotint.training.callbacks._evaluating import (
    WRITTEN,
    Weights,
    evaluating,
    skipped_when_out_of_memory,
    weights_in_use,
)
from mezzotint.training.callbacks._scalars import QUARTILES, BinMeans
from mezzotint.training.callbacks.base import Action, Callback, Setup
from mezzotint.training.model import TrainableModel
from mezzotint.training.progress import Progress

ENOUGH = 11
LATELY = 5

NumberSink = Callable[[int, Mapping[str, float]], None]
"""Where measured numbers go, by tag: (steps done, numbers)."""


@dataclass(eq=False)
class Validation(Callback):
    """Measures before the first step, every so often, and at the end. The first process looks alone.

    sets: samples by name, made once and kept in the host's memory (pixels, moments or latents; text, or captions to be
    encoded); "loss" are those held out of the data set, "train" are trained as well, others come from elsewhere.
    timesteps: how many, evenly spread over the schedule.
    The loss is the mean squared error of the prediction, unweighted but for masks, whatever the objective weighs;
    noise offset and pyramid noise count as the objective's. sink: gets `val/NAME`, `val/NAME_at/T` and, with an
    average, `val/NAME_shadow`, `val/NAME_shadow_at/T`; `…_at/quartile_Q`, means over the timesteps of a quarter of the
    schedule; and `val/all`, the mean over sets that are not trained, of several. say: gets a line for each measurement;
    warn: when one of the trained weights' curves rises again. keeps_best: asks for a checkpoint where the held-out loss
    is lower than ever since the first step (`run.save.best`).
    """

    sets: Mapping[str, Sequence[Batch]]
    timesteps: int
    seed: int
    model: TrainableModel
    device: torch.device
    every: Every | None = None
    sink: NumberSink = lambda step, values: None
    warn: Callable[[str], None] = lambda text: None
    say: Callable[[str], None] = lambda text: None
    on_all_ranks: bool = False
    keeps_best: bool = False

    at_start = True
    at_end = True
    place = 1

    def __post_init__(self) -> None:
        used = {name: [batch for batch in batches if batch.size] for name, batches in self.sets.items()}
        self._sets = {name: batches for name, batches in used.items() if batches}
        schedule = self.model.objective.schedule
        span = schedule.span if isinstance(schedule, FlowSchedule) else (0.0, 1.0)
        self._timesteps = spread(self.timesteps, schedule.num_timesteps, span)
        self._overfit = OverfitWarning()
        self.measured: dict[int, float] = {}
        """The held-out loss that a checkpoint is judged by, after so many steps: of several sets their mean, of the
        average where there is one."""

    def due(self, progress: Progress) -> bool:
        """As other callbacks; never without an interval."""
        return self.every is not None and super().due(progress)

    def on_step(self, report: StepReport | None, progress: Progress) -> Action:
        """Measures and hands the numbers on."""
        action = Action.NOTHING
        if not self._sets:
            return action
        with skipped_when_out_of_memory(f"held-out loss of step {progress.step}", self.warn):
            losses = self.measure()
            words = "  ".join(f"{tag} {loss:.4f}" for tag, loss in losses.items() if "_at/" not in tag)
            self.say(f"measured at step {progress.step:,}  {words}")
            for sentence in self._overfit.take(
                progress.step, {f"val/{name}": losses[f"val/{name}"] for name in self._sets}
            ):
                self.warn(sentence)
            if progress.step != progress.first_step and self._is_lowest(progress.step, losses) and self.keeps_best:
                action = Action.SAVE
            self.sink(progress.step, losses | self._by_quartile(losses))
        return action

    def _is_lowest(self, step: int, losses: Mapping[str, float]) -> bool:
        """Notes the loss that a checkpoint of the step is judged by. Whether it is lower than all before."""
        untrained = [name for name in self._sets if name != "train"]
        ending = "" if self.model.update.ema is None else f"_{WRITTEN['ema']}"
        loss = losses.get(f"val/{'all' if len(untrained) > 1 else (untrained or ['loss'])[0]}{ending}", math.nan)
        is_lowest = math.isfinite(loss) and all(loss < earlier for earlier in self.measured.values())
        if math.isfinite(loss):
            self.measured[step] = loss
        return is_lowest

    def _by_quartile(self, losses: Mapping[str, float]) -> dict[str, float]:
        means: dict[str, float] = {}
        for tag in losses:
            at = {t: losses[f"{tag}_at/{t}"] for t in self._timesteps if f"{tag}_at/{t}" in losses}
            bins = BinMeans(QUARTILES, self.model.objective.schedule.num_timesteps)
            bins.take(at.keys(), at.values())
            means |= {f"{tag}_at/quartile_{place}": mean for place, mean in bins.drain().items()}
        return means

    def state(self) -> dict[str, Any]:
        return self._overfit.state() | ({"measured": [*self.measured.items()]} if self.measured else {})

    def load(self, state: Mapping[str, Any]) -> None:
        self._overfit.load(state)
        self.measured = {int(step): float(loss) for step, loss in state.get("measured", ())}

    def measure(self) -> dict[str, float]:
        """The numbers by tag. Changes nothing: no gradient, no mode, no random state."""
        losses: dict[str, float] = {}
        kinds: tuple[Weights, ...] = ("raw",) if self.model.update.ema is None else ("raw", "ema")
        with evaluating(self.model.family.parts()):
            for kind in kinds:
                suffix = "" if kind == "raw" else f"_{WRITTEN[kind]}"
                with weights_in_use(self.model.update, kind):
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
        sums = torch.zeros(len(self._timesteps), dtype=torch.float64, device=self.device)
        for number, batch in enumerate(batches):
            if batch.latents is None:  # once: the VAE is never trained; what it was made of is let go
                latents = self._latents(batch).to("cpu")
                batches[number] = batch = replace(batch, pixels=None, moments=None, latents=latents, stills=None)
            x_0 = self._latents(batch)
            with self.model.precision.autocast(self.device):
                condition = self.model.family.condition(self._text(batch), batch)
                for place, timestep in enumerate(self._timesteps):
                    sums[place] += self._errors(x_0, condition, batch, timestep).double().sum()
        count = sum(batch.size for batch in batches)
        return [float(total) / count for total in sums.tolist()]

    def _latents(self, batch: Batch) -> Tensor:
        return latents_of(self.model.family, batch, self.device, self.model.objective.settings.posterior)

    def _errors(self, x_0: Tensor, condition: Condition, batch: Batch, timestep: int) -> Tensor:
        """Mean squared error of each sample, (B,) float32."""
        drawn = self._draws(batch.keys, timestep)
        at = torch.full((batch.size,), timestep, dtype=torch.int64, device=self.device)
        noised = self.model.objective.noise_at(x_0, drawn, at)
        # a learnt variance is not measured
        predicted = self.model.family.predict(noised, condition)[:, : x_0.shape[1]]
        with torch.autocast(self.device.type, enabled=False):
            squares = (predicted.float() - self.model.objective.target(noised)).square()
            return learned_variance.mean(squares, self.model.loss_mask.weights(batch.mask, x_0))

    def _draws(self, keys: Sequence[str], timestep: int) -> StepDraws:
        addresses = [
            np.array([draws.key(self.seed, purpose, key, timestep) for key in keys], dtype=np.uint64)
            for purpose in ("validation", "validation-offset", "validation-pyramid")
        ]
        levels = [draws.key(self.seed, "validation-pyramid-size", timestep, level) for level in range(pyramid.LEVELS)]
        on_device = [torch.from_numpy(a.view(np.int64)).to(self.device) for a in addresses]
        return StepDraws(
            noise=on_device[0],
            offset=on_device[1],
            timestep=addresses[0],
            pyramid=on_device[2],
            shrinking=pyramid.ratios([draws.uniform(level) for level in levels]),
        )

    def _text(self, batch: Batch) -> TextEmbedding:
        if batch.text is None:
            return self.model.family.encode_text(batch.captions)
        return batch.text.to(self.device)


def spread(count: int, num_timesteps: int, span: tuple[float, float] = (0.0, 1.0)) -> tuple[int, ...]:
    """The middles of `count` equal parts of [0, num_timesteps), or every timestep when there are no more. span: the
    share of them that is measured, from its beginning to its end."""
    low, high = (round(end * num_timesteps) for end in span)
    count = min(count, high - low)
    return tuple(low + (2 * place + 1) * (high - low) // (2 * count) for place in range(count))


class OverfitWarning:
    """Follows measured losses by name, and says when one has turned: when more than `ENOUGH` measurements are there,
    the last `LATELY` of them rise on average, and the lowest lies before those. It is said once, and again only after a
    new lowest measurement. What it remembers goes into the checkpoint, so that a run that goes on says the same."""

    def __init__(self) -> None:
        self._seen: dict[str, list[tuple[int, float]]] = {}
        self._said: dict[str, float] = {}

    def take(self, step: int, losses: Mapping[str, float]) -> list[str]:
        """Adds a measurement of each curve, in the order of steps. Returns a sentence for each that has just turned."""
        sentences = []
        for name, loss in losses.items():
            seen = self._seen.setdefault(name, [])
            seen.append((step, loss))
            best, lowest = min(seen, key=lambda one: one[1])
            if self._said.get(name) != lowest and _has_turned(seen, best):
                self._said[name] = lowest
                sentences.append(
                    f"{name} rises: {seen[-LATELY][1]:.4f} at step {seen[-LATELY][0]:,}, {loss:.4f} now; it was lowest "
                    f"at step {best:,}, with {lowest:.4f}: from there on the model may be learning its pictures by "
                    "heart, and an export of about then may draw better"
                )
        return sentences

    def state(self) -> dict[str, Any]:
        """As JSON; empty before the first measurement."""
        return {"seen": self._seen, "told": self._said} if self._seen else {}

    def load(self, state: Mapping[str, Any]) -> None:
        """Takes back what `state` gave."""
        seen = state.get("seen", {})
        self._seen = {name: [(int(step), float(loss)) for step, loss in curve] for name, curve in seen.items()}
        self._said = {name: float(loss) for name, loss in state.get("told", {}).items()}


def _has_turned(seen: list[tuple[int, float]], best: int) -> bool:
    """best: the step of the lowest. The mean of successive differences is that of the ends."""
    if len(seen) <= ENOUGH:
        return False
    return seen[-1][1] > seen[-LATELY][1] and best < seen[-LATELY][0]


def opened(setup: Setup) -> Iterator[Callback]:
    """With `run.validation.every`, where something is held out."""
    if setup.measures:
        yield Validation(
            setup.held_out() if setup.computes else {},
            every=setup.run.validation.every,
            timesteps=setup.run.validation.timesteps,
            seed=setup.run.seed,
            model=setup.model,
            device=setup.runtime.device,
            sink=setup.numbers,
            warn=setup.warn,
            say=setup.say,
            on_all_ranks=bool(setup.runtime.shares),
            keeps_best=setup.run.save.best,
        )
