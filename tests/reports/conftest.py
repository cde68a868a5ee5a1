"""A run folder to report on."""

from __future__ import annotations

from pathlib import Path

import pytest

from mezzotint.run_folder import RunFolder


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """Of a name that a shell and HTML have to be told of."""
    return RunFolder(tmp_path / "fox-$5").open()
