from __future__ import annotations

from typing import Any

import pytest
import torch
from diffusers import DDPMScheduler
from hypothesis import given, settings
from hypothesis import strategies as st

from mezzotint.diffusion.schedule import Schedule
from mezzotint.errors import WeightsError

SD = {"beta_schedule": "scaled_linear", "beta_start": 0.00085, "beta_end": 0.012}


@pytest.mark.parametrize(
    "config",
    [
        {},
        SD,
        SD | {"num_train_timesteps": 50},
        SD | {"rescale_betas_zero_snr": True},
        {"beta_schedule": "squaredcos_cap_v2"},
        {"beta_schedule": "squaredcos_cap_v2", "rescale_betas_zero_snr": True},
        {"trained_betas": [0.01, 0.1, 0.3], "num_train_timesteps": 3},
        {"trained_betas": [0.01, 0.1, 1.0], "num_train_timesteps": 3, "rescale_betas_zero_snr": True},
    ],
)
def test_config_table_equals_diffusers_bitwise(config: dict[str, Any]) -> None:
    ours = Schedule.from_config({"_class_name": "PNDMScheduler", "skip_prk_steps": True} | config)
    theirs = DDPMScheduler(**config)
    assert torch.equal(ours.alpha_bar, theirs.alphas_cumprod)
    assert torch.equal(ours.betas(), theirs.betas)
    assert ours.num_timesteps == len(theirs.alphas_cumprod)


def test_trained_betas_restore_the_table() -> None:
    rescaled = Schedule.scaled_linear().rescale_to_zero_terminal_snr()
    again = Schedule.from_config({"trained_betas": rescaled.betas().tolist()})
    assert torch.equal(again.alpha_bar, rescaled.alpha_bar)


def test_betas_of_a_table_restore_it() -> None:
    table = Schedule.scaled_linear().alpha_bar
    again = Schedule.from_betas(Schedule(table).betas())
    torch.testing.assert_close(again.alpha_bar, table, rtol=1e-5, atol=0)


def test_zero_terminal_snr_keeps_first_and_zeroes_last() -> None:
    plain = Schedule.scaled_linear()
    rescaled = plain.rescale_to_zero_terminal_snr()
    assert (plain.zero_terminal, rescaled.zero_terminal) == (False, True)
    assert rescaled.alpha_bar[0] == pytest.approx(plain.alpha_bar[0].item(), rel=1e-6)
    assert rescaled.alpha_bar[-1] == 0
    assert rescaled.snr[-1] == 0
    assert rescaled.betas()[-1] == 1
    assert rescaled.rescale_to_zero_terminal_snr() is rescaled
    assert torch.isfinite(rescaled.snr).all()
    assert rescaled.sigma[-1] == pytest.approx(4096, rel=1e-6)


def test_snr_and_sigma_agree() -> None:
    schedule = Schedule.scaled_linear()
    assert schedule.snr[0] == pytest.approx(1175.44, rel=1e-5)
    assert schedule.sigma[-1] == pytest.approx(14.6146, rel=1e-5)
    torch.testing.assert_close(schedule.sigma**-2, schedule.snr, rtol=1e-5, atol=0)


def test_moving_to_a_device_keeps_values_without_sync() -> None:
    rescaled = Schedule.scaled_linear().rescale_to_zero_terminal_snr()
    moved = rescaled.to("meta")  # reading a number there is an error
    assert moved.alpha_bar.device.type == "meta"
    assert moved.zero_terminal
    assert torch.equal(moved.betas(), rescaled.betas())
    assert rescaled.alpha_bar.device.type == "cpu"


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(1e-5, 0.5), min_size=2, max_size=30))
def test_any_betas_give_a_decreasing_rescalable_table(betas: list[float]) -> None:
    schedule = Schedule.from_betas(betas)
    rescaled = schedule.rescale_to_zero_terminal_snr()
    for table in (schedule.alpha_bar, rescaled.alpha_bar):
        assert (table[1:] <= table[:-1]).all()
        assert (table >= 0).all()
        assert (table < 1).all()
    assert rescaled.zero_terminal


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"beta_schedule": "sigmoid"}, "sigmoid"),
        ({"trained_betas": "0.1"}, "trained_betas"),
        ({"trained_betas": [0.1, "x"]}, "trained_betas"),
        ({"trained_betas": [0.0, 0.1]}, "above 0"),
        ({"trained_betas": [0.5, 1.5]}, "at most 1"),
        ({"trained_betas": [0.5, float("nan")]}, "at most 1"),
        ({"trained_betas": []}, "table"),
        ({"num_train_timesteps": 0}, "num_train_timesteps"),
        ({"beta_start": None}, "beta_start"),
        ({"beta_end": -1.0, "beta_schedule": "scaled_linear"}, "beta_end"),
    ],
)
def test_impossible_schedule_is_refused_with_a_reason(config: dict[str, Any], said: str) -> None:
    with pytest.raises(WeightsError, match=said) as caught:
        Schedule.from_config(config)
    assert caught.value.code == "E1450"
