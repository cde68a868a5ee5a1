"""Extending runs, and forking them: a new run from another's newest checkpoint."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from mezzotint import outside
from mezzotint.cli import main
from mezzotint.errors import RecipeError
from mezzotint.run_folder import RunFolder
from mezzotint.settings.reading.read import read_text
from mezzotint.training.checkpoints import state


def losses(folder: Path) -> dict[int, float]:
    return {line["step"]: line["loss"] for line in outside.read_lines(folder / "metrics.jsonl") if "loss" in line}


def digests(folder: Path) -> dict[str, Any]:
    newest = state.newest_valid(folder / "checkpoints").path
    assert newest is not None
    return {name: entry["sha256"] for name, entry in outside.read_json(newest / "manifest.json")["files"].items()}


@pytest.mark.slow
def test_finished_run_is_extended_once_by_the_same_command(world: Any, capsys: Any) -> None:
    assert world.train("run", run__steps=2) == 0
    folder = world.root / "run"
    capsys.readouterr()
    assert main(["train", str(folder)]) == 0
    offer = re.search(
        r"nothing is left to train; .*: mezzotint train \S+ 'run\.extend=2 steps'", capsys.readouterr().out
    )
    assert offer, "the command that extends the run is printed"
    for _ in range(2):
        assert main(["train", str(folder), "run.extend=2 steps"]) == 0
    output = capsys.readouterr().out
    assert "step-00000004 is the end of this run" in output
    assert "'run.extend=4 steps'" in output, "the suggested length is longer than now"
    assert list(losses(folder)) == [1, 2, 3, 4]
    assert main(["train", str(folder)]) == 0, "the recipe in the folder has the new length"
    assert world.train("whole", run__steps=4) == 0
    assert losses(folder) == losses(world.root / "whole"), "bit-identical with a constant rate"


def test_fork_starts_from_the_newest_checkpoint_of_an_unchanged_run(world: Any, capsys: Any) -> None:
    assert world.train("first", run__steps=2) == 0
    first, second = world.root / "first", world.root / "second"
    before = {path: path.read_bytes() for path in sorted(first.rglob("*")) if path.is_file()}
    capsys.readouterr()
    line = ["train", str(first), "run.name=second", "run.extend=2", "optim.lr=0.002"]
    assert main(line) == 0
    out = capsys.readouterr().out
    assert "is a fork of" in out
    assert "resuming from step-00000002, 2 steps to go" in out
    assert "optim.lr" in out, "changed settings are reported"
    assert {path: path.read_bytes() for path in sorted(first.rglob("*")) if path.is_file()} == before
    assert list(losses(second)) == [3, 4]
    assert main(line) == 0, "the same command resumes the fork"
    assert "step-00000004 is the end of this run" in capsys.readouterr().out
    [resumed] = [event for event in RunFolder(second).events() if event["event"] == "resumed"][:1]
    assert any(change.startswith("optim.lr") for change in resumed["changes"])


@pytest.mark.slow
def test_unchanged_fork_is_bit_identical_to_the_extended_run(world: Any) -> None:
    assert world.train("first", run__steps=2) == 0
    assert main(["train", str(world.root / "first"), f"run.folder={world.root / 'there'}", "run.extend=1 epoch"]) == 0
    assert main(["train", str(world.root / "first"), "run.extend=1 epoch"]) == 0
    there, here = digests(world.root / "there"), digests(world.root / "first")
    assert len(here) > 1
    assert {n: d for n, d in there.items() if n.endswith(".safetensors")} == {
        n: d for n, d in here.items() if n.endswith(".safetensors")
    }


@pytest.mark.slow
def test_fork_may_start_from_an_earlier_checkpoint(world: Any, capsys: Any) -> None:
    assert world.train("first", run__steps=4) == 0
    earlier = world.root / "first" / "checkpoints" / "step-00000003"
    line = ["train", str(world.root / "first"), "run.name=second", f"run.resume={earlier}"]
    assert main(line) == 0
    output = capsys.readouterr().out
    assert f"it starts from {earlier}" in output
    assert list(losses(world.root / "second")) == [4]


def test_fork_with_a_setting_that_checkpoints_fix_is_refused(world: Any, capsys: Any) -> None:
    assert world.train("first", run__steps=1) == 0
    capsys.readouterr()
    assert main(["train", str(world.root / "first"), "run.name=second", "run.seed=9", "run.extend=1"]) == 2
    err = capsys.readouterr().err
    assert "E1511" in err
    assert "run.seed" in err
    copy = world.root / "first" / "recipe.yaml"
    assert f"or start at step 0, from a copy of {copy}: run.folder=FOLDER" in err
    assert not (world.root / "second").exists()
    recipe = world.root / "copy.yaml"
    recipe.write_text(copy.read_text())
    assert main(["train", str(recipe), f"run.folder={world.root / 'second'}", "run.seed=9"]) == 0
    assert list(losses(world.root / "second")) == [1]


@pytest.mark.usefixtures("unmeasured")
def test_fork_onto_an_existing_run_suggests_another_name(world: Any, capsys: Any) -> None:
    for name in ("first", "second"):
        assert world.train(name, run__steps=1) == 0
    capsys.readouterr()
    for word, offered in (
        ("run.name=second", "run.name=second-2"),
        (f"run.folder={world.root / 'second'}", "run.folder=FOLDER"),
    ):
        for verb in ("train", "check"):
            assert main([verb, str(world.root / "first"), word, "run.seed=9"]) == 2
            assert capsys.readouterr().err.endswith(f"or start a new run: {offered}\n")


def test_extending_by_minutes_is_refused() -> None:
    with pytest.raises(RecipeError, match="counts steps or epochs, got '5 minutes'"):
        read_text("schema: 1", overrides=["run.extend=5 minutes"])
