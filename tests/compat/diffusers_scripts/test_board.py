"""The page that translates a command."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.board_runs import Board, opened


@pytest.fixture
def board(tmp_path: Path) -> Iterator[Board]:
    with opened(tmp_path) as board:
        yield board


def test_foreign_command_becomes_a_recipe(board: Board) -> None:
    line = "python train_text_to_image.py --pretrained_model_name_or_path=m \\\n --train_data_dir='my photos' --use_ema"
    status, answer = board.post("/api/translate", {"dialect": "diffusers-sd", "line": line})
    assert status == 200
    assert "my photos" in answer["yaml"]
    assert answer["command"].startswith("mezzotint train --as diffusers-sd -- python train_text_to_image.py")
    status, taken = board.post("/api/recipe", {"text": answer["yaml"], "base": "", "changes": {"optim.lr": "1e-6"}})
    assert "lr: 1.0e-06" in taken["yaml"]
    for dialect, line in (("diffusers-sd", "--no_such_thing=1"), ("none", "--x"), ("diffusers-sd", "'open")):
        status, answer = board.post("/api/translate", {"dialect": dialect, "line": line})
        assert (status, answer["code"][0]) == (409, "E")
