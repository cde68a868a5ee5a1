"""The loader: the same stream for any number of ranks, workers and micro-batches, from any step on."""

from __future__ import annotations

import contextlib
import fcntl
import gc
import multiprocessing
import os
import pickle
import signal
import time
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from loading import open_loader
from PIL import Image

from mezzotint.data.buckets import buckets
from mezzotint.data.cache.entries import LatentCache, LatentLayout, TextCache
from mezzotint.data.cache.store import as_addresses
from mezzotint.data.cache.text_rows import layout_of
from mezzotint.data.catalogue import catalogue as catalogues
from mezzotint.data.catalogue.catalogue import Catalogue
from mezzotint.data.loading import reading
from mezzotint.data.loading import worker as worker_module
from mezzotint.data.loading.loader import held_out
from mezzotint.data.schedule import placement, plan
from mezzotint.errors import CacheError, DatasetError, PeerLost
from mezzotint.recipe.sections.data import DataSettings
from mezzotint.stages import Batch, StepBatches, TextEmbedding

SIZES = [(40, 40), (64, 32), (30, 50), (45, 33), (32, 64), (80, 40), (37, 37), (33, 60), (50, 36)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Nine pictures of several shapes with three-line captions."""
    folder = tmp_path_factory.mktemp("pictures")
    for i, (width, height) in enumerate(SIZES):
        rng = np.random.Generator(np.random.Philox(key=i))
        Image.fromarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8)).save(folder / f"{i}.png")
        (folder / f"{i}.txt").write_text(f"picture {i}\nnumber {i}\n{i} it is\n")
    return folder


def data(folder: Path, **changes: object) -> DataSettings:
    given = {
        "path": [folder], "resolution": 32, "buckets": {"step": 8}, "batch_size": 4, "crop": "random", "flip": 0.5,
        "captions": {"lines": "choose", "dropout": 0.3}, "workers": 0, "repeats": 1.5,
    }  # fmt: skip
    return DataSettings.model_validate(given | changes)


@pytest.fixture(scope="module")
def catalogue(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Catalogue:
    return catalogues.build(data(folder), tmp_path_factory.mktemp("index"), workers=1)


def rows_of(catalogue: Catalogue) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    return np.arange(len(catalogue), dtype=np.int32)


def steps(catalogue: Catalogue, settings: DataSettings, first: int, last: int, **changes: object) -> list[StepBatches]:
    arguments = {"accumulation": 2, "seed": 7} | changes
    with open_loader(catalogue, rows_of(catalogue), settings, start_step=first, last_step=last, **arguments) as loader:  # type: ignore[arg-type]
        return list(loader)


@dataclass(frozen=True)
class Seen:
    """Everything a step says of one sample."""

    step: int
    position: int
    epoch: int
    count: int
    key: str
    caption: str
    posterior: int
    geometry: tuple[int, ...]
    weight: float
    pixels: bytes


def seen(step: StepBatches) -> Iterator[Seen]:
    for batch in step.batches:
        for i in range(batch.size):
            geometry = torch.cat([batch.original_size[i], batch.crop_top_left[i], batch.target_size[i]])
            numbers = batch.pixels if batch.pixels is not None else batch.moments
            assert numbers is not None
            yield Seen(
                step.step, int(batch.positions[i]), step.epoch, step.count, batch.keys[i], batch.captions[i],
                int(batch.posterior_keys[i]), tuple(geometry.tolist()), float(batch.weight[i]),
                numbers[i].numpy().tobytes(),
            )  # fmt: skip


def stream(of_ranks: Sequence[list[StepBatches]]) -> list[Seen]:
    """The whole stream, ranks put together, in order of step and position."""
    found = [one for of_rank in of_ranks for step in of_rank for one in seen(step)]
    return sorted(found, key=lambda one: (one.step, one.position))


def test_ranks_workers_and_splits_do_not_change_the_stream(catalogue: Catalogue, folder: Path) -> None:
    whole = stream([steps(catalogue, data(folder), 0, 9)])
    assert {one.step for one in whole} == set(range(9))
    assert len({one.epoch for one in whole}) > 2
    for world_size, micro_batch, workers in [(1, 1, 0), (2, None, 0), (3, 2, 0), (1, 3, 2), (2, 1, 2), (5, 1, 0)]:
        settings = data(folder, workers=workers, prefetch=2)
        of_ranks = [
            steps(catalogue, settings, 0, 9, rank=rank, world_size=world_size, micro_batch=micro_batch)
            for rank in range(world_size)
        ]
        assert stream(of_ranks) == whole, (world_size, micro_batch, workers)
        for at_once in zip(*of_ranks, strict=True):  # gradients are exchanged once for each micro-batch
            assert len({len(step.sizes) for step in at_once}) == 1
            for pieces in zip(*(step.batches for step in at_once), strict=True):
                assert len({piece.target_size[0].tolist().__str__() for piece in pieces if piece.size}) <= 1
                assert all(piece.size <= (micro_batch or 4) for piece in pieces)


def test_positions_number_the_step_and_the_count_is_the_plans(catalogue: Catalogue, folder: Path) -> None:
    for step in steps(catalogue, data(folder), 0, 8):
        positions = [int(p) for batch in step.batches for p in batch.positions]
        assert positions == list(range(step.count))
        assert step.wait_seconds > 0


@pytest.mark.parametrize("workers", [0, 2])
def test_from_any_step_on_the_rest_is_the_same(catalogue: Catalogue, folder: Path, workers: int) -> None:
    whole = stream([steps(catalogue, data(folder), 0, 10)])
    for first in (0, 1, 4, 9) if workers else range(11):
        rest = stream([steps(catalogue, data(folder, workers=workers), first, 10)])
        assert rest == [one for one in whole if one.step >= first]


def test_with_whole_repeats_an_epoch_loses_and_repeats_nothing(folder: Path, tmp_path: Path) -> None:
    plain = data(folder, repeats=1)
    catalogue = catalogues.build(plain, tmp_path, workers=1)
    found = stream([steps(catalogue, plain, 0, 40, accumulation=1)])
    by_epoch = [sorted(one.key for one in found if one.epoch == epoch) for epoch in range(found[-1].epoch)]
    assert len(by_epoch) > 3
    assert all(keys == sorted(catalogue.key(row) for row in range(len(catalogue))) for keys in by_epoch)
    orders = [[one.key for one in found if one.epoch == epoch] for epoch in range(3)]
    assert orders[0] != orders[1] != orders[2]


class _NoPictures:
    """Answers requests without opening files, for properties of the layout alone."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def blank(_catalogue: object, _row: int, placed: object, _settings: object) -> object:
            bucket = placed.bucket  # type: ignore[attr-defined]
            return np.zeros((3, bucket.height, bucket.width), dtype=np.uint8)

        monkeypatch.setattr(reading, "read_picture", blank)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Catalogue:
    folder = tmp_path_factory.mktemp("large")
    for i in range(60):
        Image.new("RGB", (16, 16 if i % 3 else 24), (i, i, i)).save(folder / f"{i:02}.png")
        (folder / f"{i:02}.txt").write_text(f"{i}")
    settings = data(folder, resolution=16, batch_size=24)
    return catalogues.build(settings, tmp_path_factory.mktemp("index"), workers=1)


@settings(max_examples=40, deadline=None)
@given(
    world_size=st.sampled_from([1, 2, 3, 4, 6, 8, 12, 24]),
    micro_batch=st.sampled_from([None, 1, 2, 3, 4, 6, 8, 12, 24]),
    first=st.integers(0, 9),
    seed=st.integers(0, 2**63 - 1),
    remainder=st.sampled_from(["short", "fill", "drop"]),
)
def test_any_layout_of_a_batch_of_24_gives_one_stream(
    large: Catalogue, world_size: int, micro_batch: int | None, first: int, seed: int, remainder: str
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        _NoPictures(patch)
        plain = data(Path(), resolution=16, batch_size=24, repeats=1, remainder=remainder)
        whole = stream([steps(large, plain, 0, 10, accumulation=1, seed=seed)])
        layout = {"world_size": world_size, "micro_batch": micro_batch, "accumulation": 1, "seed": seed}
        parts = [steps(large, plain, first, 10, rank=rank, **layout) for rank in range(world_size)]
        assert stream(parts) == [one for one in whole if one.step >= first]


def test_pixels_travel_as_bytes_and_arrive_in_minus_one_to_one(catalogue: Catalogue, folder: Path) -> None:
    loader = open_loader(catalogue, rows_of(catalogue), data(folder), accumulation=1, seed=1, start_step=0, last_step=1)
    piece = loader._worker[next(loader.requests())]
    assert isinstance(piece, worker_module.HostBatch)
    assert piece.pixels is not None
    assert piece.pixels.dtype == torch.uint8
    batch = worker_module.to_batch(piece, torch.device("cpu"))
    assert batch.pixels is not None
    assert batch.pixels.dtype == torch.float32
    assert torch.equal(batch.pixels, piece.pixels.float() / 127.5 - 1)
    assert batch.pixels.min() >= -1
    assert batch.pixels.max() <= 1


def test_the_global_random_stream_is_left_alone(catalogue: Catalogue, folder: Path) -> None:
    torch.manual_seed(3)
    before = torch.random.get_rng_state()
    steps(catalogue, data(folder, workers=1), 0, 2)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_weights_follow_the_sample(catalogue: Catalogue, folder: Path) -> None:
    heavy = replace(catalogue, weight=np.arange(len(catalogue), dtype=np.float32))
    for one in stream([steps(heavy, data(folder), 0, 4)]):
        assert one.weight == [heavy.key(row) for row in range(len(heavy))].index(one.key)


@pytest.mark.faults
@pytest.mark.parametrize("waits_for_its_end", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_worker_that_is_killed_is_named(catalogue: Catalogue, folder: Path, waits_for_its_end: bool) -> None:
    settings = data(folder, workers=2, prefetch=1)
    before = signal.getsignal(signal.SIGCHLD)
    loader = open_loader(
        catalogue, rows_of(catalogue), settings, accumulation=1, seed=1, start_step=0, last_step=10_000
    )  # fmt: skip
    batches = iter(loader)
    next(batches)
    assert signal.getsignal(signal.SIGCHLD) == before  # nothing interrupts the training from outside
    victim = loader.processes[0]
    os.kill(victim.pid, signal.SIGKILL)
    if waits_for_its_end:
        victim.join()
    with pytest.raises(PeerLost, match=rf"process {victim.pid}\) was killed by SIGKILL") as caught:
        for _ in batches:
            pass
    assert caught.value.code == "E1810"
    assert caught.value.exit_status == 6
    workers = loader.processes
    loader.close()
    assert not any(worker.is_alive() for worker in workers)


@pytest.mark.faults
def test_workers_leave_interrupts_to_the_parent(catalogue: Catalogue, folder: Path) -> None:
    with open_loader(
        catalogue, rows_of(catalogue), data(folder, workers=2), accumulation=1, seed=1, start_step=0, last_step=60
    ) as loader:  # fmt: skip
        batches = iter(loader)
        next(batches)
        for worker in loader.processes:
            os.kill(worker.pid, signal.SIGINT)
            os.kill(worker.pid, signal.SIGTERM)
        assert len(list(batches)) == 59
        workers = loader.processes
    assert len(workers) == 2
    assert not any(worker.is_alive() for worker in workers)


def _hold_a_lock_and_load(catalogue: Catalogue, folder: Path, lock: Path, ready: Any) -> None:
    torch.set_num_threads(1)
    torch.utils.data._utils.worker.MP_STATUS_CHECK_INTERVAL = 600  # the library's own watch, of every five seconds
    with open(lock, "wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        settings = data(folder, workers=2)
        loader = open_loader(
            catalogue, rows_of(catalogue), settings, accumulation=1, seed=1, start_step=0, last_step=9999
        )
        next(iter(loader))
        ready.put([worker.pid for worker in loader.processes])
        time.sleep(60)


@pytest.mark.faults
def test_workers_end_with_a_killed_run_and_keep_no_lock(catalogue: Catalogue, folder: Path, tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    ready = context.SimpleQueue()
    run = context.Process(target=_hold_a_lock_and_load, args=(catalogue, folder, tmp_path / "lock", ready))
    run.start()
    workers = ready.get()
    with open(tmp_path / "lock", "rb") as file:
        with pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert run.pid is not None
        os.kill(run.pid, signal.SIGKILL)
        run.join()
        began = time.monotonic()
        while time.monotonic() - began < 300:  # far below when the library would look
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            time.sleep(0.01)
        else:
            pytest.fail("the workers of a run that was killed keep its lock")
    assert len(workers) == 2


def test_a_worker_that_was_not_forked_gets_the_same(catalogue: Catalogue, folder: Path, tmp_path: Path) -> None:
    settings = data(folder, cache={"latents": True, "text": True, "crops": 2})
    latents, text = _caches(catalogue, settings, tmp_path)
    loader = open_loader(
        catalogue, rows_of(catalogue), settings, accumulation=1, seed=7, start_step=0, last_step=3,
        latents=latents, text=text,
    )  # fmt: skip
    copy = pickle.loads(pickle.dumps(loader._worker))  # as the library sends it
    for request in loader.requests():
        one = worker_module.to_batch(loader._worker[request], torch.device("cpu"))  # type: ignore[arg-type]
        other = worker_module.to_batch(copy[request], torch.device("cpu"))
        assert list(seen(StepBatches(0, 0, 0, (one,)))) == list(seen(StepBatches(0, 0, 0, (other,))))
        assert one.text is not None
        assert other.text is not None
        assert torch.equal(one.text.states, other.text.states)


def test_pinning_reaches_every_tensor_and_changes_none(
    catalogue: Catalogue, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stands in for a machine with a GPU: what is pinned there is copied here."""
    pinned: list[int] = []

    def pin(tensor: torch.Tensor) -> torch.Tensor:
        pinned.append(tensor.numel())
        return tensor.clone()

    monkeypatch.setattr(torch.Tensor, "pin_memory", pin)
    settings = data(folder, cache={"latents": True, "text": True})
    latents, text = _caches(catalogue, settings, tmp_path)
    both: dict[str, Any] = {"latents": latents, "text": text}
    for caches in ({}, both):
        loader = open_loader(
            catalogue, rows_of(catalogue), settings, accumulation=1, seed=7, start_step=0, last_step=1, **caches
        )
        piece = loader._worker[next(loader.requests())]
        assert isinstance(piece, worker_module.HostBatch)
        pinned.clear()
        plain, moved = (worker_module.to_batch(p, torch.device("cpu")) for p in (piece, piece.pin_memory()))
        assert list(seen(StepBatches(0, 0, 0, (plain,)))) == list(seen(StepBatches(0, 0, 0, (moved,))))
        assert len(pinned) == (7 if caches else 4)  # three small ones; pixels, or latents with states, mask and pooled


@pytest.mark.gpu
def test_batches_on_a_gpu_equal_those_on_the_cpu(catalogue: Catalogue, folder: Path) -> None:
    for workers in (0, 2):
        settings = data(folder, workers=workers)
        on_gpu = steps(catalogue, settings, 0, 5, device=torch.device("cuda"))
        for one, other in zip(on_gpu, steps(catalogue, settings, 0, 5), strict=True):
            for here, there in zip(one.batches, other.batches, strict=True):
                assert here.keys == there.keys
                assert here.pixels is not None
                assert there.pixels is not None
                assert here.pixels.is_cuda
                torch.testing.assert_close(here.pixels.cpu(), there.pixels, rtol=0, atol=1e-6)
                assert torch.equal(here.positions.cpu(), there.positions)


def test_cached_latents_need_no_workers(catalogue: Catalogue, folder: Path, tmp_path: Path) -> None:
    settings = data(folder, workers=2, cache={"latents": True})
    latents, _ = _caches(catalogue, settings, tmp_path)
    with open_loader(
        catalogue, rows_of(catalogue), settings, accumulation=1, seed=7, start_step=0, last_step=3, latents=latents
    ) as loader:  # fmt: skip
        assert len(list(loader)) == 3
        assert loader.processes == ()


def test_closing_in_the_middle_ends_the_workers_and_may_be_repeated(catalogue: Catalogue, folder: Path) -> None:
    loader = open_loader(
        catalogue, rows_of(catalogue), data(folder, workers=2), accumulation=1, seed=1, start_step=0, last_step=99
    )  # fmt: skip
    next(iter(loader))
    workers = loader.processes
    loader.close()
    loader.close()
    assert not any(worker.is_alive() for worker in workers)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_picture_that_vanishes_is_named(tmp_path: Path, workers: int) -> None:
    Image.new("RGB", (32, 32)).save(tmp_path / "a b.png")
    (tmp_path / "a b.txt").write_text("x")
    settings = data(tmp_path, workers=workers)
    catalogue = catalogues.build(settings, tmp_path / ".index", workers=1)
    (tmp_path / "a b.png").unlink()
    with pytest.raises(DatasetError, match=r"sample 'a b\.png' could be read .*a b\.png") as caught:
        steps(catalogue, settings, 0, 2)
    assert caught.value.code == "E1250"


def _caches(catalogue: Catalogue, settings: DataSettings, folder: Path) -> tuple[LatentCache, TextCache]:
    """Caches filled with numbers that say which entry they are: no encoder is needed for that."""
    latents = LatentCache(folder, settings, identity="vae", compute="fp32", seed=7)
    latents.define(LatentLayout(channels=8, pixels=8))
    table = buckets.table(settings)
    of_row = buckets.assign(catalogue.width, catalogue.height, table)
    for row in range(len(catalogue)):
        for view in range(latents.views):
            bucket = table[of_row[row]]
            placed = latents.placement(catalogue, row, view, bucket)
            store = latents.store(bucket)
            assert store is not None
            values = torch.full((1, *store.shape), float(row * 100 + view))
            store.append([latents.address(catalogue, row, placed, view)], values)
    text = TextCache(folder, settings, identity="encoder", compute="fp32")
    for caption in {"", *(c for row in range(len(catalogue)) for c in catalogue.captions(row))}:
        embedding = _embedding(caption)
        text.define(layout_of(embedding))
        rows = text.rows()
        assert rows is not None
        rows.append(as_addresses([text.address(caption)]), embedding, names=[caption])
    return latents, text


def _embedding(caption: str) -> TextEmbedding:
    states = torch.zeros(1, 5, 3)
    for i, byte in enumerate(caption.encode()[:15]):
        states.view(-1)[i] = byte
    return TextEmbedding(states, mask=torch.ones(1, 5), pooled=torch.full((1, 2), float(len(caption))))


def test_cached_batches_carry_the_rows_of_their_samples(catalogue: Catalogue, folder: Path, tmp_path: Path) -> None:
    settings = data(folder, cache={"latents": True, "text": True, "crops": 3, "dtype": "fp16"})
    latents, text = _caches(catalogue, settings, tmp_path)
    assert latents.views == 3
    keys = [catalogue.key(row) for row in range(len(catalogue))]
    used: set[tuple[str, float]] = set()
    for step in steps(catalogue, settings, 0, 12, latents=latents, text=text):
        for batch in step.batches:
            assert batch.pixels is None
            assert batch.moments is not None
            assert batch.text is not None
            assert batch.moments.dtype == batch.text.states.dtype == torch.float32
            height, width = batch.target_size[0].tolist()
            assert batch.moments.shape[1:] == (8, height // 8, width // 8)
            for i in range(batch.size):
                row, view = divmod(int(batch.moments[i, 0, 0, 0]), 100)
                assert keys[row] == batch.keys[i]
                used.add((batch.keys[i], view))
                expected = _embedding(batch.captions[i])
                assert torch.equal(batch.text.states[i], expected.states[0])
                assert batch.text.mask is not None
                assert batch.text.mask[i].tolist() == [1] * 5
                assert batch.text.pooled is not None
                assert torch.equal(batch.text.pooled[i], expected.pooled[0])  # type: ignore[index]
    assert len({view for _, view in used}) == 3


def test_cached_crops_are_those_that_the_batch_reports(catalogue: Catalogue, folder: Path, tmp_path: Path) -> None:
    settings = data(folder, cache={"latents": True, "crops": 4})
    latents, _ = _caches(catalogue, settings, tmp_path)
    table = buckets.table(settings)
    of_row = buckets.assign(catalogue.width, catalogue.height, table)
    keys = [catalogue.key(row) for row in range(len(catalogue))]
    for step in steps(catalogue, settings, 0, 8, latents=latents):
        for batch in step.batches:
            assert batch.moments is not None
            for i in range(batch.size):
                row, view = keys.index(batch.keys[i]), int(batch.moments[i, 0, 0, 0]) % 100
                placed = placement.cached_view(catalogue, row, table[of_row[row]], settings, seed=7, view=view)
                assert tuple(batch.crop_top_left[i].tolist()) == placed.crop_top_left


def test_cached_text_beside_pixels_goes_through_workers(catalogue: Catalogue, folder: Path, tmp_path: Path) -> None:
    settings = data(folder, workers=2, cache={"text": True})
    _, text = _caches(catalogue, settings, tmp_path)
    with_workers = steps(catalogue, settings, 0, 6, text=text)
    assert stream([with_workers]) == stream([steps(catalogue, data(folder), 0, 6)])
    for batch in (batch for step in with_workers for batch in step.batches):
        assert batch.text is not None
        expected = torch.cat([_embedding(caption).states for caption in batch.captions])
        assert torch.equal(batch.text.states, expected)


def test_a_missing_entry_says_what_to_do(catalogue: Catalogue, folder: Path, tmp_path: Path) -> None:
    settings = data(folder, cache={"latents": True, "text": True})
    latents, text = _caches(catalogue, settings, tmp_path)
    other = LatentCache(tmp_path, settings, identity="another VAE", compute="fp32", seed=7)
    with pytest.raises(CacheError, match="mezzotint cache") as caught:
        steps(catalogue, settings, 0, 2, latents=other, text=text)
    assert caught.value.code == "E1303"
    for path in tmp_path.rglob("*.rows"):
        if "latents" in path.parts:
            path.write_bytes(bytes(path.stat().st_size))
    damaged = LatentCache(tmp_path, settings, identity="vae", compute="fp32", seed=7)
    with pytest.raises(CacheError, match=r"\.png.*no sound entry") as caught:
        steps(catalogue, settings, 0, 2, latents=damaged, text=text)
    assert caught.value.code == "E1303"
    assert latents.views == 1


def test_held_out_batches_are_always_the_same_and_drop_no_caption(catalogue: Catalogue, folder: Path) -> None:
    rows = np.array([5, 1, 8, 2, 0], dtype=np.int32)
    settings = data(folder, batch_size=2, captions={"lines": "choose", "dropout": 1.0})

    def take() -> list[Batch]:
        return list(held_out(catalogue, rows, settings, seed=3))

    first, again = take(), take()
    assert sorted(int(p) for batch in first for p in batch.positions) == list(range(5))
    for one, other in zip(first, again, strict=True):
        assert one.keys == other.keys
        assert one.pixels is not None
        assert other.pixels is not None
        assert torch.equal(one.pixels, other.pixels)
        assert all(one.captions)
        assert [catalogue.key(int(rows[p])) for p in one.positions] == list(one.keys)
    assert held_out(catalogue, rows[:0], settings, seed=3) == ()


def test_no_more_than_one_micro_batch_of_a_step_lies_on_the_device(catalogue: Catalogue, folder: Path) -> None:
    [step] = steps(catalogue, data(folder), 0, 1, micro_batch=1)
    assert step.sizes == tuple(batch.size for batch in step.batches)
    assert len(step.sizes) >= 3
    first = next(iter(step.batches))
    assert first.pixels is not None
    moved = weakref.ref(first.pixels)
    del first
    gc.collect()
    assert moved() is None  # breaks if the loader keeps what it has moved


def test_a_run_plans_each_epoch_once(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    planned: list[int] = []
    as_before = plan.plan

    def counted(*columns: Any, epoch: int, **settings: Any) -> Any:
        planned.append(epoch)
        return as_before(*columns, epoch=epoch, **settings)

    monkeypatch.setattr(plan, "plan", counted)
    assert world.train("once", run__steps=7, run__schedule_file=True) == 0
    assert len(planned) > 1
    assert planned == sorted(set(planned))
