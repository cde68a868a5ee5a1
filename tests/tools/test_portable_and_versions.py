"""`make portable`, `make oldest`, `make newest`: settings and versions, and the summary of pytest results."""

from __future__ import annotations

import subprocess
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import portable
import versions

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_flags_are_those_of_the_first_processor() -> None:
    flags = portable.flags("processor\t: 0\nflags\t\t: fpu sse4_2 avx2\n\nprocessor\t: 1\nflags\t\t: fpu\n")
    assert flags == {"fpu", "sse4_2", "avx2"}
    left_out = [s.name for s in portable.SETTINGS if not portable.possible(s, flags)]
    assert left_out == ["avx512"]
    assert [s.name for s in portable.SETTINGS if portable.possible(s, portable.flags(""))] == [
        "own", "own-two-threads", "aten-default",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("...\n44 passed in 3.10s\n", (44, 0)),
        ("FAILED a\n2 failed, 40 passed, 3 deselected, 1 error in 63.00s (0:01:03)\n", (40, 3)),
        ("ERROR: file not found\n", (0, 0)),
    ],
)
def test_the_last_line_of_pytest_is_counted(output: str, expected: tuple[int, int]) -> None:
    outcome = portable.counted(output, seconds=1.0, status=1)
    assert (outcome.passed, outcome.failed) == expected


def test_setting_sets_only_its_own_variables() -> None:
    own, two = portable.SETTINGS[0], portable.SETTINGS[1]
    shell = {"PATH": "/bin", "ONEDNN_MAX_CPU_ISA": "SSE41", "OMP_NUM_THREADS": "8"}
    environment = portable.environment(own, shell)
    assert environment == {
        "PATH": "/bin",
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "MEZZOTINT_TEST_THREADS": "1",
    }
    assert portable.environment(two, shell)["MEZZOTINT_TEST_THREADS"] == "2"


@pytest.mark.parametrize(("failing", "status"), [("", 0), ("avx2", 1)])
def test_table_has_every_setting_and_a_failure_exits_with_one(
    failing: str, status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(setting: portable.Setting, paths: Sequence[str], *, workers: int) -> portable.Outcome:
        assert list(paths) == list(portable.QUICK)
        wrong = setting.name == failing
        return portable.Outcome(5 - wrong, int(wrong), 2.0, int(wrong))

    monkeypatch.setattr(portable, "run", run)
    monkeypatch.setattr(portable, "flags", lambda _: frozenset({"sse4_2", "avx2"}))
    assert portable.main(["--quick"]) == status
    printed = capsys.readouterr().out
    assert [line.split()[0] for line in printed.splitlines()[1:]] == [s.name for s in portable.SETTINGS]
    assert "avx512               left out: the processor has no avx512f" in printed
    assert portable.main(["--quick", "--only", "avx512"]) == 1, "nothing was run"


def test_lowest_versions_are_those_of_the_project_and_its_extras() -> None:
    floors = versions.floors(PROJECT)
    assert floors["torch"] == "2.10"
    assert {"av", "datasets", "scikit-image", "pytorch-optimizer", "pytest"} <= floors.keys()
    assert "mezzotint" not in floors
    strange = {"name": "m", "dependencies": ["torch==2"], "optional-dependencies": {"dev": []}}
    with pytest.raises(ValueError, match="torch==2"):
        versions.floors(strange)


def test_lowest_versions_are_pinned_and_newest_unconstrained(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[list[str]] = []

    def run(words: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        ran.append(words[1:])
        return subprocess.CompletedProcess(words, 0, '[{"name": "Scikit_Image", "version": "0.25.0"}]', "")

    monkeypatch.setattr(versions.subprocess, "run", run)
    monkeypatch.setattr(versions.venv, "create", lambda *_, **__: None)
    assert versions.main(["oldest", "tests/parity"]) == 0
    pins, own, _, tests = ran
    assert {"torch==2.10", "numpy==2.0"} <= set(pins)
    assert own[-3:] == ["--no-deps", "--editable", "."]
    assert tests == ["-m", "pytest", "-n", "2", "--dist", "loadfile", "tests/parity"]
    assert [line.split() for line in capsys.readouterr().out.splitlines() if "scikit" in line] == [
        ["scikit-image", "0.25", "0.25.0"]
    ]
    ran.clear()
    assert versions.main(["newest"]) == 0
    assert ran[0][3:] == ["install", "--upgrade", "--upgrade-strategy", "eager", "--editable", ".[dev]"]


def test_missing_package_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(words: Sequence[str], **_: Mapping[str, Any]) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(words, 1)

    monkeypatch.setattr(versions.subprocess, "run", run)
    monkeypatch.setattr(versions.venv, "create", lambda *_, **__: None)
    assert versions.main(["oldest"]) == 1
