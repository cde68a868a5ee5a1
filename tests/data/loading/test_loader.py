"""The loader: the same samples for any number of ranks, workers and micro-batches, starting at any step."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from mezzotint.data.catalogue import catalogue as catalogues
from mezzotint.data.catalogue.catalogue import Catalogue
from mezzotint.data.loading import worker as worker_module
from mezzotint.data.loading.loader import held_out_batches
from mezzotint.data.schedule import plan
from mezzotint.stages import Batch
from support.loader_samples import _caches, _embedding, data, rows_of, steps, stream
from support.loading import open_loader


def test_ranks_workers_and_splits_do_not_change_the_stream(catalogue: Catalogue, folder: Path) -> None:
    whole = stream([steps(catalogue, data(folder), 0, 9)])
    assert {one.step for one in whole} == set(range(9))
    assert len({one.epoch for one in whole}) > 2
    for world_size, micro_batch, workers in [(2, None, 0), (3, 2, 0), (1, 3, 2), (5, 1, 0)]:
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


def test_positions_number_the_samples_of_a_step(catalogue: Catalogue, folder: Path) -> None:
    for step in steps(catalogue, data(folder), 0, 8):
        positions = [int(p) for batch in step.batches for p in batch.positions]
        assert positions == list(range(step.count))
        assert step.wait_seconds > 0


@pytest.mark.parametrize("workers", [0, 2])
def test_starting_at_any_step_gives_the_same_samples(catalogue: Catalogue, folder: Path, workers: int) -> None:
    whole = stream([steps(catalogue, data(folder), 0, 10)])
    for first in (4,) if workers else (1, 4, 9, 10):
        rest = stream([steps(catalogue, data(folder, workers=workers), first, 10)])
        assert rest == [one for one in whole if one.step >= first]


def test_epoch_with_whole_repeats_visits_each_sample_once(folder: Path, tmp_path: Path) -> None:
    plain = data(folder, repeats=1)
    catalogue = catalogues.build(plain, tmp_path, workers=1)
    visits = stream([steps(catalogue, plain, 0, 40, accumulation=1)])
    by_epoch = [sorted(one.key for one in visits if one.epoch == epoch) for epoch in range(visits[-1].epoch)]
    assert len(by_epoch) > 3
    assert all(keys == sorted(catalogue.key(row) for row in range(len(catalogue))) for keys in by_epoch)
    orders = [[one.key for one in visits if one.epoch == epoch] for epoch in range(3)]
    assert orders[0] != orders[1] != orders[2]


class _NoImages:
    """Serves requests without opening files, for tests of the batch layout only."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def blank(_catalogue: object, _row: int, placed: object, _settings: object) -> object:
            bucket = placed.bucket  # type: ignore[attr-defined]
            return np.zeros((3, bucket.height, bucket.width), dtype=np.uint8)

        monkeypatch.setattr(worker_module, "read_image", blank)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Catalogue:
    folder = tmp_path_factory.mktemp("large")
    for i in range(60):
        Image.new("RGB", (16, 16 if i % 3 else 24), (i, i, i)).save(folder / f"{i:02}.png")
        (folder / f"{i:02}.txt").write_text(f"{i}")
    settings = data(folder, resolution=16, batch_size=24)
    return catalogues.build(settings, tmp_path_factory.mktemp("index"), workers=1)


@pytest.mark.slow
@settings(max_examples=10, deadline=None)
@given(
    world_size=st.sampled_from([1, 2, 3, 4, 6, 8, 12, 24]),
    micro_batch=st.sampled_from([None, 1, 2, 3, 4, 6, 8, 12, 24]),
    first=st.integers(0, 9),
    seed=st.integers(0, 2**63 - 1),
    remainder=st.sampled_from(["short", "fill", "drop"]),
)
def test_any_split_of_a_batch_of_24_gives_the_same_stream(
    large: Catalogue, world_size: int, micro_batch: int | None, first: int, seed: int, remainder: str
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        _NoImages(patch)
        plain = data(Path(), resolution=16, batch_size=24, repeats=1, remainder=remainder)
        whole = stream([steps(large, plain, 0, 10, accumulation=1, seed=seed)])
        layout = {"world_size": world_size, "micro_batch": micro_batch, "accumulation": 1, "seed": seed}
        parts = [steps(large, plain, first, 10, rank=rank, **layout) for rank in range(world_size)]
        assert stream(parts) == [one for one in whole if one.step >= first]


def test_global_random_state_is_unchanged(catalogue: Catalogue, folder: Path) -> None:
    torch.manual_seed(3)
    before = torch.random.get_rng_state()
    steps(catalogue, data(folder, workers=1), 0, 2)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_cached_latents_need_no_workers(catalogue: Catalogue, folder: Path, tmp_path: Path) -> None:
    settings = data(folder, workers=2, cache={"latents": True})
    latents, _ = _caches(catalogue, settings, tmp_path)
    with open_loader(
        catalogue, rows_of(catalogue), settings, accumulation=1, seed=7, start_step=0, last_step=3, latents=latents
    ) as loader:  # fmt: skip
        assert len(list(loader)) == 3
        assert loader.processes == ()


def test_cached_text_with_pixels_is_loaded_in_workers(catalogue: Catalogue, folder: Path, tmp_path: Path) -> None:
    settings = data(folder, workers=2, cache={"text": True})
    _, text = _caches(catalogue, settings, tmp_path)
    with_workers = steps(catalogue, settings, 0, 3, text=text)
    assert stream([with_workers]) == stream([steps(catalogue, data(folder), 0, 3)])
    for batch in (batch for step in with_workers for batch in step.batches):
        expected = torch.cat([_embedding(caption).states for caption in batch.captions])
        assert torch.equal(batch.text.states, expected)


def test_held_out_batches_are_deterministic_and_keep_captions(catalogue: Catalogue, folder: Path) -> None:
    rows = np.array([5, 1, 8, 2, 0], dtype=np.int32)
    settings = data(folder, batch_size=2, captions={"lines": "random", "dropout": 1.0})

    def take() -> list[Batch]:
        return list(held_out_batches(catalogue, rows, settings, seed=3))

    first, again = take(), take()
    assert sorted(int(p) for batch in first for p in batch.positions) == list(range(5))
    for one, other in zip(first, again, strict=True):
        assert one.keys == other.keys
        assert torch.equal(one.pixels, other.pixels)
        assert all(one.captions)
        assert [catalogue.key(int(rows[p])) for p in one.positions] == list(one.keys)
    assert held_out_batches(catalogue, rows[:0], settings, seed=3) == ()


def test_only_one_micro_batch_of_a_step_is_on_the_device(catalogue: Catalogue, folder: Path) -> None:
    [step] = steps(catalogue, data(folder), 0, 1, micro_batch=1)
    assert step.sizes == tuple(batch.size for batch in step.batches)
    assert len(step.sizes) >= 3
    first = next(iter(step.batches))
    assert first.pixels is not None
    moved = weakref.ref(first.pixels)
    del first
    gc.collect()
    assert moved() is None  # fails if the loader keeps batches that it has moved


def test_run_plans_each_epoch_once(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    planned: list[int] = []
    as_before = plan.plan

    def counted(*columns: Any, epoch: int, **settings: Any) -> Any:
        planned.append(epoch)
        return as_before(*columns, epoch=epoch, **settings)

    monkeypatch.setattr(plan, "plan", counted)
    assert world.train("once", run__steps=7, run__schedule_file=True) == 0
    assert len(planned) > 1
    assert planned == sorted(set(planned))
