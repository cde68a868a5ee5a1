"""When a measured loss is said to rise again."""

from __future__ import annotations

import json

import pytest

from mezzotint.training.callbacks._overfit_warning import OverfitWarning


def told(losses: list[float]) -> list[int]:
    """After which measurements something is said of a curve, counted from 1."""
    rising = OverfitWarning()
    return [number for number, loss in enumerate(losses, 1) if rising.take(number, {"val/loss": loss})]


FALL = [1.0, 0.9, 0.8, 0.7, 0.6, 0.5]


@pytest.mark.parametrize(
    ("losses", "expected"),
    [
        ([*FALL, 0.6, 0.7, 0.8, 0.9, 1.0], []),  # eleven are not enough
        ([*FALL, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3], [12]),  # once
        ([*FALL, 0.6, 0.7, 0.8, 0.9, 1.0, 0.7, 0.6, 0.55], []),  # falls again
        ([1.0 - 0.01 * n for n in range(30)], []),
        ([*FALL, *FALL, 0.45, 0.5, 0.55], []),  # the lowest is among the last five
        ([*FALL, *[0.6] * 10], []),  # a plain
        ([*FALL, 0.5, 0.6, 0.6, 0.7, 0.7, 0.8, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9], [12, 18]),  # again after a new lowest
    ],
)
def test_a_curve_has_turned_when_it_rises_past_its_lowest(losses: list[float], expected: list[int]) -> None:
    assert told(losses) == expected


def test_what_was_said_is_remembered_by_a_run_that_goes_on() -> None:
    losses = [*FALL, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1]
    for stop in range(len(losses) + 1):
        first, second = OverfitWarning(), OverfitWarning()
        said = [sentence for n, loss in enumerate(losses[:stop]) for sentence in first.take(n, {"val/loss": loss})]
        second.load(json.loads(json.dumps(first.state())))
        rest = enumerate([*losses, 1.2][stop:], stop)
        said += [sentence for n, loss in rest for sentence in second.take(n, {"val/loss": loss})]
        assert len(said) == 1, stop
        assert "0.7000 at step 7, 1.1000 now; it was lowest at step 5, with 0.5000" in said[0]
