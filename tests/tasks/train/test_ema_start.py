"""The initial EMA must have the shapes of the model."""

from __future__ import annotations

from typing import Any

from mezzotint.errors import WeightsError


def test_check_compares_initial_ema_with_the_model(check_of: Any, world: Any, another_sd: Any, tmp_path: Any) -> None:
    problems = check_of(optim__ema__rule="constant", optim__ema__start=another_sd).problems
    assert [error.code for error in problems] == ["E1417"]
    assert isinstance(problems[0], WeightsError)
    problems = check_of(optim__ema__rule="constant", optim__ema__start=tmp_path / "nowhere").problems
    assert [error.code for error in problems] == ["E1401"]
    # configurations have no weights for an initial EMA
    problems = check_of(optim__ema__rule="constant", optim__ema__start=world.model).problems
    assert {error.code for error in problems} == {"E1407"}
