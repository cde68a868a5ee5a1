"""`make faults`: selection of tests, and the table made from the report of pytest."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

import faults
from faults import Case, Fault

ROWS = [
    Fault("A1", "kill", "X", "tests/faults/test_kills.py::test_kill"),
    Fault("A2", "cut | power", "X", "owed"),
    Fault("F7", "images", "S", "tests/faults/test_corpus.py::test_images"),
]
REPORT = """<?xml version="1.0"?><testsuites><testsuite>
<testcase classname="tests.faults.test_kills" name="test_kill[1]" time="1.25"/>
<testcase classname="tests.faults.test_kills" name="test_kill[2]" time="2"><skipped message="no namespace"/></testcase>
<testcase classname="tests.faults.test_corpus" name="test_images[a::b]" time="0.5">
<failure message="E1 is not E2&#10;more">traceback</failure></testcase>
<testcase classname="tests.data.test_x" name="test_x" time="0.1"><error message="set-up"/></testcase>
</testsuite></testsuites>"""


@pytest.fixture
def cases(tmp_path: Path) -> list[Case]:
    (tmp_path / "report.xml").write_text(REPORT)
    return faults.read_cases(tmp_path / "report.xml")


def test_report_becomes_a_table_by_fault(cases: list[Case]) -> None:
    lines = faults.page(ROWS, cases, machine="a machine").splitlines()
    assert "| A1 | kill | X | as expected, 1 case, 1 left out | 3.2 |" in lines
    assert "| A2 | cut \\| power | X | no test yet |  |" in lines
    assert "| F7 | images | S | **differs** in 1 of 1: test_images[a::b]: E1 is not E2 | 0.5 |" in lines
    assert "| `tests/data/test_x.py` | 1 | **differs** in 1 of 1: test_x: set-up | 0.1 |" in lines
    assert "3 faults: 1 without a test yet, 1 unlike what is expected. Run on a machine." in lines


def test_row_without_a_test_in_the_report_is_not_run(cases: list[Case]) -> None:
    assert "| A1 | kill | X | not run |  |" in faults.page(ROWS, cases[2:], machine="")
    assert faults.seen(cases[1:2]) == "left out: no namespace"


def test_results_not_run_again_stay_on_the_page(cases: list[Case]) -> None:
    before = faults.page(ROWS, cases, machine="")
    lines = faults.page(ROWS, [Case(ROWS[2].test, "test_images[x]", 2.0)], machine="", before=before).splitlines()
    assert "| A1 | kill | X | as expected, 1 case, 1 left out | 3.2 |" in lines
    assert "| F7 | images | S | as expected | 2.0 |" in lines
    assert "| `tests/data/test_x.py` | 1 | **differs** in 1 of 1: test_x: set-up | 0.1 |" in lines
    assert faults.page(ROWS, [], machine="", before=before) == before


def test_marked_tests_run_before_those_named_only_in_rows(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cases: list[Case]
) -> None:
    calls = []

    def run(arguments: Sequence[str], report: Path, *, workers: int) -> tuple[int, list[Case]]:
        calls.append(list(arguments))
        return len(calls) - 1, cases[:2] if len(calls) == 1 else cases[2:]

    monkeypatch.setattr(faults, "run", run)
    assert faults.run_all(ROWS, tmp_path, workers=1) == (1, cases)
    assert calls == [["-m", "(faults or exhaustive) and not gpu and not timing"], ["-m", "not gpu", ROWS[2].test]]
    monkeypatch.setattr(faults, "run_all", lambda *given, workers: (5, []))
    monkeypatch.setattr(Path, "write_text", lambda *given: 0)
    assert faults.main([]) == 1, "nothing was run"


def test_page_has_the_rows_of_the_table() -> None:
    rows = faults.read_faults()
    assert rows
    text = faults.PAGE.read_text("utf-8")
    assert [row.id for row in rows if faults.cells(row.id, row.fault, row.expected)[:-1] not in text] == []
