"""A finished model laid out where users of another trainer look for it, file by file, perhaps among other things: the
components and `model_index.json` beside a run's checkpoints, as diffusers' scripts leave them.

What lies there is listed in `published.json`, first of all, so that only our own files are ever replaced, also after a
kill. `model_index.json` goes first and comes last: a reader that finds it finds a complete model.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

from mezzotint import durable, fault_injection, outside
from mezzotint.errors import WeightsError

LIST = "published.json"
INDEX = "model_index.json"
_SIGNS = (INDEX, "unet", "vae", "text_encoder", "tokenizer", "scheduler")
"""Names by which a model is known to lie in a folder before the export's own names are."""


def refuse_others(folder: Path, names: Iterable[str] = _SIGNS) -> None:
    """Raises WeightsError E1412 when something of these names lies in `folder` that was not published by us."""
    ours = published(folder)
    others = sorted(name for name in names if name not in ours and (folder / name).exists())
    if others:
        raise WeightsError(
            f"{folder}: holds {', '.join(others)} already, which no run of Mezzotint has put there; choose another "
            "run.export.folder, or move that model away",
            code="E1412",
        )


def published(folder: Path) -> frozenset[str]:
    """The names that we have put into a folder."""
    try:
        names = list(outside.read_json(folder / LIST, limit=outside.LISTED)["names"])
    except (OSError, ValueError, KeyError, TypeError):
        return frozenset()
    return frozenset(name for name in names if isinstance(name, str) and Path(name).name == name)


def publish(export: Path, folder: Path) -> Path:
    """Copies an exported model into `folder`, in the place of what an earlier call has put there; returns the folder.

    export: a folder that is complete. Raises WeightsError E1412 as `refuse_others`, StorageError E1701.
    """
    names = sorted((path.name for path in export.iterdir()), key=lambda name: (name == INDEX, name))
    refuse_others(folder, names)
    with durable.storage_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        before = published(folder)
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
    durable.sweep(target.parent, target.name)  # what a call left that was killed
    with durable.swapped_in(target) as aside:
        _copy(source, aside)


def _copy(source: Path, target: Path) -> None:
    """As `shutil.copytree`, which does not tell what the system has said."""
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
