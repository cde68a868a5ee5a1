"""The table of faults: each of them with the test that shows it, or owed."""

from __future__ import annotations

import ast
import csv
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROWS = list(csv.DictReader((HERE / "faults.tsv").read_text("utf-8").splitlines(), delimiter="\t"))
OWED = 0
"""Rows without a test; fewer with each that gets one."""


def test_each_fault_has_a_row() -> None:
    counts = {"A": 12, "B": 8, "C": 9, "D": 12, "E": 10, "F": 14, "G": 7, "H": 7, "I": 7, "J": 47, "K": 7, "L": 9}
    assert [row["id"] for row in ROWS] == [f"{letter}{n + 1}" for letter, num in counts.items() for n in range(num)]
    assert all(row["fault"] and row["expected"] for row in ROWS)
    assert sum(row["test"] == "owed" for row in ROWS) == OWED


@pytest.mark.parametrize("test", sorted({row["test"] for row in ROWS} - {"owed"}))
def test_test_named_in_a_row_exists(test: str) -> None:
    path, _, name = test.partition("::")
    if path.startswith("tests/compat/") and not (HERE.parents[1] / path).exists():
        pytest.skip("of a trainer whose folder is not there")
    tree = ast.parse((HERE.parents[1] / path).read_text("utf-8"))
    (function,) = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name]
    assert not [mark for mark in map(ast.unparse, function.decorator_list) if "skip" in mark or "xfail" in mark]
