"""Rows of the section `objective` for EveryDream2's losses and noise, and of random seeds."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from mezzotint.diffusion.objective import Objective, StepDraws
from mezzotint.diffusion.schedule import Schedule
from mezzotint.settings.reading.read import read_text
from mezzotint.settings.resume_rules import find_differences
from mezzotint.settings.sections.objective import ObjectiveSettings

Prepare = Callable[..., Any]
BOTH = {"model__train": ["denoiser", "text_encoder"], "data__cache__text": False}


def draws_of(count: int) -> StepDraws:
    return StepDraws.at(0, 3, np.arange(count), "cpu")


# breaks if the two are exchanged, huber's delta is fixed, or the share counts another number of timesteps
@pytest.mark.effect("objective.loss", "objective.huber_delta")
@pytest.mark.parametrize("delta", [1.0, 0.5])
def test_huber_and_mse_are_blended_by_timestep(prepare: Prepare, delta: float) -> None:
    places = torch.tensor([0, 250, 500, 999])
    late = places / 1000
    for kind in ("mse-huber", "huber-mse"):
        objective = prepare(objective__loss=kind, objective__huber_delta=delta).objective
        for error in (0.3, 3.0):
            huber = torch.tensor(0.5 * error**2 if error <= delta else delta * (error - 0.5 * delta))
            mse = torch.tensor(error**2)
            last, first = (huber, mse) if kind == "huber-mse" else (mse, huber)
            formula = late * last + (1 - late) * first
            noised = objective.noise_at(torch.zeros(4, 4, 2, 2), draws_of(4), places)
            result = objective.loss(objective.target(noised) + error, noised, torch.ones(4)).per_sample
            torch.testing.assert_close(result, formula.expand(4), rtol=1e-4, atol=1e-6)


def with_discount(discount: float) -> Objective:
    return Objective(ObjectiveSettings(pyramid_discount=discount), Schedule.scaled_linear(), "epsilon")


def coarse_share(objective: Objective) -> float:
    """The share of the noise's variance that remains after averaging 8 × 8 positions: 1/64 for plain noise."""
    noised = objective.noise_at(torch.zeros(50, 4, 32, 32), draws_of(50), torch.full((50,), 300))
    assert torch.equal(objective.target(noised), noised.noise)
    torch.testing.assert_close(noised.noise.flatten(1).std(1), torch.ones(50), rtol=0.06, atol=0)
    return float(torch.nn.functional.avg_pool2d(noised.noise, 8).var())


# breaks if the levels are missing, have equal weights, are not normalised, or are missing from the target
@pytest.mark.effect("objective.pyramid_discount")
def test_pyramid_discount_adds_low_frequency_noise(prepare: Prepare) -> None:
    plain, faint, strong = (coarse_share(with_discount(discount)) for discount in (0.0, 0.3, 0.8))
    assert plain == pytest.approx(1 / 64, rel=0.1)
    assert faint > 1.5 * plain
    assert strong > 3 * faint
    ready, other = prepare(objective__pyramid_discount=0.5), prepare()
    assert ready.objective.settings.pyramid_discount == 0.5
    assert ready.step().report.losses != other.step().report.losses


# breaks if the held-out loss is measured with plain noise, or with other noise each time
@pytest.mark.effect("objective.pyramid_discount")
def test_pyramid_noise_is_used_in_validation(prepare: Prepare) -> None:
    settings = {"data__holdout__fraction": 0.3, "run__validation__every": 1, "run__validation__timesteps": 1}
    results = []
    for discount in (0.0, 0.6):
        ready = prepare(objective__pyramid_discount=discount, **settings)
        [watcher] = [o for o in ready.trainer.callbacks if hasattr(o, "measure")]
        results.append(watcher.measure()["val/loss"])
        assert watcher.measure()["val/loss"] == results[-1]
    assert results[0] != results[1]


class States:
    """Stores the text states that the denoiser gets."""

    def __init__(self, ready: Any) -> None:
        self.seen: list[torch.Tensor] = []
        ready.family.parts()["denoiser"].register_forward_pre_hook(self._look, with_kwargs=True)

    def _look(self, module: Any, inputs: Any, named: Any) -> None:
        states = named.get("encoder_hidden_states", inputs[2] if len(inputs) > 2 else None)
        assert states is not None
        self.seen.append(states.detach().float().clone())


# breaks if nothing is added, its deviation is not g/√D, or validation is perturbed, too
@pytest.mark.effect("objective.embedding_perturbation")
def test_embedding_perturbation_is_noise_on_the_text(prepare: Prepare) -> None:
    settings = {"data__holdout__fraction": 0.3, "run__validation__every": 1, "run__validation__timesteps": 1}
    settings |= {"data__captions__dropout": 0}
    seen, losses = {}, {}
    for strength in (0.0, 0.5, 1.0):
        ready = prepare(objective__embedding_perturbation=strength, **settings)
        states = States(ready)
        batches = ready.next_batches()
        ready.trainer.train_step.loss(next(iter(batches.batches)), 0)
        seen[strength] = states.seen.pop()
        [watcher] = [o for o in ready.trainer.callbacks if hasattr(o, "measure")]
        losses[strength] = watcher.measure()["val/loss"]
    added = {strength: seen[strength] - seen[0.0] for strength in (0.5, 1.0)}
    width = seen[0.0].shape[-1]
    for strength, noise in added.items():
        assert float(noise.std()) == pytest.approx(strength / width**0.5, rel=0.03)
        assert abs(float(noise.mean())) < 4 * strength / width**0.5 / noise.numel() ** 0.5
    torch.testing.assert_close(2 * added[0.5], added[1.0], rtol=1e-3, atol=1e-5)
    assert not torch.equal(added[1.0][0], added[1.0][1]), "each sample has its own noise"
    assert losses[0.0] == losses[1.0]


# breaks if the noise stops the gradient to the text encoder, or depends on how the batch is split
@pytest.mark.effect("objective.embedding_perturbation")
def test_embedding_perturbation_keeps_text_encoder_gradients(prepare: Prepare) -> None:
    settings = {"objective__embedding_perturbation": 0.5, "optim__lr": 1e-3, "optim__ema__rule": "none"} | BOTH
    whole, split = prepare(**settings), prepare(run__micro_batch=1, **settings)
    one, other = whole.step(), split.step()
    assert one.largest("text_encoder") == pytest.approx(1e-3, rel=2e-2)
    assert one.report.losses == pytest.approx(other.report.losses, rel=1e-5)
    assert one.report.norm == pytest.approx(other.report.norm, rel=1e-4)


# breaks if -1 is used as a seed, is drawn again when resuming, or is recorded as -1
@pytest.mark.slow
@pytest.mark.effect("run.seed")
def test_seed_minus_one_is_drawn_once_per_run(prepare: Prepare) -> None:
    first, second = prepare(run__seed=-1), prepare(run__seed=-1)
    seeds = [ready.recipe.run.seed for ready in (first, second)]
    assert all(0 <= seed < 2**30 for seed in seeds)
    assert seeds[0] != seeds[1], "one chance in a thousand million"
    assert f"this run's seed is {seeds[0]}, drawn just now" in (first.job.start.folder.path / "run.log").read_text()
    assert f"seed: {seeds[0]}\n" in first.job.start.folder.recipe.read_text()
    known = prepare(run__seed=seeds[0])
    before = [known.step() for _ in range(2)]
    assert [first.step().report.losses, first.step().report.losses] == [step.report.losses for step in before]
    first.trainer.progress.step = 2
    first.trainer.host.save(first.trainer)
    [kept] = (first.job.start.folder.path / "checkpoints").iterdir()
    values = json.loads((kept / "state.json").read_text())
    assert values["recipe"]["run"]["seed"] == values["resolved"]["seed"] == seeds[0]
    again = prepare(run__seed=-1, run__folder=first.job.start.folder.path)
    assert again.job.resolved.recipe.run.seed == seeds[0]
    assert again.trainer.progress.step == 2
    assert again.step().report.losses == known.step().report.losses
    recorded = values["recipe"]
    assert "run.seed" not in [one.path for one in find_differences(recorded, read_text("run: {seed: -1}").recipe)]
    assert "run.seed" in [one.path for one in find_differences(recorded, read_text("run: {seed: 5}").recipe)]
