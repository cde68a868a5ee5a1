"""How findings are printed."""

from __future__ import annotations

from pathlib import Path

from PIL import Image

from mezzotint.data.findings.finding import Finding
from mezzotint.tasks.doctor import _report
from support.flawed_images import Ask, put


def test_file_names_cannot_control_the_terminal(tmp_path: Path, ask: Ask) -> None:
    for number in range(2):
        put(tmp_path, f"\x1b[31m{number}.png", Image.new("RGB", (64, 64), "red"), "\x1b]0;title")
    assert "\x1b" not in ask(tmp_path, "--json")[1]
    assert "\x1b" not in ask(tmp_path)[1]


def test_long_tables_are_cut_and_the_rest_is_counted() -> None:
    def lines(rows: int) -> list[str]:
        table = (("bucket",), *((str(number),) for number in range(rows)))
        finding = Finding("x", "know", 1, "a table", "none", (), table)
        return [line.strip() for line in _report.text(_report.Report((), (finding,)), shown=3)]

    assert "and 1 more rows" in lines(13)
    assert not any("more rows" in line for line in lines(12))
    assert lines(13).index("11") == lines(13).index("and 1 more rows") - 1
