"""JSON settings files of a command, with EveryDream2's train.json as the example: values, and mistakes in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from everydream_files import by, problems, translate, written
from foreign_lines import ALONE, flat

from mezzotint.compat.everydream2.dialect import DIALECT
from mezzotint.errors import RecipeError
from mezzotint.tasks.reading import foreign


def test_file_sets_options_and_the_command_line_overrides_it() -> None:
    line = ("--batch_size=6", "--lr=2e-6", "--shuffle_tags", "--data_root=images")
    file = {"batch_size": 6, "lr": 2e-6, "shuffle_tags": True, "data_root": "images"}
    assert by(file) == flat(translate(*line).settings)
    translation = translate(f"--config={written('train.json', file)}", "--batch_size=3")
    assert flat(translation.settings)["data.batch_size"] == 3
    assert translation.origin["data.batch_size"] == "--batch_size"
    assert translation.origin["optim.lr"] == "lr in train.json"
    assert translation.origin["data.flip"] == "default of --flip_p"


def test_null_and_empty_text_mean_the_default() -> None:
    nulls = {row.flag: None for row in DIALECT.rows if row.flag not in ("resume_ckpt", "config")}
    assert by(nulls) == flat(translate().settings)
    emptied = {"ema_decay_rate": 0.99, "ema_update_interval": None, "ema_device": None, "run_name": ""}
    assert by(emptied)["optim.ema.interval"] == 500
    translation = translate(f"--config={written('train.json', {'min_snr_gamma': None})}")
    back = translation.origin["objective.min_snr_gamma"]
    assert back == "min_snr_gamma in train.json", "an epoch's file may take it back"


def test_json_values_must_have_the_type_of_the_option() -> None:
    settings = by({"batch_size": 4.0, "lr": 1, "shuffle_tags": 1, "min_snr_gamma": 4.5, "seed": "-1", "flip_p": "0.25"})
    assert (settings["data.batch_size"], settings["optim.lr"], settings["data.captions.shuffle_tags"]) == (4, 1.0, True)
    assert (settings["objective.min_snr_gamma"], settings["run.seed"], settings["data.flip"]) == (4.5, -1, 0.25)


@pytest.mark.parametrize(
    ("root", "paths"),
    [
        ("a", ["a"]),
        (["a", "b.json"], ["a", "b.json"]),
        ({"resolver": "directory", "path": "a"}, ["a"]),
        ({"resolver": "json", "path": "a.json"}, ["a.json"]),
        ({"resolver": "multi", "resolvers": ["a", {"resolver": "directory", "path": "b"}, ["c"]]}, ["a", "b", "c"]),
    ],
)
def test_data_root_may_be_a_list(root: Any, paths: list[str]) -> None:
    settings = by({"data_root": root})
    several = [{"path": path} for path in paths]
    assert (settings["data.path"] if len(paths) == 1 else settings["data.sets"]) == (
        paths[0] if len(paths) == 1 else several
    )


def test_key_without_effect_is_noted_with_the_file() -> None:
    translation = translate(f"--config={written('train.json', {'lowvram': True, 'amp': False, 'useadam8bit': True})}")
    output = [str(note) for note in translation.notes]
    assert any(note.startswith("lowvram in train.json: it has no effect in EveryDream2 either") for note in output)
    assert any(note.startswith("amp in train.json: only disable_amp has an effect") for note in output)


@pytest.mark.parametrize(
    ("content", "where", "code", "words"),
    [
        ({"batchsize": 3}, "batchsize in train.json", "E1016", "did you mean batch_size?"),
        ({"qqqq": 3}, "qqqq in train.json", "E1016", "no such key"),
        ({"batch_size": "many"}, "batch_size in train.json", "E1017", "must be an integer, got 'many'"),
        ({"batch_size": 2.5}, "batch_size in train.json", "E1017", "must be an integer, got '2.5'"),
        ({"batch_size": [2]}, "batch_size in train.json", "E1017", "must be one value, got a list"),
        ({"lr": {}}, "lr in train.json", "E1017", "must be one value, got an object"),
        ({"shuffle_tags": "maybe"}, "shuffle_tags in train.json", "E1017", "must be True or False"),
        ({"clip_skip": 9}, "clip_skip in train.json", "E1017", "must be 0 to 4, got 9"),
        ({"ema_device": "tpu"}, "ema_device in train.json", "E1017", "takes cpu, cuda"),
        ({"plugins": ["a.B"]}, "plugins in train.json", "E1018", "Python classes"),
        ({"data_root": {"resolver": "zip", "path": "a"}}, "data_root in train.json", "E1017", "must be a path, a list"),
        ({"data_root": {"resolver": "json", "path": "a", "x": 1}}, "data_root in train.json", "E1017", "unknown key x"),
        ({"data_root": 7}, "data_root in train.json", "E1017", "must be a path, a list"),
        ('{"a": 1,\n "b" 2}', "--config", "E1017", "line 2 is not JSON"),
        ('{"data_root": "X:\\data"}', "--config", "E1017", "write a backslash twice"),
        ('{"lr": 1e-6, "lr": 2e-6}', "--config", "E1017", "has lr more than once"),
        ("[1]", "--config", "E1017", "is not a JSON object"),
    ],
)
def test_error_names_the_key_and_the_file(content: Any, where: str, code: str, words: str) -> None:
    [(named, output, what, remedy)] = problems(f"--config={written('train.json', content)}")
    assert (named, output) == (where, code)
    assert words in f"{what}; {remedy}"


def test_missing_or_binary_file_is_reported_by_its_flag() -> None:
    Path("train.json").write_bytes(b"\xff\xfe{")
    for name, words in (("none.json", "No such file"), ("train.json", "not UTF-8")):
        [(where, _, what, _)] = problems(f"--config={name}")
        assert where == "--config"
        assert words in what


def test_recipe_errors_name_the_key_of_the_file() -> None:
    written("train.json", {"flip_p": 3})
    with pytest.raises(RecipeError) as caught:
        foreign.read_command_line("everydream2", ["--config=train.json"], (), ALONE)
    assert [problem.where for problem in caught.value.problems] == ["flip_p in train.json"]
