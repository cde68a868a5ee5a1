"""What runs as it is written and may not be meant is said, by `check` and at the start; what is plain is not."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from mezzotint.assets import ASSETS
from mezzotint.recipe.reading.read import located, read_text
from mezzotint.recipe.sections.data import DataSettings
from mezzotint.tasks.check.notes import knowledge, notes, of_data


def said(*words: str, prediction: str = "epsilon", device: str = "cpu", buckets: int | None = 3) -> str:
    recipe = located(read_text("schema: 1", overrides=words))
    return "\n".join(notes(recipe, prediction=prediction, device=device, buckets=buckets))


def test_a_folder_that_is_named_again_is_said_to_be_visited_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "link").symlink_to("a")
    assert said("data.path=[a,b]") == ""
    twice = said("data.path=[a,b,./b/../a]")
    assert f"{tmp_path / 'a'} twice" in twice
    assert "data.repeats" in twice
    assert f"{tmp_path / 'a'} 3 times" in said("data.path=[a,link,a]")


def test_a_schedule_for_another_prediction_is_said() -> None:
    word = "objective.zero_terminal_snr=true"
    assert "predicts epsilon" in said(word)
    assert said(word, prediction="v") == said() == ""


def test_compiling_on_a_cpu_is_said_with_the_number_of_buckets() -> None:
    assert "each of the 3 buckets is compiled anew" in said("run.compile=true")
    assert "every size of picture is compiled anew" in said("run.compile=true", buckets=None)
    assert said("run.compile=true", device="cuda") == ""


def test_archives_and_broken_names_are_said_in_numbers() -> None:
    def of(groups: list[int], held: list[int], *unknown: tuple[str, int]) -> list[str]:
        rows, held_rows = [
            np.array(part, dtype=np.int32) for part in ([r for r in range(len(groups)) if r not in held], held)
        ]
        overrides = SimpleNamespace(
            group=np.array(groups), flip=np.full(len(groups), np.nan), group_name=lambda number: f"name {number}"
        )
        catalogue = SimpleNamespace(
            overrides=overrides, report=SimpleNamespace(unknown=unknown), roots=(Path("/a"), Path("/b"))
        )
        dataset = cast(Any, SimpleNamespace(catalogue=catalogue, rows=rows, held=held_rows))
        return of_data(dataset, DataSettings())

    assert of([0, 1, 1], [0], (".md", 3)) == []
    [said] = of([0], [], (".md", 1), (".rar", 1))
    assert said == "1 .rar archive below /a, /b is not opened, so that pictures in it are not trained; unpack it there"
    [said] = of([0], [], (".tar", 1), (".zip", 2))
    assert said.startswith("1 .tar archive and 2 .zip archives below /a, /b are not opened")
    [said] = of([0, 1, 1, 2, 3, 4, 4, 4], [1, 3, 4, 5, 7])
    assert "it takes 1 of the 2 of 'name 1', 1 of the 1 of 'name 2', 1 of the 1 of 'name 3' and 1 more;" in said


def test_folders_that_say_how_often_are_said_where_the_format_does_not_look(tmp_path: Path) -> None:
    for name in ("10_sks dog/a.png", "3_cat/b.JPG", "2024_summer/c.png", "01_first/d.png", "5_notes/e.txt", "7_/f.png"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).touch()
    catalogue = SimpleNamespace(
        overrides=SimpleNamespace(group=np.zeros(1, np.int64), flip=np.full(1, np.nan)),
        report=SimpleNamespace(unknown=()),
        roots=(tmp_path,) * 2,
    )
    dataset = cast(Any, SimpleNamespace(catalogue=catalogue, rows=np.zeros(1, np.int32), held=np.zeros(0, np.int32)))
    [said] = of_data(dataset, DataSettings())
    assert said.startswith(f"10_sks dog, 3_cat below {tmp_path} look like kohya's folders")
    assert "data.format=kohya reads the number" in said
    assert "data.format=image-folder takes every picture once;" in said
    [said] = of_data(dataset, DataSettings(repeats=(8,)))
    assert "data.format=image-folder does not read it, and data.repeats counts for all of a folder;" in said
    assert of_data(dataset, DataSettings(format="kohya")) == []


@pytest.mark.parametrize("has_clips", [False, True])
def test_captions_that_a_mirror_makes_wrong_are_counted(has_clips: bool) -> None:
    captions = [("a car drives to the left",), ("a leftover",), ("plain", "a RIGHT hand"), ("turns counter-clockwise",),
                ("westward bound",)]  # fmt: skip
    catalogue = SimpleNamespace(
        overrides=SimpleNamespace(group=np.zeros(5, np.int64), flip=np.array([np.nan] * 4 + [0.0], np.float32)),
        report=SimpleNamespace(unknown=()), roots=(), captions=captions.__getitem__, label=lambda row: f"{row}.x",
    )  # fmt: skip
    dataset = cast(Any, SimpleNamespace(catalogue=catalogue, rows=np.arange(5), held=np.zeros(0, np.int32)))
    settings = DataSettings(flip=0.5, format="videofolder" if has_clips else "webdataset")
    [said] = of_data(dataset, settings)
    if has_clips:
        assert said.startswith(
            "the captions of 3 clips tell left, right or a turn or a direction of motion, such as that of 0.x, and "
            "data.flip=0.5 mirrors clips"
        )
    else:
        assert said.startswith("the captions of 3 pictures tell left, right or a turn, such as that of 0.x")
    assert of_data(dataset, settings.model_copy(update={"flip": 0.0})) == []


def test_more_workers_than_processors_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda process: set(range(4)))
    assert "lets a run use 4 processors" in said("data.workers=5")
    assert said("data.workers=4") == ""


def test_configurations_that_have_no_effect_are_said(tmp_path: Path) -> None:
    words = (f"model.path={tmp_path}", "model.config=tiny-sd")
    assert "model.path is a folder with configurations of its own" in said(*words)
    assert said(*words, "model.weights=random") == ""


@pytest.mark.slow
def test_the_start_and_check_say_it(world: Any, capsys: Any) -> None:
    folder = str(world.pictures)
    fox = world.root / "set" / "2_fox"
    fox.mkdir(parents=True)
    shutil.copy(world.pictures / "00.png", fox / "a.png")
    (fox / "a.txt").write_text("a fox that looks to the right")
    settings = {
        "data__path": [folder, folder, str(fox.parent)],
        "data__flip": 0.5,
        "objective__zero_terminal_snr": True,
        "run__steps": 1,
    }
    assert world.train("run", **settings) == 0
    start = capsys.readouterr().out
    assert world.train("run", verb="check", **settings) == 0
    page = " ".join(capsys.readouterr().out.split())
    assert "activations" in page  # the rescaled schedule is no hindrance to measuring them
    for words in ("twice: an epoch visits each of its pictures as often", "the last timestep is pure noise",
                  "2_fox below", "data.format=kohya reads the number", "2_fox/a.png, and data.flip=0.5"):  # fmt: skip
        assert words in start
        assert words in page


def test_only_models_that_ship_say_what_they_know(tmp_path: Path) -> None:
    mini = ASSETS / "models" / "mezzotint-mini"
    assert len(knowledge(mini)) == 1
    assert knowledge(ASSETS / "models" / "tiny-sd") == []
    shutil.copyfile(mini / "README.md", tmp_path / "README.md")
    assert knowledge(tmp_path) == []
