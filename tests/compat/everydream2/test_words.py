"""A line that lacks `--as`."""

from __future__ import annotations

import pytest

from mezzotint.cli import main


def test_a_line_out_of_habit_is_answered_with_the_one_to_write(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--resume_ckpt=a.ckpt", "--data_root=y", "--max_epochs=4"]) == 2
    said = "for a line of everydream2 write"
    assert said in capsys.readouterr().err
