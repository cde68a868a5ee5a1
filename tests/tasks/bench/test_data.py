"""`bench --data`: rows of the data path, without a model's step."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mezzotint.cli import main
from mezzotint.tasks.bench import bench


def test_a_seed_of_minus_one_is_drawn_and_said(
    shared_world: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[Any] = []
    monkeypatch.setattr(bench, "_of_data", lambda reading, recipe, *rest: heard.append((reading, recipe)) or 0)
    words = shared_world.words("data-bench", run__seed=-1, data__cache__path=tmp_path / "cache")
    assert main(["bench", *words, "--data"]) == 0
    [(reading, recipe)] = heard
    assert recipe.run.seed >= 0
    assert any(f"the seed is {recipe.run.seed}, drawn just now" in note for note in reading.notes)


def test_the_data_path_is_measured_row_by_row(
    shared_world: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = shared_world.words("data-bench", run__steps=2, data__cache__path=tmp_path / "cache")
    assert main(["bench", *words, "--data", "--steps=2", "--rounds=2", f"--out={tmp_path / 'out'}"]) == 0
    document = json.loads((tmp_path / "out" / "bench-data.json").read_text("utf-8"))
    assert document["command"][-4:] == ["--data", "--steps=2", "--rounds=2", "--out=…/out"]
    rows = {row["name"]: row for row in document["rows"]}
    assert list(rows) == [
        "listing, headers and captions", "plan of an epoch", "pictures decoded and placed",
        "cache filled, what was missing", "cached latents read",
    ]  # fmt: skip
    for row in rows.values():
        assert row["samples"] > 0
        assert 0 < row["per_cpu_second"]["lowest"] <= row["per_cpu_second"]["highest"]
    assert "cached latents read" in capsys.readouterr().out
    assert not (shared_world.root / "data-bench").exists(), "no run folder"
