"""What a step keeps for its report, and recomputation."""

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
from mezzotint.runtimes.base import recompute_blocks
from mezzotint.settings.sections.run import RecomputeSettings
from mezzotint.stages import TextEmbedding
from mezzotint.training.checkpoints import state
from support.trainers import batch_of, latents_at, step_batches, trainer_over

Make = Callable[..., Any]


def steps_of(family: Family, count: int) -> list[Any]:
    with torch.no_grad():
        text = TextEmbedding(family.encode_text(["a circle", "a square"]).states)
    return [step_batches([batch_of(latents_at(1, 2), text)], step) for step in range(count)]


@pytest.mark.parametrize("kernel", ["math", "flash"])
def test_recompute_uses_the_requested_attention_kernel(kernel: str) -> None:
    losses = []
    for recomputes in (False, True):
        family = Family.tiny()
        if recomputes:
            recompute_blocks(family.blocks(), RecomputeSettings(enabled=True))
        steps = steps_of(family, 3)
        trainer = trainer_over(family, steps, attention=kernel, optim={"lr": 1e-3})
        trainer.run()
        losses.append([report.loss for report in trainer.callbacks[0].seen])
    assert losses[0] == losses[1]


def test_pending_report_does_not_keep_its_latents() -> None:
    family = Family.tiny()
    steps = steps_of(family, 1)
    trainer = trainer_over(family, steps, update_check=None)
    pending = trainer.train_step(steps[0])
    latents = weakref.ref(steps[0].batches[0].latents)
    trainer.batches = ()
    del steps
    gc.collect()
    assert latents() is None
    report = pending.result()
    assert report.keys == ("sample-0", "sample-1")
    assert len(report.timesteps) == len(report.losses) == 2
    assert all(0 <= t < 1000 and t == int(t) for t in report.timesteps)


def test_checkpoint_without_loss_scale_fits_an_fp16_run(tmp_path: Path) -> None:
    family = Family.tiny()
    steps = steps_of(family, 1)
    before = trainer_over(family, steps)
    path = state.write(tmp_path, step=1, tensors=before.tensors(), values=before.state(), recipe_digest="")
    after = trainer_over(Family.tiny(), steps, run={"precision": "fp16"})
    restored = state.read(path)
    state.fits(restored, after.tensors())
    after.load(restored.tensors, restored.values)
    assert float(after.model.scale.scale) == 65536.0


class OneAtATime:
    """Batches created on demand; fails if the previous one is still referenced."""

    def __init__(self, make: Make, count: int) -> None:
        self.make, self.count = make, count
        self.before: weakref.ref[torch.Tensor] | None = None

    def __iter__(self) -> Iterator[Any]:
        for number in range(self.count):
            gc.collect()
            assert self.before is None or self.before() is None, f"micro-batch {number} while the one before is held"
            yield self.make_batch()

    def make_batch(self) -> Any:
        batch = self.make()
        self.before = weakref.ref(batch.latents)
        return batch


def test_step_holds_one_micro_batch_at_a_time() -> None:
    gc.freeze()  # collections ignore older objects
    family = Family.tiny()
    steps = steps_of(family, 1)
    whole = steps[0].batches[0]
    lazily = OneAtATime(lambda: replace(whole, latents=whole.latents.clone()), 3)
    trainer = trainer_over(family, steps, update_check=None)
    pending = trainer.train_step(replace(steps[0], batches=lazily, count=6, sizes=(2,) * 3))
    assert pending.result().keys == whole.keys * 3
