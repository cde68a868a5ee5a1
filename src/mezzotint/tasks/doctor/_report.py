"""The doctor's report: the findings, and what was examined, as text and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from mezzotint.data.findings.finding import MOST_EXAMPLES, ORDER, Finding


@dataclass(frozen=True, slots=True)
class Report:
    """All findings. about: what was examined, by name."""

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
            finding["examples"] = [example["text"] for example in finding["examples"]]
        return {"schema": 1, "status": self.status, "about": dict(self.about), "findings": findings}


def text(report: Report, *, shown: int = 3) -> list[str]:
    """The report for a terminal. shown: examples and rows of a table that are shown of each finding."""
    lines = [f"{name:<12} {words}" for name, words in report.about] + [""]
    for finding in report.findings:
        lines += [f"{finding.status:<5} {finding.sentence}", f"      → {finding.advice}"]
        lines += [f"        {example.text}" for example in finding.examples[:shown]]
        if len(finding.examples) > shown:
            more = (finding.count if len(finding.examples) == MOST_EXAMPLES else len(finding.examples)) - shown
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
