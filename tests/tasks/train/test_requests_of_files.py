"""Requests by files to a running training: previews, a checkpoint, a stop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mezzotint.run_folder import RunFolder
from mezzotint.training.requests import Requests


def test_request_files_trigger_preview_save_and_stop_without_other_effect(
    world: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings: dict[str, Any] = {
        "run__steps": 6, "run__save__every": None, "run__preview__every": "100 steps", "sample__steps": 1,
        "sample__prompts": ["a"], "run__save__asynchronous": False,
    }  # fmt: skip
    folder = RunFolder(world.root / "asked")
    take, at = Requests.take, [0]

    def taken(self: Requests) -> list[str]:
        at[0] += 1
        for name in {2: ["draw"], 3: ["save"], 4: ["stop"]}.get(at[0], []):
            folder.requests.mkdir(exist_ok=True)
            (folder.requests / name).touch()
        return take(self)

    monkeypatch.setattr(Requests, "take", taken)
    assert world.train("asked", **settings) == 143
    assert sorted(path.name for path in folder.samples.glob("step-*")) == ["step-00000000", "step-00000002"]
    assert sorted(path.name for path in folder.checkpoints.iterdir()) == ["step-00000003", "step-00000004"]
    assert folder.events()[-1] | {"time": ""} == {"event": "stopped", "signal": 15, "step": 4, "time": ""}
    assert "requested by a file: draw" in folder.log.read_text()
    assert list(folder.requests.iterdir()) == []
    monkeypatch.undo()
    (folder.requests / "stop").touch()  # a request to an earlier attempt
    assert world.train("asked", **settings) == 0
    assert world.train("plain", **settings) == 0
    assert world.end("asked") == world.end("plain")


def test_preview_request_without_previews_is_answered(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Requests, "take", lambda self: ["draw"])
    assert world.train("none", run__steps=1, run__preview__every=None) == 0
    assert "this run has none" in (world.root / "none" / "run.log").read_text()


def test_origins_of_settings_are_written_and_kept(world: Any) -> None:
    from mezzotint import outside

    recipe = Path(world.words("kept")[0])
    recipe.write_text("schema: 1\nobjective:\n  noise_offset: 0.02\n")
    assert world.train("kept", run__steps=1) == 0
    origins = outside.read_json(world.root / "kept" / "origin.json")
    assert origins["objective.noise_offset"] == "line 3 of kept.yaml"
    assert origins["optim.lr"] == "command line"
    assert "optim.accumulation" not in origins
    from mezzotint.cli import main

    assert main(["train", str(world.root / "kept" / "recipe.yaml"), "run.steps=2", "run.allow_change=[run.steps]"]) == 0
    again = outside.read_json(world.root / "kept" / "origin.json")
    assert again["objective.noise_offset"] == "line 3 of kept.yaml"
    assert again["run.allow_change"] == "command line"
