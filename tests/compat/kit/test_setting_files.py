"""One reader for settings files of other trainers in TOML, JSON and YAML: values, lines, and mistakes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mezzotint.compat.kit import setting_files
from mezzotint.compat.kit.reading import Spec
from mezzotint.errors import RecipeError

SPECS = {
    spec.flag: spec
    for spec in (
        Spec("name", "text"),
        Spec("train.lr", "number"),
        Spec("train.steps", "whole"),
        Spec("train.betas", "numbers"),
        Spec("train.flip", "switch"),
    )
}
TREE = {"name": "a", "train": {"lr": 1e-4, "steps": 10, "betas": [0.9, 0.99], "flip": True}}
TEXTS = {
    "a.json": json.dumps(TREE, indent=1),
    "a.toml": 'name = "a"\n\n[train]\nlr = 1e-4\nsteps = 10\nbetas = [0.9, 0.99]\nflip = true\n',
    "a.yaml": "---\nname: a\ntrain:\n  lr: 1e-4\n  steps: 10\n  betas: [0.9, 0.99]\n  flip: yes\n",
}


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(name: str, text: str) -> str:
    Path(name).write_text(text, "utf-8")
    return name


def problems(name: str, text: str, **more: Any) -> list[tuple[str, str, str, int | None]]:
    parsed = setting_files.read(write(name, text), "--config", SPECS, **more)
    return [(p.where, p.code, f"{p.message}; {p.remedy}".rstrip("; "), p.line) for p in parsed.problems]


@pytest.mark.parametrize("suffix", [True, False])
@pytest.mark.parametrize("name", list(TEXTS))
def test_three_forms_have_the_same_values(name: str, suffix: bool) -> None:
    parsed = setting_files.read(write(name if suffix else "settings", TEXTS[name]), "--config", SPECS)
    assert parsed.problems == []
    assert parsed.values == {"name": "a", "train.lr": 1e-4, "train.steps": 10, "train.betas": (0.9, 0.99),
                             "train.flip": True}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("a.json", '{"name": "a",\n "train": {\n  "lrr": 1}}', 3),
        ("a.toml", "name = 'a'\n[train]\nlrr = 1", 3),
        ("a.toml", "name = 'a'\ntrain.lrr = 1", 2),
        ("a.toml", "name = 'a'\ntrain = { lrr = 1 }", 2),
        ("a.yaml", "name: a\ntrain:\n  lrr: 1", 3),
        ("a.yaml", "name: a\ntrain: {lrr: 1}", 2),
    ],
)
def test_unknown_key_has_its_path_line_and_nearest_name(name: str, text: str, line: int) -> None:
    assert problems(name, text) == [(f"train.lrr in {name}", "E1016", "unknown key; did you mean train.lr?", line)]


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.json", '{"a": 1,\n "b" 2}', "a.json line 2 is not JSON"),
        ("a.json", '{"name": 1, "name": 2}', "has name more than once; keep one"),
        ("a.json", "3", "is not a JSON object"),
        ("a.toml", "name = 1\nname = 2", "a.toml line 2 is not TOML (Cannot overwrite a value); keep one"),
        ("a.toml", 'a = 1\nb = "X:\\data"', "a.toml line 2 is not TOML"),
        ("a.toml", "a = 1\nb = 'X\n", 'a.toml line 2 is not TOML (Expected "\'"); a text is not closed; look at its'),
        ("a.toml", 'a = "X\nb = 1', "a.toml line 1 is not TOML (Illegal character '\\n'); a text is not closed; look"),
        ("a.toml", "a = yes", "a.toml line 1 is not TOML (Invalid value); write texts in quotes, and true or false in"),
        (
            "a.json",
            '{"a": 1\n "b": 2}',
            "(Expecting ',' delimiter); a comma is missing here, or at the end of the line",
        ),
        ("a.json", " \n", "a.json is empty"),
        ("a.toml", "", "a.toml is empty"),
        ("a.yaml", "", "a.yaml is empty"),
        ("a.toml", "a = 1\nb = ", "a.toml line 2 is not TOML"),
        ("a.yaml", "name: 1\nname: 2", "a.yaml line 2, name: column 1: this key is given twice, first on line 1"),
        ("a.yaml", "a: b: c", "a.yaml line 1, a: column 5: a colon that YAML reads as the end of a key"),
        ("a.yaml", "a: !!python/object:x 1", "the tag !!python/object:x is not allowed; write the plain value"),
        ("a.yaml", "- a", "a.yaml line 1 is not key: value"),
        ("none.toml", None, "none.toml cannot be read: No such file or directory"),
    ],
)
def test_unreadable_file_is_one_problem_with_its_line(name: str, text: str | None, words: str) -> None:
    if text is not None:
        write(name, text)
    [problem] = setting_files.read(name, "--config", SPECS).problems
    assert (problem.where, problem.code) == ("--config", "E1017")
    assert words in problem.message


@pytest.mark.parametrize(
    ("name", "text", "remedy"),
    [("a.yaml", "name: a\ntrain: fast", "write its keys below it"),
     ("a.json", '{"name": "a",\n"train": "fast"}', 'write { "key": value }')],
)  # fmt: skip
def test_text_in_place_of_keys_is_refused(name: str, text: str, remedy: str) -> None:
    assert problems(name, text) == [(f"train in {name}", "E1017", f"must have keys, got 'fast'; {remedy}", 2)]


def test_too_large_file_is_refused() -> None:
    [problem] = setting_files.read(write("a.toml", "#" * 4_000_001), "--config", SPECS).problems
    assert "larger than 4,000,000 bytes" in problem.message


def test_wrong_type_has_its_line() -> None:
    assert problems("a.yaml", "train:\n  steps: many\n  lr: [1]\n  flip: maybe") == [
        ("train.steps in a.yaml", "E1017", "must be an integer, got 'many'", 2),
        ("train.lr in a.yaml", "E1017", "must be one value, got a list", 3),
        ("train.flip in a.yaml", "E1017", "must be True or False, got 'maybe'", 4),
    ]


def test_object_of_a_list_is_read_by_its_key_path() -> None:
    specs = {"folder": Spec("folder", "text"), "repeats": Spec("repeats", "whole")}
    text = "[general]\nx = 1\n[[sets]]\nfolder = 'a'\n[[sets.more]]\ny = 1\n[[sets]]\nfolder = 'b'\nrepeat = 3\n"
    file = setting_files.load(write("data.toml", text))
    assert setting_files.read_object(file, specs, ("sets", 1)).values == {"folder": "b"}
    [problem] = setting_files.read_object(file, specs, ("sets", 1)).problems
    assert (problem.where, problem.line) == ("sets.1.repeat in data.toml", 9)
    assert problem.remedy == "did you mean repeats?"
    assert file.line_near(("sets", 0, "more", 0, "y")) == 6
    [problem] = setting_files.read_object(file, specs, ("general", "x")).problems
    assert (problem.where, problem.message, problem.line) == ("general.x in data.toml", "must be an object, got 1", 2)


def test_list_at_the_top_is_read_too() -> None:
    file = setting_files.load(write("sets.json", '[{"id": "a"},\n {"id": "b"}]'))
    assert file.at((1, "id")) == "b"
    assert file.line_near((1, "id")) == 2
    [problem] = setting_files.read_object(file, SPECS).problems
    assert (problem.where, problem.message) == ("the file in sets.json", "must be an object, got a list")
    [problem] = setting_files.read_object(file, SPECS, (1,), called="sets.1").problems
    assert (problem.where, problem.line) == ("sets.1.id in sets.json", 2)


def test_sections_may_be_flattened() -> None:
    specs = {"lr": Spec("lr", "number"), "steps": Spec("steps", "whole")}
    name = write("a.toml", "steps = 3\n[one]\nlr = 1\n[two.three]\nlr = 2\nstep = 1\n")
    parsed = setting_files.read(name, "--config", specs, flatten=True)
    assert parsed.values == {"steps": 3, "lr": 1.0}
    assert [(p.where, p.message, p.line) for p in parsed.problems] == [
        ("two.three.lr in a.toml", "is also given as one.lr", 5),
        ("two.three.step in a.toml", "unknown key", 6),
    ]


def test_many_problems_end_the_reading() -> None:
    text = "\n".join(f"key{n}: 1" for n in range(1000))
    assert len(problems("a.yaml", text)) == 50


def test_missing_file_raises_from_load() -> None:
    with pytest.raises(RecipeError, match=r"no\.yaml cannot be read") as caught:
        setting_files.load("no.yaml")
    assert caught.value.code == "E1017"
