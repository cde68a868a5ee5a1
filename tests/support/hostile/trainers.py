"""What the tests of trainers in `compat` add to the corpus: modules `hostile_NAME` beside them, found by scanning, with
`ENTRIES`, `DOORS` and `READERS`."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType


def modules() -> tuple[ModuleType, ...]:
    """The module of each trainer whose folder is there. They are on the path, see `tests/conftest.py`."""
    paths = sorted(Path(__file__).parents[2].glob("compat/*/support/hostile_*.py"))
    return tuple(importlib.import_module(path.stem) for path in paths)
