"""How far the trained model has moved from its base: a meter of leaking and forgetting (`run.drift`).

For each group of prompts (with the trigger, with the class word in its place, unrelated) the base samples once, in a
few steps of the run's own solver, from fixed noise; the noisy latents that it meets and its predictions there are kept
on the host. They depend on the base, the prompts, the guidance and the seed only, so a resumed run has the same. A
measurement lets the trained model predict at the same places. Both predictions are those that sampling uses, with the
run's guidance. Held-out captions are measured at noisy latents of their own images, with the noise and timesteps of
validation and, as there, without guidance.

The number is Σ (prediction − prediction of the base)² / Σ (prediction of the base)², the mean over timesteps: 0 is the
base. The leak is that of the class as a share of that of the trigger.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mezzotint.diffusion.flow import FlowSchedule
from mezzotint.families.base import ModelFamily
from mezzotint.sampling.network import build_network
from mezzotint.sampling.requests import Request, Sampling, initial_noise, step_noise
from mezzotint.sampling.sample import open_solver
from mezzotint.sampling.solvers import run_solver
from mezzotint.settings.base import Every
from mezzotint.settings.sections.sample import SampleSettings, SolverName
from mezzotint.stages import Batch, StepReport
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
from mezzotint.training.callbacks.base import Action, Callback, DriftPrompt, Setup
from mezzotint.training.model import TrainableModel
from mezzotint.training.progress import Progress

BATCH = 4
"""Prompts that are computed together."""
LEAST_CHANGE = 1e-3
"""Below this change for the class no leak is warned of."""
HELD_OUT = "held_out"


class Point(NamedTuple):
    """A prediction of the base, on the host. number: of the timestep t among those measured. x_t: None where it is
    computed from a held-out image."""

    number: int
    t: Tensor
    x_t: Tensor | None
    predicted: Tensor


@dataclass(eq=False)
class Drift(Callback):
    """Measures before the first step, at intervals, and at the end.

    prompts, held_out: by group and by set. sample: for the guidance of prompts. sink: gets `drift/GROUP`,
    `drift/GROUP_at/T`, `drift/leak` if there is a trigger, and with an average the same of it (`drift/GROUP_shadow`,
    …). most_leak: the leak from which `warn` is called with `remedy`, once until it has been lower.
    """

    prompts: Mapping[str, Sequence[DriftPrompt]]
    held_out: Mapping[str, Sequence[Batch]]
    timesteps: int
    sample: SampleSettings
    seed: int
    model: TrainableModel
    device: torch.device
    every: Every | None
    most_leak: float | None = None
    remedy: str = ""
    sink: NumberSink = lambda step, values: None
    warn: Callable[[str], None] = lambda text: None
    say: Callable[[str], None] = lambda text: None
    on_all_ranks: bool = False

    at_start = True
    at_end = True
    order = 1

    def __post_init__(self) -> None:
        schedule = self.model.objective.schedule
        self._span = schedule.span if isinstance(schedule, FlowSchedule) else (0.0, 1.0)
        self._is_flow = isinstance(schedule, FlowSchedule)
        self._batches = [batch for name, of_set in self.held_out.items() if name != "train" for batch in of_set]
        self._batches = [batch for batch in self._batches if batch.size]
        self._of_base: dict[str, list[list[Point]]] = {}
        self._has_warned = False

    def on_step(self, report: StepReport | None, progress: Progress) -> Action:
        """Measures and passes the numbers to `sink`."""
        if self.prompts or self._batches:
            with skip_when_out_of_memory(f"drift of step {progress.step}", self.warn):
                numbers = self.measure()
                shown = "  ".join(f"{tag} {value:.4f}" for tag, value in numbers.items() if "_at/" not in tag)
                self.say(f"measured at step {progress.step:,}  {shown}")
                self._warn_of_leak(numbers)
                self.sink(progress.step, numbers)
        return Action.NOTHING

    def state(self) -> dict[str, Any]:
        return {"has_warned": True} if self._has_warned else {}

    def load(self, state: Mapping[str, Any]) -> None:
        self._has_warned = bool(state.get("has_warned", False))

    def measure(self) -> dict[str, float]:
        """Returns the numbers by tag. Leaves gradients, module modes and random state unchanged."""
        numbers: dict[str, float] = {}
        kinds: tuple[Weights, ...] = ("raw",) if self.model.update.ema is None else ("raw", "ema")
        with self._evaluating(self.model.family):
            if not self._of_base:
                self._of_base = self._predict_by_base()
            for kind in kinds:
                suffix = "" if kind == "raw" else f"_{WRITTEN[kind]}"
                with weights_in_use(self.model.update, kind):
                    of_groups = {group: self._drift_of(group) for group in self._of_base}
                means = {group: sum(by_t.values()) / len(by_t) for group, by_t in of_groups.items()}
                if means.get("trigger"):
                    means["leak"] = means["class"] / means["trigger"]
                numbers |= {f"drift/{name}{suffix}": value for name, value in means.items()}
                numbers |= {
                    f"drift/{group}{suffix}_at/{t}": value
                    for group, by_t in of_groups.items()
                    for t, value in by_t.items()
                }
        return numbers

    def _warn_of_leak(self, numbers: Mapping[str, float]) -> None:
        leak = numbers.get("drift/leak")
        if leak is None or self.most_leak is None:
            return
        if leak < self.most_leak:
            self._has_warned = False
        elif not self._has_warned and numbers["drift/class"] >= LEAST_CHANGE:
            self._has_warned = True
            own, other = (self.prompts[group][0].request.prompt for group in ("trigger", "class"))
            self.warn(f"leak: training changes {other!r} {leak:.2f} times as much as {own!r}; {self.remedy}")

    @contextmanager
    def _evaluating(self, family: ModelFamily) -> Iterator[None]:
        with set_eval_mode(family.parts()), self.model.precision.autocast(self.device):
            yield

    def _predict_by_base(self) -> dict[str, list[list[Point]]]:
        """The base's predictions, by group, of each batch."""
        assert self.model.base is not None
        with self.model.base.in_use() as family, self._evaluating(family):
            points = {
                group: [self._sample([prompt.of_base for prompt in batch], family) for batch in _split(prompts)]
                for group, prompts in self.prompts.items()
            }
            if self._batches:
                self._batches = [encode_once(self.model, batch, self.device) for batch in self._batches]
                points[HELD_OUT] = [list(self._predict_held_out(batch, family)) for batch in self._batches]
        return points

    def _sample(self, requests: Sequence[Request], family: ModelFamily) -> list[Point]:
        """Where a few steps of sampling evaluate the base, and what it predicts there."""
        points: list[Point] = []
        noise = initial_noise(family, requests).to(self.device)
        name: SolverName = "euler" if self._is_flow else "ddim"
        settings = SampleSettings() if self._is_flow else SampleSettings(timestep_spacing="trailing")
        solver = open_solver(self._sampling(settings), name, self.timesteps, shape=noise.shape[1:])
        network = build_network(family, requests, self._sampling(self.sample), solver.evaluates_at)

        def record(x_t: Tensor, t: Tensor) -> Tensor:
            predicted = network(x_t, t)
            points.append(Point(len(points), t, x_t.cpu(), predicted.float().cpu()))
            return predicted

        run_solver(
            solver, solver.initial_state(noise), record, lambda n: step_noise(family, requests, n).to(self.device)
        )
        return points

    def _sampling(self, settings: SampleSettings) -> Sampling:
        return Sampling(self.model.objective.schedule, self.model.objective.parameterization, self.device, settings)

    def _predict_held_out(self, batch: Batch, family: ModelFamily) -> Iterator[Point]:
        x_0 = latents_of(self.model, batch, self.device)
        condition = family.condition(text_of(family, batch, self.device), batch)
        for index, t in enumerate(spread(self.timesteps, self.model.objective.schedule.num_timesteps, self._span)):
            repeated = torch.full((batch.size,), t, dtype=torch.int64, device=self.device)
            noised = self.model.objective.noise_at(x_0, fixed_draws(self.seed, batch.keys, t, self.device), repeated)
            predicted = family.predict(noised, condition)[:, : x_0.shape[1]]
            yield Point(index, torch.tensor(t), None, predicted.float().cpu())

    def _predict_again(self, group: str, number: int, points: Sequence[Point]) -> Iterator[Tensor]:
        """The trained model's predictions at the base's points of a batch."""
        family = self.model.family
        if group == HELD_OUT:
            yield from (point.predicted for point in self._predict_held_out(self._batches[number], family))
            return
        requests = [prompt.request for prompt in list(_split(self.prompts[group]))[number]]
        network = build_network(family, requests, self._sampling(self.sample), "timestep")
        for point in points:
            assert point.x_t is not None
            yield network(point.x_t.to(self.device), point.t).float().cpu()

    def _drift_of(self, group: str) -> dict[int, float]:
        """The relative squared difference of a group, by timestep."""
        differences: dict[int, float] = {}
        squares: dict[int, float] = {}
        timesteps: dict[int, int] = {}
        for number, points in enumerate(self._of_base[group]):
            for point, predicted in zip(points, self._predict_again(group, number, points), strict=True):
                timesteps[point.number] = round(float(point.t))
                for sums, value in ((differences, predicted - point.predicted), (squares, point.predicted)):
                    sums[point.number] = sums.get(point.number, 0.0) + float(value.double().square().sum())
        return {t: differences[index] / squares[index] for index, t in timesteps.items()}


def _split(prompts: Sequence[DriftPrompt]) -> Iterator[Sequence[DriftPrompt]]:
    return (prompts[first : first + BATCH] for first in range(0, len(prompts), BATCH))


def _remedy(recipe: Mapping[str, Any]) -> str:
    is_preserved = not {"none"}.issuperset(recipe["objective"]["preserve"]["kind"])
    first = "raise objective.preserve.weight" if is_preserved else "set objective.preserve.kind=[output,prompts]"
    return f"{first}, train fewer steps, or use a lower model.adapter.rank or optim.lr"


def create_callbacks(setup: Setup) -> Iterator[Callback]:
    """Enabled by `run.drift.every`."""
    settings = setup.run.drift
    if settings.every is None:
        return
    yield Drift(
        setup.drift() if setup.computes else {},
        setup.held_out(settings.prompts) if setup.computes and setup.measures else {},
        timesteps=settings.timesteps,
        sample=SampleSettings.model_validate(setup.recipe["sample"]),
        seed=setup.run.seed,
        model=setup.model,
        device=setup.runtime.device,
        every=settings.every,
        most_leak=settings.warn,
        remedy=_remedy(setup.recipe),
        sink=setup.numbers,
        warn=setup.warn,
        say=setup.say,
        on_all_ranks=bool(setup.runtime.shares),
    )
