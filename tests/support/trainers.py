"""A trainer over synthetic latents, without files."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from mezzotint import draws
from mezzotint.diffusion import noise
from mezzotint.diffusion.flow_objective import objective_of
from mezzotint.diffusion.objective import Objective
from mezzotint.families.base import ModelFamily
from mezzotint.runtimes import base, single
from mezzotint.settings.sections.model import ModelSettings
from mezzotint.settings.sections.objective import ObjectiveSettings
from mezzotint.settings.sections.optim import OptimSettings
from mezzotint.settings.sections.run import RunSettings
from mezzotint.stages import Batch, StepBatches, StepReport, TextEmbedding
from mezzotint.training.callbacks.base import Action, Callback
from mezzotint.training.loop import RunHost, Trainer
from mezzotint.training.model import TrainableModel
from mezzotint.training.precision.policy import LossScale, Precision, cast
from mezzotint.training.progress import Progress
from mezzotint.training.step import TrainStep
from mezzotint.training.trainable import UpdateCheck, select_trained_parameters
from mezzotint.training.update import Update


class Reports(Callback):
    """Keeps every report."""

    receives_delayed_reports = True

    def __init__(self) -> None:
        self.seen: list[StepReport] = []

    def on_step(self, report: StepReport | None, progress: Progress) -> Action:
        if report is not None:
            self.seen.append(report)
        return Action.NOTHING


def batch_of(
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


def step_batches(batches: Sequence[Batch], step: int) -> StepBatches:
    """A step of batches that are at hand."""
    return StepBatches(step, 0, sum(b.size for b in batches), tuple(batches), sizes=tuple(b.size for b in batches))


def trainer_over(
    family: ModelFamily,
    steps: Sequence[StepBatches],
    *,
    model: dict[str, Any] | None = None,
    optim: dict[str, Any] | None = None,
    run: dict[str, Any] | None = None,
    objective: Objective | dict[str, Any] | None = None,
    callbacks: Sequence[Callback] = (),
    attention: Any = "auto",
    device: str = "cpu",
    **others: Any,
) -> Trainer:
    """A trainer in one process over batches that are at hand. `Reports` is always its first callback. device: "meta"
    has no values, so that whatever a step reads back to the host is an error. others: for the trainer (a runtime that
    its caller prepares among them), or in the place of a method of its host."""
    run_settings, optim_settings = RunSettings(**(run or {})), OptimSettings(**(optim or {}))
    runtime = single.Runtime(torch.device(device), base.Launch(), run_settings)
    for module in family.parts().values():
        module.to(device)
    trained = select_trained_parameters(family.parts(), ModelSettings(**(model or {})), type(family).spec.trainable)
    sums = "fp32" if run_settings.gradient_dtype == "fp32" else "same"
    precision = Precision.of(run_settings, sums)
    for module in family.parts().values():
        cast(module, precision.weights if any(p.requires_grad for p in module.parameters()) else precision.frozen)
    runtime.prepare(family.parts(), trained)
    update = Update(trained, optim_settings, separate_masters=precision.separate_masters)
    if not isinstance(objective, Objective):
        objective = objective_of(ObjectiveSettings(**(objective or {})), family.schedule, family.prediction)
    trained_model = TrainableModel(
        family=family,
        files=None,  # type: ignore[arg-type]  # nothing is exported
        trained=trained,
        objective=objective.to(device),
        prediction=family.prediction,
        precision=precision,
        optim=optim_settings,
        update=update,
        scale=LossScale(run_settings.scaler, precision, runtime.device),
        attention=attention,
    )
    host = RunHost()
    vars(host).update({name: others.pop(name) for name in [*others] if hasattr(RunHost, name)})
    return Trainer(
        trained_model,
        steps,
        others.pop("runtime", runtime),
        host,
        Progress(last_step=len(steps)),
        [Reports(), *callbacks],
        seed=run_settings.seed,
        **{"max_nonfinite_steps": run_settings.max_nonfinite_steps, "update_check": UpdateCheck(update.masters)}
        | others,
    )


def short_of_memory(lacks: Callable[[Batch], bool]) -> Callable[[TrainStep, Batch, int], Any]:
    """Replaces `TrainStep.loss`: the backward pass of a batch that lacks room runs out of memory when half of the
    gradients are there."""
    loss_of = TrainStep.loss

    def loss(self: TrainStep, batch: Batch, step: int) -> Any:
        result = loss_of(self, batch, step)
        if lacks(batch):
            weights = list(self.model.trained.values())

            def fail(grad: torch.Tensor) -> None:
                handle.remove()
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1 GiB")

            handle = weights[len(weights) // 2].register_hook(fail)
        return result

    return loss


def latents_at(seed: int, n: int, channels: int = 4, side: int = 8) -> torch.Tensor:
    """Latents (n, channels, side, side) by address, the same on every machine."""
    keys = torch.tensor([draws.key(seed, "test", i) for i in range(n)], dtype=torch.uint64).view(torch.int64)
    return noise.normal(keys, (channels, side, side))


def text_of(family: ModelFamily, n: int) -> TextEmbedding:
    """Embeddings of n captions."""
    with torch.no_grad():
        return TextEmbedding(family.encode_text([f"image {i}" for i in range(n)]).states)


def report(step: int, **changes: object) -> StepReport:
    """Of a step, all numbers odd, so that each is recognized."""
    plain = StepReport(
        step=step,
        epoch=step // 10,
        loss=0.1 + 1 / (3 + step),
        norm=2.0 / 3.0,
        rates={"denoiser": 1e-4 / 3, "denoiser.no_decay": 1e-4 / 3},
        samples=4,
        seconds=0.5,
        wait_seconds=0.125,
        applied=True,
        overflow=False,
        keys=("a.png", "b.png"),
        timesteps=(5.0, 995.0),
        losses=(0.1, 1 / 3),
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


def digest(trainer: Trainer) -> str:
    """Of weights, averages, modes, gradients and torch's random state."""
    state = hashlib.sha256(torch.get_rng_state().numpy().tobytes())
    for part in trainer.model.family.parts().values():
        state.update(str([module.training for module in part.modules()]).encode())
        for parameter in part.parameters():
            state.update(parameter.detach().numpy().tobytes())
            state.update(str(parameter.grad is None).encode())
    for tensor in trainer.tensors().values():
        state.update(tensor.numpy().tobytes())
    return state.hexdigest()


def log_steps(callback: Callback, steps: range, last_step: int = 1000) -> None:
    """Hands reports to a callback as the trainer does, one step late, and closes it."""
    for step in steps:
        callback.on_step(report(step), Progress(step=step + 2, last_step=last_step))
    callback.close()
