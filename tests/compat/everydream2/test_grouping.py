"""Grouping of named batches into accumulation windows, against records of EveryDream2."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mezzotint.data.schedule import _grouping

RECORD = Path(__file__).parents[2] / "parity" / "data" / "everydream2" / "batches.json"


@pytest.mark.parametrize("case", json.loads(RECORD.read_text("utf-8"))["first_fit_decreasing"])
def test_lists_are_packed_into_windows_as_recorded(case: dict[str, Any]) -> None:
    of_list = {one: number for number, part in enumerate(case["input"]) for one in part}
    lengths = [len(part) for part in case["input"]]

    def windows(joined: list[int]) -> list[list[int]]:
        """For each window, how many entries of which length of list; −1 for the filler."""
        chunks = [joined[i : i + case["size"]] for i in range(0, len(joined), case["size"])]
        return [sorted(lengths[of_list[one]] if one in of_list else -1 for one in window) for window in chunks]

    ours = _grouping.pack_lists(case["input"], case["filler"], case["size"])
    assert windows(ours) == windows(case["output"])
    assert sorted(ours) == sorted(case["output"])
