"""A run that goes on is the run that was begun: its lock, its line, its minutes, its frozen weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from mezzotint.cli import main
from mezzotint.errors import CheckpointError
from mezzotint.recipe.read import read_recipe
from mezzotint.run_folder import RunFolder
from mezzotint.tasks import assemble
from mezzotint.training import state
from mezzotint.weights import files


def test_a_refused_second_start_leaves_the_first_ones_lock_and_folders(world: Any, capsys: Any) -> None:
    folder = RunFolder(world.root / "run").open()
    with folder.lock():
        for _ in range(2):
            assert world.train("run") == 2
            assert "is writing here" in capsys.readouterr().err
        assert folder.checkpoints.is_dir(), "what the first one has made is not swept from under it"
        with pytest.raises(CheckpointError, match="is writing here"):
            folder.lock()
