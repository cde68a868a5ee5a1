"""Data on object storage, such as s3://bucket/shards: downloads files to the local disk.

fsspec reads it with the credentials of its environment; a recipe never contains any. Downloads are stored, up to
`data.cache.fetched_gb`: listed files by their version, samples by the SHA-256 of their bytes, so data that changed
since indexing is never used. From a tar shard only the needed sample is fetched."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import secrets
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache, partial
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from mezzotint import durable, fault_injection
from mezzotint.data.files import columns, tar_members
from mezzotint.data.files.listing import Listing, is_remote, walk
from mezzotint.errors import DatasetError, StorageError

T = TypeVar("T")

FOLDER = "fetched"
"""Folder next to the indexes, for downloads."""

WAITS = (0.2, 1.0, 3.0, 9.0)
"""Seconds between attempts."""

_FRESH_SECONDS = 60.0
_VERSIONS = ("ETag", "etag", "md5Hash", "mtime", "LastModified", "updated", "created")
_CREDENTIALS = re.compile(r"(?<=\?)\S+|(?<=//)[^\s/@]+(?=@)")
"""Matches the query of a URL in a library's message, which may be a signature, and its user and password."""


def url_of(path: Path | str) -> str:
    """`s3://bucket/name` from a path, in which two slashes are one."""
    scheme, _, rest = os.fspath(path).partition(":")
    return f"{scheme}://{'/' if scheme in ('file', 'local') else ''}{rest.lstrip('/')}"


def open_file_system(path: Path | str) -> tuple[Any, str]:
    """Opens fsspec's file system; returns it and the path in it. Raises DatasetError E1840 if a package is missing,
    E1841 for a URL that fsspec does not support, or that contains credentials."""
    url = url_of(path)
    if "?" in url or "@" in url.split("/")[2]:
        redacted = f"{url.split('/')[0]}//{url.split('/')[2].rpartition('@')[2]}/…"
        raise DatasetError(
            f"{redacted}: contains a signature or credentials, which would be saved in every record of the run; use "
            "the plain URL, and keep credentials in the environment (AWS_ACCESS_KEY_ID, ~/.aws, fsspec's settings)",
            code="E1841",
        )
    try:
        from fsspec.core import url_to_fs

        system, inside = url_to_fs(url)
    except ImportError as error:
        packages = "'mezzotint[object-storage]'" if url.startswith(("s3:", "s3a:")) else "the package it names"
        raise DatasetError(f"{url}: {error}: pip install {packages}", code="E1840") from error
    except ValueError as error:
        raise DatasetError(
            f"{url}: {error}; set data.path to a folder or a URL such as s3://…", code="E1841"
        ) from error
    return system, inside.rstrip("/")


def with_retries(
    path: Path | str, call: Callable[[], T], *, is_write: bool = False, waits: Sequence[float] = WAITS
) -> T:
    """Calls the storage and retries failures. Raises DatasetError E1841, or StorageError E1844 for writes; without
    retry if the file is missing or access is denied."""
    for wait in (*waits, None):
        try:
            fault_injection.reach("data.fetch")
            return call()
        except Exception as error:  # each library has its own errors
            if isinstance(error, OSError) and error.errno in durable.FULL:
                raise
            is_final = isinstance(error, (FileNotFoundError, PermissionError)) or wait is None
            if is_final:
                reason = _CREDENTIALS.sub("…", " ".join(str(error).split()))[:300] or type(error).__name__
                remedy = "check the URL, the network and the credentials in the environment"
                if is_write:
                    raise StorageError(
                        f"{url_of(path)}: cannot be written ({reason}); {remedy}", code="E1844"
                    ) from error
                raise DatasetError(f"{url_of(path)}: cannot be read ({reason}); {remedy}", code="E1841") from error
        assert wait is not None
        time.sleep(wait)
    raise AssertionError


def files_below(root: Path, suffixes: Collection[str]) -> Listing:
    """The listing of a folder or a URL, as `listing.walk`; for a URL, 128 bits of the version reported by the storage
    replace the two times. Raises DatasetError E1201; E1840, E1841 for a URL."""
    if not is_remote(root):
        return walk(root, suffixes)
    system, base = open_file_system(root)
    system.invalidate_cache()
    infos = with_retries(root, partial(system.find, base, detail=True))
    if not infos:
        raise DatasetError(f"{url_of(root)}: is empty; check the bucket and the folder", code="E1841")
    files, refused, unknown = {}, [], Counter[str]()
    for key, info in infos.items():
        name = key.removeprefix(base).lstrip("/")
        parts, suffix = name.split("/"), os.path.splitext(name)[1].lower()
        if any(part in ("", ".", "..") for part in parts):
            refused.append((name, "a name that points outside its folder"))
        elif not any(part.startswith(".") for part in parts):
            if suffix in suffixes:
                files[name] = info
            else:
                unknown[suffix] += 1
    return _listing(root, files, refused, unknown)


def of_files(root: Path, names: Iterable[str]) -> Listing:
    """The listing of files given by name. Raises DatasetError E1840, E1841 for a missing one."""
    system, base = open_file_system(root)
    system.invalidate_cache()
    return _listing(
        root, {name: with_retries(root / name, partial(system.info, f"{base}/{name}")) for name in names}, [], {}
    )


def _listing(root: Path, files: dict[str, Any], refused: Sequence[tuple[str, str]], unknown: dict[str, int]) -> Listing:
    names = sorted(files, key=lambda name: name.encode("utf-8", "surrogatepass"))
    stats = np.array([stats_of(files[name]) for name in names], np.int64).reshape(-1, 3)
    return Listing(root, names, stats, tuple(sorted(refused)), dict(unknown))


def stats_of(info: dict[str, Any]) -> tuple[int, int, int]:
    """Size in bytes and 128 bits of the version of a file, from fsspec's info."""
    version = next((info[name] for name in _VERSIONS if info.get(name)), "")
    text = str(version.timestamp() if isinstance(version, datetime) else version)
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
    high, low = (int.from_bytes(digest[at : at + 8], "little", signed=True) for at in (0, 8))
    return int(info["size"] or 0), high, low


@dataclass(slots=True)
class Fetched:
    """A folder of downloads, which several processes may share. most_bytes: maximum size; the least recently used files
    are removed."""

    folder: Path
    most_bytes: int
    _unswept: int = 0
    _lock: Lock = field(default_factory=Lock)

    def fetch_file(self, path: Path, stats: NDArray[np.int64]) -> Path:
        """The local path of a listed file. stats: of the listing. Raises DatasetError E1841, StorageError E1720."""
        version = hashlib.sha256(url_of(path).encode("utf-8", "surrogatepass") + stats.tobytes()).hexdigest()[:32]
        target = self.folder / version[:2] / f"{version}-{path.name}"
        with self._lock:  # threads that probe images of one shard wait for the same download
            return self._find(target) or self._put(target, path, lambda temporary: _get(path, temporary))

    def fetch_content(self, path: Path, digest: bytes) -> Path:
        """The local path of a file, or of a member of a tar shard, with this SHA-256. Raises DatasetError E1841, E1843
        if the file now has other bytes; StorageError E1720."""
        target = self.folder / digest.hex()[:2] / f"{digest.hex()}{path.suffix.partition('@')[0]}"
        return self._find(target) or self._put(
            target, path, lambda temporary: temporary.write_bytes(_bytes_of(path, digest))
        )

    def fetch_range(self, name: str, path: Path, start: int, size: int) -> bytes:
        """A byte range of a file, stored under a unique name. Raises DatasetError E1841, StorageError E1720."""
        target = self.folder / name[:2] / name
        with suppress(OSError):
            if self._find(target) and len(data := target.read_bytes()) == size:
                return data
        system, inside = open_file_system(path)
        data = bytes(with_retries(path, partial(system.cat_file, inside, start=start, end=start + size)))
        self._put(target, path, lambda temporary: temporary.write_bytes(data))
        return data

    def drop(self, name: str) -> None:
        """Removes a stored byte range."""
        (self.folder / name[:2] / name).unlink(missing_ok=True)

    def _find(self, target: Path) -> Path | None:
        try:
            os.utime(target)
        except OSError:
            return None
        return target

    def _put(self, target: Path, path: Path, write: Callable[[Path], object]) -> Path:
        temporary = durable.temporary_path(
            target.with_name(f"{target.name}-{secrets.token_hex(8)}")
        )  # threads may fetch the same file
        with columns.convert_write_errors(self.folder):
            target.parent.mkdir(parents=True, exist_ok=True)
        try:
            with columns.convert_write_errors(self.folder):
                write(temporary)
                self._unswept += temporary.stat().st_size
                durable.move_into_place(temporary, target, durably=False)
        finally:
            temporary.unlink(missing_ok=True)
        if self._unswept * 64 >= self.most_bytes:
            self._unswept = 0
            sweep(self.folder, self.most_bytes)
        return target


def _get(path: Path, temporary: Path) -> None:
    system, inside = open_file_system(path)
    with_retries(path, partial(system.get_file, inside, os.fspath(temporary)))


def _bytes_of(path: Path, digest: bytes) -> bytes:
    member = tar_members.parse_member_path(path)
    system, inside = open_file_system(path if member is None else member.archive)
    if member is None:
        data = with_retries(path, partial(system.cat_file, inside))
    else:
        ends = {"start": member.offset, "end": member.offset + member.size}
        data = with_retries(member.archive, partial(system.cat_file, inside, **ends)) if member.size else b""
    if hashlib.sha256(data).digest() != digest:
        raise DatasetError(
            f"{url_of(path)}: has other bytes than when the data set was indexed; start again to index the changes",
            code="E1843",
        )
    return bytes(data)


def sweep(folder: Path, most_bytes: int) -> None:
    """Removes the least recently used files until a tenth of `most_bytes` is free, but none used within the last
    minute. Only one process does it at a time; the others continue."""
    handle = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        files = sorted(
            (stat.st_mtime, stat.st_size, entry.path)
            for part in os.scandir(folder) if part.is_dir()
            for entry in os.scandir(part.path) for stat in [entry.stat()]
        )  # fmt: skip
        total, young = sum(size for _, size, _ in files), time.time() - _FRESH_SECONDS
        if total <= most_bytes:
            return
        for used, size, path in files:
            if total <= most_bytes * 0.9 or used > young:
                return
            os.unlink(path)
            total -= size
    except OSError:
        return  # another process is sweeping or has removed a file: the next sweep continues
    finally:
        os.close(handle)


@lru_cache(maxsize=8)
def fetched_at(folder: Path, most_bytes: int) -> Fetched:
    """The downloads of this process in a folder."""
    return Fetched(folder, most_bytes)


class NearFiles:
    """Local paths of files and members of listed sources, for indexing: their own, or those of downloads. folder: of
    downloads."""

    def __init__(self, listings: Iterable[Listing], folder: Path, *, most_bytes: int) -> None:
        self._fetched = fetched_at(folder, most_bytes)
        self._stats = {
            os.fspath(listing.root / name): stats
            for listing in listings if is_remote(listing.root)
            for name, stats in zip(listing.names, listing.stats, strict=True)
        }  # fmt: skip

    def file(self, path: Path) -> Path:
        """The local path of a listed file. Raises as `Fetched.fetch_file`."""
        stats = self._stats.get(os.fspath(path))
        return path if stats is None else self._fetched.fetch_file(path, stats)

    def at(self, path: Path) -> Path:
        """The local path of a file or of a member of one."""
        member = tar_members.parse_member_path(path) if is_remote(path) else None
        return self.file(path) if member is None else self.file(member.archive) / path.name

    def stats(self, path: str) -> tuple[int, int, int] | None:
        """Size in bytes and version of a file; for a member the version of its archive; None for local files."""
        if not is_remote(path):
            return None
        member = tar_members.parse_member_path(Path(path))
        size, high, low = self._stats[path if member is None else os.fspath(member.archive)].tolist()
        return (size if member is None else member.size), high, low
