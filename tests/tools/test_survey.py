"""`make survey`: what it counts in a small tree made up for it."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from textwrap import dedent

import pytest

import survey

FILES = {
    "src/mezzotint/__init__.py": "",
    "src/mezzotint/cli.py": '''\
        """The command line."""

        from mezzotint.data import _private
        from mezzotint.data.plan import plan
        ''',
    "src/mezzotint/durable.py": "import os\nos.replace('a', 'b')\n",
    "src/mezzotint/data/__init__.py": "",
    "src/mezzotint/data/_private.py": "def found() -> int: return 1\n",
    "src/mezzotint/data/plan.py": '''\
        """Plans."""

        from __future__ import annotations

        from typing import TYPE_CHECKING, Any, ClassVar, cast

        from mezzotint.data import cells

        if TYPE_CHECKING:
            from mezzotint.data.formats.kohya import Source

        class Plan:
            size: int
            KINDS: ClassVar[int] = 3

            def __init__(self) -> None:
                """Sets two,
                in as many lines."""
                self.size = 1
                self.other = cast(int, 2)

        def plan(a: Any, b: int, c: int, d: int, e: int, f: int, *rest: int) -> int:  # type: ignore[x]
            found = 1
            for x in rest:
                if x and a:
                    found += 1
                elif b:
                    with open(str(x)) as told:
                        pass
            def inner() -> None:
                made = [y for y in rest if y]
            return found
        ''',
    "src/mezzotint/data/cells.py": "import difflib\ndifflib.get_close_matches('a', [])\n",
    "src/mezzotint/data/formats/kohya.py": '''\
        """The format `kohya`: "latte" is no name here."""

        from pathlib import Path
        from mezzotint.data import plan

        class Source: ...
        NAMES = ("kohya", "latte", "image_folder")
        try:
            Path("x").replace("y")
            "x".replace("y", "z")
        except Exception:
            raise
        ''',
    "src/mezzotint/data/formats/image_folder/__init__.py": "",
    "src/mezzotint/compat/other.py": "FORMATS = ('kohya',)\n",
    "src/mezzotint/families/latte.py": "",
    "src/mezzotint/data/formats/_beside.py": """\
        from mezzotint.data.formats.kohya import Source as S
        class Source: ...
        """,
    "tests/data/test_plan.py": "def test_a() -> None: ...\n",
    "tests/data/test_private.py": "",
    "tests/test_kohya.py": "",
    "README.md": "one\ntwo\n",
    "docs/page.md": "x" * 20_001,
    "docs/decisions/0001.md": "x",
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tree")
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(dedent(text))
    return root


@pytest.fixture(scope="module")
def figures(root: Path) -> survey.Figures:
    return survey.figures_of(survey.read_house(root))


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        ("package data", {"files": 7}),
        ("package (top level)", {"files": 3, "lines": 6}),
        (
            "files, functions, classes",
            {
                "functions": 4,
                "functions with over 6 parameters": 1,
                "most fields": "data/plan.py Plan 2, data/formats/_beside.py Source 0, data/formats/kohya.py Source 0",
            },
        ),
        (
            "rooms",
            {
                "data: rooms": 4,
                "data: arrows between rooms": 2,
                "tasks: rooms": 0,
                "folders with over 14 modules": 0,
                "files under 60 lines": 9,
                "files under 60 lines that are no choices": 6,
                "modules with one importer": 3,
                "files under 60 lines with one importer": 3,
            },
        ),
        (
            "imports",
            {
                "edges at run time": 5,
                "edges for types alone": 1,
                "circles at run time": 0,
                "which circles": "data.formats.kohya – data.plan",
                "private modules imported from another package": 1,
                "which private ones": "data._private by cli",
            },
        ),
        (
            "names",
            {
                "functions with a local found, told, made, wanted, asked, given, taught": 2,
                "functions with a local told": 1,
                "functions and properties so called": 1,
                "which class names": "Source 2",
            },
        ),
        (
            "one of each",
            {
                "get_close_matches: calls": 1,
                "renames outside of durable: calls": 1,
                "which rename": "data/formats/kohya.py",
                "names of families outside of their own files": 1,
                "names of formats outside of their own files": 2,
                "names of formats outside of their own files and of compat": 1,
                "which name formats": "data/formats/kohya.py 1",
            },
        ),
        ("typing", {"Any": 1, "type: ignore": 1, "typing.cast": 1, "broad except": 1}),
        (
            "tests and pages",
            {
                "modules that need a test of their name": 8,
                "modules with a test of their name": 2,
                "modules with a test of that name in any folder": 3,
                "test functions": 1,
                "README lines": 2,
                "pages over 20 KB": 1,
            },
        ),
    ],
)
def test_a_small_tree_is_counted(figures: survey.Figures, section: str, expected: dict[str, float | str]) -> None:
    assert {name: figures[section][name] for name in expected} == expected


def test_a_function_is_measured_without_what_lies_inside_it() -> None:
    tree = ast.parse(dedent(FILES["src/mezzotint/data/plan.py"]))
    by_name = {f.name: f for f in ast.walk(tree) if isinstance(f, ast.FunctionDef)}
    assert survey.length(by_name["__init__"]) == 3
    assert survey.branches(by_name["plan"]) == 5  # 1, for, if, and, elif
    assert survey.branches(by_name["inner"]) == 3  # 1, the comprehension and its condition
    assert survey.nesting(by_name["plan"].body) == 3  # for, elif, with
    assert survey.parameters(by_name["plan"]) == 7
    assert survey.result_words(by_name["plan"]) == {"found", "told"}
    assert survey.result_words(by_name["inner"]) == {"made"}


def test_bodies_that_stand_twice_are_counted(tmp_path: Path) -> None:
    body = "    a = 1\n    b = 2\n    c = 3\n    return a + b + c\n"
    (tmp_path / "src" / "mezzotint").mkdir(parents=True)
    (tmp_path / "src" / "mezzotint" / "one.py").write_text(f'def one():\n    """Adds."""\n{body}\ndef other():\n{body}')
    (tmp_path / "src" / "mezzotint" / "two.py").write_text(f"def short():\n    return 1\n\ndef two():\n{body}    \n")
    house = survey.read_house(tmp_path)
    assert survey.bodies_twice(house) == [["one.py:1 one", "one.py:8 other", "two.py:4 two"]]
    assert survey.bodies_twice(house, least=5) == []


def test_circles_are_found_apart() -> None:
    graph = {"a": ["b"], "b": ["c"], "c": ["a", "d"], "d": ["e"], "e": ["d"], "f": ["a"]}
    assert survey.circles(graph) == [["a", "b", "c"], ["d", "e"]]


def test_two_trees_stand_side_by_side(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(survey, "extract", lambda commit, folder: root)
    assert survey.main([str(root), "--against", "v0"]) == 0
    printed = capsys.readouterr().out
    assert "| rooms | v0 | now |" in printed
    assert "| data: rooms | 4 | 4 |" in printed
    assert "| package | files (v0) | files (now) |" in printed
    assert survey.main([str(root), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rooms"]["data: rooms"] == 4


def test_a_package_that_only_one_tree_has_leaves_a_gap() -> None:
    before = {"package all": {"files": 2}, "package gone": {"files": 1}}
    now = {"package new": {"files": 3}, "package all": {"files": 4}}
    table = survey.markdown({"v0": before, "now": now})
    assert "| gone | 1 | – |" in table
    assert "| new | – | 3 |" in table
    assert "| all | 2 | 4 |" in table
