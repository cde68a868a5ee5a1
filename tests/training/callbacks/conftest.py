"""A small trainer, held-out samples, and a run folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mezzotint.families.sd import Family
from mezzotint.run_folder import RunFolder
from mezzotint.stages import Batch
from mezzotint.training.loop import Trainer
from support.trainers import batch_of, latents_at, step_batches, text_of, trainer_over

WITH_EMA = {"lr": 1e-3, "ema": {"rule": "constant", "decay": 0.9}}


@pytest.fixture(scope="module")
def _model() -> Family:
    return Family.tiny()


@pytest.fixture
def family(_model: Family) -> Iterator[Family]:
    """One model for all tests; its weights are restored after each."""
    kept = {name: {k: t.clone() for k, t in part.state_dict().items()} for name, part in _model.parts().items()}
    yield _model
    for name, part in _model.parts().items():
        part.load_state_dict(kept[name])
        part.eval()


@pytest.fixture
def trainer(family: Family) -> Trainer:
    steps = [step_batches([batch_of(latents_at(1, 2), text_of(family, 2))], step) for step in range(3)]
    return trainer_over(family, steps, optim=WITH_EMA)


@pytest.fixture
def held_out(family: Family) -> Batch:
    return batch_of(latents_at(9, 3), text_of(family, 3))


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path / "run").open()
