"""Data set files: which value counts, and what is wrong with a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kohya_data_lines import problems, settings, translate

HEAD = "[[datasets]]\nresolution = 512\n"
ONE = f"{HEAD}[[datasets.subsets]]\nimage_dir = 'a'\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(text: str) -> str:
    Path("data.toml").write_text(text, "utf-8")
    return "--dataset_config=data.toml"


@pytest.mark.parametrize(
    ("general", "dataset", "subset", "line", "expected"),
    [
        ("", "", "", (), False),
        ("", "", "", ("--flip_aug",), True),
        ("flip_aug = false", "", "", ("--flip_aug",), False),
        ("flip_aug = false", "flip_aug = true", "", (), True),
        ("flip_aug = true", "flip_aug = true", "flip_aug = false", ("--flip_aug",), False),
    ],
)
def test_inner_value_has_priority(general: str, dataset: str, subset: str, line: Any, expected: bool) -> None:
    text = f"[general]\n{general}\n{HEAD}{dataset}\n[[datasets.subsets]]\nimage_dir = 'a'\n{subset}\n"
    assert settings(write(text), *line)["data.flip"] == (0.5 if expected else 0.0)


def test_subsets_alone_are_one_data_set() -> None:
    values = settings(write("[[datasets.subsets]]\nimage_dir = 'a'\n"), "--resolution=256")
    assert (values["data.path"], values["data.resolution"]) == ("a", 256)


def test_options_with_other_names_are_the_outermost_values() -> None:
    file = write(ONE)
    values = settings(file, "--train_batch_size=3", "--dataset_repeats=7", "--caption_extension=.txt")
    assert (values["data.batch_size"], values["data.repeats"]) == (3, 7.0)
    assert values["data.captions.extension"] == ".txt"
    text = ONE.replace("resolution", "batch_size = 2\nresolution") + "num_repeats = 5\n"
    values = settings(write(text), "--train_batch_size=3", "--dataset_repeats=7")
    assert (values["data.batch_size"], values["data.repeats"]) == (2, 5.0)


@pytest.mark.parametrize(
    ("text", "where", "line", "code", "remedy"),
    [
        ("resolution = 512\n" + ONE, "resolution", 1, "E1016", "write it below [general] or [[datasets]]"),
        ("[generall]\n" + ONE, "generall", 1, "E1016", "write [[datasets]]"),
        ("[general]\nimage_dir = 'x'\n" + ONE, "general.image_dir", 2, "E1016", "write it in [[datasets.subsets]]"),
        (ONE + "resolution = 512\n", "datasets.0.subsets.0.resolution", 5, "E1016", "write it in [general] or"),
        (ONE + "num_repeat = 3\n", "datasets.0.subsets.0.num_repeat", 5, "E1016", "did you mean num_repeats?"),
        (HEAD + "interpolation_type = 'area'\n[[datasets.subsets]]\nimage_dir = 'a'\n",
         "datasets.0.interpolation_type", 3, "E1016", "the trainer has no such key"),
        (ONE + "flip_aug = 3\n", "datasets.0.subsets.0.flip_aug", 5, "E1017", ""),
        (ONE + "num_repeats = 'x'\n", "datasets.0.subsets.0.num_repeats", 5, "E1017", ""),
        (ONE + "resize_interpolation = 'bicubid'\n", "datasets.0.subsets.0.resize_interpolation", 5, "E1017", ""),
        ("[[datasets]]\nresolution = [512, 'a']\n[[datasets.subsets]]\nimage_dir = 'a'\n", "datasets.0.resolution", 2,
         "E1017", ""),
        ("[general]\nflip_aug = true\n", "datasets", None, "E1017", "write [[datasets]]"),
        ("datasets = 5\n", "datasets", 1, "E1017", "write [[datasets]]"),
        (HEAD, "datasets.0.subsets", 1, "E1017", "write [[datasets.subsets]] below"),
        (HEAD + "[[datasets.subsets]]\nnum_repeats = 2\n", "datasets.0.subsets.0.image_dir", 3, "E1017", "write the"),
        (ONE + "[[datasets.subsets]]\nmetadata_file = 'm.json'\n", "datasets.0", 1, "E1017", "for each kind"),
    ],
)  # fmt: skip
def test_wrong_keys_are_named_with_their_line(text: str, where: str, line: int | None, code: str, remedy: str) -> None:
    [problem] = problems(write(text))
    assert (problem.where, problem.line, problem.code) == (f"{where} in data.toml", line, code)
    assert remedy in problem.remedy


def test_all_problems_of_a_file_are_reported_together() -> None:
    text = "[general]\nflip_augg = true\n" + ONE + "image_dirr = 'b'\nnum_repeats = 'x'\n"
    assert [problem.line for problem in problems(write(text))] == [2, 7, 8]


def test_learned_tokens_have_no_caption_dropout() -> None:
    words = ("--script=train_textual_inversion", "--token_string=x", "--init_word=a")
    [problem] = problems(*words, write(ONE + "caption_dropout_rate = 0.1\n"))
    assert (problem.line, problem.code) == (5, "E1016")
    assert "train_textual_inversion.py has no caption dropout" in problem.remedy


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("no.toml", None, "no.toml cannot be read: No such file or directory"),
        ("a.toml", "[general\n", "a.toml line 1 is not TOML"),
        ("a.toml", "x = 'a'\nx = 'b'\n", "a.toml line 2 is not TOML"),
        ("a.yaml", "datasets: []\n", "a.yaml must be a TOML file with [[datasets]]"),
    ],
)
def test_unreadable_files_are_refused(name: str, content: str | None, message: str) -> None:
    if content is not None:
        Path(name).write_text(content, "utf-8")
    [problem] = problems(f"--dataset_config={name}")
    assert (problem.where, problem.code) == ("--dataset_config", "E1017")
    assert message in problem.message


def test_json_file_is_read_too() -> None:
    Path("a.json").write_text('{"datasets": [{"resolution": 512, "subsets": [{"image_dir": "a"}]}]}', "utf-8")
    assert translate("--dataset_config=a.json").settings["data"]["path"] == "a"
