"""Every setting of the schema has a row here, a test of its effect, and every row names an existing setting."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mezzotint.errors import RecipeError
from mezzotint.settings import reference
from mezzotint.settings.reading import paths
from mezzotint.settings.reading.read import read_text
from support.installed import names_of_trainers

HERE = Path(__file__).parent
CORE = (*HERE.glob("test_*.py"),)
FILES = (*CORE, *HERE.parent.glob("compat/*/effects/test_*.py"))


def rows_in(source: str) -> set[str]:
    """The settings named by `@pytest.mark.effect(…)` on the tests of a file; a skipped test does not count."""
    return {word for _, words in _rows(source) for word in words}


def _rows(source: str) -> Iterator[tuple[ast.FunctionDef, list[str]]]:
    for node in ast.parse(source).body:
        if not isinstance(node, ast.FunctionDef) or not node.name.startswith("test_"):
            continue
        marks = [mark for mark in map(_mark, node.decorator_list) if mark is not None]
        words = [word for name, words in marks if name == "effect" for word in words]
        if words and not any(name in ("skip", "skipif", "xfail", "slow", "gpu") for name, _ in marks):
            yield node, words


def _mark(decorator: ast.expr) -> tuple[str, list[str]] | None:
    """`pytest.mark.NAME(words)` as (NAME, words)."""
    call = decorator if isinstance(decorator, ast.Call) else None
    where = call.func if call else decorator
    if not ast.unparse(where).startswith("pytest.mark."):
        return None
    return ast.unparse(where).rpartition(".")[2], [ast.literal_eval(a) for a in call.args] if call and _plain(
        call
    ) else []


def _plain(call: ast.Call) -> bool:
    return all(isinstance(argument, ast.Constant) for argument in call.args)


def leaves(schema: dict[str, Any]) -> set[str]:
    """The dotted paths of all leaves of the JSON Schema."""

    def sections(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
        if "$ref" in node:
            node = schema["$defs"][node["$ref"].rpartition("/")[2]]
        if "properties" in node:
            yield node
        for choice in (*node.get("allOf", ()), *node.get("anyOf", ()), *node.get("oneOf", ())):
            yield from sections(choice)

    def walk(node: dict[str, Any], prefix: str) -> Iterator[str]:
        for name, inner in node["properties"].items():
            nested = list(sections(inner))
            if not nested:
                yield prefix + name
            for section in nested:
                yield from walk(section, f"{prefix}{name}.")

    return set(walk(schema, ""))


def test_every_setting_has_a_row() -> None:
    shown = set[str]().union(*(rows_in(path.read_text()) for path in FILES))
    settings = {setting.path for setting in paths.settings()}
    assert settings - shown == set(), "settings without a row: write a test with @pytest.mark.effect that shows it"
    assert shown - settings == set(), "rows of settings that do not exist"


def test_core_settings_have_rows_without_compat_folders() -> None:
    shown = set[str]().union(*(rows_in(path.read_text()) for path in CORE))
    sections = tuple(
        f"{section}.{name.replace('-', '_')}."
        for section, kind in (("model", "settings/families"), ("data", "settings/formats"))
        for name in names_of_trainers(kind)
    )
    of_core = {setting.path for setting in paths.settings() if not setting.path.startswith(sections)}
    assert of_core - shown == set()


def test_every_row_has_a_breaks_if_comment() -> None:
    for path in FILES:
        source = path.read_text()
        for node, _ in _rows(source):
            above = source.splitlines()[node.decorator_list[0].lineno - 2]
            assert above.startswith("# breaks if "), f"{path.name}: {node.name}"


def test_list_of_settings_equals_json_schema() -> None:
    assert leaves(reference.json_schema()) == {setting.path for setting in paths.settings()}


def test_only_marks_on_running_tests_count() -> None:
    mark = '@pytest.mark.effect("optim.lr")\n'
    assert rows_in(mark + "def test_a(): ...") == {"optim.lr"}
    assert rows_in(mark + "def helper(): ...") == set()
    assert rows_in(f"@pytest.mark.skip\n{mark}def test_a(): ...") == set()
    assert rows_in(f'@pytest.mark.skipif("sys.platform")\n{mark}def test_a(): ...') == set()
    assert rows_in("def test_a(): ...") == set()


# breaks if any version number is accepted: an old Mezzotint would read a later schema's recipe as its own
@pytest.mark.effect("schema")
def test_schema_accepts_only_version_1() -> None:
    assert read_text("schema: 1").recipe.version == 1
    for other in ("2", "0", "'1'"):
        with pytest.raises(RecipeError, match="schema"):
            read_text(f"schema: {other}")
