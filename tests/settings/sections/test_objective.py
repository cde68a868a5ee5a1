"""Noise, levels and weights that exclude each other."""

from __future__ import annotations

import pytest

from support.contradictions import contradiction


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (["objective.timesteps=[5, 5]"], "0 ≤ first < second ≤ 1000"),
        (["objective.timestep_bias={strategy: range, begin: 9, end: 9}"], "must be below end"),
        (["objective.weighting=v", "objective.loss=huber"], "write objective.weighting=prediction"),
        (["objective.weighting=v", "objective.min_snr_gamma=5"], "write objective.min_snr_form=x0"),
        (
            ["objective.noise_levels=log-normal", "objective.timesteps=[0, 500]"],
            "objective.noise_levels=log-normal uses none",
        ),
    ],
)
def test_conflicting_settings_are_refused_with_a_remedy(settings: list[str], sentence: str) -> None:
    assert sentence in contradiction(*settings)
