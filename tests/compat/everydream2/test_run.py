"""Runs of `everydream2`: saves, resuming, the file that is read at each epoch, the holdout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from dialect_cases.everydream2 import BAREST, FILE, LINES, ON, PATH
from everydream_files import problems, translate, written
from foreign_lines import ALONE, flat

from mezzotint.settings.reading.paths import by_path, sections
from mezzotint.tasks.reading import foreign

changed = LINES.changed


@pytest.mark.parametrize(
    ("words", "every"),
    [
        ([], ["20 minutes"]),
        (["--save_every_n_epochs=3", "--ckpt_every_n_minutes=7"], ["3 epochs", "7 minutes"]),
        (["--save_every_n_epochs=0"], []),
        (["--ckpt_every_n_minutes=0"], []),
        (["--save_every_n_epochs=0", "--ckpt_every_n_minutes=9"], ["9 minutes"]),
    ],
)
def test_saves_are_by_epoch_and_by_minutes(words: list[str], every: list[str]) -> None:
    settings = flat(translate(*words).settings)
    assert settings["run.save.every"] == settings["run.export.every"] == every


def test_findlast_of_both_models_resumes_one_run() -> None:
    moved = changed(ON, "--resume_ckpt=findlast", "--ema_resume_model=findlast")
    assert (moved["model.path"], moved["run.resume"], "optim.ema.start" in moved) == (PATH, "latest", False)


def test_converted_model_is_found_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ckpt_cache" / "sd_v1-5_vae").mkdir(parents=True)
    translated = translate("--resume_ckpt=sd_v1-5_vae")
    assert flat(translated.settings)["model.path"] == "ckpt_cache/sd_v1-5_vae"
    assert any("sd_v1-5_vae is ckpt_cache/sd_v1-5_vae" in str(note) for note in translated.notes)
    (tmp_path / "sd_v1-5_vae").mkdir()
    assert flat(translate("--resume_ckpt=sd_v1-5_vae").settings)["model.path"] == "sd_v1-5_vae"


def test_overriding_settings_are_not_changed_by_the_live_file() -> None:
    Path("train.json").write_text('{"load_settings_every_epoch": true}')
    reading = foreign.read_command_line("everydream2", [*BAREST, FILE], ["objective.noise_offset=0.07"], ALONE)
    assert reading.recipe.run.live.fixed == ("objective.noise_offset",)
    assert set(reading.origin) <= {*by_path(), *sections()} | {p for p in reading.origin if ".text_encoder" in p}


def measured(content: Any, *words: str) -> dict[str, Any]:
    """What a file of validation sets."""
    settings = flat(translate(f"--validation_config={written('val.json', content)}", *words).settings)
    return {path: value for path, value in settings.items() if path.startswith(("data.holdout", "run.validation"))}


ALL = {"data.holdout.max_samples": 1_000_000}

EACH = {"run.validation.every": "1 epochs"}


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({}, {"data.holdout.fraction": 0.15, **ALL, **EACH}),
        ({"documentation": {"seed": "any"}, "doc": "any"}, {"data.holdout.fraction": 0.15, **ALL, **EACH}),
        ({"auto_split_proportion": 0.2, "every_n_epochs": 3},
         {"data.holdout.fraction": 0.2, **ALL, "run.validation.every": "3 epochs"}),
        ({"val_split_proportion": 0.3}, {"data.holdout.fraction": 0.3, **ALL, **EACH}),
        ({"val_split_mode": "none", "stabilize_training_loss": True},
         {"run.validation.training_fraction": 0.15, **ALL, **EACH}),
        ({"val_split_mode": "manual", "manual_data_root": "val"}, {"data.holdout.path.val": "val", **ALL, **EACH}),
        ({"val_split_mode": "manual", "val_data_root": "v", "extra_manual_datasets": {"faces": "f"}},
         {"data.holdout.path.val": "v", "data.holdout.path.faces": "f", **ALL, **EACH}),
        ({"validate_training": False}, {"run.validation.every": None}),
    ],
)  # fmt: skip
def test_validation_file_sets_the_holdout(content: Any, expected: dict[str, Any]) -> None:
    assert measured(content) == expected


def test_half_an_epoch_becomes_one_epoch_with_a_note() -> None:
    assert measured({"every_n_epochs": 0.5})["run.validation.every"] == "1 epochs"
    translation = translate("--validation_config=val.json")
    assert any("run.validation.every takes steps, too" in str(note) for note in translation.notes)


@pytest.mark.parametrize(
    ("content", "where"),
    [
        ({"val_split_mode": "manual"}, "manual_data_root in val.json"),
        ({"every_n_epochs": 0}, "every_n_epochs in val.json"),
        ({"extra_manual_datasets": {"a b": "x"}}, "extra_manual_datasets in val.json"),
        ({"extra_manual_datasets": ["x"]}, "extra_manual_datasets in val.json"),
        ({"split": 1}, "split in val.json"),
    ],
)
def test_error_in_the_validation_file_names_key_and_file(content: Any, where: str) -> None:
    assert [p[0] for p in problems(f"--validation_config={written('val.json', content)}")] == [where]
