"""Data on object storage, such as s3://bucket/shards: the one place where what lies there becomes a file of this disk.

fsspec reads it, with the credentials of its own environment; none stands in a recipe. What is fetched is kept, up to
`data.cache.fetched_gb`: files that are listed under their version, samples under the SHA-256 of their bytes, so that
what has changed since the index was made is never taken for it. Of a tar shard a sample is fetched alone.
"""

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
"""Beside the indexes: what was fetched."""

WAITS = (0.2, 1.0, 3.0, 9.0)
"""Seconds between one try and the next."""

_FRESH_SECONDS = 60.0
_VERSIONS = ("ETag", "etag", "md5Hash", "mtime", "LastModified", "updated", "created")
_CREDENTIALS = re.compile(r"(?<=\?)\S+|(?<=//)[^\s/@]+(?=@)")
"""In a library's message: the query of an address, which may be a signature, and a user and password in it."""


def url_of(path: Path | str) -> str:
    """`s3://bucket/name` from a path, in which two slashes are one."""
    scheme, _, rest = os.fspath(path).partition(":")
    return f"{scheme}://{'/' if scheme in ('file', 'local') else ''}{rest.lstrip('/')}"


def opened(path: Path | str) -> tuple[Any, str]:
    """fsspec's file system and the path in it. Raises DatasetError E1840 where a package is missing, E1841 for an
    address that fsspec does not know, or that carries its own credentials."""
    url = url_of(path)
    if "?" in url or "@" in url.split("/")[2]:
        shown = f"{url.split('/')[0]}//{url.split('/')[2].rpartition('@')[2]}/…"
        raise DatasetError(
            f"{shown}: carries a signature or credentials, which would stand in every record of the run; write the "
            "address alone, and keep credentials in the environment (AWS_ACCESS_KEY_ID, ~/.aws, fsspec's own settings)",
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
            f"{url}: {error}; data.path is a folder, or an address such as s3://…", code="E1841"
        ) from error
    return system, inside.rstrip("/")


def tried(path: Path | str, call: Callable[[], T], *, is_write: bool = False, waits: Sequence[float] = WAITS) -> T:
    """What a call to the storage gives, tried again when it fails. Raises DatasetError E1841, or StorageError E1844 of
    what is written, at once for what is not there or forbidden, which is no accident of the network."""
    for wait in (*waits, None):
        try:
            fault_injection.reach("data.fetch")
            return call()
        except Exception as error:  # each library has errors of its own
            if isinstance(error, OSError) and error.errno in durable.FULL:
                raise
            is_final = isinstance(error, (FileNotFoundError, PermissionError)) or wait is None
            if is_final:
                words = _CREDENTIALS.sub("…", " ".join(str(error).split()))[:300] or type(error).__name__
                remedy = "look at the address, the network and the credentials in the environment"
                if is_write:
                    raise StorageError(
                        f"{url_of(path)}: cannot be written ({words}); {remedy}", code="E1844"
                    ) from error
                raise DatasetError(f"{url_of(path)}: cannot be read ({words}); {remedy}", code="E1841") from error
        assert wait is not None
        time.sleep(wait)
    raise AssertionError


def files_below(root: Path, suffixes: Collection[str]) -> Listing:
    """What `listing.walk` gives, of a folder or of an address; there 128 bits of the version that the storage tells
    stand in the place of the two times. Raises DatasetError E1201; E1840, E1841 of an address."""
    if not is_remote(root):
        return walk(root, suffixes)
    system, base = opened(root)
    system.invalidate_cache()
    infos = tried(root, partial(system.find, base, detail=True))
    if not infos:
        raise DatasetError(f"{url_of(root)}: nothing lies there; look at the bucket and the folder", code="E1841")
    files, refused, unknown = {}, [], Counter[str]()
    for place, info in infos.items():
        name = place.removeprefix(base).lstrip("/")
        parts, suffix = name.split("/"), os.path.splitext(name)[1].lower()
        if any(part in ("", ".", "..") for part in parts):
            refused.append((name, "a name that leads out of its folder"))
        elif not any(part.startswith(".") for part in parts):
            if suffix in suffixes:
                files[name] = info
            else:
                unknown[suffix] += 1
    return _listing(root, files, refused, unknown)


def of_files(root: Path, names: Iterable[str]) -> Listing:
    """The listing of files that are known by name. Raises DatasetError E1840, E1841 for one that is not there."""
    system, base = opened(root)
    system.invalidate_cache()
    return _listing(root, {name: tried(root / name, partial(system.info, f"{base}/{name}")) for name in names}, [], {})


def _listing(root: Path, files: dict[str, Any], refused: Sequence[tuple[str, str]], unknown: dict[str, int]) -> Listing:
    names = sorted(files, key=lambda name: name.encode("utf-8", "surrogatepass"))
    stats = np.array([stats_of(files[name]) for name in names], np.int64).reshape(-1, 3)
    return Listing(root, names, stats, tuple(sorted(refused)), dict(unknown))


def stats_of(info: dict[str, Any]) -> tuple[int, int, int]:
    """What fsspec tells of a file: its size in bytes, and 128 bits of its version."""
    version = next((info[name] for name in _VERSIONS if info.get(name)), "")
    text = str(version.timestamp() if isinstance(version, datetime) else version)
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
    high, low = (int.from_bytes(digest[at : at + 8], "little", signed=True) for at in (0, 8))
    return int(info["size"] or 0), high, low


@dataclass(slots=True)
class Fetched:
    """What was fetched, in a folder: of several processes each may put and take. most_bytes: what has been used longest
    ago goes when there is more."""

    folder: Path
    most_bytes: int
    _unswept: int = 0
    _lock: Lock = field(default_factory=Lock)

    def whole(self, path: Path, stats: NDArray[np.int64]) -> Path:
        """Where a listed file lies now. stats: of the listing. Raises DatasetError E1841, StorageError E1720."""
        version = hashlib.sha256(url_of(path).encode("utf-8", "surrogatepass") + stats.tobytes()).hexdigest()[:32]
        place = self.folder / version[:2] / f"{version}-{path.name}"
        with self._lock:  # threads that look at pictures of one shard wait for it together
            return self._there(place) or self._put(place, path, lambda aside: _get(path, aside))

    def content(self, path: Path, digest: bytes) -> Path:
        """Where a file, or a member of a tar shard, with this SHA-256 lies now. Raises DatasetError E1841, E1843 when
        other bytes lie at this address; StorageError E1720."""
        place = self.folder / digest.hex()[:2] / f"{digest.hex()}{path.suffix.partition('@')[0]}"
        return self._there(place) or self._put(place, path, lambda aside: aside.write_bytes(_bytes_of(path, digest)))

    def piece(self, name: str, path: Path, start: int, size: int) -> bytes:
        """Bytes of a file, kept under a name that means them alone. Raises DatasetError E1841, StorageError E1720."""
        place = self.folder / name[:2] / name
        with suppress(OSError):
            if self._there(place) and len(data := place.read_bytes()) == size:
                return data
        system, inside = opened(path)
        data = bytes(tried(path, partial(system.cat_file, inside, start=start, end=start + size)))
        self._put(place, path, lambda aside: aside.write_bytes(data))
        return data

    def drop(self, name: str) -> None:
        """Forgets a piece."""
        (self.folder / name[:2] / name).unlink(missing_ok=True)

    def _there(self, place: Path) -> Path | None:
        try:
            os.utime(place)
        except OSError:
            return None
        return place

    def _put(self, place: Path, path: Path, write: Callable[[Path], object]) -> Path:
        aside = durable.aside_of(place.with_name(f"{place.name}-{secrets.token_hex(8)}"))  # threads fetch the same one
        with columns.written(self.folder):
            place.parent.mkdir(parents=True, exist_ok=True)
        try:
            with columns.written(self.folder):
                write(aside)
                self._unswept += aside.stat().st_size
                durable.take_place(aside, place, durably=False)
        finally:
            aside.unlink(missing_ok=True)
        if self._unswept * 64 >= self.most_bytes:
            self._unswept = 0
            sweep(self.folder, self.most_bytes)
        return place


def _get(path: Path, aside: Path) -> None:
    system, inside = opened(path)
    tried(path, partial(system.get_file, inside, os.fspath(aside)))


def _bytes_of(path: Path, digest: bytes) -> bytes:
    member = tar_members.named(path)
    system, inside = opened(path if member is None else member.archive)
    if member is None:
        data = tried(path, partial(system.cat_file, inside))
    else:
        ends = {"start": member.offset, "end": member.offset + member.size}
        data = tried(member.archive, partial(system.cat_file, inside, **ends)) if member.size else b""
    if hashlib.sha256(data).digest() != digest:
        raise DatasetError(
            f"{url_of(path)}: has other bytes than when the data set was indexed; start again, which indexes what has "
            "changed",
            code="E1843",
        )
    return bytes(data)


def sweep(folder: Path, most_bytes: int) -> None:
    """Removes what was used longest ago until a tenth of `most_bytes` is free; nothing that was used within the last
    minute. Of several processes one does it, the others go on."""
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
        return  # another process sweeps, or has taken a file away: the next sweep goes on
    finally:
        os.close(handle)


@lru_cache(maxsize=8)
def fetched_at(folder: Path, most_bytes: int) -> Fetched:
    """What this process has fetched into a folder."""
    return Fetched(folder, most_bytes)


class NearFiles:
    """Files and members of listed sources as the index's maker opens them: where they lie, or where they were fetched
    to. folder: of what is fetched."""

    def __init__(self, listings: Iterable[Listing], folder: Path, *, most_bytes: int) -> None:
        self._fetched = fetched_at(folder, most_bytes)
        self._stats = {
            os.fspath(listing.root / name): stats
            for listing in listings if is_remote(listing.root)
            for name, stats in zip(listing.names, listing.stats, strict=True)
        }  # fmt: skip

    def file(self, path: Path) -> Path:
        """Where a listed file lies, on this disk. Raises what `Fetched.whole` raises."""
        stats = self._stats.get(os.fspath(path))
        return path if stats is None else self._fetched.whole(path, stats)

    def at(self, path: Path) -> Path:
        """The same of a file or a member of one."""
        member = tar_members.named(path) if is_remote(path) else None
        return self.file(path) if member is None else self.file(member.archive) / path.name

    def stats(self, path: str) -> tuple[int, int, int] | None:
        """Size in bytes and version of a file, or of a member that of its archive; None of what lies on this disk."""
        if not is_remote(path):
            return None
        member = tar_members.named(Path(path))
        size, high, low = self._stats[path if member is None else os.fspath(member.archive)].tolist()
        return (size if member is None else member.size), high, low
