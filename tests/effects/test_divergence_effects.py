"""Diverging runs: rolling back, rates, spikes."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mezzotint import outside
from mezzotint.run_folder import RunFolder
from mezzotint.training.callbacks.metrics_log import SpikeLog, truncate
from mezzotint.training.progress import Progress
from support.divergence import SETTINGS, events, poisoning
from support.run_folders import logged
from support.trainers import report


@pytest.fixture
def poison(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    return poisoning(monkeypatch)


# breaks if the count is lost when rolling back, the run ends at once, or the skipped steps are trained
@pytest.mark.effect("run.roll_back.times", "run.on_divergence", "run.roll_back.skip")
@pytest.mark.parametrize("times", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_run_rolls_back_at_most_the_given_times(shared_world: Any, poison: Callable[..., None], times: int) -> None:
    poison(4, 5, 6, 7)
    name = f"times-{times}"
    assert shared_world.train(name, **SETTINGS, run__roll_back__times=times) == (0 if times == 2 else 3)
    assert [(event["to"], event["at"]) for event in events(shared_world.root / name)] == [(4, 6), (6, 8)][:times]


# breaks if rates do not change, or the next checkpoint loses the lower rate
@pytest.mark.effect("run.roll_back.factor")
def test_rolled_back_batches_repeat_at_a_lower_rate(shared_world: Any, poison: Callable[..., None]) -> None:
    poison(5, 6, when=lambda trainer: trainer.progress.rate == 1.0)
    settings = SETTINGS | {"run__roll_back__skip": False, "run__roll_back__factor": 0.5}
    assert shared_world.train("slower", **settings) == 0
    assert logged(shared_world.root / "slower", "lr/denoiser") == [1e-3] * 4 + [5e-4] * 5
    assert not any(isinstance(loss, str) for loss in logged(shared_world.root / "slower"))
    assert shared_world.train("slower", **settings | {"run__extend": "1 steps"}) == 0
    assert logged(shared_world.root / "slower", "lr/denoiser")[-1] == 5e-4


# breaks if a step of normal size is written, a spike is not, or a resumed run forgets earlier steps
@pytest.mark.effect("run.spike_factor")
def test_loss_spike_is_logged_with_its_samples(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run").open()
    losses = [1.0] * 20 + [3.0, 30.0, 1.0, math.nan, 31.0]

    def watched(log: SpikeLog, steps: range) -> SpikeLog:
        for step in steps:
            log.on_step(replace(report(step), loss=losses[step], norm=1.0), Progress(step=step + 1, last_step=25))
        return log

    kept = json.loads(json.dumps(watched(SpikeLog(folder, 0, 10.0), range(22)).state()))
    resumed = SpikeLog(folder, 0, 10.0)
    resumed.load(kept)
    watched(resumed, range(22, 25))
    lines = outside.read_lines(folder.logs / "spikes.rank0.jsonl")
    assert [(line["step"], line["loss"], line["usual_loss"]) for line in lines] == [(22, 30.0, 1.0), (25, 31.0, 1.0)]
    assert lines[0]["keys"] == list(report(21).keys)
    assert {"timesteps", "losses", "norm"} <= lines[0].keys()
    assert truncate(folder, 24) == 1
