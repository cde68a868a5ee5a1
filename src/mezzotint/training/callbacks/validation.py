"""The loss on held-out samples, and on other sets, at fixed timesteps and noise, which makes its curve comparable.

Every measurement of a sample has the same noise, addressed by (seed, "validation", the sample's key, timestep): it does
not depend on training, and two runs with the same seed and held-out set measure the same thing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from mezzotint.diffusion import learned_variance
from mezzotint.diffusion.flow import FlowSchedule
from mezzotint.families.base import condition_latents
from mezzotint.settings.base import Every
from mezzotint.stages import Batch, Condition, StepReport
from mezzotint.training.callbacks._evaluating import (
    WRITTEN,
    NumberSink,
    Weights,
    encode_once,
    fixed_draws,
    latents_of,
    set_eval_mode,
    skip_when_out_of_memory,
    spread,
    text_of,
    weights_in_use,
)
from mezzotint.training.callbacks._scalars import QUARTILES, BinMeans
from mezzotint.training.callbacks.base import Action, Callback, Setup
from mezzotint.training.model import TrainableModel
from mezzotint.training.progress import Progress

MIN_MEASUREMENTS = 11
RECENT = 5


@dataclass(eq=False)
class Validation(Callback):
    """Measures before the first step, at intervals, and at the end, in the first process only.

    sets: samples by name, prepared once and kept in host memory (pixels, moments or latents; text embeddings or
    captions); "loss" are those held out of the data set, "train" a share of the training samples, others are separate
    sets. timesteps: their number, evenly spread over the schedule.
    The loss is the mean squared error of the prediction, unweighted except for masks, for any weighting of the
    objective; noise offset and pyramid noise are those of the objective. sink: gets `val/NAME`, `val/NAME_at/T` and,
    with an average, `val/NAME_shadow`, `val/NAME_shadow_at/T`; `…_at/quartile_Q`, means over the timesteps of a quarter
    of the schedule; and with several sets that are not trained `val/all`, their mean. say: gets a line for each
    measurement. warn: called when a curve of the trained weights rises again. keeps_best: requests a checkpoint when
    the held-out loss is the lowest since the first step (`run.save.best`).
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
    order = 1

    def __post_init__(self) -> None:
        used = {name: [batch for batch in batches if batch.size] for name, batches in self.sets.items()}
        self._sets = {name: batches for name, batches in used.items() if batches}
        schedule = self.model.objective.schedule
        span = schedule.span if isinstance(schedule, FlowSchedule) else (0.0, 1.0)
        self._timesteps = spread(self.timesteps, schedule.num_timesteps, span)
        self._overfit = OverfitWarning()
        self.measured: dict[int, float] = {}
        """By step, the held-out loss by which checkpoints are compared: the mean of several sets; of the averaged
        weights if there are any."""

    def due(self, progress: Progress) -> bool:
        """As other callbacks; never without an interval."""
        return self.every is not None and super().due(progress)

    def on_step(self, report: StepReport | None, progress: Progress) -> Action:
        """Measures and passes the numbers to `sink`."""
        action = Action.NOTHING
        if not self._sets:
            return action
        with skip_when_out_of_memory(f"held-out loss of step {progress.step}", self.warn):
            losses = self.measure()
            numbers = "  ".join(f"{tag} {loss:.4f}" for tag, loss in losses.items() if "_at/" not in tag)
            self.say(f"measured at step {progress.step:,}  {numbers}")
            for sentence in self._overfit.take(
                progress.step, {f"val/{name}": losses[f"val/{name}"] for name in self._sets}
            ):
                self.warn(sentence)
            if progress.step != progress.first_step and self._is_lowest(progress.step, losses) and self.keeps_best:
                action = Action.SAVE
            self.sink(progress.step, losses | self._by_quartile(losses))
        return action

    def _is_lowest(self, step: int, losses: Mapping[str, float]) -> bool:
        """Stores the loss by which a checkpoint of the step is judged. Returns whether it is lower than all before."""
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
            by_timestep = {t: losses[f"{tag}_at/{t}"] for t in self._timesteps if f"{tag}_at/{t}" in losses}
            bins = BinMeans(QUARTILES, self.model.objective.schedule.num_timesteps)
            bins.take(by_timestep.keys(), by_timestep.values())
            means |= {f"{tag}_at/quartile_{index}": mean for index, mean in bins.drain().items()}
        return means

    def state(self) -> dict[str, Any]:
        return self._overfit.state() | ({"measured": [*self.measured.items()]} if self.measured else {})

    def load(self, state: Mapping[str, Any]) -> None:
        self._overfit.load(state)
        self.measured = {int(step): float(loss) for step, loss in state.get("measured", ())}

    def measure(self) -> dict[str, float]:
        """Returns the numbers by tag. Leaves gradients, module modes and random state unchanged."""
        losses: dict[str, float] = {}
        kinds: tuple[Weights, ...] = ("raw",) if self.model.update.ema is None else ("raw", "ema")
        with set_eval_mode(self.model.family.parts()):
            for kind in kinds:
                suffix = "" if kind == "raw" else f"_{WRITTEN[kind]}"
                with weights_in_use(self.model.update, kind):
                    for name, batches in self._sets.items():
                        by_timestep = self._average_losses(batches)
                        tag = f"val/{name}{suffix}"
                        losses[tag] = sum(by_timestep) / len(by_timestep)
                        losses |= {f"{tag}_at/{t}": mean for t, mean in zip(self._timesteps, by_timestep, strict=True)}
                untrained = [losses[f"val/{name}{suffix}"] for name in self._sets if name != "train"]
                if len(untrained) > 1:
                    losses[f"val/all{suffix}"] = sum(untrained) / len(untrained)
        return losses

    def _average_losses(self, batches: list[Batch]) -> list[float]:
        """The mean over all samples of a set, for each timestep."""
        family, sums = self.model.family, torch.zeros(len(self._timesteps), dtype=torch.float64, device=self.device)
        for number, batch in enumerate(batches):
            batches[number] = batch = encode_once(self.model, batch, self.device)
            x_0, images = latents_of(self.model, batch, self.device), condition_latents(family, batch, self.device)
            with self.model.precision.autocast(self.device):
                condition = replace(family.condition(text_of(family, batch, self.device), batch), images=images)
                for index, timestep in enumerate(self._timesteps):
                    sums[index] += self._errors(x_0, condition, batch, timestep).double().sum()
        count = sum(batch.size for batch in batches)
        return [float(total) / count for total in sums.tolist()]

    def _errors(self, x_0: Tensor, condition: Condition, batch: Batch, timestep: int) -> Tensor:
        """Mean squared error of each sample, (B,) float32."""
        drawn = fixed_draws(self.seed, batch.keys, timestep, self.device)
        repeated = torch.full((batch.size,), timestep, dtype=torch.int64, device=self.device)
        noised = self.model.objective.noise_at(x_0, drawn, repeated)
        # a learned variance is not measured
        predicted = self.model.family.predict(noised, condition)[:, : x_0.shape[1]]
        with torch.autocast(self.device.type, enabled=False):
            squares = (predicted.float() - self.model.objective.target(noised)).square()
            return learned_variance.mean(squares, self.model.loss_mask.weights(batch.mask, x_0))


class OverfitWarning:
    """Tracks measured losses by name and reports when one starts to rise: after more than `MIN_MEASUREMENTS`
    measurements, when the last `RECENT` rise on average and the lowest is before them. Each rise is reported once, and
    again only after a new minimum. Its state is saved in the checkpoint."""

    def __init__(self) -> None:
        self._curves: dict[str, list[tuple[int, float]]] = {}
        self._reported: dict[str, float] = {}

    def take(self, step: int, losses: Mapping[str, float]) -> list[str]:
        """Adds a measurement of each curve, in step order. Returns a sentence for each curve that starts to rise."""
        sentences = []
        for name, loss in losses.items():
            curve = self._curves.setdefault(name, [])
            curve.append((step, loss))
            best, lowest = min(curve, key=lambda measurement: measurement[1])
            if self._reported.get(name) != lowest and _is_rising(curve, best):
                self._reported[name] = lowest
                sentences.append(
                    f"{name} rises: {curve[-RECENT][1]:.4f} at step {curve[-RECENT][0]:,}, {loss:.4f} now; it was "
                    f"lowest at step {best:,}, with {lowest:.4f}. The model may be overfitting; an export of about "
                    "that step may be better"
                )
        return sentences

    def state(self) -> dict[str, Any]:
        """The state as JSON; empty before the first measurement."""
        return {"seen": self._curves, "told": self._reported} if self._curves else {}

    def load(self, state: Mapping[str, Any]) -> None:
        """Restores a result of `state`."""
        seen = state.get("seen", {})
        self._curves = {name: [(int(step), float(loss)) for step, loss in curve] for name, curve in seen.items()}
        self._reported = {name: float(loss) for name, loss in state.get("told", {}).items()}


def _is_rising(curve: list[tuple[int, float]], best: int) -> bool:
    """best: the step of the lowest loss. The mean of successive differences depends on the ends only."""
    if len(curve) <= MIN_MEASUREMENTS:
        return False
    return curve[-1][1] > curve[-RECENT][1] and best < curve[-RECENT][0]


def create_callbacks(setup: Setup) -> Iterator[Callback]:
    """Enabled by `run.validation.every` if there are held-out samples."""
    if setup.measures:
        yield Validation(
            setup.held_out(None) if setup.computes else {},
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
