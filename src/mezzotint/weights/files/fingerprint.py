"""Content hashes that identify weights, so moving or renaming a file changes nothing.

Cached latents and embeddings are addressed by them. A file is hashed once per process.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from mezzotint import outside
from mezzotint.errors import WeightsError
from mezzotint.weights.files.tensor_files import shards


def of_file(path: Path) -> str:
    """SHA-256 of a weights file, or of all shards of an index: 64 hexadecimal digits.

    Hashing reads the whole file, about a second per gigabyte; it is repeated only when size, times or inode have
    changed. Raises WeightsError E1401 when the file cannot be read.
    """
    digest = hashlib.sha256()
    try:
        for shard in shards(path):
            facts = shard.stat()
            identity = (facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns, facts.st_ino)
            digest.update(bytes.fromhex(_hash_file(shard.resolve(), identity)))
    except OSError as error:
        raise WeightsError(f"{error.filename}: cannot be read ({error.strerror})", code="E1401") from error
    return digest.hexdigest()


def of_files(paths: Sequence[Path]) -> str:
    """One hash for several small files (a tokenizer's), by their names and contents; missing files are skipped."""
    digest = hashlib.sha256()
    for path in sorted(paths, key=lambda p: p.name):
        if path.is_file():
            content = outside.read_bytes(path, limit=outside.LISTED)
            digest.update(f"{path.name} {len(content)}\n".encode())
            digest.update(content)
    return digest.hexdigest()


def of_values(values: Mapping[str, Any]) -> str:
    """One hash for plain values (a configuration, a seed, other fingerprints), independent of the order of keys."""
    text = json.dumps(values, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


@lru_cache(maxsize=256)
def _hash_file(path: Path, identity: tuple[int, int, int, int]) -> str:
    """`identity` is part of the cache's key: a changed file is hashed again."""
    with outside.open_plain(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
