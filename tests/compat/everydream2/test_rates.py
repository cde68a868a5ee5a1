"""A rule without a rate."""

from __future__ import annotations

from typing import Any

from support import check_command

check_of = check_command.check_of


def test_a_rate_of_nought_is_no_problem_of_a_rule_without_a_rate(check_of: Any) -> None:
    assert [error.code for error in check_of(optim__lr=0).problems] == ["E1602"]
    assert check_of(optim__lr=0, optim__optimizer__kind="adacoor").problems == []
