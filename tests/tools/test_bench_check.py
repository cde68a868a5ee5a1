"""`make bench-check`: every module of tools/bench_checks is measured, and all results are printed in one table."""

from __future__ import annotations

import functools
import importlib
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

import bench_check
from support.forked import run_python

ROOT = Path(__file__).parents[2]


@pytest.fixture
def stubs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Replaces all modules by ones that measure nothing; returns the names of those measured."""
    measured: list[str] = []
    for name in bench_check.names():
        module = ModuleType(name)

        def rows(name: str = name) -> list[tuple[str, str, str]]:
            measured.append(name)
            return [(f"mark of {name}", "≤ 1", "0.5")]

        vars(module)["rows"] = rows
        monkeypatch.setitem(sys.modules, f"bench_checks.{name.replace('-', '_')}", module)
    return measured


def test_every_module_is_measured(stubs: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert bench_check.main([]) == 0
    stems = sorted(path.stem for path in (ROOT / "tools/bench_checks").glob("*.py"))
    assert [name.replace("-", "_") for name in stubs] == stems
    assert "first-step" in stubs
    lines = capsys.readouterr().out.splitlines()
    cells = [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in lines]
    assert cells[0] == ("mark", "goal", "figure")
    assert all((f"mark of {name}", "≤ 1", "0.5") in cells for name in stubs)
    assert len({len(line) for line in lines}) == 1, "columns are aligned"


def test_only_selects_modules(stubs: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert bench_check.main(["--only", "save"]) == 0
    assert stubs == ["save"]
    with pytest.raises(SystemExit):
        bench_check.main(["--only", "nothing"])
    assert "nothing" in capsys.readouterr().err


def test_each_module_has_rows() -> None:
    """The modules are read, not imported: some imports take seconds."""
    for name in bench_check.names():
        text = (bench_check.FOLDER / f"{name.replace('-', '_')}.py").read_text(encoding="utf-8")
        assert "def rows(" in text, name
    assert "tools/bench_check.py" in (ROOT / "Makefile").read_text(encoding="utf-8")


@pytest.mark.slow
def test_first_step_is_measured_over_a_synthetic_data_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    first_step = importlib.import_module("bench_checks.first_step")
    monkeypatch.setattr(first_step, "subprocess", SimpleNamespace(run=run_python, DEVNULL=subprocess.DEVNULL))
    start_once = functools.cache(lambda folder, *words, start=first_step.start: start(folder, list(words)))
    monkeypatch.setattr(first_step, "start", lambda folder, words: start_once(folder, *words))
    rows = first_step.rows(200, 1)
    assert [mark for mark, _, _ in rows[::2]] == [
        "command to first step, 200 samples, cached, webdataset",
        "command to first step, 200 samples, cached, image-folder",
    ]
    assert [mark for mark, _, _ in rows[1::2]] == ["the same with 64 samples"] * 2
    assert all(figure.endswith("CPU s") for _, _, figure in rows)
    assert list(tmp_path.iterdir()) == []
