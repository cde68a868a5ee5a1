"""What a step leaves behind for its report, and what it computes again."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from mezzotint.families.sd import Family
from mezzotint.recipe.sections.run import RecomputeSettings
from mezzotint.run_folder import RunFolder
from mezzotint.runtimes.base import norms_of, recompute_blocks
from mezzotint.stages import StepReport, TextEmbedding
from mezzotint.training import state
from mezzotint.training.callbacks.tensorboard_log import TensorBoardLog
from mezzotint.training.progress import Progress

Make = Callable[..., Any]


def steps_of(family: Family, batch_of: Make, step_batches: Make, latents_at: Make, count: int) -> list[Any]:
    with torch.no_grad():
        text = TextEmbedding(family.encode_text(["a circle", "a square"]).states)
    return [step_batches([batch_of(latents_at(1, 2), text)], step) for step in range(count)]


@pytest.mark.parametrize("kernel", ["math", "flash"])
def test_what_is_recomputed_takes_the_kernel_that_was_asked_for(
    kernel: str, trainer_over: Make, batch_of: Make, step_batches: Make, latents_at: Make
) -> None:
    losses = []
    for recomputes in (False, True):
        family = Family.tiny()
        if recomputes:
            recompute_blocks(family.blocks(), RecomputeSettings(enabled=True))
        steps = steps_of(family, batch_of, step_batches, latents_at, 3)
        trainer = trainer_over(family, steps, attention=kernel, optim={"lr": 1e-3})
        trainer.run()
        losses.append([report.loss for report in trainer.callbacks[0].seen])
    assert losses[0] == losses[1]


def test_a_report_that_is_waited_for_does_not_hold_its_pictures(
    trainer_over: Make, batch_of: Make, step_batches: Make, latents_at: Make
) -> None:
    family = Family.tiny()
    steps = steps_of(family, batch_of, step_batches, latents_at, 1)
    trainer = trainer_over(family, steps, update_check=None)
    pending = trainer.step(steps[0])
    latents = weakref.ref(steps[0].batches[0].latents)
    trainer.batches = ()
    del steps
    gc.collect()
    assert latents() is None
    report = pending.resolve(0)
    assert report.keys == ("sample-0", "sample-1")
    assert len(report.timesteps) == len(report.losses) == 2
    assert all(0 <= t < 1000 and t == int(t) for t in report.timesteps)


def test_norms_of_single_tensors_are_in_their_order_with_zero_for_those_without_gradient() -> None:
    trained = {name: torch.nn.Parameter(torch.zeros(2)) for name in ("denoiser/a", "denoiser/b", "denoiser/c")}
    assert norms_of(trained, "tensor").tolist() == [0.0, 0.0, 0.0]
    trained["denoiser/a"].grad = torch.tensor([3.0, 4.0])
    trained["denoiser/c"].grad = torch.tensor([0.0, 2.0])
    assert norms_of(trained, "tensor").tolist() == [5.0, 0.0, 2.0]


def test_a_checkpoint_without_loss_scale_fits_a_run_in_fp16(
    tmp_path: Path, trainer_over: Make, batch_of: Make, step_batches: Make, latents_at: Make
) -> None:
    family = Family.tiny()
    steps = steps_of(family, batch_of, step_batches, latents_at, 1)
    before = trainer_over(family, steps)
    path = state.write(tmp_path, step=1, tensors=before.tensors(), values=before.state(), recipe_digest="")
    after = trainer_over(Family.tiny(), steps, run={"precision": "fp16"})
    restored = state.read(path)
    state.fits(restored, after.tensors())
    after.load(restored.tensors, restored.values)
    assert float(after.model.scale.scale) == 65536.0


def report_of(step: int, timestep: float, loss: float) -> StepReport:
    return StepReport(
        step, 0, loss, 1.0, {"denoiser": 1e-3}, 1, 0.1, 0.0, True, False, (f"k{step}",), (timestep,), (loss,)
    )


def test_means_by_timestep_go_on_over_a_resume(tmp_path: Path) -> None:
    progress = Progress(last_step=100)
    folder = RunFolder(tmp_path / "run").open()
    whole = TensorBoardLog(folder, 10)
    for step in range(1, 6):
        whole.on_step(report_of(step, 50.0, float(step)), progress)
    resumed = TensorBoardLog(folder, 10)
    resumed.load(whole.state())
    last = report_of(6, 50.0, 6.0)
    for board in (whole, resumed):
        board._scalars.take(last)
    assert resumed._scalars.of(last)["loss/by_timestep/0"] == whole._scalars.of(last)["loss/by_timestep/0"] == 3.5


class OneAtATime:
    """Batches that are made when they are taken; says when the one before was still held."""

    def __init__(self, make: Make, count: int) -> None:
        self.make, self.count = make, count
        self.before: weakref.ref[torch.Tensor] | None = None

    def __iter__(self) -> Iterator[Any]:
        for number in range(self.count):
            gc.collect()
            assert self.before is None or self.before() is None, f"micro-batch {number} while the one before is held"
            yield self.made()

    def made(self) -> Any:
        batch = self.make()
        self.before = weakref.ref(batch.latents)
        return batch


def test_a_step_holds_one_micro_batch_at_a_time(
    trainer_over: Make, batch_of: Make, step_batches: Make, latents_at: Make
) -> None:
    family = Family.tiny()
    steps = steps_of(family, batch_of, step_batches, latents_at, 1)
    whole = steps[0].batches[0]
    lazily = OneAtATime(lambda: replace(whole, latents=whole.latents.clone()), 3)
    trainer = trainer_over(family, steps, update_check=None)
    pending = trainer.step(replace(steps[0], batches=lazily, count=6, sizes=(2,) * 3))
    assert pending.resolve(0).keys == whole.keys * 3
