"""The table of commands: their help."""

from __future__ import annotations

import pytest

from mezzotint.cli import main
from mezzotint.settings.reading.read import read_text
from mezzotint.tasks.reading.commands import COMMANDS

Captured = pytest.CaptureFixture[str]


def test_help_of_sample_shows_first_frame_usage(capsys: Captured) -> None:
    assert main(["sample", "--help"]) == 0
    said = capsys.readouterr().out
    assert "img2img" in said
    assert "sample.image=photo.png sample.strength=0.6" in said


@pytest.mark.parametrize("name", [each.name for each in COMMANDS])
def test_help_of_each_command_has_three_examples(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--help"]) == 0
    text = capsys.readouterr().out
    examples = [
        line for line in text.partition("examples\n")[2].splitlines() if line.startswith("  ") and line[2] != " "
    ]
    assert len(examples) == 3
    assert all(f"mezzotint {name}" in line for line in examples)
    assert main(["help", name]) == 0
    assert capsys.readouterr().out == text


def test_help_shows_every_option_and_what_it_means(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sample", "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    for option in next(each for each in COMMANDS if each.name == "sample").all_options():
        assert f" {option.form.replace('=', ' ', 1)} " in text
        assert f" {option.help} " in text


@pytest.mark.parametrize("name", ["train", "cache", "check", "bench", "sample", "convert", "merge"])
def test_help_mentions_supported_commands_of_other_trainers(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--help"]) == 0
    assert f"mezzotint {name} --as NAME -- THE LINE AS IT IS" in capsys.readouterr().out
    assert main([name, "--as", "nobody", "--", "x"]) == 2
    assert "E1015" in capsys.readouterr().err


def test_option_names_are_unambiguous_within_a_command() -> None:
    for each in COMMANDS:
        names = [name for option in each.all_options() for name in (option.name, *option.aliases)]
        assert len(names) == len(set(names)), each.name
        assert all(each.option("--" + name[2:].replace("-", "_")) is each.option(name) for name in names)
        assert not set(names) & set(each.instead), each.name


def test_settings_behind_options_exist() -> None:
    from mezzotint.settings.reading.paths import by_path

    named = [option.setting for each in COMMANDS for option in each.options if option.setting]
    assert "sample.steps" in named
    assert set(named) <= set(by_path())


def test_examples_use_existing_settings() -> None:

    for each in COMMANDS:
        for line in each.examples:
            read_text("schema: 1", overrides=[word for word in line.split() if "=" in word and "--" not in word])
