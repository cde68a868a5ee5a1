from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.optimization import get_inverse_sqrt_schedule, get_wsd_schedule

from mezzotint.settings.sections.optim import ScheduleSettings
from mezzotint.training.lr import factor
from support.contradictions import contradiction

DECAYING = ("linear", "cosine", "restarts", "polynomial")


def curve(steps: range, total: int = 100, **fields: Any) -> list[float]:
    built = ScheduleSettings(**fields)
    return [factor(built, step, total) for step in steps]


@pytest.mark.parametrize("kind", ["constant", *DECAYING])
def test_warmup_rises_linearly_from_zero(kind: str) -> None:
    assert curve(range(11), kind=kind, warmup_steps=10) == pytest.approx([k / 10 for k in range(11)])


@pytest.mark.parametrize("kind", DECAYING)
def test_rate_falls_from_peak_to_floor_and_stays(kind: str) -> None:
    result = curve(range(130), kind=kind, warmup_steps=10, floor=0.25)
    assert result[10] == 1
    assert result[100:] == [0.25] * 30
    assert all(a > b for a, b in pairwise(result[10:101]))


def test_halfway_values_of_each_kind() -> None:
    assert curve(range(50, 51), kind="linear") == [0.5]
    assert curve(range(50, 51), kind="cosine") == pytest.approx([0.5])
    assert curve(range(25, 26), kind="cosine") == pytest.approx([0.853553], abs=1e-6)
    assert curve(range(50, 51), kind="polynomial", power=2.0, floor=0.2) == pytest.approx([0.2 + 0.8 * 0.25])
    assert curve(range(50, 51), kind="constant") == [1.0]


def test_restarts_return_to_the_peak() -> None:
    result = curve(range(101), kind="restarts", cycles=4)
    assert [result[k] for k in (0, 25, 50, 75)] == [1.0] * 4
    assert result[24] == pytest.approx(result[99])
    assert result[24] < 0.01
    assert result[100] == 0


def test_decay_steps_replace_the_length_of_the_run() -> None:
    assert curve(range(0, 100, 10), total=100, kind="linear", decay_steps=50) == pytest.approx(
        [1.0, 0.8, 0.6, 0.4, 0.2, 0, 0, 0, 0, 0]
    )
    assert curve(range(80, 81), total=50, kind="linear", decay_steps=160) == [0.5]


def test_piecewise_keeps_each_factor_from_its_step() -> None:
    points = ((3, 0.5), (6, 2.0))
    assert curve(range(8), kind="piecewise", points=points) == [1, 1, 1, 0.5, 0.5, 0.5, 2, 2]
    warm = curve(range(8), kind="piecewise", points=points, warmup_steps=4)
    assert warm == pytest.approx([0, 0.25, 0.5, 0.375, 0.5, 0.5, 2, 2])


def test_schedules_of_transformers() -> None:
    weights = [torch.nn.Parameter(torch.zeros(1))]
    wsd = get_wsd_schedule(torch.optim.SGD(weights, lr=1.0), 10, 30, num_training_steps=100, min_lr_ratio=0.1)
    inverse = get_inverse_sqrt_schedule(torch.optim.SGD(weights, lr=1.0), 10, timescale=25)
    ours = {
        wsd: curve(range(100), kind="cosine", warmup_steps=10, cooldown_steps=30, floor=0.1, warmup_from=0.1),
        inverse: curve(range(100), kind="inverse-sqrt", warmup_steps=10, timescale_steps=25),
    }
    for theirs, expected in ours.items():
        assert [theirs.lr_lambdas[0](step) for step in range(100)] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"kind": "constant", "cooldown_ratio": 0.1}, "is for the kinds linear"),
        ({"kind": "cosine", "cooldown_ratio": 0.1, "cooldown_steps": 5}, "both set the decay"),
        ({"kind": "cosine", "timescale_steps": 5}, "is for the kind inverse-sqrt"),
    ],
)
def test_settings_of_other_kinds_are_refused(fields: dict[str, Any], message: str) -> None:
    assert message in contradiction(*(f"optim.schedule.{name}={value}" for name, value in fields.items()))


def test_run_shorter_than_warmup_only_rises() -> None:
    assert curve(range(5), total=5, kind="cosine", warmup_steps=10) == pytest.approx([0, 0.1, 0.2, 0.3, 0.4])
    assert curve(range(10, 13), total=5, kind="linear", warmup_steps=10, floor=0.1) == pytest.approx([0.1] * 3)


@settings(max_examples=100, deadline=None)
@given(
    kind=st.sampled_from(("constant", *DECAYING)),
    step=st.integers(0, 3000),
    total=st.integers(1, 2000),
    warmup=st.integers(0, 500),
    floor=st.floats(0, 1),
    cycles=st.integers(1, 9),
    power=st.floats(0.125, 8),
)
def test_factor_is_between_floor_and_one_after_warmup(
    kind: str, step: int, total: int, warmup: int, floor: float, cycles: int, power: float
) -> None:
    built = ScheduleSettings(kind=kind, warmup_steps=warmup, floor=floor, cycles=cycles, power=power)  # type: ignore[arg-type]
    result = factor(built, step, total)
    assert 0 <= result <= 1
    if step >= warmup:
        assert result >= floor - 1e-12
