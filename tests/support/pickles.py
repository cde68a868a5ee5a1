"""Pickled files, and one that would run code when it is read."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

Save = Callable[[Any, Path], None]


class Canary:
    """Leaves a file behind when it is unpickled in the usual way."""

    def __init__(self, nest: Path) -> None:
        self._nest = nest

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.system, (f"touch {self._nest}",))


def save_zip(value: Any, path: Path) -> None:
    torch.save(value, path)


def save_legacy(value: Any, path: Path) -> None:
    torch.save(value, path, _use_new_zipfile_serialization=False)


def save_raw(value: Any, path: Path) -> None:
    path.write_bytes(pickle.dumps(value, protocol=2))
