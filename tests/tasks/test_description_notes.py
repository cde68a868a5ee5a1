"""Notes of `check` and `train` about settings that work but may not be intended."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from mezzotint.assets import ASSETS
from mezzotint.settings.reading.read import read_text, resolve_paths
from mezzotint.tasks.description_notes import of_settings, read_knowledge


def said(*words: str, prediction: str = "epsilon", device: str = "cpu", buckets: int | None = 3) -> str:
    recipe = resolve_paths(read_text("schema: 1", overrides=words))
    return "\n".join(of_settings(recipe, prediction=prediction, device=device, buckets=buckets))


def test_folder_listed_twice_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "link").symlink_to("a")
    assert said("data.sets=[{path: a}, {path: b}]") == ""
    twice = said("data.sets=[{path: a}, {path: b}, {path: ./b/../a}]")
    assert f"{tmp_path / 'a'} twice" in twice
    assert "use repeats instead" in twice
    assert f"{tmp_path / 'a'} 3 times" in said("data.sets=[{path: a}, {path: link}, {path: a}]")


def test_schedule_of_another_prediction_type_is_noted() -> None:
    word = "objective.zero_terminal_snr=true"
    assert "predicts epsilon" in said(word)
    assert said(word, prediction="v") == said() == ""


def test_compiling_on_cpu_is_noted_with_number_of_buckets() -> None:
    assert "each of the 3 buckets is compiled when" in said("run.compile=true")
    assert "every image size is compiled when" in said("run.compile=true", buckets=None)
    assert said("run.compile=true", device="cuda") == ""


def test_more_workers_than_processors_are_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda process: set(range(4)))
    assert "only 4 processors can be used here" in said("data.workers=5")
    assert said("data.workers=4") == ""


def test_ineffective_model_configurations_are_noted(tmp_path: Path) -> None:
    words = (f"model.path={tmp_path}", "model.config=tiny-sd")
    assert "the folder model.path contains its configurations" in said(*words)
    assert said(*words, "model.weights=random") == ""


@pytest.mark.slow
def test_train_and_check_print_the_notes(world: Any, capsys: Any) -> None:
    folder = str(world.images)
    fox = world.root / "set" / "2_fox"
    fox.mkdir(parents=True)
    shutil.copy(world.images / "00.png", fox / "a.png")
    (fox / "a.txt").write_text("a fox that looks to the right")
    settings = {
        "data__path": None,
        "data__sets": json.dumps([{"path": one} for one in (folder, folder, str(fox.parent))]),
        "data__flip": 0.5,
        "objective__zero_terminal_snr": True,
        "run__steps": 1,
    }
    assert world.train("run", **settings) == 0
    start = capsys.readouterr().out
    assert world.train("run", verb="check", **settings) == 0
    page = " ".join(capsys.readouterr().out.split())
    assert "activations" in page  # measured with a rescaled schedule too
    for words in (
        "twice with the same settings: an epoch visits each of its images as often",
        "the last timestep is pure noise", "2_fox below",
        "data.format=kohya reads the number", "a fox that looks to the right; set data.flip=0",
    ):  # fmt: skip
        assert words in start
        assert words in page


def test_only_shipped_models_state_what_they_were_trained_on(tmp_path: Path) -> None:
    mini = ASSETS / "models" / "mezzotint-mini"
    assert len(read_knowledge(mini)) == 1
    assert read_knowledge(ASSETS / "models" / "tiny-sd") == []
    shutil.copyfile(mini / "README.md", tmp_path / "README.md")
    assert read_knowledge(tmp_path) == []
