"""Images embedded in tables, extracted next to the index."""

from __future__ import annotations

import errno
from pathlib import Path

import numpy as np
import pytest

from mezzotint import durable
from mezzotint.data.catalogue import indexing
from mezzotint.data.catalogue.catalogue import build
from mezzotint.settings.sections.data import DataSettings
from support.arrow_tables import catalogue, images, kept, write
from support.loading import open_loader
from support.messages import refused


@pytest.mark.parametrize("workers", [0, 1])
def test_loader_reads_extracted_images_in_workers(root: Path, index: Path, workers: int) -> None:
    write(root / "data.parquet", {"image": images(10, 90, 200), "text": ["10", "90", "200"]})
    settings = DataSettings.model_validate(
        {"path": [root], "format": "metadata", "resolution": 64, "buckets": {"step": 8}, "workers": workers}
    )
    data_set = build(settings, index)
    rows = np.arange(3, dtype=np.int32)
    with open_loader(data_set, rows, settings, accumulation=1, seed=0, start_step=0, last_step=1) as loader:
        (batch,) = next(iter(loader)).batches
    assert batch.pixels is not None
    red = {c: round((float(p[0].mean()) + 1) * 127.5) for c, p in zip(batch.captions, batch.pixels, strict=True)}
    assert red == {"10": 10, "90": 90, "200": 200}


def test_second_start_decodes_and_writes_nothing(root: Path, index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(root / "data.parquet", {"image": images(1, 2), "text": ["a", "b"]})
    first = catalogue(root, index)
    monkeypatch.setattr(indexing, "make", None)
    assert catalogue(root, index).fingerprint == first.fingerprint


def test_edited_caption_keeps_the_extracted_images(root: Path, index: Path) -> None:
    write(root / "data.parquet", {"image": images(1, 2), "text": ["a", "b"]})
    first = catalogue(root, index)
    times = {path: path.stat().st_mtime_ns for path in index.glob("*/images/*/*")}
    write(root / "data.parquet", {"image": images(1, 2), "text": ["a", "c"]})
    second = catalogue(root, index)
    assert (second.captions(1), second.report.decoded) == (("c",), 0)
    assert second.fingerprint != first.fingerprint
    assert {path: path.stat().st_mtime_ns for path in index.glob("*/images/*/*")} == times


@pytest.mark.parametrize("damage", ["removed", "changed", "all removed"])
def test_lost_or_changed_images_are_extracted_again(root: Path, index: Path, damage: str) -> None:
    write(root / "data.parquet", {"image": images(1, 2), "text": ["a", "b"]})
    first = catalogue(root, index)
    path = first.path(1)
    match damage:
        case "removed":
            path.unlink()
        case "changed":
            path.write_bytes(b"\0" * path.stat().st_size)
        case _:
            for place in (first.path(0), path):
                place.unlink()
    again = catalogue(root, index)
    assert again.fingerprint == first.fingerprint
    assert all(again.verify(i) for i in range(2))


def test_unreferenced_images_are_removed(root: Path, index: Path) -> None:
    for number in range(7):
        write(root / "data.parquet", {"image": images(number, 100), "text": ["a", str(number)]})
        data_set = catalogue(root, index)
    assert len(data_set) == 2
    assert 5 <= len(kept(index)) <= 6  # of four or five indexes, and the shared image
    assert data_set.digest[0].tobytes().hex() in kept(index)


def test_images_are_synced_before_the_index(root: Path, index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(root / "data.parquet", {"image": images(1, 2), "text": ["a", "b"]})
    synced: list[str] = []
    monkeypatch.setattr(durable, "sync_file", lambda path: synced.append(path.name))
    monkeypatch.setattr(durable, "sync_folder", lambda path: synced.append(path.name))
    data_set = catalogue(root, index)
    names = [data_set.digest[i].tobytes().hex() for i in range(2)]
    at_index = synced.index("manifest.json")
    assert {*names, *(name[:2] for name in names), "images"} <= set(synced[:at_index])


def test_full_disk_is_reported(root: Path, index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(root / "data.parquet", {"image": images(1), "text": ["a"]})

    def full(path: Path, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with refused("E1720", "No space left on device"):
        catalogue(root, index)
