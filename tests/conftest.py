"""What tests share: one thread (bits are compared), and a trainer over made-up latents that needs no files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch

from mezzotint import draws, probes
from mezzotint.diffusion import noise
from mezzotint.diffusion.objective import Objective
from mezzotint.families.base import ModelFamily
from mezzotint.recipe.model import ModelSettings
from mezzotint.recipe.objective import ObjectiveSettings
from mezzotint.recipe.optim import OptimSettings
from mezzotint.recipe.run import RunSettings
from mezzotint.runtimes import base, single
from mezzotint.stages import Batch, StepBatches, StepReport, TextEmbedding
from mezzotint.training.observers import Observer, Wish
from mezzotint.training.precision import LossScale, Precision, cast
from mezzotint.training.progress import Progress
from mezzotint.training.trained import MovementWatch, trained_parameters
from mezzotint.training.trainer import Trainer
from mezzotint.training.update import Update


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    torch.set_num_threads(1)


class Reports(Observer):
    """Keeps every report."""

    follows = True

    def __init__(self) -> None:
        self.seen: list[StepReport] = []

    def look(self, report: StepReport | None, progress: Progress) -> Wish:
        if report is not None:
            self.seen.append(report)
        return Wish.NOTHING


def batch(
    latents: torch.Tensor,
    text: TextEmbedding | None,
    *,
    first: int = 0,
    weight: Sequence[float] | None = None,
    captions: Sequence[str] | None = None,
) -> Batch:
    """A batch of ready latents at positions first, first + 1, …"""
    n = len(latents)
    nothing = torch.zeros(n, 2, dtype=torch.int64)
    return Batch(
        keys=tuple(f"sample-{first + i}" for i in range(n)),
        captions=tuple(captions or [""] * n),
        positions=torch.arange(first, first + n),
        posterior_keys=torch.arange(n),
        original_size=nothing,
        crop_top_left=nothing,
        target_size=nothing,
        weight=torch.tensor(weight or [1.0] * n),
        latents=latents,
        text=text,
    )


def step_of(batches: Sequence[Batch], step: int) -> StepBatches:
    return StepBatches(step, 0, sum(b.size for b in batches), tuple(batches))


def make_trainer(
    family: ModelFamily,
    steps: Sequence[StepBatches],
    *,
    model: dict[str, Any] | None = None,
    optim: dict[str, Any] | None = None,
    run: dict[str, Any] | None = None,
    objective: Objective | dict[str, Any] | None = None,
    observers: Sequence[Observer] = (),
    attention: Any = "auto",
    **given: Any,
) -> Trainer:
    """A trainer in one process on the CPU over batches that are at hand. `Reports` is always its first observer."""
    run_settings, optim_settings = RunSettings(**(run or {})), OptimSettings(**(optim or {}))
    runtime = single.Runtime(torch.device("cpu"), base.Launch(), run_settings)
    trained = trained_parameters(family.parts(), ModelSettings(**(model or {})), type(family).trainable)
    precision = Precision.of(run_settings)
    for module in family.parts().values():
        cast(module, precision.weights if any(p.requires_grad for p in module.parameters()) else precision.frozen)
    runtime.prepare(family.parts(), trained)
    update = Update(trained, optim_settings, separate_masters=precision.separate_masters)
    if not isinstance(objective, Objective):
        objective = Objective(ObjectiveSettings(**(objective or {})), family.schedule, family.prediction)
    return Trainer(
        family=family,
        objective=objective,
        batches=steps,
        update=update,
        runtime=runtime,
        precision=precision,
        scale=LossScale(run_settings.scaler, precision, runtime.device),
        trained=trained,
        optim=optim_settings,
        run_settings=run_settings,
        attention=attention,
        observers=[Reports(), *observers],
        progress=Progress(last_step=len(steps)),
        **{
            "epoch_ends": lambda step: False,
            "save": lambda trainer: None,
            "export": lambda trainer: None,
            "asked": lambda: 0,
            "bad_step": lambda report: None,
            "warn": lambda text: None,
            "watch": MovementWatch(update.masters),
        }
        | given,
    )


def addressed_latents(seed: int, n: int, channels: int = 4, side: int = 8) -> torch.Tensor:
    keys = torch.tensor([draws.key(seed, "test", i) for i in range(n)], dtype=torch.uint64).view(torch.int64)
    return noise.normal(keys, (channels, side, side))


@pytest.fixture
def trainer_over() -> Callable[..., Trainer]:
    return make_trainer


@pytest.fixture
def batch_of() -> Callable[..., Batch]:
    return batch


@pytest.fixture
def step_batches() -> Callable[..., StepBatches]:
    return step_of


@pytest.fixture
def latents_at() -> Callable[..., torch.Tensor]:
    return addressed_latents


@pytest.fixture(autouse=True)
def _no_fault_stays_armed() -> Iterator[None]:
    yield
    probes.arm("")
