"""Records that all entries of a data set are complete, so the next start need not look them up: stored in the cache's
memo, with the size and times of every file that contains them.

The record is valid as long as no name, size or time of these files changes. Adding an entry, recording a damaged one or
changing a byte invalidates it, and the next start looks up every entry again.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mezzotint.data.cache.entries import Caches
from mezzotint.data.catalogue.catalogue import Catalogue
from mezzotint.data.files.memo import Memo
from mezzotint.settings.sections.data import DataSettings

_VERSION = 2
_MAX_RECORDS = 64
_IGNORED_SETTINGS = {"path", "workers", "prefetch", "batch_size", "remainder", "remainder_power", "shuffle", "repeats",
    "holdout",
            "rating", "max_skipped", "verify", "on_corrupt", "decode_timeout", "max_samples", "epoch_seed",
            "hub_cache"}  # fmt: skip
"""Settings that do not affect entries, or only through the rows."""

_TICK = 10_000_000  # nanoseconds after which another change of a file gives it another time


@dataclass(frozen=True, slots=True)
class Complete:
    """A complete set of entries. needed: their number. bytes: on disk. is_checked: whether each was read and verified.
    repeats: see `CacheSummary`."""

    needed: int
    bytes: int
    is_checked: bool
    repeats: bool = True


class Record:
    """The record of one data set's entries. rows: of the catalogue. extra: further captions."""

    def __init__(
        self, catalogue: Catalogue, rows: NDArray[np.int32], settings: DataSettings, caches: Caches,
        extra: Sequence[str],
    ) -> None:  # fmt: skip
        self._caches = caches
        self._root = caches.in_use[0].root
        self._memo = Memo(self._root)
        self._key = (
            _VERSION,
            catalogue.fingerprint,
            catalogue.sizes,
            [_hash(column) for column in (rows, *catalogue.beside_fingerprint())],
            caches.latents and (caches.latents.identity, caches.latents.seeds),
            caches.text and (caches.text.identity, repr(caches.text.preserved)),
            settings.model_dump_json(exclude=_IGNORED_SETTINGS | {"cache"}),
            (settings.cache.crops, settings.cache.shuffles),
            list(extra),
        )

    def read(self) -> Complete | None:
        """The recorded entries; None if they have to be looked up."""
        content = self._memo.get_json("complete", self._key)
        try:
            return Complete(**content["known"]) if content["files"] == self._state(content["folders"]) else None
        except (KeyError, TypeError, OSError, ValueError):  # no record, or an invalid one
            return None

    def read_damaged(self) -> dict[str, list[int]]:
        """Size and times of the files that list damaged entries."""
        return {name: state for name, state in self._state(self._folders()).items() if name.endswith("/damaged")}

    def write(self, complete: Complete) -> None:
        """Records that everything is complete, with the current state of the files. An equal record is left unchanged;
        in a read-only folder nothing is recorded."""
        if self.read() == complete:
            return
        folders = self._folders()
        files = self._state(folders)
        age = time.time_ns() - max((state[1] for state in files.values()), default=0)
        if 0 <= age < _TICK:
            time.sleep((_TICK - age) / 1e9)  # so that later changes give files other times
        content = {"known": asdict(complete), "folders": folders, "files": files}
        self._memo.put("complete", self._key, json.dumps(content).encode("ascii"), keep=_MAX_RECORDS)

    def _folders(self) -> list[str]:
        return [str(store.folder.relative_to(self._root)) for store in self._caches.stores]

    def _state(self, folders: Sequence[str]) -> dict[str, list[int]]:
        """Size, modification time and change time of every file, by path below the cache's folder."""
        paths = [cache.folder / "layout.json" for cache in self._caches.in_use]
        paths += [path for folder in folders for path in (self._root / folder).glob("*")]
        stats = {path.relative_to(self._root).as_posix(): path.stat() for path in paths if path.exists()}
        return {name: [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns] for name, stat in stats.items()}


def _hash(column: NDArray[Any]) -> str:
    return hashlib.sha256(np.ascontiguousarray(column).data).hexdigest()
