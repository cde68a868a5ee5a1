"""The script's name as an option."""

from __future__ import annotations

import pytest

from mezzotint.compat.kit.launchers import ParsedCommand
from mezzotint.compat.kit.script_names import add_script

NAMES = ("first", "second")


@pytest.mark.parametrize(
    ("script", "arguments", "expected"),
    [
        ("second.py", ["--a=1"], ["--script=second", "--a=1"]),
        ("second.py", ["--script=second"], ["--script=second"]),
        ("", ["--a=1"], ["--a=1"]),
        ("first.py", ["--config_file", "x"], ["--script=first", "--config_file", "x.toml"]),
        ("first.py", ["--config_file=x.toml"], ["--script=first", "--config_file=x.toml"]),
        ("first.py", ["--config_file=x.yaml"], ["--script=first", "--config_file=x.yaml"]),
        ("first.py", ["--config_file", "/"], ["--script=first", "--config_file", "/"]),
    ],
)
def test_script_and_suffix_are_added(script: str, arguments: list[str], expected: list[str]) -> None:
    assert add_script(ParsedCommand(arguments, script=script), NAMES).arguments == expected


def test_renamed_script_is_the_written_one() -> None:
    assert add_script(ParsedCommand(["--script", "second"], script="mine.py"), NAMES).script == "second.py"


@pytest.mark.parametrize(
    ("script", "remedy"),
    [("secnd.py", "did you mean second.py?"), ("cach.py", "did you mean cache.py?"),
     ("mine.py", "for a renamed file, write --script=NAME: first, second")],
)  # fmt: skip
def test_unknown_script_is_refused(script: str, remedy: str) -> None:
    [problem] = add_script(ParsedCommand([], script=script), NAMES, ("cache.py",)).problems
    assert (problem.where, problem.message) == ("--script", f"{script} is not one of the trainer's scripts")
    assert problem.remedy == remedy
    assert add_script(ParsedCommand([], script="cache.py"), NAMES, ("cache.py",)).problems == []


def test_another_script_is_refused() -> None:
    [problem] = add_script(ParsedCommand(["--script=first"], script="second.py"), NAMES).problems
    assert (problem.where, problem.message) == ("--script", "is first, and the command starts with second.py")
