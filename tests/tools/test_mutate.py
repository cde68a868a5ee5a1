"""`tools/mutate.py`: where the source is broken, and how."""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import mutate

SOURCE = '''
"""Module docstring."""
LIMIT = 3


def f(a: int) -> int:
    if a < 1 and a:
        print("text")
    return a + 2
'''


def test_each_kind_of_place_is_broken_once(tmp_path: Path) -> None:
    path = tmp_path / "m.py"
    path.write_text(SOURCE, "utf-8")
    found = {place.change: ast.unparse(ast.parse(mutate.broken(place))) for place in mutate.places(path)}
    whole = ast.unparse(ast.parse(SOURCE))
    assert found == {
        "condition negated": whole.replace("if a < 1 and a", "if not (a < 1 and a)"),
        "And → Or": whole.replace("a < 1 and a", "a < 1 or a"),
        "Lt → LtE": whole.replace("a < 1", "a <= 1"),
        "1 → 2": whole.replace("a < 1", "a < 2"),
        "call removed": whole.replace("print('text')", "None"),
        "Add → Sub": whole.replace("a + 2", "a - 2"),
        "2 → 3": whole.replace("a + 2", "a + 3"),
    }


def test_failing_test_is_named(tmp_path: Path) -> None:
    good, bad = tmp_path / "test_good.py", tmp_path / "test_bad.py"
    good.write_text("def test_a(): pass\n", "utf-8")
    bad.write_text("def test_b(): assert 0\n", "utf-8")
    assert mutate.failing([str(good)], 60) is None
    assert str(mutate.failing([str(bad)], 60)).endswith("test_bad.py::test_b")


def test_tests_that_reach_a_place_are_written_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutate, "SOURCE", tmp_path)
    path, log = tmp_path / "m.py", tmp_path / "log"
    path.write_text("def f(a):\n    if a == 1:\n        return a + 1\n    return 0 - a\n", "utf-8")
    drawn = [place for place in mutate.places(path) if place.change in {"Add → Sub", "Sub → Add"}]
    mutate.mark(drawn, log)
    spec = importlib.util.spec_from_file_location("mezzotint.reached", tmp_path / "reached.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setitem(sys.modules, "mezzotint.reached", module)
    scope: dict[str, Callable[[int], int]] = {}
    exec(path.read_text("utf-8"), scope)
    for test, value in (("a.py::t (call)", 1), ("a.py::t (call)", 1), ("b.py::u[x y] (setup)", 2)):
        monkeypatch.setenv("PYTEST_CURRENT_TEST", test)
        scope["f"](value)
    by_line = {place.line: number for number, place in enumerate(drawn, 1)}
    assert mutate.reaching(log) == {by_line[3]: ["a.py::t"], by_line[4]: ["b.py"]}
