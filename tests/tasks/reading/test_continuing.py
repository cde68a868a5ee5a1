"""Run folders and their files as arguments instead of recipes and models."""

from __future__ import annotations

from pathlib import Path

import pytest

from mezzotint.cli import main
from mezzotint.errors import CheckpointError
from mezzotint.settings.reading.read import read_text
from mezzotint.tasks.reading import continuing
from support.run_folders import run_at

Captured = pytest.CaptureFixture[str]


def test_run_folder_given_as_model_resumes_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = run_at(tmp_path / "logs", "20260102-090000")
    for path, resume in (("logs/fox-{stamp}", "latest"), (str(run), "auto")):
        reading = continuing.with_run(read_text("schema: 1", overrides=[f"model.path='{path}'", "run.resume=never"]))
        assert str(reading.recipe.model.path) == "base"
        assert (Path(reading.recipe.run.folder or "").absolute(), reading.recipe.run.resume) == (run, resume)
        assert any(note.startswith("resuming ") for note in reading.notes)
    with pytest.raises(CheckpointError, match="wolf"):
        continuing.with_run(read_text("schema: 1", overrides=["model.path='logs/wolf-{stamp}'"]))
    plain = read_text("schema: 1", overrides=["model.path=base"])
    assert continuing.with_run(plain) is plain


def test_resumed_run_uses_the_files_it_started_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = run_at(tmp_path / "runs", "20260101-000000")
    (run / "recipe.yaml").write_text("schema: 1\nmodel: {path: base, vae: ae.safetensors, over: [t5.safetensors]}\n")
    for words, vae in (([], "ae.safetensors"), (["model.vae=other"], "other")):
        model = continuing.with_run(read_text("schema: 1", overrides=[f"model.path='{run}'", *words])).recipe.model
        assert (model.vae, model.over) == (Path(vae), (Path("t5.safetensors"),))


def test_newest_ema_is_last_ema_export_of_newest_run_that_has_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["optim.ema.rule=constant", "optim.ema.start='logs/fox-{stamp}'"]
    with pytest.raises(CheckpointError, match="no run of this name has exported averaged weights"):
        continuing.with_run(read_text("schema: 1", overrides=words))
    run = run_at(tmp_path / "logs", "20260102-090000")
    run_at(tmp_path / "logs", "20260103-090000")
    for name in ("fox-ep09-gs00900-ema", "fox-ep10-gs01000-ema", "fox-ep11-gs01100", "fox-ep02-gs00020-ema"):
        (run / "exports" / name).mkdir(parents=True)
        (run / "exports" / name / "model_index.json").write_text("{}")
    (run / "exports" / "fox-ep12-gs01200-ema").mkdir()
    start = continuing.with_run(read_text("schema: 1", overrides=words)).recipe.optim.ema.start
    assert start is not None
    assert start.name == "fox-ep10-gs01000-ema"


def test_run_folder_as_argument_resumes_its_recipe(
    finished_run: tuple[Path, list[str], str], capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(finished_run[0])
    assert main(["train", "run", "data.flips=0.25"]) == 2
    assert "run/recipe.yaml has 1 problem\n  given  data.flips  E1001" in capsys.readouterr().err
    assert main(["train", "run"]) == 0
    assert "step-00000001 is the end of this run" in capsys.readouterr().out
