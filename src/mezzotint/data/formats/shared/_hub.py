"""Data sets of the Hugging Face hub, by name; the only file that needs the library `datasets` (extra `data`).

Data in that library's cache is used without network access; only missing data is downloaded. No code of a data set is
run.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import datasets
from datasets.exceptions import DatasetsError
from datasets.packaged_modules.cache.cache import Cache
from huggingface_hub import constants

from mezzotint.errors import DatasetError

_FAILURES = (OSError, ValueError, RuntimeError, KeyError, TypeError, DatasetsError)
"""Errors of the library for a name that it cannot find, reach or read."""


def arrow_files(name: str, *, config: str | None, split: str, cache: Path | None) -> tuple[Path, ...]:
    """The arrow files of one split of a data set, in order.

    name: OWNER/NAME. config: one of its configurations, None for the only one. cache: the library's cache folder, None
    for its default. Raises DatasetError E1215 if it is neither cached nor can be downloaded, E1216 if it has no such
    split.
    """
    folder = os.fspath(cache.expanduser()) if cache else None
    try:
        own_name = name.rpartition("/")[2]
        builder = Cache(folder, own_name, config_name=config, version="auto", hash="auto", repo_id=name)
        _require_split(name, split, list(builder.info.splits or ()))
        dataset = builder.as_dataset(split=split)
    except _FAILURES as absent:
        dataset = _download(name, config, split, folder, str(absent))
    return tuple(Path(file["filename"]) for file in dataset.cache_files)


def cached_file(path: str, root: Path, cache: Path | None) -> bytes | None:
    """The bytes of an image that a cached data set refers to by absolute path, or None if that is not a file in the
    library's caches. root: the folder of the arrow files. cache: as for `arrow_files`."""
    custom_caches = [cache.expanduser()] if cache else []
    folders = (*custom_caches, datasets.config.HF_DATASETS_CACHE, constants.HF_HUB_CACHE)
    caches = [Path(folder).resolve() for folder in folders]
    real = Path(os.path.realpath(path))
    if not any(root.is_relative_to(folder) for folder in caches) or not real.is_file():
        return None
    return real.read_bytes() if any(real.is_relative_to(folder) for folder in caches) else None


def _download(name: str, config: str | None, split: str, folder: str | None, absent: str) -> datasets.Dataset:
    try:
        splits = datasets.load_dataset(name, config, cache_dir=folder)
    except Exception as error:  # the library retries itself; its error may come from any of its dependencies
        raise DatasetError(
            f"{name}: no such folder, and no data set of the hub that is cached ({_line(absent)}) or can be downloaded "
            f"({_failure_reason(error)}); download it with a network connection, set data.hub_config, or use a folder",
            code="E1215",
        ) from error
    _require_split(name, split, list(splits))
    return splits[split]


def _require_split(name: str, split: str, splits: Sequence[str]) -> None:
    if split not in splits:
        raise DatasetError(
            f"{name}: no split {split!r}; it has {', '.join(map(repr, splits)) or 'none'}; set data.split", code="E1216"
        )


def _failure_reason(error: BaseException) -> str:
    """Why the download failed: the hub's response if there is one, otherwise the library's message."""
    below: BaseException | None = error
    while below is not None:
        status = getattr(getattr(below, "response", None), "status_code", None)
        if status in (401, 403):
            return f"the hub returned {status}: it is private, gated or missing; log in with `hf auth login`"
        if status == 429 or (status or 0) >= 500:
            return f"the hub returned {status}, also after retries: try again later"
        below = below.__cause__ or below.__context__
    return f"{type(error).__name__}: {_line(str(error))}"


def _line(text: str) -> str:
    return " ".join(text.split())[:200]
