"""The timestep bias of diffusers' SDXL example, recorded: eight weight vectors, and three wrong settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from safetensors.numpy import load_file

from mezzotint.diffusion.timesteps import bias_weights

DATA = Path(__file__).parent / "data" / "diffusers"
RECORD: dict[str, Any] = json.loads((DATA / "timestep_weights.json").read_text())
VECTORS = load_file(DATA / "timestep_weights.safetensors")


def weights(args: dict[str, Any]) -> NDArray[np.float64]:
    values = {name.removeprefix("timestep_bias_"): value for name, value in args.items()}
    return bias_weights(values.pop("strategy"), **values)


@pytest.mark.parametrize("case", VECTORS)
def test_timestep_weights_equal_the_record(case: str) -> None:
    expected = VECTORS[case].astype(np.float64)
    if case == "none":  # all ones there, and unused
        assert (expected == 1).all()
        expected /= expected.sum()
    ours = weights(RECORD[case])
    worst = float((np.abs(ours - expected) / expected).max())
    print(f"\n{case}: worst relative deviation {worst:.1e}")  # shown by pytest -s
    assert worst < 3e-7, "float32 there"
    assert ours.sum() == pytest.approx(1, rel=1e-12)


def test_each_recorded_case_is_compared() -> None:
    refused = [case for case, entry in RECORD.items() if "outcome" in entry]
    assert sorted([*VECTORS, *refused]) == sorted(RECORD)
    assert len(refused) == 3


@pytest.mark.parametrize("case", [case for case, entry in RECORD.items() if "outcome" in entry])
def test_cases_that_fail_in_diffusers_are_refused(case: str) -> None:
    assert "ValueError" in RECORD[case]["outcome"]
    with pytest.raises(ValueError, match="timesteps"):
        weights(RECORD[case]["args"])


@given(st.sampled_from(["earlier", "later", "range"]), st.floats(0.01, 100), st.floats(0, 1), st.integers(0, 100))
def test_biased_timesteps_are_sampled_as_often_as_set(what: str, factor: float, portion: float, begin: int) -> None:
    shares = bias_weights(what, multiplier=factor, begin=begin, end=100, portion=portion, num_timesteps=100)
    count = 100 - begin if what == "range" else int(portion * 100)
    biased = shares[:count] if what == "earlier" else shares[100 - count :]
    rest = shares[count:] if what == "earlier" else shares[: 100 - count]
    assert (shares > 0).all()
    assert np.ptp(biased) == np.ptp(rest) == 0 if 0 < count < 100 else np.ptp(shares) == 0
    if 0 < count < 100:
        assert biased[0] / rest[0] == pytest.approx(factor, rel=1e-12)


@pytest.mark.parametrize(
    ("strategy", "wrong"),
    [("soon", {}), ("later", {"portion": 1.5}), ("later", {"portion": float("nan")}),
     ("range", {"begin": 600, "end": 500}), ("earlier", {"multiplier": float("nan")})],
)  # fmt: skip
def test_invalid_timestep_bias_is_refused(strategy: str, wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="timesteps"):
        bias_weights(strategy, **wrong)
