"""A store of many entries is opened by its stored order: nothing is read or sorted, and the same entries are found."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mezzotint import outside
from mezzotint.data.cache import store as stores
from mezzotint.data.cache._order import folder_of
from mezzotint.data.cache._order import read as read_order
from mezzotint.data.cache.store import Store
from support.stores import addresses, file_of, filled, flip, open_store, rows


@pytest.fixture(autouse=True)
def few_are_worth_ordering(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "MIN_UNORDERED", 4)


def in_order(folder: Path, count: int = 40) -> Store:
    """A store that was opened by its order."""
    filled(folder, range(count)).close_writer()
    open_store(folder)
    return open_store(folder)


def test_reopening_an_ordered_store_reads_no_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(tmp_path, range(40)).close_writer()
    open_store(tmp_path)
    read: list[Path] = []
    open_plain = outside.open_plain

    def watched(path: Path, **options: Any) -> Any:
        read.append(path)
        return open_plain(path, **options)

    monkeypatch.setattr(outside, "open_plain", watched)
    store = open_store(tmp_path)
    assert not [path for path in read if path.suffix == ".index"]
    assert len(store) == len(read_order(store.folder, store.row_bytes)) == 40
    numbers = [39, 3, 17, 3]
    assert torch.equal(store.read(store.find(addresses(numbers))), rows(numbers))
    assert (store.find(addresses([40, 41])) == -1).all()


@settings(max_examples=8, deadline=None)
@given(st.lists(st.lists(st.integers(0, 40), min_size=1, max_size=12), max_size=6))
def test_entries_added_after_ordering_are_found(appended: list[list[int]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        known = set[int]()
        for numbers in appended:  # each writer opens the order of the previous one
            store = open_store(Path(name))
            assert store.append(addresses(numbers), rows(numbers)) == len(set(numbers) - known)
            known.update(numbers)
            assert [entry >= 0 for entry in store.find(addresses(range(42)))] == [n in known for n in range(42)]
            store.close_writer()
            store.put_in_order()
        reader = open_store(Path(name))
        assert len(reader) == len(known)
        if known:
            there = sorted(known)
            assert torch.equal(reader.read(reader.find(addresses(there))), rows(there))


def test_unsynced_rows_are_not_ordered(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.append(addresses(range(10)), rows(range(10)), at_once=False)
    store.put_in_order()
    assert not folder_of(store.folder).exists()
    store.close_writer()
    store.put_in_order()
    assert len(read_order(store.folder, store.row_bytes)) == 10


@pytest.mark.parametrize("what", ["index", "rows", "gone", "order", "text"])
def test_order_that_does_not_match_the_shards_is_ignored(tmp_path: Path, what: str) -> None:
    store = in_order(tmp_path)
    file = file_of(store, "rows" if what == "rows" else "index")
    if what == "gone":
        for path in store.folder.glob("*"):
            path.unlink()
    elif what == "order":
        (folder_of(store.folder) / "entries.npy").write_bytes(b"short")
    elif what == "text":
        (folder_of(store.folder) / "manifest.json").write_text('{"version": 1}')
    else:
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    assert len(read_order(store.folder, store.row_bytes)) == 0
    reader = open_store(tmp_path)
    left = {"index": 20, "rows": 20, "gone": 0}.get(what, 40)
    assert (reader.find(addresses(range(40))) >= 0).sum() == left


def test_damaged_order_is_ignored_and_rewritten(tmp_path: Path) -> None:
    store = in_order(tmp_path)
    file = folder_of(store.folder) / "entries.npy"
    for at in range(128, file.stat().st_size, 111):
        entries = np.load(file)
        flip(file, at, at % 8)
        reader = open_store(tmp_path)  # writes it again
        assert torch.equal(reader.read(reader.find(addresses(range(40)))), rows(range(40)))
        assert (np.load(file) == entries).all()


def test_damaged_rows_count_as_absent(tmp_path: Path) -> None:
    store = in_order(tmp_path)
    flip(file_of(store, "rows"), 5 * store.row_bytes)
    reader = open_store(tmp_path)
    absent = np.flatnonzero(reader.find_valid(addresses(range(40))) < 0).tolist()
    assert len(absent) == 1
    other = open_store(tmp_path)
    assert np.flatnonzero(other.find(addresses(range(40))) < 0).tolist() == absent, "all processes count it as absent"
    assert other.is_damaged(addresses(range(40))).tolist() == [n in absent for n in range(40)]


def test_order_is_rewritten_after_many_additions(tmp_path: Path) -> None:
    store = in_order(tmp_path)
    place = folder_of(store.folder)
    before = json.loads((place / "manifest.json").read_text())
    store.append(addresses(range(40, 43)), rows(range(40, 43)))
    store.close_writer()
    open_store(tmp_path)
    assert json.loads((place / "manifest.json").read_text()) == before, "three of forty are looked up in the indexes"
    store.append(addresses(range(43, 60)), rows(range(43, 60)))
    store.close_writer()
    assert len(read_order(store.folder, store.row_bytes)) == 40
    open_store(tmp_path)
    assert len(read_order(store.folder, store.row_bytes)) == 60
    assert sorted(path.name for path in place.parent.iterdir()) == [place.name, f"{place.name}.lock"]
    assert torch.equal(store.read(store.find(addresses([0, 59]))), rows([0, 59])), "the previous order"
