"""The exported scheduler's file says what training changed, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from mezzotint.weights.scheduler_file import corrected

PNDM: dict[str, Any] = {"_class_name": "PNDMScheduler", "beta_start": 0.00085, "skip_prk_steps": True}
EULER: dict[str, Any] = {"_class_name": "EulerDiscreteScheduler", "prediction_type": "v_prediction"}


def test_what_is_true_stays_as_it_is() -> None:
    assert corrected(PNDM, prediction="epsilon", zero_terminal=False) == PNDM
    assert corrected(EULER, prediction="v", zero_terminal=False) == EULER


def test_the_prediction_is_told_and_the_place_is_not() -> None:
    told = corrected(PNDM | {"_name_or_path": "/home/me"}, prediction="v", zero_terminal=False)
    assert told == PNDM | {"prediction_type": "v_prediction"}
    assert corrected(EULER, prediction="epsilon", zero_terminal=False)["prediction_type"] == "epsilon"


def test_pure_noise_at_the_end_is_told_to_a_class_that_knows_it() -> None:
    told = corrected(EULER, prediction="v", zero_terminal=True)
    assert told == EULER | {"rescale_betas_zero_snr": True, "timestep_spacing": "trailing"}
    told = corrected(PNDM, prediction="v", zero_terminal=True)
    assert told["_class_name"] == "DDIMScheduler"
    assert told["clip_sample"] is False
    assert told["timestep_spacing"] == "trailing"


@pytest.mark.parametrize("base", [PNDM, EULER])
def test_epsilon_does_not_start_where_it_tells_nothing(base: dict[str, Any]) -> None:
    told = corrected(base, prediction="epsilon", zero_terminal=True)
    assert told["rescale_betas_zero_snr"] is True
    assert told["timestep_spacing"] == "leading"


def test_a_schedule_that_no_longer_ends_in_pure_noise_is_told_too() -> None:
    before = EULER | {"rescale_betas_zero_snr": True}
    assert corrected(before, prediction="v", zero_terminal=False)["rescale_betas_zero_snr"] is False
