"""A train.json that is read at each epoch, and the command line that overrides it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mezzotint import outside

COMMON = {"data__cache__latents": True, "run__steps": 2, "optim__ema__rule": "none"}


def events(folder: Path) -> list[dict[str, Any]]:
    return [e["values"] for e in outside.read_lines(folder / "history.jsonl") if e["event"] == "live settings"]


# breaks if the file is not read, or read as a recipe, or the command line does not override it
@pytest.mark.effect("run.live.path")
@pytest.mark.effect("run.live.dialect")
@pytest.mark.effect("run.live.line")
def test_train_json_has_lower_precedence_than_the_command_line(world: Any, capsys: Any) -> None:
    path = world.root / "train.json"
    path.write_text(json.dumps({"min_snr_gamma": 5, "zero_frequency_noise_ratio": 0.3}))
    words = {"run__live__path": str(path), "run__live__dialect": "everydream2", **COMMON}
    assert world.train("file", **words) == 0
    assert world.train("line", run__live__line=["--zero_frequency_noise_ratio=0.05"], **words) == 0
    assert world.train("none", **COMMON) == 0
    results = [events(world.root / name)[0] for name in ("file", "line")]
    assert [one["objective.min_snr_gamma"] for one in results] == [5.0, 5.0]
    assert [one["objective.noise_offset"] for one in results] == [0.3, 0.05]
    assert events(world.root / "none") == []
