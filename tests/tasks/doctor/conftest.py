"""Running the doctor on a folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mezzotint.cli import main


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Callable[..., tuple[int, str]]:
    """`ask(folder, words…)`: exit status and output."""

    def ask(source: Path, *words: str) -> tuple[int, str]:
        small = ("data.resolution=64", "data.buckets.step=16", "data.batch_size=4", f"data.cache.path={tmp_path}/cache")
        status = main(["doctor", str(source), *small, *words])
        return status, capsys.readouterr().out

    return ask
