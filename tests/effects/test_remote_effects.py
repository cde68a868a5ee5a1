"""Rows of data on object storage."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mezzotint.data.catalogue.catalogue import build
from mezzotint.data.files import remote
from mezzotint.settings.sections.data import DataSettings
from support.shards import image_bytes, shard


# breaks if downloads are kept without limit, or the most recently used ones are deleted first
@pytest.mark.effect("data.cache.fetched_gb")
def test_least_recently_used_files_are_removed_first(tmp_path: Path) -> None:
    fields = [field for i in range(8) for field in ((f"{i}.png", image_bytes(i)), (f"{i}.txt", "x"))]
    shard(tmp_path / "data" / "0.tar", *fields)
    settings = DataSettings.model_validate({"path": [f"file://{tmp_path}/data"], "format": "webdataset"})
    catalogue, fetched = build(settings, tmp_path / "index", workers=1), tmp_path / "index" / remote.FOLDER
    for path in fetched.glob("*/*.tar"):
        path.unlink()
    kept = [catalogue.local_path(row, keep_gb=1) for row in range(8)]
    size = sum(path.stat().st_size for path in kept)
    for row, path in enumerate(kept):
        os.utime(path, (1000 + row, 1000 + row))
    catalogue.local_path(0, keep_gb=1e-9 * size)  # is used again, and nothing is downloaded
    kept[1].unlink()
    catalogue.local_path(1, keep_gb=1e-9 * size * 0.6)
    assert [row for row, path in enumerate(kept) if path.exists()] == [0, 1, 6, 7], "a tenth of the space is free"
    kept[6].unlink()
    catalogue.local_path(6, keep_gb=1e-9)
    assert [row for row, path in enumerate(kept) if path.exists()] == [0, 1, 6], "files in use stay"
