"""Commands: their modules, and their options in every spelling."""

from __future__ import annotations

import importlib
from argparse import Namespace
from collections.abc import Sequence

import pytest

from mezzotint.errors import RecipeError
from mezzotint.tasks.reading.commands import COMMANDS
from mezzotint.tasks.reading.parser import AS, Command, Option, parser_of, read_options


@pytest.mark.parametrize("form", ["--json", "--max-steps=N"])
def test_option_name_ends_at_its_value(form: str) -> None:
    option = Option(form, "what it means", setting="run.steps")
    assert (option.name, option.takes_value) == (form.removesuffix("=N"), form.endswith("=N"))
    assert option.help == "run.steps, what it means"


def test_options_are_found_by_alias_hyphens_and_underscores() -> None:
    steps = Option("--max-steps=N", "", aliases=("--steps",))
    command = Command("draw", "draws", "", {}, options=(steps,), has_tools=True)
    assert command.option("--max_steps") is command.option("--steps") is steps
    assert command.option("--as") is AS
    assert command.option("--allow-package") is None, "only for commands that read a recipe"


def test_module_of_a_command_is_found_in_folders_or_files() -> None:
    places = {command.name: command.module for command in COMMANDS}
    assert places["train"] == "mezzotint.tasks.train.train"
    assert places["convert"] == "mezzotint.tasks.weights.convert"
    assert places["explain"] == "mezzotint.tasks.explain"
    assert places["board"] == "mezzotint.board.board"
    assert callable(importlib.import_module(places["explain"]).run)


TEXTS = Option("--text=TEXT", "100 % text", aliases=("--texts",), repeats=True, gathers=True, may_be_empty=True)
KIND = Option("--kind=a", "a or b", choices=("a", "b"))
COMMAND = Command("draw", "draws", "NAME", {}, options=(TEXTS, KIND, Option("--json", ""), Option("--size=N", "")))


def parsed(words: Sequence[str]) -> tuple[list[tuple[str, str]], list[str], list[str]]:
    namespace = Namespace(options=[], settings=[])
    rest = read_options(COMMAND, words, namespace)
    return [(option.name, text) for option, text in namespace.options], namespace.settings, rest


def test_options_are_collected_in_order_and_other_words_remain() -> None:
    words = [
        "a",
        "--text",
        "one",
        "run.seed=1",
        "two",
        "--json",
        "b",
        "--texts=three",
        "x.y=2",
        "--kind=b",
        "--size",
        "-1",
    ]
    options, settings, rest = parsed(words)
    assert options == [
        ("--text", "one"), ("--text", "two"), ("--json", ""), ("--text", "three"), ("--kind", "b"), ("--size", "-1"),
    ]  # fmt: skip
    assert (settings, rest) == (["run.seed=1"], ["a", "b", "x.y=2"])
    assert parsed(["--text=", "--unknown", "c", "--siz=1", "-"])[0::2] == (
        [("--text", "")], ["--unknown", "c", "--siz=1", "-"]
    ), "no abbreviations"  # fmt: skip


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--size"], "mezzotint draw: --size needs a value; write --size=N"),
        (["--size="], "mezzotint draw: --size needs a value; write --size=N"),
        (["--text", "--json"], "mezzotint draw: --text needs a value; write --text=TEXT"),
        (["--kind=c"], "mezzotint draw: --kind is a or b, got c"),
        (["--json=1"], "mezzotint draw: --json takes no value; write --json"),
        (["--texts"], "mezzotint draw: --text needs a value; write --text=TEXT"),
        (["--json", "--json"], "mezzotint draw: --json is given twice"),
    ],
)
def test_wrong_use_of_an_option_is_a_recipe_error(words: list[str], message: str) -> None:
    with pytest.raises(RecipeError) as caught:
        parsed(words)
    assert (caught.value.code, caught.value.message) == ("E1012", message)


def test_help_shows_options_without_aliases_and_percent_signs() -> None:
    text = parser_of(COMMAND).format_help()
    assert "usage: mezzotint draw NAME\n" in text
    assert "100 % text" in text
    assert "--text" in text
    assert "--texts" not in text
