"""The doctor's report, findings and what was examined, as text, as JSON and as one HTML page."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

from markupsafe import Markup

from mezzotint.data.findings.finding import MOST_EXAMPLES, ORDER, Finding
from mezzotint.errors import MezzotintError, escape_line
from mezzotint.tasks.doctor._examining import ExaminedData

_ON_PAGE = 24
"""Examples of a finding on the HTML page; the output of `--json` contains all."""

_SIDE = 192  # pixels; displayed at half the size on high-density screens
_LABELS = {"mend": "to mend", "look": "to look at", "know": "to know"}


@dataclass(frozen=True, slots=True)
class Report:
    """All findings. about: what was examined, by name."""

    about: tuple[tuple[str, str], ...]
    findings: tuple[Finding, ...]

    @property
    def status(self) -> str:
        """The status of the worst finding; `well` if none needs action."""
        statuses = {finding.status for finding in self.findings}
        return next((status for status in ("mend", "look") if status in statuses), "well")

    @property
    def exit_status(self) -> int:
        """For scripts: 2 if there is a finding to mend, else 0."""
        return 2 if self.status == "mend" else 0

    def document(self) -> dict[str, Any]:
        """As plain values for JSON."""
        findings = [asdict(finding) for finding in self.findings]
        for finding in findings:
            finding["examples"] = [example["text"] for example in finding["examples"]]
        return {"schema": 1, "status": self.status, "about": dict(self.about), "findings": findings}


def text(report: Report, *, shown: int = 3) -> list[str]:
    """The report for a terminal. shown: how many examples of each finding, and groups of four table rows, to print."""
    lines = [f"{name:<12} {value}" for name, value in report.about] + [""]
    for finding in report.findings:
        lines += [f"{finding.status:<5} {finding.sentence}", f"      → {finding.advice}"]
        lines += [f"        {example.text}" for example in finding.examples[:shown]]
        if len(finding.examples) > shown:
            more = (finding.count if len(finding.examples) == MOST_EXAMPLES else len(finding.examples)) - shown
            lines.append(f"        and {more:,} more (--json and --html have them)")
        lines += _columns(finding.table[: 1 + 4 * shown])
        if len(finding.table) > 1 + 4 * shown:
            lines.append(f"        and {len(finding.table) - 1 - 4 * shown:,} more rows")
    return [*lines, "", format_closing_line(report)]


def format_closing_line(report: Report) -> str:
    """The last line: the status, and the number of findings of each status."""
    counts = [f"{sum(finding.status == status for finding in report.findings)} {_LABELS[status]}" for status in ORDER]
    return f"{report.status}: {', '.join(counts)}"


def _columns(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "        " + "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def html(report: Report, examined: ExaminedData | None) -> str:
    """The report as a self-contained page with its images. examined: the data whose images are shown, None for a
    machine."""

    @cache
    def thumbnail(sample: tuple[str, int]) -> Markup:
        return _thumbnail(examined, sample) if examined is not None else Markup()

    from mezzotint.reports import html_pages  # imported here: rarely needed

    templates = html_pages.templates("mezzotint.tasks.doctor", visible=escape_line)
    return templates.get_template("doctor.html").render(
        title="Data" if examined is not None else "This machine", report=report, labels=_LABELS, shown=_ON_PAGE,
        counts=format_closing_line(report).partition(": ")[2], thumbnail=thumbnail, bars=_bars,
    )  # fmt: skip


def _thumbnail(examined: ExaminedData, sample: tuple[str, int]) -> Markup:
    try:
        image = examined.image(sample, _SIDE)
    except (MezzotintError, OSError):
        return Markup()
    content = io.BytesIO()
    image.save(content, "WEBP", quality=75)
    data = base64.b64encode(content.getvalue()).decode("ascii")
    return Markup('<img alt="{0}" title="{0}" width="{1}" height="{2}" src="data:image/webp;base64,{3}">').format(
        escape_line(examined.name(sample)), image.width, image.height, data
    )


def _bars(table: tuple[tuple[str, ...], ...]) -> list[str]:
    """The length of each row's bar in percent, if the second column contains counts; else no bars."""
    counts = [int(cell) if (cell := row[1].replace(",", "")).isdecimal() else 0 for row in table[1:]]
    most = max(counts, default=0)
    return [f"{100 * count / most:.1f}" for count in counts] if most else []
