"""A line that lacks `--as`."""

from __future__ import annotations

import pytest

from mezzotint.cli import main


def test_a_line_out_of_habit_is_answered_with_the_one_to_write(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--pretrained_model_name_or_path=x", "--train_data_dir=y"]) == 2
    said = (
        "mezzotint train reads a recipe; for a line of diffusers-sd write mezzotint train --as diffusers-sd -- "
        "--pretrained_model_name_or_path=x --train_data_dir=y"
    )
    assert said in capsys.readouterr().err
