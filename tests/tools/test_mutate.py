"""`tools/mutate.py`: where the source is broken, and how."""

from __future__ import annotations

import ast
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


def test_test_files_that_import_a_module_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "tests/test_draws.py" in mutate.importers(mutate.SOURCE / "draws.py")
