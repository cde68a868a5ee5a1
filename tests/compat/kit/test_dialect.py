"""A dialect with one option for a feature that Mezzotint does not have yet, and a settings file of sections."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mezzotint.compat.kit.dialect import Dialect, Draft, FileTable, mapped, row, waits
from mezzotint.errors import RecipeError
from mezzotint.settings.reading.translation import Launched

DIALECT = Dialect(
    name="example",
    about="an example",
    rows=(
        mapped("seed", 1, "run.seed", "seed"),
        waits("suffix", "", "caption suffix", "text after each caption", form="text"),
        row("file", str, "run.name", "settings"),
    ),
    compute=lambda draft: Draft.set(draft, "run.name", "a", "file"),
    config="file",
    flat_config=True,
)


def test_waiting_option_is_refused_unless_it_has_its_default() -> None:
    with pytest.raises(RecipeError) as caught:
        DIALECT.translate(["--suffix=x"], Launched())
    [problem] = caught.value.problems
    assert (problem.where, problem.code) == ("--suffix", "E1018")
    assert f"{problem.message}; {problem.remedy}" == (
        "needs caption suffix, which Mezzotint does not have yet; leave it out"
    )
    assert DIALECT.translate([], Launched()).settings["run"] == {"seed": 1, "name": "a", "tf32": False}
    assert [one.effect for one in DIALECT.rows] == ["`run.seed`", "not yet: caption suffix", "`run.name`"]


def test_sections_of_a_flat_file_only_group_options(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text("[any]\nseed = 3\n", "utf-8")
    assert DIALECT.translate([f"--file={file}"], Launched()).settings["run"]["seed"] == 3
    assert DIALECT.translate([f"--file={file}", "--seed=4"], Launched()).settings["run"]["seed"] == 4


def refuse_missing(draft: Draft) -> None:
    if not draft.text("suffix"):
        draft.refuse("suffix", "is missing", code="E1017")
    if draft.values["seed"] == 1:
        draft.refuse("seed", "is missing", code="E1017")


def test_options_of_an_unreadable_or_wrong_file_are_not_called_missing(tmp_path: Path) -> None:
    dialect = replace(DIALECT, compute=refuse_missing)
    file = tmp_path / "a.toml"
    for text, where in (("seed = ", "--file"), ("seed = 'x'\nsuffix = ['y']\n", "seed in a.toml suffix in a.toml")):
        file.write_text(text, "utf-8")
        with pytest.raises(RecipeError) as caught:
            dialect.translate([f"--file={file}"], Launched())
        assert " ".join(problem.where for problem in caught.value.problems) == where


def test_table_may_be_an_object_inside_a_file_or_a_list_of_objects(tmp_path: Path) -> None:
    sets = (row("path", str, "data.path", "a folder"), waits("suffix", "", "caption suffix", "text", form="text"))
    inner = (mapped("train.steps", 1, "run.steps", "length"), row("sets", 0, "data.sets", "sets", from_json=len))

    def compute(draft: Draft) -> None:
        paths = [draft.values[f"sets:sets.{index}.path"] for index in range(draft.integer("job:sets"))]
        draft.set("data.path", paths, "job:sets")

    dialect = Dialect(
        name="example",
        about="an example",
        rows=(row("file", str, "run.name", "settings"),),
        compute=compute,
        tables=(
            FileTable("file", "job:", inner, at=("jobs", 0)),
            FileTable("file", "sets:", sets, at=("jobs", 0, "sets"), each="sets"),
        ),
    )
    file = tmp_path / "a.yaml"
    file.write_text("jobs:\n- train: {steps: 3}\n  sets:\n  - path: a\n  - path: b\n", "utf-8")
    translation = dialect.translate([f"--file={file}"], Launched())
    assert (translation.settings["run"]["steps"], translation.settings["data"]["path"]) == (3, ["a", "b"])
    assert translation.origin["run.steps"] == "train.steps in a.yaml"
    file.write_text("jobs:\n- train: {stepz: 3}\n  sets:\n  - path: a\n    suffix: b\n  - pat: b\n", "utf-8")
    with pytest.raises(RecipeError) as caught:
        dialect.translate([f"--file={file}"], Launched())
    assert [(p.where, p.line, p.code) for p in caught.value.problems] == [
        ("train.stepz in a.yaml", 2, "E1016"),
        ("sets.1.pat in a.yaml", 6, "E1016"),
        ("sets.0.suffix in a.yaml", 5, "E1018"),
    ]
