"""Shards of a store: truncated, continued, full, and written by several processes."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
from pathlib import Path

import numpy as np
import pytest
import torch

from mezzotint import fault_injection
from mezzotint.data.cache import shard_files
from mezzotint.data.cache.store import Store
from mezzotint.errors import StorageError
from support.stores import SHAPE, addresses, file_of, filled, flip, open_store, rows


def test_damaged_index_record_is_ignored(tmp_path: Path) -> None:
    for at in range(0, shard_files.RECORD.itemsize, 3):
        store = filled(tmp_path / str(at), range(3))
        flip(file_of(store, ".index"), shard_files.RECORD.itemsize + at, at % 8)
        entries = open_store(tmp_path / str(at)).find(addresses(range(3)))
        assert [entry >= 0 for entry in entries.tolist()] == [True, False, True], at


def test_truncated_rows_and_index_lose_only_the_missing_entries(tmp_path: Path) -> None:
    store = filled(tmp_path / "whole", range(4))
    rows_data, index_data = file_of(store, ".rows").read_bytes(), file_of(store, ".index").read_bytes()
    name = file_of(store, ".rows").stem
    size = shard_files.RECORD.itemsize
    for cut_rows, cut_index in [(0, 0), (0, 1), (0, size), (0, size + 5), (1, 0), (50, 3), (len(rows_data), 0)]:
        folder = tmp_path / f"{cut_rows}-{cut_index}" / store.folder.name
        folder.mkdir(parents=True)
        (folder / f"{name}.rows").write_bytes(rows_data[: len(rows_data) - cut_rows])
        (folder / f"{name}.index").write_bytes(index_data[: len(index_data) - cut_index])
        reader = open_store(folder.parent)
        left = min((len(rows_data) - cut_rows) // store.row_bytes, (len(index_data) - cut_index) // size)
        entries = reader.find(addresses(range(4)))
        assert [entry >= 0 for entry in entries.tolist()] == [n < left for n in range(4)]
        assert reader.append(addresses(range(4)), rows(range(4))) == 4 - left
        again = open_store(folder.parent)
        assert torch.equal(again.read(again.find_valid(addresses(range(4)))), rows(range(4)))


def test_entries_without_rows_file_are_absent(tmp_path: Path) -> None:
    store = filled(tmp_path, range(3))
    file_of(store, ".rows").unlink()
    assert (open_store(tmp_path).find(addresses(range(3))) == -1).all()


def test_full_shard_is_followed_by_another(tmp_path: Path) -> None:
    store = Store(tmp_path, shape=SHAPE, dtype="fp32", shard_bytes=100)
    for n in range(0, 12, 2):
        store.append(addresses([n, n + 1]), rows([n, n + 1]))
    assert len(list(store.folder.glob("*.rows"))) == 3  # 48 bytes a row: full with the second append
    reader = open_store(tmp_path)
    assert torch.equal(reader.read(reader.find(addresses(range(12)))), rows(range(12)))


def test_shard_is_continued_after_its_writer_closed(tmp_path: Path) -> None:
    first, second = filled(tmp_path, [0]), open_store(tmp_path)
    second.append(addresses([1]), rows([1]))
    assert len(list(first.folder.glob("*.rows"))) == 2  # the first still holds its lock
    first.close_writer()
    second.close_writer()
    for n in range(2, 5):
        filled(tmp_path, [n]).close_writer()
    assert len(list(first.folder.glob("*.rows"))) == 2
    first.refresh()
    assert torch.equal(first.read(first.find(addresses(range(5)))), rows(range(5)))


def test_full_disk_before_the_index_is_written_leaves_no_entry(tmp_path: Path) -> None:
    store = filled(tmp_path, [0])
    fault_injection.arm("cache.append@1:enospc")
    try:
        with pytest.raises(StorageError):
            store.append(addresses([1]), rows([1]))
    finally:
        fault_injection.arm("")
    assert open_store(tmp_path).find(addresses([0, 1])).tolist()[1] == -1
    assert store.append(addresses([2]), rows([2])) == 1
    assert torch.equal(store.read(store.find(addresses([2, 0]))), rows([2, 0]))


def _append_until_killed(folder: Path, fault: str) -> None:
    fault_injection.arm(fault)
    _append_all(folder, list(range(8)))


def _append_all(folder: Path, order: list[int]) -> None:
    torch.set_num_threads(1)
    store = open_store(folder)
    for n in order:
        store.append(addresses([n]), rows([n]))


@pytest.mark.faults
@pytest.mark.parametrize(("fault", "left"), [("cache.append@4:kill", 3), ("cache.commit@4:kill", 4)])
def test_entries_committed_before_a_kill_are_kept(tmp_path: Path, fault: str, left: int) -> None:
    writer = multiprocessing.get_context("fork").Process(target=_append_until_killed, args=(tmp_path, fault))
    writer.start()
    writer.join(60)
    assert writer.exitcode == -signal.SIGKILL
    store = open_store(tmp_path)
    entries = store.find(addresses(range(8)))
    assert [entry >= 0 for entry in entries.tolist()] == [n < left for n in range(8)]
    assert torch.equal(store.read(entries[:left]), rows(range(left)))
    assert store.append(addresses(range(8)), rows(range(8))) == 8 - left
    assert len(list(store.folder.glob("*.rows"))) == 1  # the shard of the killed writer is continued
    again = open_store(tmp_path)
    assert torch.equal(again.read(again.find(addresses(range(8)))), rows(range(8)))


@pytest.mark.distributed
def test_concurrent_writers_make_a_complete_store(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    orders = [random.Random(i).sample(range(30), 30) for i in range(3)]
    writers = [context.Process(target=_append_all, args=(tmp_path, order)) for order in orders]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    assert [writer.exitcode for writer in writers] == [0, 0, 0]
    store = open_store(tmp_path)
    assert store.verify(np.arange(len(store))).all()
    assert torch.equal(store.read(store.find(addresses(range(30)))), rows(range(30)))


def test_rows_are_synced_every_few_bytes_and_when_the_writer_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs: list[int] = []
    monkeypatch.setattr(os, "fsync", syncs.append)
    store = open_store(tmp_path)
    monkeypatch.setattr(shard_files, "SYNC_BYTES", 4 * store.row_bytes)
    syncs_after = []
    for n in range(6):
        store.append(addresses([n]), rows([n]), at_once=False)
        syncs_after.append(len(syncs) // 2)  # one of the rows and one of the index
        assert store.has(addresses([n]), checks=True).all()
    first = syncs_after[0]  # the folder of a new shard
    assert [count - first for count in syncs_after] == [0, 0, 0, 1, 1, 1]
    assert open_store(tmp_path).has(addresses(range(6)), checks=True).tolist() == [True] * 4 + [False] * 2
    store.close_writer()
    assert open_store(tmp_path).has(addresses(range(6)), checks=True).all()
