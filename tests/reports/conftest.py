"""A run folder to report on."""

from __future__ import annotations

from pathlib import Path

import pytest

from mezzotint.run_folder import RunFolder


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """The name contains characters that a shell and HTML need quoted."""
    return RunFolder(tmp_path / "fox-$5").open()
