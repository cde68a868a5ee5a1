"""Rows of models trained in σ: predictions, levels, weightings; of offset noise by sample."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from mezzotint.diffusion import preconditioning
from mezzotint.diffusion.objective import Objective, StepDraws
from mezzotint.errors import RecipeError
from support.messages import refusal

Prepare = Callable[..., Any]
NO_AVERAGE = {"optim__ema__rule": "none"}


def draws_of(count: int) -> StepDraws:
    return StepDraws.at(0, 3, np.arange(count), "cpu")


def scheduler_of(ready: Any) -> dict[str, Any]:
    ready.trainer.host.export(ready.trainer)
    [exported] = ready.folder.exports.iterdir()
    return dict(json.loads((exported / "scheduler" / "scheduler_config.json").read_text()))


# breaks if the input is not scaled, the target or time input differs, or the export omits it
@pytest.mark.effect("model.prediction")
@pytest.mark.parametrize("kind", ["edm", "v-edm", "epsilon-unscaled"])
def test_sigma_predictions_scale_input_and_are_exported(prepare: Prepare, kind: Any) -> None:
    ready = prepare(model__prediction=kind, **NO_AVERAGE)
    x_0, times = torch.full((2, 4, 2, 2), 0.5), torch.tensor([100, 900])
    noised = ready.objective.noise_at(x_0, draws_of(2), times)
    sigma = ready.objective.schedule.sigma[times]
    factors = preconditioning.compute_scaling(kind, sigma)
    x_sigma = x_0 + sigma.view(2, 1, 1, 1) * noised.noise
    torch.testing.assert_close(noised.model_input, factors.c_in.view(2, 1, 1, 1) * x_sigma)
    clean = preconditioning.denoise(ready.objective.target(noised), x_sigma, factors)
    torch.testing.assert_close(clean, x_0, rtol=1e-4, atol=1e-4)
    model_t = times if kind == "epsilon-unscaled" else 0.25 * sigma.log()
    torch.testing.assert_close(noised.model_t, model_t)
    assert ready.step().report.applied
    config = scheduler_of(ready)
    assert {k: config.get(k) for k in ("prediction_type", "timestep_type", "sigma_data")} == {
        "edm": {"prediction_type": "epsilon", "timestep_type": None, "sigma_data": 0.5},
        "v-edm": {"prediction_type": "v_prediction", "timestep_type": "continuous", "sigma_data": None},
        "epsilon-unscaled": {"prediction_type": "epsilon-unscaled", "timestep_type": None, "sigma_data": None},
    }[kind]
    with pytest.raises(RecipeError, match=r"zero_terminal_snr.*parameterized by σ"):
        prepare(model__prediction=kind, objective__zero_terminal_snr=True)


# breaks if σ_d is always EDM's, in the target, in the weight, or in the export
@pytest.mark.effect("objective.sigma_data")
def test_sigma_data_changes_target_weight_and_export(prepare: Prepare) -> None:
    ready = prepare(model__prediction="edm", objective__sigma_data=1.0, objective__weighting="edm", **NO_AVERAGE)
    noised = ready.objective.noise_at(torch.zeros(1, 4, 2, 2), draws_of(1), torch.tensor([500]))
    sigma = float(ready.objective.schedule.sigma[500])
    torch.testing.assert_close(ready.objective.target(noised), -noised.noise / (sigma**2 + 1) ** 0.5)
    assert float(ready.objective.loss(noised.noise, noised, torch.ones(1)).weight) == pytest.approx(1.0, rel=1e-5)
    assert scheduler_of(ready)["sigma_data"] == 1.0


# breaks if levels always come from the table, or their spread is not the recipe's
@pytest.mark.effect("objective.noise_levels", "objective.log_normal")
def test_log_normal_levels_have_given_mean_and_deviation(prepare: Prepare) -> None:
    settings = {"model__prediction": "edm", "objective__noise_levels": "log-normal"}
    for mean, std in ((-1.2, 1.2), (0.5, 0.25)):
        ready = prepare(objective__log_normal=[mean, std], **settings)
        noised = ready.objective.noise(torch.zeros(20_000, 4, 1, 1), draws_of(20_000))
        logarithm = noised.level.log()
        assert float(logarithm.mean()) == pytest.approx(mean, abs=4 * std / 20_000**0.5)
        assert float(logarithm.std()) == pytest.approx(std, rel=0.03)
        torch.testing.assert_close(noised.model_t, 0.25 * logarithm)
    assert ready.step().report.timesteps != ready.step().report.timesteps
    table = prepare(objective__noise_levels="log-normal").objective
    drawn = table.noise(torch.zeros(500, 4, 1, 1), draws_of(500))
    assert drawn.model_t.dtype == torch.int64, "ε models get the nearest timestep"
    assert len(set(drawn.model_t.tolist())) > 200
    for other in ("objective.timestep_bias.strategy=later", "objective.timesteps=[0, 500]"):
        assert "uses none; leave them out" in refusal("objective.noise_levels=log-normal", other)


# breaks if the network gets the timestep instead of ¼ ln σ, or the reverse
@pytest.mark.effect("objective.time_input")
def test_time_input_is_timestep_or_log_sigma(prepare: Prepare) -> None:
    times = torch.tensor([100, 900])
    for kind, word, is_logarithm in (
        ("edm", "auto", True), ("edm", "timestep", False), ("v", "auto", False), ("v", "log-sigma", True),
    ):  # fmt: skip
        ready = prepare(model__prediction=kind, objective__time_input=word, **NO_AVERAGE)
        noised = ready.objective.noise_at(torch.zeros(2, 4, 2, 2), draws_of(2), times)
        expected = 0.25 * ready.objective.schedule.sigma[times].log() if is_logarithm else times
        torch.testing.assert_close(noised.model_t, expected)
        torch.testing.assert_close(ready.objective.loss(ready.objective.target(noised), noised, torch.ones(2)).total,
                                   torch.tensor(0.0))  # fmt: skip
    assert scheduler_of(ready)["timestep_type"] == "continuous"
    with pytest.raises(
        RecipeError, match=r"objective.time_input=log-sigma.*predicts epsilon; write objective.time_input=auto"
    ):
        prepare(objective__time_input="log-sigma")


def x_0_weight(objective: Objective, timestep: int, error: float = 1.0) -> float:
    """The loss for an error of x_0 of this size."""
    noised = objective.noise_at(torch.zeros(1, 4, 2, 2), draws_of(1), torch.tensor([timestep]))
    sigma = objective.schedule.sigma[timestep]
    wrong = objective.target(noised) + error / (-sigma if objective.prediction == "epsilon" else 1.0)
    result = objective.loss(wrong, noised, torch.ones(1))
    return float(result.total)


# breaks if a weighting has another formula, is not clamped by γ, or is combined with a loss that it does not fit
@pytest.mark.effect("objective.weighting")
def test_weighting_multiplies_the_error_of_x_0(prepare: Prepare) -> None:
    formulas: dict[str, Callable[[float], float]] = {
        "prediction": lambda snr: snr,
        "unit": lambda snr: 1.0,
        "epsilon": lambda snr: snr,
        "v": lambda snr: snr + 1,
        "edm": lambda snr: snr + 4,
    }
    clamped = {"objective__min_snr_gamma": 3, "objective__min_snr_form": "x0"}
    cases = [(prepare(objective__weighting=kind).objective, formula) for kind, formula in formulas.items()]
    cases.append((prepare(objective__weighting="v", **clamped).objective, lambda snr: min(snr + 1, 3)))
    for objective, formula in cases:
        for timestep in (100, 700):
            weight = formula(float(objective.schedule.sigma[timestep]) ** -2)
            assert x_0_weight(objective, timestep) == pytest.approx(weight, rel=1e-4)
            assert x_0_weight(objective, timestep, error=2.0) == pytest.approx(4 * weight, rel=1e-4)
    assert "needs objective.loss mse or l1" in refusal("objective.weighting=v", "objective.loss=huber")
    assert "write objective.min_snr_form=x0" in refusal("objective.weighting=v", "objective.min_snr_gamma=5")


# breaks if the formula does not depend on the prediction, or the loss is left out of account
@pytest.mark.effect("objective.weighting")
def test_debiased_weighting_multiplies_the_loss(prepare: Prepare) -> None:
    plain, debiased = (prepare(objective__weighting=kind, **NO_AVERAGE) for kind in ("prediction", "debiased"))
    v = prepare(objective__weighting="debiased", model__prediction="v", objective__loss="huber").objective
    snr = [min(float(v.schedule.snr[t]), 1000.0) for t in (0, 500)]
    x_0, times = torch.zeros(2, 4, 2, 2), torch.tensor([0, 500])
    for objective, expected in ((debiased.objective, [s**-0.5 for s in snr]), (v, [1 / (s + 1) for s in snr])):
        noised = objective.noise_at(x_0, draws_of(2), times)
        weight = objective.loss(objective.target(noised), noised, torch.ones(2)).weight
        assert weight.tolist() == pytest.approx(expected, rel=1e-4)
    assert debiased.step().report.loss != plain.step().report.loss
    with pytest.raises(RecipeError, match="the denoiser predicts edm"):
        prepare(objective__weighting="debiased", model__prediction="edm", **NO_AVERAGE)
    assert "leave one of them out" in refusal("objective.weighting=debiased", "objective.min_snr_gamma=5")
    assert "is a flow-matching model" in refusal("objective.weighting=debiased", "model.family=flux")


# breaks if l1 is squared, or has the weight of the squared error
@pytest.mark.effect("objective.loss")
def test_l1_loss_is_the_absolute_error(prepare: Prepare) -> None:
    plain = prepare(objective__loss="l1").objective
    noised = plain.noise_at(torch.zeros(1, 4, 2, 2), draws_of(1), torch.tensor([300]))
    assert float(plain.loss(plain.target(noised) - 3.0, noised, torch.ones(1)).total) == pytest.approx(3.0)
    weighted = prepare(objective__loss="l1", objective__weighting="epsilon").objective
    sigma = float(weighted.schedule.sigma[300])
    for error in (1.0, 2.0):
        assert x_0_weight(weighted, 300, error=error) == pytest.approx(error * sigma**-2, rel=1e-4)


# breaks if a number is always drawn for each channel, or is missing from the target
@pytest.mark.effect("objective.noise_offset_per")
def test_offset_noise_per_sample_is_equal_in_all_channels(prepare: Prepare) -> None:
    def added(**settings: Any) -> Tensor:
        plain, offset = prepare().objective, prepare(objective__noise_offset=0.5, **settings).objective
        x_0, times = torch.zeros(2000, 4, 3, 3), torch.full((2000,), 300)
        with_it = offset.noise_at(x_0, draws_of(2000), times)
        torch.testing.assert_close(offset.target(with_it), with_it.noise)
        return with_it.noise - plain.noise_at(x_0, draws_of(2000), times).noise

    by_sample, by_channel = added(objective__noise_offset_per="sample"), added(objective__noise_offset_per="channel")
    torch.testing.assert_close(by_sample, by_sample[:, :1, :1, :1].expand_as(by_sample), rtol=0, atol=1e-5)
    assert not torch.allclose(by_channel[:, 0], by_channel[:, 1], atol=0.01)
    numbers = by_sample[:, 0, 0, 0]
    assert abs(float(numbers.mean())) < 3 * 0.5 / 2000**0.5
    assert float(numbers.var()) == pytest.approx(0.25, rel=3 * (2 / 2000) ** 0.5)
