"""What the doctor finds, as values: shown as text, as JSON and as a page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

Status = Literal["mend", "look", "know"]
"""`mend`: something is lost or learned wrongly. `look`: it may not be meant. `know`: a fact; nothing has to be done."""

ORDER: tuple[Status, ...] = ("mend", "look", "know")
KEPT = 1000
"""Examples of a finding."""


@dataclass(frozen=True, slots=True)
class Example:
    """One of what a finding concerns. words: names first. pictures: places in the doctor's table of pictures."""

    words: str
    pictures: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Finding:
    """name: stable, for scripts. count: of what the sentence counts. advice: what to do. table: its first row names
    the columns."""

    name: str
    status: Status
    count: int
    sentence: str
    advice: str
    examples: tuple[Example, ...] = ()
    table: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """All that was found. about: what was looked at, by name."""

    about: tuple[tuple[str, str], ...]
    findings: tuple[Finding, ...]

    @property
    def status(self) -> str:
        """That of the worst finding, `well` without any that asks for something."""
        statuses = {finding.status for finding in self.findings}
        return next((status for status in ("mend", "look") if status in statuses), "well")

    @property
    def exit_status(self) -> int:
        """For scripts: 2 where something is to be mended."""
        return 2 if self.status == "mend" else 0

    def document(self) -> dict[str, Any]:
        """As plain values for JSON."""
        findings = [asdict(finding) for finding in self.findings]
        for finding in findings:
            finding["examples"] = [example["words"] for example in finding["examples"]]
        return {"schema": 1, "status": self.status, "about": dict(self.about), "findings": findings}


def in_order(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The worst first."""
    return tuple(sorted(findings, key=lambda finding: ORDER.index(finding.status)))


def some(examples: Sequence[Example]) -> tuple[Example, ...]:
    """As many as a report keeps."""
    return tuple(examples[:KEPT])


def text(report: Report, *, shown: int = 3) -> list[str]:
    """The report for a terminal. shown: examples and rows of a table that are shown of each finding."""
    lines = [f"{name:<12} {words}" for name, words in report.about] + [""]
    for finding in report.findings:
        lines += [f"{finding.status:<5} {finding.sentence}", f"      → {finding.advice}"]
        lines += [f"        {example.words}" for example in finding.examples[:shown]]
        if len(finding.examples) > shown:
            more = (finding.count if len(finding.examples) == KEPT else len(finding.examples)) - shown
            lines.append(f"        and {more:,} more (--json and --html have them)")
        lines += _columns(finding.table[: 1 + 4 * shown])
        if len(finding.table) > 1 + 4 * shown:
            lines.append(f"        and {len(finding.table) - 1 - 4 * shown:,} rows more")
    return [*lines, "", closing(report)]


def closing(report: Report) -> str:
    """The last line: the status, and how many findings there are of each."""
    verbs = {"mend": "to mend", "look": "to look at", "know": "to know"}
    counts = [f"{sum(one.status == status for one in report.findings)} {verbs[status]}" for status in ORDER]
    return f"{report.status}: {', '.join(counts)}"


def _columns(rows: Sequence[tuple[str, ...]]) -> list[str]:
    wide = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "        " + "  ".join(f"{cell:<{width}}" for cell, width in zip(row, wide, strict=True)).rstrip()
        for row in rows
    ]
