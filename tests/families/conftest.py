"""Fixtures of several families' tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from support import sd_folder
from support.widened_models import FAMILIES, text_model

family, copy = sd_folder.family, sd_folder.copy


@pytest.fixture(scope="package")
def plain(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders of text-to-image models with random weights, by family."""
    root = tmp_path_factory.mktemp("plain")
    return {name: text_model(name, root / name) for name in FAMILIES}
