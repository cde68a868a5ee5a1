"""Data that a recipe names and that do not exist, found without reading any. Does not import torch."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from mezzotint.assets import DATA
from mezzotint.data.files.listing import is_remote
from mezzotint.errors import Problem
from mezzotint.settings.formats.base import format_spec
from mezzotint.settings.reading.read import Reading, candidate_paths


def find_missing_data(reading: Reading, folder: Path) -> Iterator[Problem]:
    """A problem E1201 for each missing path of `data.path`. Formats whose data may be elsewhere than on a disk are left
    to `check`. folder: the current folder of the training."""
    data = reading.recipe.data
    if format_spec(data.format).has_own_paths:
        return
    recipe_folder = reading.path.parent if reading.path else None
    for path in data.paths:
        candidates = (folder / path, *candidate_paths(path, recipe_folder, shipped=DATA))
        if not is_remote(path) and not any(map(os.path.exists, candidates)):
            remedy = f"name a folder, absolute or below {folder}"
            yield Problem("data.path", f"{path} does not exist", remedy, "E1201")
