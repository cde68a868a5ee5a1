"""`make benchmarks`: each result is stored, and one table lists them all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import bench_results

ROOT = Path(__file__).parents[2]


def test_results_are_stored_by_device_and_listed_in_one_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[list[str]] = []

    def bench(words: list[str]) -> int:
        lines.append(words)
        out = Path(words[-1].removeprefix("--out="))
        out.mkdir()
        ratio = {"median": 1.5, "lowest": 1.25, "highest": 1.75, "rounds": 4}
        against = {"row": "stock", "by": "CPU seconds", "cpu_seconds": ratio, "seconds": None}
        row = {"name": "fast", "against": against}
        (out / "bench.json").write_text(json.dumps({"rows": [row]}))
        return 0

    monkeypatch.setattr(bench_results, "mezzotint", bench)
    (tmp_path / "README.md").write_text(f"before\n{bench_results.BEGIN}\nold\n{bench_results.END}\nbehind\n")
    assert bench_results.main([], root=tmp_path) == 0
    assert [words[1] for words in lines] == [words[0] for words in bench_results.RUNS.values()]
    assert {path.stem for path in tmp_path.glob("*/*.json")} == bench_results.RUNS.keys()
    page = (tmp_path / "README.md").read_text()
    assert page.startswith("before\n")
    assert page.endswith("behind\n")
    assert "old" not in page
    assert "fast is 1.50 times as fast as stock (1.25 to 1.75, 4 rounds)" in page


def test_table_shows_how_a_result_was_measured(tmp_path: Path) -> None:
    place = tmp_path / "card"
    place.mkdir()
    command = ["mezzotint", "bench", "tiny_cpu", "data.cache.path=…/cache", "--steps=7", "--out=…/result"]
    result = {
        "command": command,
        "date": "2026-01-02T03:04:05Z",
        "environment": {"commit": "0123456789abcdef"},
        "rows": [],
    }
    (place / "tiny_cpu.json").write_text(json.dumps(result | {"rows": []}))
    (place / "release.json").write_text(json.dumps(result | {"rows": [], "environment": {"commit": None}}))
    (place / "older.json").write_text(json.dumps({"rows": []}))
    methods = {line.split("|")[2].split("]")[0].strip(" ["): line.split("|")[4].strip()
            for line in bench_results.table(tmp_path).splitlines()[2:]}  # fmt: skip
    assert methods == {
        "older": "",
        "release": "`mezzotint bench tiny_cpu --steps=7`, 2026-01-02, a release",
        "tiny_cpu": "`mezzotint bench tiny_cpu --steps=7`, 2026-01-02, 0123456789ab",
    }


def test_table_of_results_is_current() -> None:
    assert bench_results.table(ROOT / "benchmarks") in (ROOT / "benchmarks/README.md").read_text("utf-8")
    quoted = (ROOT / "README.md").read_text("utf-8")
    [row] = [
        r for r in json.loads((ROOT / "benchmarks/amd-epyc/tiny_cpu.json").read_text())["rows"] if r["name"] == "fast"
    ]
    assert f"{row['against']['cpu_seconds']['median']:.2f} times" in quoted
