"""The YAML of recipes: 1.2 scalars, and what is refused with its place."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mezzotint.errors import Problem, RecipeError
from mezzotint.settings.reading import yaml_rules
from mezzotint.settings.reading.yaml_rules import load, scalar


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-6", 1e-6), ("1E3", 1000.0), (".5", 0.5), ("5.", 5.0), ("-2.5", -2.5), ("+3", 3), ("010", 10),
        ("0o17", 15), ("0x1F", 31), ("true", True), ("False", False), ("null", None), ("~", None), ("", None),
        (".inf", math.inf), ("-.INF", -math.inf), ("no", "no"), ("yes", "yes"), ("on", "on"), ("off", "off"),
        ("y", "y"), ("1:30", "1:30"), ("2024-01-31", "2024-01-31"), ("1_000", "1_000"), ("0b11", "0b11"),
        ("1e", "1e"), ("tRUE", "tRUE"), ("=", "="),
    ],
)  # fmt: skip
def test_scalars_follow_yaml_1_2(text: str, value: object) -> None:
    assert scalar(text) == value
    assert type(scalar(text)) is type(value)
    assert load(f"key: {text}" if text else "key:", "r").tree["key"] == value


def test_quoted_scalar_is_a_string() -> None:
    assert load("a: '1'\nb: \"true\"\nc: |\n  5\n", "r").tree == {"a": "1", "b": "true", "c": "5\n"}


def test_nan_is_a_number() -> None:
    value = scalar(".NaN")
    assert isinstance(value, float)
    assert math.isnan(value)


def test_every_key_and_entry_has_its_line() -> None:
    text = "# comment\nrun:\n  steps: 5\nsample:\n  prompts:\n    - a\n    - b\ndata: {path: [x,\n  y]}\n"
    lines = load(text, "r").lines
    assert lines["run",] == 2
    assert lines["run", "steps"] == 3
    assert lines["sample", "prompts", 1] == 7
    assert lines["data", "path", 1] == 9


@pytest.mark.parametrize(
    ("text", "line", "column", "code", "words"),
    [
        ("a: 1\nb: 2\na: 3\n", 3, 1, "E1005", "given twice, first on line 1"),
        ("a:\n  b: 1\n  b: 2\n", 3, 3, "E1005", "first on line 2"),
        ("a: !!str 3\n", 1, 4, "E1006", "the tag !!str"),
        ("a: !!python/object/apply:os.system [ls]\n", 1, 4, "E1006", "the tag !!python"),
        ("a: !include x\n", 1, 4, "E1006", "the tag !include"),
        ("! a: 1\n", 1, 1, "E1006", "the tag !"),
        ("a: &x {q: 1}\nb:\n  <<: *x\n", 3, 3, "E1006", "merge keys"),
        ("a: 1\n---\nb: 2\n", 2, 1, "E1006", "one document"),
        (
            "a: *nowhere\n",
            1,
            4,
            "E1006",
            "there is no &nowhere before this alias; put a text that starts with * in quotes",
        ),
        ("a: &a [*a]\n", 1, 8, "E1006", "refers to itself"),
        ("%YAML 1.1\n---\na: 1\n", 1, 1, "E1006", "YAML 1.2, got 1.1"),
    ],
)
def test_refusals_name_line_and_column(text: str, line: int, column: int, code: str, words: str) -> None:
    (problem,) = load(text, "r").problems
    assert (problem.line, problem.code) == (line, code)
    assert f"column {column}: " in problem.message
    assert words in problem.message


@pytest.mark.parametrize(
    ("text", "line", "code", "words"),
    [
        ("a: 1\n\tb: 2\n", 2, "E1004", "a tab; indent with spaces"),
        ("a: [1,\n2\nb: 3\n", 1, "E1004", "a list that is not closed"),
        ("a: b: c\n", 1, "E1004", "a colon"),
        ("a: 'x\n", 1, "E1004", "a quote that is not closed"),
        ("run:\n  steps: 1\n epochs: 2\n", 3, "E1004", "the indentation"),
        ("a: @x\n", 1, "E1004", "no value can start with"),
        ("a: [*attn1.to_k*]\n", 1, "E1004", "column 5: a * or & at the start of a text"),
        ("- 1\n- 2\n", 1, "E1004", "got a list"),
        ("just words\n", 1, "E1004", "got the text 'just words'"),
        ("# nothing\n", 1, "E1004", "the file is empty"),
        ("a: 1\nb: \x00\n", 2, "E1006", "column 4: control character U+0000"),
        ("? [a]\n: b\n", 1, "E1004", "a key is a plain word"),
        ("a: " + "[" * 33 + "]" * 33, 1, "E1006", "deeper than 32"),
        ("a: " + "[" * 5000, 1, "E1006", "deeper than 32"),
    ],
)
def test_fatal_errors_name_their_line(text: str, line: int, code: str, words: str) -> None:
    with pytest.raises(RecipeError) as caught:
        load(text, "r")
    (problem,) = caught.value.problems
    assert (problem.line, problem.code) == (line, code)
    assert words in problem.message


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("a: {b: c\nd: 3\n", "close it with }"),
        ("a: [1,\n2\nb: 3\n", "close it with ]"),
        ("a: b: c\n", "put the value in quotes"),
    ],
)
def test_remedy_matches_the_mistake(text: str, remedy: str) -> None:
    with pytest.raises(RecipeError) as caught:
        load(text, "r")
    assert caught.value.problems[0].remedy == remedy


def test_depth_of_thirty_two_is_read() -> None:
    deep = load("a: " + "[" * 31 + "]" * 31, "r").tree["a"]
    for _ in range(30):
        (deep,) = deep
    assert deep == []


def test_few_aliases_are_expanded_and_many_refused() -> None:
    few = load("a: &x [1, 2]\nb: *x\n", "r").tree
    assert few["b"] == [1, 2]
    assert few["b"] is not few["a"]
    bomb = "a0: &a0 [1,1,1,1,1,1,1,1,1]\n"
    bomb += "".join(f"a{i}: &a{i} [{','.join(['*a' + str(i - 1)] * 9)}]\n" for i in range(1, 9))
    start = time.process_time()
    with pytest.raises(RecipeError, match="more than 100 values"):
        load(bomb, "r")
    assert time.process_time() - start < 2.0


def test_one_hundred_alias_nodes_are_accepted() -> None:
    text = "a: &x 1\nb: [" + ", ".join(["*x"] * 100) + "]\n"
    assert load(text, "r").tree["b"] == [1] * 100
    with pytest.raises(RecipeError, match="more than 100"):
        load(text.replace("]", ", *x]"), "r")


def test_files_over_a_megabyte_are_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "big.yaml"
    path.write_bytes(b"a: 1\n" * 200_000)
    assert yaml_rules.read_file(path, "big.yaml").startswith("a: 1")
    path.write_bytes(b"a: 1\n" * 200_001)
    with pytest.raises(RecipeError, match="larger than 1,000,000 bytes"):
        yaml_rules.read_file(path, "big.yaml")


@pytest.mark.parametrize(("raw", "place"), [(b"a: 1\nb: \xff\n", "column 4"), ("a: 1\n".encode("utf-16"), "column 1")])
def test_other_encodings_are_refused_by_name(tmp_path: Path, raw: bytes, place: str) -> None:
    path = tmp_path / "r.yaml"
    path.write_bytes(raw)
    with pytest.raises(RecipeError) as caught:
        yaml_rules.read_file(path, "r.yaml")
    assert caught.value.code == "E1006"
    assert "UTF-8" in caught.value.problems[0].message
    assert place in caught.value.problems[0].message


def test_byte_order_mark_is_ignored(tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    path.write_bytes("\ufeffrun: {name: ü}\n".encode())
    assert load(yaml_rules.read_file(path, "r"), "r").tree == {"run": {"name": "ü"}}


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused_with_a_message(text: str) -> None:
    problems: Sequence[Problem] = ()
    try:
        tree = load(text, "r").tree
    except RecipeError as error:
        tree, problems = {}, error.problems or (Problem("r", "refused without a problem"),)
    assert isinstance(tree, dict)
    assert all(problem.line is not None and problem.code in ("E1004", "E1006") for problem in problems)


whole = st.integers(1 - 2**64, 2**64 - 1)  # what is larger becomes a float


@given(st.recursive(whole | st.booleans() | st.none(), lambda inner: st.lists(inner, max_size=4), max_leaves=9))
def test_flow_values_round_trip(value: object) -> None:
    text = str([value]).replace("True", "true").replace("False", "false").replace("None", "null")
    assert yaml_rules.value(text, "x") == [value]
