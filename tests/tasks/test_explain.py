"""`mezzotint explain` takes settings, sections and codes."""

from __future__ import annotations

import pytest

from mezzotint.cli import main


def test_explain_accepts_settings_sections_and_codes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "optim.lr", "optim.clip", "e1007"]) == 0
    text = capsys.readouterr().out
    for words in ("The peak learning rate", "optim.clip.scope", "E1007: A value is out of range"):
        assert words in text


def test_error_code_has_title_and_further_explanation(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "E1433", "E1204"]) == 0
    with_paragraph, without = capsys.readouterr().out.split("\n\n")
    assert with_paragraph.startswith("E1433: A layer of the adapter is incomplete or inconsistent")
    assert "A tensor is missing or occurs twice" in with_paragraph
    assert without.splitlines() == [
        "E1204: One image has two caption files whose texts differ.",
        "  The error's message names the setting or file, and what to do.",
    ]


@pytest.mark.parametrize("words", [["learning rate"], ["learning", "rate"], ["learning_rate"], ["Learning-Rate"]])
def test_explain_finds_settings_by_words(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", *words]) == 0
    text = capsys.readouterr().out
    for path in ("optim.lr", "optim.part_lr", "optim.schedule"):
        assert path in text
    assert max(map(len, text.splitlines())) <= 100


def test_words_without_matching_setting_are_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "learning", "xylophone"]) == 2
    assert "E1013" in capsys.readouterr().err
