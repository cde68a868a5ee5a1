"""The row store of a cache: rows are returned unchanged, damaged ones are not, several processes may write."""

from __future__ import annotations

import errno
import os
import pickle
import random
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mezzotint.data.cache import store as cache
from mezzotint.data.cache.store import Store
from mezzotint.errors import CacheError, StorageError
from support.messages import refused
from support.stores import SHAPE, addresses, file_of, filled, flip, open_store, rows


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
def test_rows_are_returned_in_the_requested_order(tmp_path: Path, dtype: cache.Dtype) -> None:
    store = open_store(tmp_path, dtype)
    for start in range(0, 30, 7):
        store.append(addresses(range(start, start + 7)), rows(range(start, start + 7)))
    for reader in (store, open_store(tmp_path, dtype)):
        numbers = [3, 33, 17, 0, 17]
        entries = reader.find(addresses(numbers))
        assert (entries >= 0).all()
        assert torch.equal(reader.read(entries), rows(numbers).to(cache.DTYPES[dtype]))
        out = torch.empty((5, *SHAPE), dtype=cache.DTYPES[dtype])
        assert reader.read(entries, out) is out
        assert torch.equal(out, rows(numbers).to(cache.DTYPES[dtype]))


@settings(max_examples=12, deadline=None)
@given(st.lists(st.lists(st.integers(0, 40), max_size=12), max_size=6), st.lists(st.integers(0, 60), max_size=20))
def test_exactly_the_appended_entries_are_found(appended: list[list[int]], looked_up: list[int]) -> None:
    with tempfile.TemporaryDirectory() as name:
        store, known = open_store(Path(name)), set[int]()
        for numbers in filter(None, appended):
            added = store.append(addresses(numbers), rows(numbers))
            assert added == len(set(numbers) - known)
            known.update(numbers)
        for reader in (store, open_store(Path(name))):
            entries = reader.find(addresses(looked_up) if looked_up else np.zeros((0, 32), np.uint8))
            assert [entry >= 0 for entry in entries.tolist()] == [n in known for n in looked_up]
            if known and (entries >= 0).any():
                there = [n for n in looked_up if n in known]
                assert torch.equal(reader.read(entries[entries >= 0]), rows(there))
        assert len(open_store(Path(name))) == len(known)
        store.close_writer()


def test_absent_entries_are_minus_one(tmp_path: Path) -> None:
    store = open_store(tmp_path / "nothing" / "here")
    assert store.find(addresses(range(4))).tolist() == [-1] * 4
    assert not (tmp_path / "nothing").exists()
    assert filled(tmp_path, range(3)).find(addresses([7])).tolist() == [-1]


def test_addresses_with_a_common_prefix_are_distinguished(tmp_path: Path) -> None:
    near = addresses(range(5)).copy()
    near[:, :31] = near[0, :31]  # they differ only in the last byte
    near[:, 31] = range(5)
    store = open_store(tmp_path)
    store.append(near[:4], rows(range(4)))
    reader = open_store(tmp_path)
    assert torch.equal(reader.read(reader.find(near[[2, 0, 3, 1]])), rows([2, 0, 3, 1]))
    assert reader.find(near[4:]).tolist() == [-1]


def test_non_finite_values_are_refused_by_name(tmp_path: Path) -> None:
    store, values = open_store(tmp_path, "fp16"), rows(range(3))
    values[1, 2, 0] = float("nan")
    values[2, 0, 0] = 1e6  # not finite in fp16
    with refused("E1304", r"b\.png, c\.png: .*non-finite numbers in float16"):
        store.append(addresses(range(3)), values, names=["a.png", "b.png", "c.png"])
    assert len(open_store(tmp_path, "fp16")) == 0


def test_any_flipped_bit_invalidates_only_its_row(tmp_path: Path) -> None:
    for trial in range(12):
        store = filled(tmp_path / str(trial), range(5))
        chosen = random.Random(trial).randrange(5)
        flip(file_of(store, ".rows"), chosen * store.row_bytes + trial * 4, trial % 8)
        reader = open_store(tmp_path / str(trial))
        entries = reader.find(addresses(range(5)))
        assert reader.verify(entries).tolist() == [n != chosen for n in range(5)]
        with refused("E1303", "damaged"):
            reader.read(entries)


def test_two_flipped_bits_do_not_cancel_each_other(tmp_path: Path) -> None:
    for first, second in [(7, 15), (0, 8), (3, 43)]:
        store = filled(tmp_path / str(first), [0])
        assert store.verify(np.array([0])).all()
        flip(file_of(store, ".rows"), first, 7)
        flip(file_of(store, ".rows"), second, 7)
        assert not open_store(tmp_path / str(first)).verify(np.array([0])).any()


def test_checksum_covers_the_last_byte_of_any_row_length(tmp_path: Path) -> None:
    for length in (1, 3, 5):
        store = Store(tmp_path / str(length), shape=(length,), dtype="fp16")
        values = torch.arange(4 * length, dtype=torch.float32).reshape(4, length)
        store.append(addresses(range(4)), values)
        reader = Store(tmp_path / str(length), shape=(length,), dtype="fp16")
        assert torch.equal(reader.read(reader.find(addresses(range(4)))), values.half())
        flip(file_of(store, ".rows"), 4 * 2 * length - 1)
        reader = Store(tmp_path / str(length), shape=(length,), dtype="fp16")
        assert reader.verify(reader.find(addresses(range(4)))).tolist() == [True, True, True, False]


def test_damaged_entry_is_absent_until_it_is_written_again(tmp_path: Path) -> None:
    first = filled(tmp_path, range(4))
    flip(file_of(first, ".rows"), 2 * first.row_bytes + 5)
    reader = open_store(tmp_path)
    reader.verify(reader.find(addresses(range(4))))
    assert reader.find(addresses(range(4))).tolist()[2] == -1
    assert reader.is_damaged(addresses(range(4))).tolist() == [False, False, True, False]
    later = open_store(tmp_path)
    assert [e >= 0 for e in later.find(addresses(range(4))).tolist()] == [True, True, False, True]
    assert later.append(addresses(range(4)), rows(range(4))) == 1
    for store in (later, open_store(tmp_path)):
        assert torch.equal(store.read(store.find(addresses(range(4)))), rows(range(4)))
        assert not store.is_damaged(addresses(range(4))).any()


def test_swapped_rows_are_detected(tmp_path: Path) -> None:
    store = filled(tmp_path, range(3))
    path, n = file_of(store, ".rows"), store.row_bytes
    data = path.read_bytes()
    path.write_bytes(data[n : 2 * n] + data[:n] + data[2 * n :])
    reader = open_store(tmp_path)
    assert reader.verify(reader.find(addresses(range(3)))).tolist() == [False, False, True]


def test_moved_folder_can_be_read(tmp_path: Path) -> None:
    filled(tmp_path / "old", range(3)).close_writer()
    (tmp_path / "old").rename(tmp_path / "new")
    store = open_store(tmp_path / "new")
    assert torch.equal(store.read(store.find(addresses(range(3)))), rows(range(3)))


def test_refresh_finds_rows_of_another_writer(tmp_path: Path) -> None:
    writer, reader = open_store(tmp_path), open_store(tmp_path)
    writer.append(addresses([0]), rows([0]))
    assert reader.find(addresses([0])).tolist() == [-1]
    reader.refresh()
    assert torch.equal(reader.read(reader.find(addresses([0]))), rows([0]))
    writer.append(addresses([1]), rows([1]))  # the memory map must grow
    reader.refresh()
    assert torch.equal(reader.read(reader.find(addresses([1, 0]))), rows([1, 0]))


def test_store_can_be_pickled(tmp_path: Path) -> None:
    store = filled(tmp_path, range(3))
    copy = pickle.loads(pickle.dumps(store))  # as torch does with the data set of a worker
    assert torch.equal(copy.read(copy.find(addresses(range(3)))), rows(range(3)))


@pytest.mark.parametrize(("number", "kind", "code"), [
    (errno.ENOSPC, StorageError, "E1708"), (errno.EROFS, CacheError, "E1301"), (errno.EACCES, CacheError, "E1301"),
])  # fmt: skip
def test_folder_that_cannot_be_written_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[Exception], code: str
) -> None:
    store = filled(tmp_path, [0])
    working = os.pwrite

    def refuse(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "pwrite", refuse)
    with pytest.raises(kind, match=r"data\.cache\.path") as caught:
        store.append(addresses([1]), rows([1]))
    assert getattr(caught.value, "code", "") == code
    assert str(store.folder) in str(caught.value)
    monkeypatch.setattr(os, "pwrite", working)
    assert store.append(addresses([1]), rows([1])) == 1
    assert torch.equal(store.read(store.find(addresses([0, 1]))), rows([0, 1]))


def test_reading_allocates_nothing_per_known_entry(tmp_path: Path) -> None:
    """The index consists of arrays; looking up and reading a batch takes memory for the batch only."""
    count = 20_000
    many = np.random.Generator(np.random.Philox(key=1)).integers(0, 256, (count, 32), dtype=np.uint8)
    values = torch.arange(2.0 * count).view(count, 2)
    store = Store(tmp_path, shape=(2,), dtype="fp32")
    store.append(many, values)
    store.close_writer()
    before = sys.getallocatedblocks()
    reader = Store(tmp_path, shape=(2,), dtype="fp32")
    assert len(reader) == count
    assert torch.equal(reader.read(reader.find(many)), values)
    assert sys.getallocatedblocks() - before < count / 10
