"""Runs and checkpoints of another version: older ones are refused with one error that names the last commit that reads
them, newer ones are named; another release of torch is recorded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from mezzotint import outside
from mezzotint.cli import main
from mezzotint.run_folder import CHECKPOINT_SCHEMA, LAST_READER, RunFolder

pytestmark = pytest.mark.faults
SHORT = {"run__steps": 2, "run__save__every": 1}


@pytest.fixture(scope="module")
def written(shared_world: Any) -> Any:
    """A world with a finished run of two steps."""
    assert shared_world.wait(shared_world.fork("run", **SHORT)) == 0, shared_world.out("run")
    return shared_world


def set_schema(folder: Path, schema: int) -> bytes:
    """Writes another schema into a manifest; returns the whole file as it was."""
    path = folder / "manifest.json"
    before = path.read_bytes()
    path.write_text(json.dumps(outside.read_json(path) | {"schema": schema}))
    return before


@pytest.mark.parametrize(
    ("place", "schema", "what"),
    [
        ("checkpoints/step-00000002", 1, "checkpoint (format 1, this version reads 7)"),
        ("checkpoints/step-00000002", 2, "checkpoint (format 2, this version reads 7)"),
        ("", 1, "run folder (format 1, this version reads 4)"),
    ],
)
def test_older_run_is_refused_with_the_commit_that_reads_it(
    written: Any, place: str, schema: int, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = written.root / "run"
    before = set_schema(run / place, schema)
    recipe = run / "recipe.yaml"
    as_written = recipe.read_text()
    recipe.write_text(as_written + "no_such_section: {}\n")  # unknown settings of an older recipe are not reported
    metrics = (run / "metrics.jsonl").read_bytes()
    try:
        for line in (["train", str(run), "run.steps=3"], ["check", str(run)], ["verify", str(run)]):
            assert main(line) == 2, line
            output = capsys.readouterr().err
            assert output.count("error[") == 1
            assert "error[E1521]" in output
            for words in (f"an older version wrote this {what}", LAST_READER):
                assert words in " ".join(output.split()), output
    finally:
        recipe.write_text(as_written)
        (run / place / "manifest.json").write_bytes(before)
    assert (run / "metrics.jsonl").read_bytes() == metrics


def test_older_checkpoint_is_refused_in_each_setting(
    written: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = written.root / "run"
    checkpoint = run / "checkpoints" / "step-00000002"
    before = set_schema(checkpoint, 2)
    own = written.words("run", **SHORT)
    try:
        lines = [
            ["train", *own, "run.steps=3"],
            ["check", *own, "run.steps=3"],
            ["train", *own, f"run.folder={tmp_path / 'other'}", f"run.resume={checkpoint}"],
            ["sample", str(run), "--prompt=a", f"--out={tmp_path / 'out'}"],
        ]
        for line in lines:
            assert main(line) == 2, line
            output = capsys.readouterr().err
            assert "E1521" in output, output
            assert LAST_READER in output
    finally:
        (checkpoint / "manifest.json").write_bytes(before)


def test_checkpoint_of_a_newer_schema_is_refused(written: Any, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoints = sorted((written.root / "run" / "checkpoints").glob("step-*"))
    before = [set_schema(path, CHECKPOINT_SCHEMA + 1) for path in checkpoints]
    try:
        assert main(["train", *written.words("run", **SHORT | {"run__steps": 3})]) == 2
        output = " ".join(capsys.readouterr().err.split())
        assert "step-00000002: another version wrote it (format 8, this version reads 7)" in output
    finally:
        for path, content in zip(checkpoints, before, strict=True):
            (path / "manifest.json").write_bytes(content)


def test_change_of_version_within_a_run_is_recorded(
    written: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["train", *written.words("run", **SHORT | {"run__steps": 3})]
    monkeypatch.setattr(torch, "__version__", "99.1")
    assert main(line) == 2, "random weights of another torch"
    assert "the frozen vae is not the one that the checkpoint was trained with" in capsys.readouterr().err
    assert main([*line, "run.allow_change=[model]"]) == 0
    run = written.root / "run"
    (resumed,) = [event for event in RunFolder(run).events() if event["event"] == "resumed"]
    assert any(change.startswith("torch: ") and change.endswith(" → 99.1") for change in resumed["changes"])
    assert outside.read_json(run / "environment.json")["packages"]["torch"]
