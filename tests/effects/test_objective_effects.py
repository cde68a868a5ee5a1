"""Rows of the section `objective`: targets, weights and noise, by their formulas."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from mezzotint import draws
from mezzotint.diffusion.objective import Objective, StepDraws
from mezzotint.diffusion.schedule import Schedule
from mezzotint.settings.sections.objective import ObjectiveSettings
from mezzotint.stages import Noised
from support.messages import refusal

Prepare = Callable[..., Any]
STABLE_DIFFUSION = Schedule.scaled_linear()


def draws_of(count: int, seed: int = 0) -> StepDraws:
    return StepDraws.at(seed, 3, np.arange(count), "cpu")


def at(objective: Objective, timesteps: list[int]) -> Noised:
    """A noised batch at given timesteps, one sample each."""
    x_0 = torch.zeros(len(timesteps), 4, 2, 2)
    return objective.noise_at(x_0, draws_of(len(timesteps)), torch.tensor(timesteps))


def loss_of_error(objective: Objective, error: float) -> float:
    noised = at(objective, [500])
    return float(objective.loss(objective.target(noised) + error, noised, torch.ones(1)).per_sample)


# breaks if Objective._error uses one formula for both, or the settings do not reach the trainer's objective
@pytest.mark.effect("objective.loss", "objective.huber_delta")
def test_loss_is_squared_or_huber_with_delta(prepare: Prepare) -> None:
    mse = prepare()
    huber, wide = (prepare(objective__loss="huber", objective__huber_delta=delta) for delta in (0.5, 2.0))
    assert mse.trainer.model.objective is mse.objective
    assert [loss_of_error(mse.objective, e) for e in (0.1, 3.0)] == pytest.approx([0.01, 9.0], rel=1e-4)
    assert [loss_of_error(huber.objective, e) for e in (0.1, 3.0)] == pytest.approx([0.005, 0.5 * 2.75], rel=1e-4)
    assert loss_of_error(wide.objective, 3.0) == pytest.approx(2.0 * 2.0, rel=1e-4)
    assert huber.step().report.loss < wide.step().report.loss < mse.step().report.loss


# breaks if c does not follow the noise level by its formula, or is not multiplied
@pytest.mark.effect("objective.huber_schedule", "objective.huber_scale")
def test_pseudo_huber_parameter_follows_the_noise_level(prepare: Prepare) -> None:
    sigma = float(STABLE_DIFFUSION.sigma[500])
    expected = {"constant": 0.2, "exponential": 0.2**0.5, "snr": 0.8 / (1 + sigma) ** 2 + 0.2}
    losses = []
    for schedule, c in expected.items():
        settings = {"objective__huber_delta": 0.2, "objective__huber_schedule": schedule}
        once, twice = (prepare(objective__loss="smooth-l1", objective__huber_scale=s, **settings) for s in (1, 2))
        for ready, factor in ((once, 1.0), (twice, 2.0)):
            formula = [2 * (math.hypot(e, factor * c) - factor * c) for e in (0.1, 3.0)]
            assert [loss_of_error(ready.objective, e) for e in (0.1, 3.0)] == pytest.approx(formula, rel=1e-4)
        pseudo = prepare(objective__loss="pseudo-huber", **settings).objective
        assert loss_of_error(pseudo, 3.0) == pytest.approx(2 * c * (math.hypot(3.0, c) - c), rel=1e-4)
        losses.append(once.step().report.loss)
    assert len(set(losses)) == 3, "another schedule trains with another loss"
    assert "is for objective.loss=pseudo-huber or smooth-l1" in refusal("objective.huber_schedule=snr")
    assert "is for objective.loss=pseudo-huber or smooth-l1" in refusal("objective.huber_scale=2")
    words = ("objective.loss=smooth-l1", "objective.huber_schedule=snr", "model.family=flux")
    assert "is a flow-matching model" in refusal(*words)


def weights_at(prepare: Prepare, timesteps: list[int], **settings: Any) -> Tensor:
    objective = prepare(**settings).objective
    noised = at(objective, timesteps)
    return objective.loss(objective.target(noised), noised, torch.ones(len(timesteps))).weight


# breaks if γ does not reach the weights, or weights are not 1 without it
@pytest.mark.effect("objective.min_snr_gamma")
def test_min_snr_gamma_clamps_the_weight(prepare: Prepare) -> None:
    places = [0, 100, 500, 999]
    snr = STABLE_DIFFUSION.snr[places]
    assert weights_at(prepare, places).tolist() == [1.0] * 4
    for gamma in (5.0, 1.0):
        result = weights_at(prepare, places, objective__min_snr_gamma=gamma)
        torch.testing.assert_close(result, snr.clamp(max=gamma) / snr)
    assert float(snr[0]) > 5 > 1 > float(snr[3]), "some timesteps are clamped, some are not"


# breaks if one form is used for the other; they differ only for v
@pytest.mark.effect("objective.min_snr_form")
def test_min_snr_form_is_one_of_three_formulas(prepare: Prepare) -> None:
    places = [0, 100, 500, 999]
    snr = STABLE_DIFFUSION.snr[places]
    expected = {
        "prediction": snr.clamp(max=5) / (snr + 1),
        "x0": (snr + 1).clamp(max=5) / (snr + 1),
        "ratio": snr.clamp(max=5) / snr,
    }
    settings = {"model__prediction": "v", "objective__min_snr_gamma": 5}
    for form, formula in expected.items():
        torch.testing.assert_close(weights_at(prepare, places, objective__min_snr_form=form, **settings), formula)


# breaks if the offset is not added, differs within a channel, has another size, or is missing from the target
@pytest.mark.effect("objective.noise_offset")
def test_noise_offset_moves_whole_channels(prepare: Prepare) -> None:
    plain, offset = prepare().objective, prepare(objective__noise_offset=0.5).objective
    x_0, count = torch.zeros(2000, 4, 3, 3), 8000
    times = torch.full((2000,), 300)
    without, with_it = (o.noise_at(x_0, draws_of(2000), times) for o in (plain, offset))
    added = with_it.noise - without.noise
    torch.testing.assert_close(added, added[:, :, :1, :1].expand_as(added), rtol=0, atol=1e-5)
    by_channel = added[:, :, 0, 0]
    assert abs(float(by_channel.mean())) < 3 * 0.5 / count**0.5
    assert abs(float(by_channel.var()) - 0.25) < 3 * 0.25 * (2 / count) ** 0.5
    torch.testing.assert_close(offset.target(with_it), with_it.noise)


# breaks if the strength is the full one, or each sample or each start of the run has its own
@pytest.mark.effect("objective.noise_offset_random_strength", "objective.input_perturbation_random_strength")
def test_random_strengths_multiply_the_noise_of_a_step(prepare: Prepare) -> None:
    for name, purpose in (("noise_offset", "offset"), ("input_perturbation", "perturbation")):
        plain = prepare().objective
        fixed, random = (
            prepare(**{f"objective__{name}": 0.5, f"objective__{name}_random_strength": on}) for on in (False, True)
        )
        x_0, times = torch.zeros(3, 4, 2, 2), torch.full((3,), 999)
        inputs = [ready.noise_at(x_0, draws_of(3), times).x_t for ready in (plain, fixed.objective, random.objective)]
        share = draws.uniform(draws.key(0, f"{purpose}-strength", 3))
        torch.testing.assert_close(inputs[2] - inputs[0], share * (inputs[1] - inputs[0]), rtol=0, atol=1e-5)
        assert random.step().report.losses != fixed.step().report.losses


# breaks if the strength does not depend on the latents, or falls below 0
@pytest.mark.effect("objective.noise_offset_adaptive_scale")
def test_noise_offset_follows_the_latents(prepare: Prepare) -> None:
    plain, adaptive = (
        prepare(objective__noise_offset=0.2, objective__noise_offset_adaptive_scale=s) for s in (0.0, -0.1)
    )
    x_0, times = torch.stack([torch.full((4, 2, 2), mean) for mean in (0.0, -1.0, 5.0)]), torch.full((3,), 300)
    bare, fixed, moved = (
        objective.noise_at(x_0, draws_of(3), times).noise
        for objective in (prepare().objective, plain.objective, adaptive.objective)
    )
    expected = (fixed - bare) * torch.tensor([1.0, 0.5, 0.0]).view(3, 1, 1, 1)
    torch.testing.assert_close(moved - bare, expected, rtol=0, atol=1e-6)
    assert adaptive.step().report.losses != plain.step().report.losses


# breaks if the trainer's schedule is not rescaled, or the export does not record it
@pytest.mark.effect("objective.zero_terminal_snr")
def test_zero_terminal_snr_ends_in_pure_noise(prepare: Prepare) -> None:
    plain = prepare(objective__zero_terminal_snr=False)
    zero = prepare(objective__zero_terminal_snr=True, model__prediction="v")
    assert float(plain.objective.schedule.alpha_bar[-1]) > 0.004
    assert float(zero.objective.schedule.alpha_bar[-1]) == 0.0
    torch.testing.assert_close(zero.objective.schedule.alpha_bar[0], plain.objective.schedule.alpha_bar[0])
    x_0 = torch.full((1, 4, 2, 2), 7.0)
    noised = zero.objective.noise_at(x_0, draws_of(1), torch.tensor([999]))
    torch.testing.assert_close(noised.x_t, noised.noise)
    zero.trainer.host.export(zero.trainer)
    [exported] = [p for p in zero.job.start.folder.exports.iterdir() if not p.name.endswith("-ema")]
    config = json.loads((exported / "scheduler" / "scheduler_config.json").read_text())
    assert config["rescale_betas_zero_snr"] is True


# breaks if timesteps are drawn from another range, exclude one of its ends, or are not uniform
@pytest.mark.effect("objective.timesteps")
def test_timesteps_are_uniform_over_the_range(prepare: Prepare) -> None:
    ready = prepare(objective__timesteps=[200, 300])
    drawn = ready.objective.noise(torch.zeros(10_000, 4, 1, 1), draws_of(10_000)).model_t
    assert (int(drawn.min()), int(drawn.max())) == (200, 299)
    assert abs(float(drawn.float().mean()) - 249.5) < 3 * (100**2 / 12) ** 0.5 / 10_000**0.5
    counts = torch.bincount(drawn - 200, minlength=100).float()
    assert float((counts - 100).abs().max()) < 5 * 100**0.5
    assert all(200 <= t < 300 for _ in range(2) for t in ready.step().report.timesteps)
    everywhere = prepare().objective.noise(torch.zeros(10_000, 4, 1, 1), draws_of(10_000)).model_t
    assert int(everywhere.min()) < 5
    assert int(everywhere.max()) > 994


# breaks if the perturbation is added to the target, or has another size
@pytest.mark.effect("objective.input_perturbation")
def test_input_perturbation_changes_input_not_target() -> None:
    plain, perturb_text = (
        Objective(ObjectiveSettings(input_perturbation=p), STABLE_DIFFUSION, "epsilon") for p in (0.0, 0.1)
    )
    one, other = (
        objective.noise_at(torch.zeros(400, 4, 2, 2), draws_of(400), torch.full((400,), 700))
        for objective in (plain, perturb_text)
    )
    assert torch.equal(plain.target(one), perturb_text.target(other))
    extra = (other.x_t - one.x_t) / (1 - STABLE_DIFFUSION.alpha_bar[700]).sqrt()
    assert float(extra.std()) == pytest.approx(0.1, rel=0.03)
    assert abs(float((extra * one.noise).mean())) < 0.1 * 3 / 6400**0.5


def drawn_by(prepare: Prepare, count: int = 20_000, **settings: Any) -> Tensor:
    """How often each of the 1000 timesteps is drawn, relative to a uniform draw."""
    objective = prepare(**{f"objective__{key}": value for key, value in settings.items()}).objective
    drawn = objective.noise(torch.zeros(count, 4, 1, 1), draws_of(count)).model_t
    return torch.bincount(drawn, minlength=1000).float() * 1000 / count


# breaks if the bias does not reach the draw, affects the loss, prefers the wrong end, or `end` is inclusive
@pytest.mark.effect("objective.timestep_bias.strategy", "objective.timestep_bias.multiplier")
def test_timestep_bias_changes_frequency_not_weight(prepare: Prepare) -> None:
    none = drawn_by(prepare, timestep_bias__multiplier=4)
    assert float(none[:250].mean()) == pytest.approx(1, abs=0.05)
    whole = 0.25 * 4 + 0.75
    for strategy, preferred in (("earlier", slice(0, 250)), ("later", slice(750, 1000))):
        drawn = drawn_by(prepare, timestep_bias__strategy=strategy, timestep_bias__multiplier=4)
        assert float(drawn[preferred].mean()) == pytest.approx(4 / whole, abs=0.1)
        assert float(drawn[300:700].mean()) == pytest.approx(1 / whole, abs=0.05)
    ready = prepare(objective__timestep_bias__strategy="earlier", objective__timestep_bias__multiplier=1e9)
    noised = at(ready.objective, [0, 999])
    assert ready.objective.loss(ready.objective.target(noised), noised, torch.ones(2)).weight.tolist() == [1, 1]
    assert all(t < 250 for _ in range(3) for t in ready.step().report.timesteps)


# breaks if range ignores its ends, or includes the last one
@pytest.mark.effect("objective.timestep_bias.begin", "objective.timestep_bias.end")
def test_timestep_bias_range_is_half_open(prepare: Prepare) -> None:
    result = drawn_by(
        prepare, timestep_bias__strategy="range", timestep_bias__multiplier=1e9,
        timestep_bias__begin=200, timestep_bias__end=210,
    )  # fmt: skip
    assert result.nonzero().flatten().tolist() == list(range(200, 210))
    both = drawn_by(
        prepare, timestep_bias__strategy="range", timestep_bias__multiplier=3, timestep_bias__begin=200,
        timestep_bias__end=500, timesteps=[400, 600],
    )  # fmt: skip
    assert both.nonzero().flatten().min() >= 400
    assert both.nonzero().flatten().max() < 600
    assert float(both[400:500].sum() / both[500:600].sum()) == pytest.approx(3, rel=0.1)


# breaks if another share of the timesteps is preferred
@pytest.mark.effect("objective.timestep_bias.portion")
def test_timestep_bias_portion_is_the_preferred_share(prepare: Prepare) -> None:
    for strategy, low, high in (("earlier", 0, 100), ("later", 900, 1000)):
        result = drawn_by(
            prepare, timestep_bias__strategy=strategy, timestep_bias__multiplier=1e9, timestep_bias__portion=0.1
        )
        places = result.nonzero().flatten()
        assert (int(places.min()), int(places.max())) == (low, high - 1)
