"""A package as pip installs it: files, and metadata with entry points."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path

import pytest

from mezzotint import registry


def install(
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    files: Mapping[str, str],
    points: Mapping[str, Mapping[str, str]],
    name: str = "strangers",
) -> None:
    """Lays a package of version 1.2 down where Python looks, for this test. files: texts by name. points: by group,
    the module of each name."""
    for file, text in files.items():
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_text(text, "utf-8")
    metadata = root / f"{name}-1.2.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n", "utf-8")
    lines = [
        line for group, named in points.items() for line in (f"[{group}]", *(f"{k} = {v}" for k, v in named.items()))
    ]
    (metadata / "entry_points.txt").write_text("\n".join(lines) + "\n", "utf-8")
    monkeypatch.syspath_prepend(str(root))
    importlib.invalidate_caches()


def names_of_trainers(folder: str) -> tuple[str, ...]:
    """The choices of a kind, such as "settings/optimizers", that folders of `compat` bring."""
    return tuple(
        name for name in registry.names(folder) if registry.find(folder, name).__name__.startswith("mezzotint.compat.")
    )
