"""The table of verbs: their help."""

from __future__ import annotations

import pytest

from mezzotint.cli import main
from mezzotint.recipe.reading.read import read_text
from mezzotint.tasks.reading.verbs import VERBS

Captured = pytest.CaptureFixture[str]


def test_help_of_sample_shows_how_to_begin_with_a_picture(capsys: Captured) -> None:
    assert main(["sample", "--help"]) == 0
    said = capsys.readouterr().out
    assert "img2img" in said
    assert "sample.image=photo.png sample.strength=0.6" in said


@pytest.mark.parametrize("name", [each.name for each in VERBS])
def test_each_verb_shows_three_examples_of_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--help"]) == 0
    text = capsys.readouterr().out
    examples = [
        line for line in text.partition("examples\n")[2].splitlines() if line.startswith("  ") and line[2] != " "
    ]
    assert len(examples) == 3
    assert all(f"mezzotint {name}" in line for line in examples)
    assert main(["help", name]) == 0
    assert capsys.readouterr().out == text


def test_the_meanings_of_switches_stand_below_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sample", "--help"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  --")]
    assert len(lines) == len(next(each for each in VERBS if each.name == "sample").switches)
    assert len({len(line) - len(line[2:].partition("  ")[2].lstrip()) for line in lines}) == 1


@pytest.mark.parametrize("name", ["train", "cache", "check", "bench", "sample", "convert", "merge"])
def test_help_names_the_lines_of_other_trainers_where_they_are_taken(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([name, "--help"]) == 0
    assert f"mezzotint {name} --as NAME -- THE LINE AS IT IS" in capsys.readouterr().out
    assert main([name, "--as", "nobody", "--", "x"]) == 2
    assert "E1015" in capsys.readouterr().err


def test_names_of_switches_are_clear_within_a_verb() -> None:
    for each in VERBS:
        names = [name for switch in each.known() for name in (switch.name, *switch.aliases)]
        assert len(names) == len(set(names)), each.name
        assert all(each.switch(name.replace("-", "_")) is each.switch(name) for name in names)
        assert not set(names) & set(each.instead), each.name


def test_settings_that_switches_stand_for_exist() -> None:
    from mezzotint.recipe.reading.paths import by_path

    named = [switch.setting for each in VERBS for switch in each.switches if switch.setting]
    assert "sample.steps" in named
    assert set(named) <= set(by_path())


def test_examples_name_settings_that_exist() -> None:

    for each in VERBS:
        for line, _ in each.examples:
            read_text("schema: 1", overrides=[word for word in line.split() if "=" in word and "--" not in word])
