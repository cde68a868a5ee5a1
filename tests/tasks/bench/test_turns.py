"""Rows take turns, and each has clocks of its own."""

from __future__ import annotations

import time
from functools import partial

import pytest
import torch

from mezzotint.tasks.bench import _turns
from mezzotint.tasks.bench._turns import Turn, in_turn

CPU = torch.device("cpu")


def test_rows_go_on_one_at_a_time_and_their_clocks_stand_still_meanwhile() -> None:
    said: list[str] = []
    spent: dict[str, float] = {}

    def work(name: str, seconds: float, turn: Turn) -> None:
        began = turn.read("wall")
        for number in range(3):
            said.append(f"{name}{number}")
            time.sleep(seconds)
            turn.pass_on()
        spent[name] = turn.read("wall") - began

    in_turn([partial(work, "a", 0.0), partial(work, "b", 0.05)], CPU)
    assert said == ["a0", "b0", "a1", "b1", "a2", "b2"]
    assert spent["b"] >= 0.15
    assert spent["a"] < 0.1


def test_what_one_row_raises_ends_them_all() -> None:
    ended: list[str] = []

    def fails(turn: Turn) -> None:
        turn.pass_on()
        raise ValueError("no room")

    def goes_on(turn: Turn) -> None:
        try:
            for _ in range(9):
                turn.pass_on()
            ended.append("reached its end")
        finally:
            ended.append("let go")

    with pytest.raises(ValueError, match="no room"):
        in_turn([fails, goes_on], CPU)
    assert ended == ["let go"]


def test_memory_of_other_rows_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    held = {"now": 10, "peak": 10}

    def take(count: int) -> None:
        held["now"] += count
        held["peak"] = max(held["peak"], held["now"])

    monkeypatch.setattr(_turns, "used_memory", lambda device: held["now"])
    monkeypatch.setattr(_turns, "peak_memory", lambda device: held["peak"])
    monkeypatch.setattr(_turns, "reset_peak", lambda device: held.update(peak=held["now"]))
    seen: dict[str, int] = {}

    def work(name: str, rest: int, more: int, turn: Turn) -> None:
        take(rest)
        turn.reset()
        for _ in range(2):
            take(more)
            take(-more)
            turn.pass_on()
        turn.note_memory()
        seen[name] = turn.memory

    in_turn([partial(work, "a", 100, 5), partial(work, "b", 1000, 7)], CPU)
    assert seen == {"a": 115, "b": 1017}
