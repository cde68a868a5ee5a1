"""A complete cache is not searched again until something changes; searches are divided among processes."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mezzotint.tasks.cache import inventory
from support.cache_filling import Filled, data, filled, write_images


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_images(tmp_path / "images")
    return tmp_path


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of rows of each search."""
    counts: list[int] = []
    true = inventory.latent_entries

    def counted(catalogue: Any, rows: Any, *rest: Any) -> Any:
        counts.append(len(rows))
        return true(catalogue, rows, *rest)

    monkeypatch.setattr(inventory, "latent_entries", counted)
    return counts


def test_complete_cache_is_not_searched_again(root: Path, looks: list[int]) -> None:
    first = filled(root)
    again = filled(root)
    assert looks == [6]
    assert (again.summary.needed, again.summary.present, again.summary.bytes) == (13, 13, first.summary.bytes)
    assert again.summary.lines()[:-1] == first.summary.lines()[:-1]
    filled(root, data(root, batch_size=3, workers=1, shuffle=False))  # do not affect entries
    (root / "cache").rename(root / "elsewhere")
    filled(root, data(root, cache={"path": root / "elsewhere"}))
    assert looks == [6]


def test_complete_cache_is_not_written_to(root: Path) -> None:
    filled(root)
    files = [path for path in (root / "cache").rglob("*") if path.is_file()]
    before = {path: path.stat().st_mtime_ns for path in files}
    again = filled(root, verify_bytes=None)  # like `mezzotint cache`: every entry is read
    assert again.summary.new == 0
    assert {path: path.stat().st_mtime_ns for path in (root / "cache").rglob("*") if path.is_file()} == before


def _damage(root: Path) -> None:
    path = next((root / "cache" / "latents").rglob("*.rows"))
    with path.open("r+b") as file:
        file.write(b"\x01")


def _note_damage(root: Path) -> None:
    folder = next((root / "cache" / "latents").rglob("*.rows")).parent
    (folder / "damaged").write_bytes(bytes(24))


def _edit_caption(root: Path) -> None:
    (root / "images" / "2.txt").write_text("something else")


@pytest.mark.parametrize(
    "change",
    [
        _damage,
        _note_damage,
        _edit_caption,
        lambda root: next((root / "cache" / "text").rglob("*.index")).unlink(),
        lambda root: next((root / "cache" / "latents").rglob("layout.json")).unlink(),
        lambda root: os.utime(next((root / "cache" / "latents").rglob("*.rows"))),
    ],
)
def test_any_change_causes_a_new_search(root: Path, looks: list[int], change: Callable[[Path], None]) -> None:
    filled(root)
    change(root)
    filled(root)
    assert looks == [6, 6]
    assert filled(root).summary.new == 0


@pytest.mark.parametrize(
    "other",
    [
        {"vae": "another"},
        {"encoder": "another"},
        {"rows": np.arange(5, dtype=np.int32)},
        {"extra_captions": ["a preview"]},
        {"verify_bytes": None},  # like `mezzotint cache`
    ],
)
def test_record_of_completeness_is_for_the_same_entries_only(
    root: Path, looks: list[int], other: dict[str, Any]
) -> None:
    filled(root)
    filled(root, **other)
    assert len(looks) == 2


@pytest.mark.parametrize("change", [{"flip": 1.0}, {"cache": {"dtype": "fp16"}}, {"captions": {"dropout": 0.1}}])
def test_record_of_completeness_depends_on_entry_settings(root: Path, looks: list[int], change: dict[str, Any]) -> None:
    filled(root)
    filled(root, data(root, **change))
    assert len(looks) == 2


def test_entries_are_read_if_full_verification_is_requested(root: Path, looks: list[int]) -> None:
    filled(root)
    _damage(root)
    assert filled(root, verify_bytes=100).summary.new == 0
    assert filled(root, verify_bytes=100).summary.new == 0
    assert looks == [6, 6]
    assert filled(root).summary.new == 1


def test_search_is_divided_among_processes(root: Path, looks: list[int]) -> None:
    filled(root)
    parts: list[Filled] = [filled(root, rank=rank, world_size=2, verify_bytes=None) for rank in range(2)]
    assert sum(looks[1:]) == 6
    assert max(looks[1:]) < 6
    assert sum(part.summary.needed for part in parts) == 13


def test_first_process_shares_the_record_with_all(root: Path, looks: list[int]) -> None:
    said: list[str] = []
    filled(root, share=lambda text: said.append(text) or text)
    filled(root, share=lambda text: said.append(text) or text)
    assert said[0] == ""
    filled(root, rank=1, world_size=2, share=lambda text: said[-1])
    assert looks == [6]
