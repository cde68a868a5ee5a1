"""A rule without a rate."""

from __future__ import annotations

from typing import Any

from support import check_command

check_of = check_command.check_of


def test_zero_learning_rate_is_accepted_by_optimizers_without_one(check_of: Any) -> None:
    assert [error.code for error in check_of(optim__lr=0).problems] == ["E1602"]
    assert check_of(optim__lr=0, optim__optimizer__kind="adacoor").problems == []
