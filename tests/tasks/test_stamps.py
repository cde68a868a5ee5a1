"""Run folders with the time of their start in their names, and the newest of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mezzotint.errors import CheckpointError
from mezzotint.recipe.reading.read import read_text
from mezzotint.tasks.reading import continuing, stamps


def run_at(folder: Path, stamp: str, *, step: int | None = 3, name: str = "fox") -> Path:
    run = folder / f"{name}-{stamp}"
    (run / "checkpoints").mkdir(parents=True)
    (run / "recipe.yaml").write_text("schema: 1\nmodel: {path: base}\n")
    if step is not None:
        (run / "checkpoints" / f"step-{step:08}").mkdir()
        (run / "checkpoints" / f"step-{step:08}" / "manifest.json").write_text("{}")
    return run


def test_a_start_makes_a_folder_of_its_own_with_the_time(tmp_path: Path) -> None:
    open_name = tmp_path / "fox-{stamp}"
    run_at(tmp_path, "20260101-120000")
    assert re.fullmatch(r"fox-\d{8}-\d{6}", stamps.settled(open_name, "never").name)
    assert stamps.settled(tmp_path / "fox", "latest") == tmp_path / "fox"


def test_going_on_takes_the_newest_by_its_name_that_has_a_checkpoint(tmp_path: Path) -> None:
    open_name = tmp_path / "fox-{stamp}"
    assert stamps.settled(open_name, "auto").parent == tmp_path
    newest = run_at(tmp_path, "20260102-090000")
    run_at(tmp_path, "20260101-120000", step=900)
    run_at(tmp_path, "20260103-090000", step=None)
    run_at(tmp_path, "20260104-090000", name="foxes")
    (tmp_path / "fox-20260105").mkdir()
    for resume in ("auto", "latest"):
        assert stamps.settled(open_name, resume) == newest


def test_nothing_to_go_on_with_is_said_with_what_is_there(tmp_path: Path) -> None:
    run_at(tmp_path, "20260103-090000", step=None)
    with pytest.raises(CheckpointError, match=r"those that are there \(fox-20260103-090000\) have none") as caught:
        stamps.settled(tmp_path / "fox-{stamp}", "latest")
    assert caught.value.code == "E1507"
    with pytest.raises(CheckpointError, match="none is there"):
        stamps.settled(tmp_path / "elsewhere" / "fox-{stamp}", "latest")


def test_a_model_that_is_a_run_is_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = run_at(tmp_path / "logs", "20260102-090000")
    for path, resume in (("logs/fox-{stamp}", "latest"), (str(run), "auto")):
        made = continuing.with_run(read_text("schema: 1", overrides=[f"model.path='{path}'", "run.resume=never"]))
        assert str(made.recipe.model.path) == "base"
        assert (Path(made.recipe.run.folder or "").absolute(), made.recipe.run.resume) == (run, resume)
        assert any("is gone on with" in note for note in made.notes)
    with pytest.raises(CheckpointError, match="wolf"):
        continuing.with_run(read_text("schema: 1", overrides=["model.path='logs/wolf-{stamp}'"]))
    plain = read_text("schema: 1", overrides=["model.path=base"])
    assert continuing.with_run(plain) is plain


def test_the_newest_average_is_the_furthest_export_of_the_newest_run_that_has_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["optim.ema.rule=constant", "optim.ema.start='logs/fox-{stamp}'"]
    with pytest.raises(CheckpointError, match="no run of this name has exported an average"):
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


def test_a_model_that_that_trainer_has_converted_is_found_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ckpt_cache" / "sd_v1-5_vae").mkdir(parents=True)
    made = continuing.with_run(read_text("schema: 1", overrides=["model.path=sd_v1-5_vae"]))
    assert made.recipe.model.path == Path("ckpt_cache/sd_v1-5_vae")
    (tmp_path / "sd_v1-5_vae").mkdir()
    assert continuing.with_run(read_text("schema: 1", overrides=["model.path=sd_v1-5_vae"])).notes == ()
