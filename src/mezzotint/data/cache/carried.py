"""A cache on object storage, `data.cache.path: s3://bucket/cache`: built in a local folder and uploaded shard by shard;
shards of other machines are read row by row.

Files on object storage cannot grow, so nothing is written in place. Each shard is written by one machine, which uploads
it again when it has grown; rows are uploaded before the index that names them.
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
from mezzotint.data.cache.shard_files import ORIGIN
from mezzotint.data.files import columns, remote
from mezzotint.data.files.listing import is_remote
from mezzotint.data.files.memo import Memo

_SHARD_FILE = re.compile(r"(?:latents|text)/[0-9a-f]{16}/(?:layout\.json|rows-[\w-]+/[0-9a-f]{16}\.(?:rows|index))")
_INDEX = re.compile(r"catalogues/[0-9a-f]{16}/[0-9a-f]{32}/[\w.]+")
_UPLOADED_LAST = (".index", "manifest.json")
"""Endings of files that refer to others and are therefore uploaded after them."""

_Record = dict[str, list[int]]


def local_folder(path: Path) -> Path:
    """The local folder of a cache: for a URL, one below `~/.cache/mezzotint/carried`."""
    if not is_remote(path):
        return path.expanduser()
    name = hashlib.sha256(remote.url_of(path).encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return Path("~/.cache/mezzotint/carried").expanduser() / name


def download_indexes(path: Path, *, keep_gb: float) -> int:
    """Downloads the data indexes of a URL and the indexes of its shards; rows are fetched when they are read. keep_gb:
    maximum size of rows stored locally. Returns the number of files. Raises DatasetError E1840, E1841; StorageError
    E1720."""
    folder, count = local_folder(path), 0
    system, base = remote.open_file_system(path)
    system.invalidate_cache()
    infos = remote.with_retries(path, partial(system.find, base, detail=True))
    stats = {key.removeprefix(base).lstrip("/"): list(remote.stats_of(info)) for key, info in infos.items()}
    with _record(folder, "brought") as record:
        for name in sorted(filter(_is_cache_file, stats), key=_upload_order):
            path_here = folder / name
            is_own = path_here.with_suffix(".rows").is_file()
            if is_own or (record.get(name) == stats[name] and path_here.with_suffix(_local_suffix(name)).is_file()):
                continue
            with columns.convert_write_errors(path_here):
                path_here.parent.mkdir(parents=True, exist_ok=True)
            if name.endswith(".rows"):
                origin = {"address": os.fspath(path / name), "bytes": stats[name][0],
                          "kept": os.fspath(folder / "catalogues" / remote.FOLDER), "keep_gb": keep_gb}  # fmt: skip
                durable.write_json(path_here.with_suffix(ORIGIN), origin)
            else:
                with columns.convert_write_errors(path_here), durable.replace_atomically(path_here) as temporary:
                    remote.with_retries(path / name, partial(system.get_file, f"{base}/{name}", os.fspath(temporary)))
            record[name], count = stats[name], count + 1
    return count


def upload_files(path: Path) -> int:
    """Uploads the files of this machine that were not uploaded yet. Returns their number. Raises DatasetError E1840,
    E1841; StorageError E1844 if the storage cannot be written."""
    folder, count = local_folder(path), 0
    system, base = remote.open_file_system(path)
    with _record(folder, "carried") as record:
        for name in sorted(_own_files(folder), key=_upload_order):
            stat = os.stat(folder / name)
            state = [stat.st_size, stat.st_mtime_ns]
            if record.get(name) != state:
                remote.with_retries(path / name, partial(_put, system, folder / name, f"{base}/{name}"), is_write=True)
                record[name], count = state, count + 1
    return count


def _put(system: Any, path: Path, key: str) -> None:
    system.makedirs(key.rpartition("/")[0], exist_ok=True)
    system.put_file(os.fspath(path), key)


def _own_files(folder: Path) -> Iterator[str]:
    for part in ("latents", "text", "catalogues"):
        for path in (folder / part).glob("*/**/*"):
            name = path.relative_to(folder).as_posix()
            is_downloaded = path.suffix == ".index" and not path.with_suffix(".rows").is_file()
            if _is_cache_file(name) and path.is_file() and not is_downloaded:
                yield name


def _is_cache_file(name: str) -> bool:
    return bool(_SHARD_FILE.fullmatch(name) or _INDEX.fullmatch(name))


def _local_suffix(name: str) -> str:
    """The extension of the local file for a downloaded one."""
    return ORIGIN if name.endswith(".rows") else os.path.splitext(name)[1]


def _upload_order(name: str) -> tuple[bool, str]:
    return name.endswith(_UPLOADED_LAST), name


@contextmanager
def _record(folder: Path, name: str) -> Iterator[_Record]:
    """Downloaded or uploaded files with their state; locked, so only one process per machine holds it at a time."""
    with columns.convert_write_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder / f".{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        memo = Memo(folder)
        stored = memo.get_json("object storage", name)
        record: _Record = stored if isinstance(stored, dict) else {}  # without a record everything is compared again
        try:
            yield record
        finally:
            memo.put("object storage", name, json.dumps(record).encode())
    finally:
        os.close(handle)
