"""Live settings: read at the start of an epoch, printed, recorded, and repeated by a resumed run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mezzotint import outside
from mezzotint.settings.reading.read import read_text
from mezzotint.settings.recipe import LIVE, live_values, with_live
from mezzotint.training.checkpoints import state

CACHED = {"data__cache__latents": True, "run__epochs": 3, "run__steps": None, "run__save__every": 2}


def events(folder: Path) -> list[dict[str, Any]]:
    return [e for e in outside.read_lines(folder / "history.jsonl") if e["event"] == "live settings"]


def written(world: Any, text: str) -> Path:
    path: Path = world.root / "live.yaml"
    path.write_text(text)
    return path


def test_values_are_replaced_by_path_and_checked() -> None:
    recipe = read_text("schema: 1").recipe
    changed = with_live(recipe, {"objective.noise_offset": 0.1, "run.save.every": "1 epoch", "model.clip_skip": 1})
    values = live_values(changed)
    assert set(values) == set(LIVE)
    assert (values["objective.noise_offset"], values["run.save.every"], values["model.clip_skip"]) == (
        0.1,
        ["1 epoch"],
        1,
    )
    assert with_live(changed, live_values(recipe)) == recipe
    with pytest.raises(ValueError, match="clip_skip"):
        with_live(recipe, {"model.clip_skip": 9})


# fails if the file is not read, or its values do not reach the objective and the text encoder
@pytest.mark.slow
@pytest.mark.effect("run.live.path")
def test_live_file_changes_settings_at_epoch_start(world: Any, capsys: Any) -> None:
    path = written(world, "objective: {noise_offset: 0.5, min_snr_gamma: 5}\nmodel: {clip_skip: 1}\noptim: {lr: 7}\n")
    assert world.train("plain", **CACHED) == 0
    capsys.readouterr()
    assert world.train("run", **CACHED, run__live__path=str(path)) == 0
    said = capsys.readouterr().out
    assert "epoch 1: objective.noise_offset is 0.5 from here" in said
    assert "it was 0.0" in said
    assert "optim.lr cannot change during a run" in said
    changes = events(world.root / "run")
    assert [event["epoch"] for event in changes] == [0, 1, 2]
    assert changes[0]["values"] == {
        "objective.noise_offset": 0.5, "objective.min_snr_gamma": 5.0, "model.clip_skip": 1
    }  # fmt: skip
    one, other = world.end("plain"), world.end("run")
    assert one.metrics[0] != other.metrics[0]
    newest = state.read(state.newest_valid(world.root / "run" / "checkpoints").path)
    assert newest.values["recipe"]["objective"]["noise_offset"] == 0, "the recipe is unchanged"


# fails if the file can change the setting
@pytest.mark.effect("run.live.fixed")
def test_fixed_settings_are_not_changed(world: Any, capsys: Any) -> None:
    path = written(world, "objective: {noise_offset: 0.5, min_snr_gamma: 5}\n")
    words = {"run__live__path": str(path), "run__live__fixed": ["objective.noise_offset"]}
    assert world.train("run", **CACHED | {"run__epochs": 1}, **words) == 0
    assert events(world.root / "run")[0]["values"] == {"objective.min_snr_gamma": 5.0}


@pytest.mark.slow
def test_broken_live_file_is_ignored_with_message(world: Any, capsys: Any) -> None:
    path = written(world, "objective: {noise_offset: -3}\n")
    assert world.train("run", **CACHED | {"run__epochs": 1}, run__live__path=str(path)) == 0
    said = capsys.readouterr().out
    assert "is ignored in epoch 1" in said
    assert "noise_offset" in said
    path.unlink()
    assert world.train("gone", **CACHED | {"run__epochs": 1}, run__live__path=str(path)) == 0
    assert "is ignored in epoch 1" in capsys.readouterr().out
    assert world.end("gone").metrics == world.end("run").metrics


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.parametrize("at", [3, pytest.param(6, marks=pytest.mark.exhaustive)])  # within an epoch and at its start
def test_resumed_run_repeats_recorded_live_settings(world: Any, at: int) -> None:
    path = written(world, "objective: {noise_offset: 0.5}\nrun: {save: {every: 1 epoch}}\n")
    words = CACHED | {"run__live__path": str(path)}
    assert world.wait(world.fork("killed", fault=f"step.begin@{at}:kill", **words)) == 137
    path.write_text("objective: {noise_offset: 0.1}\n")
    assert world.wait(world.fork("killed", **words)) == 0
    values = [event["values"]["objective.noise_offset"] for event in events(world.root / "killed")]
    assert values == ([0.5, 0.1, 0.1] if at == 3 else [0.5, 0.5, 0.1])
