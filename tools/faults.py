"""`make faults`: every test of the fault suite, and its results in tests/faults/results.md.

tests/faults/faults.tsv says what faults there are, what is expected of each, and which test shows it. Run are all tests
marked `faults`, the long ones too, then those that only a row of the table names. What was seen comes from pytest's
JUnit report. Ends with 1 if a test fails, or nothing was run.
"""

from __future__ import annotations

import argparse
import csv
import platform
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
TABLE = ROOT / "tests" / "faults" / "faults.tsv"
PAGE = TABLE.with_name("results.md")
OWED = "owed"
"""What stands in a row that no test shows yet."""

HEAD = """# Results of the fault suite

What the last whole run of `make faults` saw. That command writes this page; [faults.tsv](faults.tsv) names the test of
each fault, and [docs/faults.md](../../docs/faults.md) explains the suite.

`X`: the run is killed or stopped, resumes, and ends with the same bits as an undisturbed run. `E2`: refused with
status 2, and a message with a code that names the file and the reason. `S`: skipped and reported. `W`: the run
continues with a warning.

"""
GROUPS = {
    "A": "Death at any moment", "B": "Signals", "C": "Several processes", "D": "Storage", "E": "Damaged checkpoints",
    "F": "Data", "G": "Numbers and memory", "H": "Recipe and environment", "I": "Hostility",
    "J": "Found by an attack", "K": "Untrusted data and surroundings", "L": "Edits of data",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Fault:
    """A row of the table. test: `path::function`, or `owed`."""

    id: str
    fault: str
    expected: str
    test: str


@dataclass(frozen=True, slots=True)
class Case:
    """A test that was run. test: `path::function`; name: with its parameters; problem: why it failed; omission: why it
    was left out."""

    test: str
    name: str
    seconds: float
    problem: str = ""
    omission: str = ""


def read_faults(path: Path = TABLE) -> list[Fault]:
    """The rows of the table of faults."""
    return [Fault(**row) for row in csv.DictReader(path.read_text("utf-8").splitlines(), delimiter="\t")]


def read_cases(report: Path) -> list[Case]:
    """What a JUnit report of pytest says of each test."""
    cases = []
    for node in ElementTree.parse(report).iter("testcase"):
        name = node.get("name", "")
        test = f"{node.get('classname', '').replace('.', '/')}.py::{name.partition('[')[0]}"
        problems = [child.get("message", "") for child in node if child.tag in ("failure", "error")]
        omissions = [child.get("message", "") for child in node if child.tag == "skipped"]
        problem, omission = (next((words or "no reason" for words in those), "") for those in (problems, omissions))
        cases.append(Case(test, name, float(node.get("time", 0)), problem, omission))
    return cases


def seen(cases: Sequence[Case]) -> str:
    """What came of a fault, in a few words."""
    failed = [case for case in cases if case.problem]
    left_out = [case for case in cases if case.omission]
    if not cases:
        return "not run"
    if failed:
        first = f"{failed[0].name}: {failed[0].problem.splitlines()[0][:100]}"
        return f"**differs** in {len(failed)} of {len(cases)}: {first}"
    if len(left_out) == len(cases):
        return f"left out: {left_out[0].omission.splitlines()[0][:100]}"
    num = len(cases) - len(left_out)
    many = f", {num} case{'s' * (num > 1)}" if len(cases) > 1 else ""
    return f"as expected{many}" + (f", {len(left_out)} left out" if left_out else "")


def cells(*words: str) -> str:
    """A row of a table."""
    return "| " + " | ".join(word.replace("|", "\\|").replace("\n", " ") for word in words) + " |"


def page(faults: Sequence[Fault], cases: Sequence[Case], *, machine: str, before: str = "") -> str:
    """tests/faults/results.md. machine: what it was run on, in a few words. before: the page as it was; its results of
    faults and files that were not run now stay."""
    known, by_test = _known(before), dict[str, list[Case]]()
    for case in cases:
        by_test.setdefault(case.test, []).append(case)
    lines, letter, failed = [], "", 0
    for fault in faults:
        if fault.id[0] != letter:
            letter = fault.id[0]
            lines += ["", f"## {letter}. {GROUPS[letter]}", ""]
            lines += [cells("fault", "what is done", "expected", "seen", "seconds"), "|---|---|---|---|---:|"]
        outcome = _outcome(fault, by_test.get(fault.test, []), known)
        failed += outcome[0].startswith("**")
        lines.append(cells(fault.id, fault.fault, fault.expected, *outcome))
    owed = sum(fault.test == OWED for fault in faults)
    summary = f"{len(faults)} faults: {owed} without a test yet, {failed} unlike what is expected. Run on {machine}."
    named = {fault.test for fault in faults}
    others = [case for test, own in by_test.items() if test not in named for case in own]
    return HEAD + "\n".join([summary, *lines, *_other_tests(others, known)]) + "\n"


def _outcome(fault: Fault, cases: Sequence[Case], known: Mapping[str, list[str]]) -> tuple[str, str]:
    """What was seen of a fault, and the seconds it took."""
    if fault.test == OWED:
        return "no test yet", ""
    if not cases and fault.id in known and known[fault.id][-2] != "no test yet":
        return known[fault.id][-2], known[fault.id][-1]
    return seen(cases), f"{sum(case.seconds for case in cases):.1f}" if cases else ""


def _known(page_before: str) -> dict[str, list[str]]:
    """The rows of the page as it was, by their first cell."""
    rows = [line[2:-2] for line in page_before.splitlines() if line.startswith("| ")]
    split = [[cell.strip() for cell in re.split(r"(?<!\\)\|", row)] for row in rows]
    return {row[0]: row for row in split if len(row) > 3}


def _other_tests(cases: Sequence[Case], known: Mapping[str, list[str]]) -> list[str]:
    """The second table: tests marked `faults` that no row names, by file."""
    by_file: dict[str, list[Case]] = {}
    for case in cases:
        by_file.setdefault(f"`{case.test.partition('::')[0]}`", []).append(case)
    rows = {file: row for file, row in known.items() if file.startswith("`tests/")}
    for file, own in by_file.items():
        number, seconds = len({case.test for case in own}), sum(case.seconds for case in own)
        rows[file] = [file, str(number), seen(own), f"{seconds:.1f}"]
    if not rows:
        return []
    lines = ["", "## Others", "", "Tests marked `faults` that stand beside the rows.", ""]
    lines += [cells("file", "tests", "seen", "seconds"), "|---|---:|---|---:|"]
    return lines + [cells(*rows[file]) for file in sorted(rows)]


def run(arguments: Sequence[str], report: Path, *, workers: int) -> tuple[int, list[Case]]:
    """pytest's exit status and what it reports of each test."""
    command = [sys.executable, "-m", "pytest", f"--junitxml={report}", *arguments]
    if workers > 1:
        command += ["-n", str(workers), "--dist", "loadfile"]
    status = subprocess.run(command, cwd=ROOT, check=False).returncode
    return status, read_cases(report) if report.exists() else []


def run_all(faults: Sequence[Fault], folder: Path, *, workers: int) -> tuple[int, list[Case]]:
    """All tests marked `faults` or `exhaustive`, then what only rows name. The worse status of the two, and all
    cases."""
    status, cases = run(
        ["-m", "(faults or exhaustive) and not gpu and not timing"], folder / "marked.xml", workers=workers
    )
    there = {case.test for case in cases}
    rest = sorted({fault.test for fault in faults} - there - {OWED})
    if rest:
        second, more = run(["-m", "not gpu", *rest], folder / "named.xml", workers=workers)
        status, cases = max(status, second), cases + more
    return status, cases


def main(words: Sequence[str] | None = None) -> int:
    """The exit status: 1 if a test failed, or nothing was run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = "the tests of these rows, or files of tests; of others the page says what it said"
    parser.add_argument("--only", nargs="+", metavar="ID", default=[], help=what)
    parser.add_argument("--workers", type=int, default=2, help="processes of pytest; 2")
    args = parser.parse_args(words)
    faults = read_faults()
    machine = f"{platform.machine()}, {platform.system()}, Python {platform.python_version()}"
    with tempfile.TemporaryDirectory() as folder:
        if args.only:
            tests = sorted({fault.test for fault in faults if fault.id in args.only} - {OWED})
            tests += [word for word in args.only if "/" in word]
            report, before = Path(folder) / "only.xml", PAGE.read_text("utf-8")
            status, cases = run(["-m", "not gpu", *tests], report, workers=args.workers) if tests else (1, [])
        else:
            before = ""
            status, cases = run_all(faults, Path(folder), workers=args.workers)
    PAGE.write_text(page(faults, cases, machine=machine, before=before), "utf-8")
    print(f"{PAGE.relative_to(ROOT)} is written")
    return 1 if status or not cases else 0


if __name__ == "__main__":
    sys.exit(main())
