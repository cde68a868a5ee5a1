"""`mezzotint explain` takes settings, sections and codes."""

from __future__ import annotations

import pytest

from mezzotint.cli import main


def test_explain_takes_settings_sections_and_codes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "optim.lr", "optim.clip", "e1007"]) == 0
    text = capsys.readouterr().out
    for words in ("The peak learning rate", "optim.clip.scope", "E1007\n"):
        assert words in text
