"""Data sets of the Hugging Face hub, by name; the one file that needs the library `datasets` (extra `data`).

What that library has in its cache is taken from there, without a network; only what is not there is fetched. No code of
a data set is run.
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
"""What the library raises for a name that it cannot find, reach or read."""


def arrow_files(name: str, *, config: str | None, split: str, cache: Path | None) -> tuple[Path, ...]:
    """The arrow files that hold one split of a data set, in order.

    name: OWNER/NAME. config: one of its configurations, None for the only one. cache: the library's folder, None for
    its own. Raises DatasetError E1215 when it is neither cached nor to be fetched, E1216 when it has no such split.
    """
    place = os.fspath(cache.expanduser()) if cache else None
    try:
        own_name = name.rpartition("/")[2]
        builder = Cache(place, own_name, config_name=config, version="auto", hash="auto", repo_id=name)
        _require_split(name, split, list(builder.info.splits or ()))
        dataset = builder.as_dataset(split=split)
    except _FAILURES as absent:
        dataset = _fetched(name, config, split, place, str(absent))
    return tuple(Path(file["filename"]) for file in dataset.cache_files)


def cached_file(path: str, root: Path, cache: Path | None) -> bytes | None:
    """The bytes of a picture that a cached data set names by its absolute path, or None where that is no file of the
    library's caches. root: the folder of the arrow files. cache: as for `arrow_files`."""
    own = [cache.expanduser()] if cache else []
    caches = [Path(place).resolve() for place in (*own, datasets.config.HF_DATASETS_CACHE, constants.HF_HUB_CACHE)]
    real = Path(os.path.realpath(path))
    if not any(root.is_relative_to(place) for place in caches) or not real.is_file():
        return None
    return real.read_bytes() if any(real.is_relative_to(place) for place in caches) else None


def _fetched(name: str, config: str | None, split: str, place: str | None, absent: str) -> datasets.Dataset:
    try:
        splits = datasets.load_dataset(name, config, cache_dir=place)
    except Exception as error:  # the library tries again itself; what it raises then may come from any below it
        raise DatasetError(
            f"{name}: no such folder, and no data set of the hub that is cached here ({_line(absent)}) or can be "
            f"fetched ({_why(error)}); fetch it where there is a network, set data.hub_config, or give a folder",
            code="E1215",
        ) from error
    _require_split(name, split, list(splits))
    return splits[split]


def _require_split(name: str, split: str, there: Sequence[str]) -> None:
    if split not in there:
        raise DatasetError(
            f"{name}: no part {split!r}; it has {', '.join(map(repr, there)) or 'none'}; set data.split", code="E1216"
        )


def _why(error: BaseException) -> str:
    """Why nothing was fetched: what the hub has answered, where it has, otherwise the library's words."""
    below: BaseException | None = error
    while below is not None:
        status = getattr(getattr(below, "response", None), "status_code", None)
        if status in (401, 403):
            return f"the hub answers {status}: it is private, gated or not there; `hf auth login` shows it who you are"
        if status == 429 or (status or 0) >= 500:
            return f"the hub answers {status}, also when asked again: try it later"
        below = below.__cause__ or below.__context__
    return f"{type(error).__name__}: {_line(str(error))}"


def _line(text: str) -> str:
    return " ".join(text.split())[:200]
