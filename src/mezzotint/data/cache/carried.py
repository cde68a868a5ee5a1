"""A cache on object storage, `data.cache.path: s3://bucket/cache`: built in a folder of this machine and carried there,
shard by shard; what others have carried there is read row by row.

Object storage has no files that grow, so that nothing is written there in place. A shard has one machine that writes it
and that carries it again when it has grown; rows are there before the index that names them.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from mezzotint import durable
from mezzotint.data.cache._shards import ORIGIN
from mezzotint.data.files import columns, remote
from mezzotint.data.files.listing import is_remote
from mezzotint.data.files.memo import Memo

_OURS = re.compile(r"(?:latents|text)/[0-9a-f]{16}/(?:layout\.json|rows-[\w-]+/[0-9a-f]{16}\.(?:rows|index))")
_INDEX = re.compile(r"catalogues/[0-9a-f]{16}/[0-9a-f]{32}/[\w.]+")
_LAST = (".index", "manifest.json")
"""Endings of what names other files, which are there before it."""

_Record = dict[str, list[int]]


def local_folder(path: Path) -> Path:
    """Where a cache lies on this machine: its folder, or, of an address, one below `~/.cache/mezzotint/carried`."""
    if not is_remote(path):
        return path.expanduser()
    name = hashlib.sha256(remote.url_of(path).encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return Path("~/.cache/mezzotint/carried").expanduser() / name


def bring(path: Path, *, keep_gb: float) -> int:
    """Brings the data indexes of an address to this machine, and of its shards what names their rows; rows come when
    they are read. keep_gb: of those, kept here at most. Returns how many files came. Raises DatasetError E1840, E1841;
    StorageError E1720."""
    folder, count = local_folder(path), 0
    system, base = remote.opened(path)
    system.invalidate_cache()
    infos = remote.tried(path, partial(system.find, base, detail=True))
    stats = {place.removeprefix(base).lstrip("/"): list(remote.stats_of(info)) for place, info in infos.items()}
    with _record(folder, "brought") as record:
        for name in sorted(filter(_is_ours, stats), key=_order):
            place = folder / name
            is_own = place.with_suffix(".rows").is_file()
            if is_own or (record.get(name) == stats[name] and place.with_suffix(_kept_as(name)).is_file()):
                continue
            with columns.written(place):
                place.parent.mkdir(parents=True, exist_ok=True)
            if name.endswith(".rows"):
                origin = {"address": os.fspath(path / name), "bytes": stats[name][0],
                          "kept": os.fspath(folder / "catalogues" / remote.FOLDER), "keep_gb": keep_gb}  # fmt: skip
                durable.write_json(place.with_suffix(ORIGIN), origin)
            else:
                with columns.written(place), durable.swapped_in(place) as aside:
                    remote.tried(path / name, partial(system.get_file, f"{base}/{name}", os.fspath(aside)))
            record[name], count = stats[name], count + 1
    return count


def carry(path: Path) -> int:
    """Carries what this machine has made, and has not carried yet, to an address. Returns how many files. Raises
    DatasetError E1840, E1841; StorageError E1844 where it cannot be written."""
    folder, count = local_folder(path), 0
    system, base = remote.opened(path)
    with _record(folder, "carried") as record:
        for name in sorted(_made_here(folder), key=_order):
            stat = os.stat(folder / name)
            state = [stat.st_size, stat.st_mtime_ns]
            if record.get(name) != state:
                remote.tried(path / name, partial(_put, system, folder / name, f"{base}/{name}"), is_write=True)
                record[name], count = state, count + 1
    return count


def _put(system: Any, place: Path, there: str) -> None:
    system.makedirs(there.rpartition("/")[0], exist_ok=True)
    system.put_file(os.fspath(place), there)


def _made_here(folder: Path) -> Iterator[str]:
    for part in ("latents", "text", "catalogues"):
        for place in (folder / part).glob("*/**/*"):
            name = place.relative_to(folder).as_posix()
            is_others = place.suffix == ".index" and not place.with_suffix(".rows").is_file()
            if _is_ours(name) and place.is_file() and not is_others:
                yield name


def _is_ours(name: str) -> bool:
    return bool(_OURS.fullmatch(name) or _INDEX.fullmatch(name))


def _kept_as(name: str) -> str:
    """The ending under which a file is kept that was brought."""
    return ORIGIN if name.endswith(".rows") else os.path.splitext(name)[1]


def _order(name: str) -> tuple[bool, str]:
    return name.endswith(_LAST), name


@contextmanager
def _record(folder: Path, name: str) -> Iterator[_Record]:
    """What was brought or carried, and in which state; one process of a machine at a time."""
    with columns.written(folder):
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder / f".{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        memo = Memo(folder)
        before = memo.get_json("object storage", name)
        record: _Record = before if isinstance(before, dict) else {}  # without one all is looked at again
        try:
            yield record
        finally:
            memo.put("object storage", name, json.dumps(record).encode())
    finally:
        os.close(handle)
