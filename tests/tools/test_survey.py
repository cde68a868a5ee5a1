"""`make survey`: figures of a small synthetic source tree."""

from __future__ import annotations

import json
from pathlib import Path, PurePosixPath
from textwrap import dedent

import pytest

import survey

FILES = {
    "src/mezzotint/__init__.py": "",
    "src/mezzotint/cli.py": '"""The command line."""\n',
    "src/mezzotint/tasks/train/loop.py": "def found() -> int: return 1\n",
    "src/mezzotint/data/plan.py": """\
        class Plan: ...

        def plan(a, told, *rest):
            found = 1
            for x in rest:
                with open(x) as made:
                    found += 1
            def inner():
                made = [y for y in rest]
            return found
        """,
    "src/mezzotint/data/formats/kohya.py": "class Source: ...\nclass Family: ...\n",
    "src/mezzotint/data/formats/_beside.py": "class Source: ...\nNAMES = ('found',)\n",
    "src/mezzotint/families/sd.py": "class Family: ...\n",
    "src/mezzotint/families/sdxl.py": "class Family: ...\n",
    "tests/data/test_plan.py": "def test_a() -> None: ...\nclass B:\n    def test_b(self): ...\n",
    "docs/page.md": "x" * 20_001,
    "docs/decisions/0001.md": "x",
}


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(dedent(text))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tree")
    write(root, FILES)
    return root


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        ("folder data", {"files": 3, "lines": 14, "file median / p90 / max": "2 / 10 / 10"}),
        ("folder tasks", {"files": 1, "lines": 1}),
        ("folder tasks/train", {"files": 1, "lines": 1}),
        ("folder (top level)", {"files": 2, "lines": 1}),
        ("folder all", {"files": 8, "lines": 18}),
        ("stories", {"data": "14 (77.8%)", "command train": "1 (5.6%)", "command line": "1 (5.6%)"}),
        (
            "names",
            {
                "result words in src": 5,
                "result words in tests": 0,
                "class names with more than one meaning": "Family, Source",
                "functions that stand twice": 0,
            },
        ),
        ("tests and pages", {"test functions": 2, "test lines": 3, "pages in docs, without decisions": 1,
                             "KB in docs, without decisions": 20}),
    ],
)  # fmt: skip
def test_small_tree_is_counted(root: Path, section: str, expected: dict[str, float | str]) -> None:
    figures = survey.figures_of(root, None)
    assert {name: figures[section][name] for name in expected} == expected
    assert "files of the last features" not in figures


def test_story_of_a_source_file_is_the_longest_prefix() -> None:
    assert survey.story_of(PurePosixPath("data/cache/store.py")) == "cache"
    assert survey.story_of(PurePosixPath("data/formats/mindone_cache.py")) == "other trainers"
    assert survey.story_of(PurePosixPath("data/formats/kohya.py")) == "data"
    assert survey.story_of(PurePosixPath("draws.py")) == "ground"


def test_duplicate_function_bodies_are_counted(tmp_path: Path) -> None:
    body = "    a = 1\n    b = 2\n    c = 3\n    return a + b + c\n"
    write(tmp_path, {
        "src/mezzotint/one.py": f'def one():\n    """Adds."""\n{body}\ndef other():\n{body}',
        "src/mezzotint/two.py": f"def short():\n    return 1\n\ndef two():\n{body}    \n",
    })  # fmt: skip
    modules = survey.read_modules(tmp_path)
    assert survey.bodies_twice(modules) == [["one.py:1 one", "one.py:8 other", "two.py:4 two"]]
    assert survey.bodies_twice(modules, least=5) == []


def test_features_are_commits_that_add_choices_or_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey, "ROOT", tmp_path)
    package, section = "src/mezzotint", "src/mezzotint/settings/sections/run.py"
    commits: list[tuple[str, dict[str, str]]] = [
        ("begin", {section: "class Run:\n    steps: int = 1\n", f"{package}/cli.py": "", f"{package}/a.py": ""}),
        ("a format", {f"{package}/data/formats/zip.py": "x\n", f"{package}/cli.py": "1\n", "README.md": "x"}),
        ("a part of formats", {f"{package}/data/formats/_zip.py": "y\n", f"{package}/data/formats/shared/z.py": ""}),
        ("a new name", {section: "class Run:\n    length: int = 1\n"}),
        ("two settings", {section: "class Run:\n    length: int = 1\n    seed: int = 0\n    name: str = ''\n"}),
        ("a dialect", {f"{package}/dialects/other/__init__.py": "z\n", f"{package}/a.py": "2\n"}),
        ("docs", {"docs/page.md": "x"}),
    ]
    survey.git("init", "-q")
    for subject, files in commits:
        write(tmp_path, files)
        survey.git("add", "-A")
        survey.git("-c", "user.name=x", "-c", "user.email=x@y", "commit", "-qm", subject)
    figures = {name.partition(" ")[2]: text for name, text in survey.feature_figures("HEAD").items()}
    assert figures == {
        "a dialect": "2 (other)", "two settings": "1 (seed, name)", "a format": "2 (zip)", "begin": "3 (steps)",
    }  # fmt: skip
    monkeypatch.setattr(survey, "COUNT", 1)
    assert [name.partition(" ")[2] for name in survey.feature_figures("HEAD~2")] == ["two settings"]


def test_two_trees_are_shown_side_by_side(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(survey, "extract", lambda commit, folder: root)
    monkeypatch.setattr(survey, "feature_figures", lambda commit: {f"of {commit}": "1"})
    assert survey.main([str(root), "--against", "v0"]) == 0
    printed = capsys.readouterr().out
    assert "| stories | v0 | now |" in printed
    assert "| of v0 | 1 | – |" in printed
    assert "| folder | files (v0) | files (now) |" in printed
    assert survey.main([str(root), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["folder data"]["files"] == 3


def test_folder_of_only_one_tree_leaves_a_gap() -> None:
    before: survey.Figures = {"folder all": {"files": 2}, "folder gone": {"files": 1}}
    now: survey.Figures = {"folder new": {"files": 3}, "folder all": {"files": 4}}
    table = survey.markdown({"v0": before, "now": now})
    assert "| gone | 1 | – |" in table
    assert "| new | – | 3 |" in table
    assert "| all | 2 | 4 |" in table
