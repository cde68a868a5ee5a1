"""A cache on object storage: uploaded from one machine, read row by row on another."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
import torch

from mezzotint import outside
from mezzotint.cli import main
from mezzotint.data.cache import carried
from mezzotint.data.cache.store import Store
from mezzotint.data.files import remote
from support.messages import refused
from support.s3_server import S3Server, waits_between_tries
from support.stores import addresses, file_of, filled, flip, open_store, rows

ADDRESS = Path("memory://box/cache")
FOLDER = "latents/0123456789abcdef"


class Machine:
    """A machine: a separate home folder."""

    def __init__(self, home: Path, patch: pytest.MonkeyPatch) -> None:
        self.home, self._patch = home, patch

    def __enter__(self) -> Path:
        self._patch.setenv("HOME", str(self.home))
        return carried.local_folder(ADDRESS)

    def __exit__(self, *_: object) -> None:
        self._patch.undo()


@pytest.fixture
def machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Machine, Machine]]:
    system = fsspec.filesystem("memory")
    system.store.clear()
    yield Machine(tmp_path / "one", monkeypatch), Machine(tmp_path / "two", monkeypatch)
    system.store.clear()


def storage() -> Any:
    return fsspec.filesystem("memory")


def read(store: Store, numbers: list[int]) -> Any:
    return store.fetch(addresses(numbers))


def test_rows_are_fetched_on_another_machine_when_needed(machines: Any) -> None:
    one, two = machines
    with one as folder:
        filled(folder / FOLDER, range(4)).close_writer()
        assert (carried.upload_files(ADDRESS), carried.upload_files(ADDRESS)) == (2, 0), "rows and their index, once"
    with two as folder:
        assert (carried.download_indexes(ADDRESS, keep_gb=1), carried.download_indexes(ADDRESS, keep_gb=1)) == (2, 0)
        store = open_store(folder / FOLDER)
        assert store.has(addresses(range(5)), checks=True).tolist() == [True] * 4 + [False]
        kept = folder / "catalogues" / "fetched"
        assert not list(kept.glob("*/*")), "looking up rows fetches nothing"
        assert torch.equal(read(store, [2, 0]), rows([2, 0]))
        assert sorted(path.stat().st_size for path in kept.glob("*/*-*")) == [48, 48]
        storage().rm("/box/cache", recursive=True)
        assert torch.equal(read(open_store(folder / FOLDER), [0, 2]), rows([0, 2])), "rows are kept locally"
        with refused("E1841", "cannot be read"):
            read(store, [1])


@pytest.mark.slow
def test_cache_on_a_real_server_is_retried_when_overloaded(
    s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, waits = Path("s3://box/cache"), waits_between_tries(monkeypatch)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(tmp_path / "one"))
        store = filled(carried.local_folder(address) / FOLDER, range(4))
        store.close_writer()
        written = {file_of(store, ending).name: file_of(store, ending).read_bytes() for ending in (".rows", ".index")}
        place = f"/box/cache/{FOLDER}/{store.folder.name}"
        s3_server.overloaded.add(("PUT", f"{place}/{file_of(store, '.rows').name}"))
        assert (carried.upload_files(address), carried.upload_files(address)) == (2, 0), "rows and their index, once"
        there = fsspec.filesystem("s3").find("box/cache")
        assert {name.rpartition("/")[2]: fsspec.filesystem("s3").cat_file(name) for name in there} == written
        patch.setenv("HOME", str(tmp_path / "two"))
        folder = carried.local_folder(address)
        assert (carried.download_indexes(address, keep_gb=1), carried.download_indexes(address, keep_gb=1)) == (2, 0)
        assert not list(folder.rglob("*.rows")), "rows are stored only on the server"
        s3_server.overloaded.add(("GET", f"{place}/{file_of(store, '.rows').name}"))
        assert torch.equal(read(open_store(folder / FOLDER), [2, 0]), rows([2, 0]))
    assert not s3_server.overloaded
    assert waits == [remote.WAITS[0]] * 2


def test_machines_write_separate_shards_and_upload_grown_ones(machines: Any) -> None:
    one, two = machines
    with one as folder:
        filled(folder / FOLDER, range(2)).close_writer()
        carried.upload_files(ADDRESS)
    with two as folder:
        carried.download_indexes(ADDRESS, keep_gb=1)
        store = open_store(folder / FOLDER)
        assert store.append(addresses(range(4)), rows(range(4))) == 2, "rows of the other machine exist already"
        assert torch.equal(read(store, [0, 3, 1]), rows([0, 3, 1]))
        store.append(addresses([9]), rows([9]))
        store.close_writer()
        assert carried.upload_files(ADDRESS) == 2, "only its own shard"
    with one as folder:
        store = filled(folder / FOLDER, [7])
        store.close_writer()
        assert carried.download_indexes(ADDRESS, keep_gb=1) == 2
        assert carried.upload_files(ADDRESS) == 2, "a shard that has grown is uploaded again"
        store.refresh()
        assert torch.equal(read(store, [7, 9, 0, 2]), rows([7, 9, 0, 2]))
    assert len([name for name in storage().find("/box") if name.endswith(".rows")]) == 2


def test_row_damaged_on_the_storage_is_never_used(machines: Any) -> None:
    one, two = machines
    with one as folder:
        store = filled(folder / FOLDER, range(2))
        store.close_writer()
        flip(file_of(store, ".rows"), 50)
        carried.upload_files(ADDRESS)
    with two as folder:
        carried.download_indexes(ADDRESS, keep_gb=1)
        store = open_store(folder / FOLDER)
        assert torch.equal(read(store, [0]), rows([0]))
        with refused("E1845", r"memory://box/cache/latents/.*\.rows: row 1 is damaged on the storage"):
            read(store, [0, 1])
        (kept,) = (folder / "catalogues" / "fetched").glob("*/*-*")
        flip(kept, 3)
        assert torch.equal(read(store, [0]), rows([0])), "a damaged local copy is fetched again"


def test_address_that_cannot_be_written_is_reported(machines: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*_: object, **__: object) -> None:
        raise PermissionError("read-only bucket")

    with machines[0] as folder:
        filled(folder / FOLDER, range(2)).close_writer()
        monkeypatch.setattr(type(storage()), "put_file", denied)
        with refused("E1844", r"cannot be written \(read-only bucket\)"):
            carried.upload_files(ADDRESS)


@pytest.mark.slow
def test_run_trains_from_a_cache_filled_on_another_machine(
    machines: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["train", "tiny_cpu", "run.steps=1", "data.cache.latents=true", f"data.cache.path={ADDRESS}"]
    words += ["data.crop=center", "data.flip=0"]
    losses, printed = [], []
    for number, machine in enumerate(machines):
        folder = tmp_path / f"run{number}"
        with machine:
            assert main([*words, f"run.folder={folder}"]) == 0
        losses.append([line["loss"] for line in outside.read_lines(next(folder.rglob("metrics.jsonl")))])
        printed.append(capsys.readouterr().out)
    assert losses[0] == losses[1]
    assert ["nothing to add" in text for text in printed] == [False, True]
    assert not list((tmp_path / "two").rglob("*.rows")), "rows are stored only on the server"
