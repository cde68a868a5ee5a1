"""Copies a finished model into a folder that may contain other files, where users of another trainer look for it: the
components and `model_index.json` next to a run's checkpoints, as diffusers' scripts write them.

`published.json`, which is written first, lists the copied files, so only our own files are replaced, even after a kill.
`model_index.json` is removed first and written last: a reader that finds it finds a complete model.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

from mezzotint import durable, fault_injection, outside
from mezzotint.errors import WeightsError

LIST = "published.json"
INDEX = "model_index.json"
CARD = "README.md"
"""The model card. One that somebody else has written stays."""
_SIGNS = (INDEX, "unet", "vae", "text_encoder", "tokenizer", "scheduler")
"""Names that indicate a model in a folder, for the check before the export's names are known."""


def refuse_others(folder: Path, names: Iterable[str] = _SIGNS) -> None:
    """Raises WeightsError E1412 when `folder` contains one of these names that `publish` has not written."""
    ours = published_names(folder)
    others = sorted(name for name in names if name not in ours and (folder / name).exists())
    if others:
        raise WeightsError(
            f"{folder}: already contains {', '.join(others)}, which no run of Mezzotint has written; choose another "
            "run.export.folder, or move that model away",
            code="E1412",
        )


def published_names(folder: Path) -> frozenset[str]:
    """The names that `publish` has written into a folder."""
    try:
        names = list(outside.read_json(folder / LIST, limit=outside.LISTED)["names"])
    except (OSError, ValueError, KeyError, TypeError):
        return frozenset()
    return frozenset(name for name in names if isinstance(name, str) and Path(name).name == name)


def publish(export: Path, folder: Path) -> Path:
    """Copies an exported model into `folder`, replacing what an earlier call has written; returns the folder.

    export: a complete model folder. Raises WeightsError E1412 as `refuse_others`, StorageError E1701.
    """
    names = sorted((path.name for path in export.iterdir()), key=lambda name: (name == INDEX, name))
    if CARD not in published_names(folder) and (folder / CARD).exists():
        names = [name for name in names if name != CARD]
    refuse_others(folder, names)
    with durable.storage_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        before = published_names(folder)
        durable.write_json(folder / LIST, {"from": export.name, "names": sorted({*before, *names})})
        (folder / INDEX).unlink(missing_ok=True)
        for name in names:
            _replace(export / name, folder / name)
            fault_injection.reach("publish.file")
        for name in before.difference(names):
            _remove(folder / name)
        durable.write_json(folder / LIST, {"from": export.name, "names": names})
    return folder


def _replace(source: Path, target: Path) -> None:
    durable.sweep(target.parent, target.name)  # left by a killed call
    with durable.replace_atomically(target) as aside:
        _copy(source, aside)


def _copy(source: Path, target: Path) -> None:
    """As `shutil.copytree`, which loses the original OSError."""
    if not source.is_dir():
        shutil.copyfile(source, target)
        return
    target.mkdir()
    for path in sorted(source.iterdir()):
        _copy(path, target / path.name)


def _remove(path: Path) -> None:
    if path.is_dir():
        durable.remove_tree(path)
    else:
        path.unlink(missing_ok=True)
