"""Batches of a loader worker."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from mezzotint.data.cache.entries import Caches
from mezzotint.data.catalogue import catalogue as catalogues
from mezzotint.data.catalogue.catalogue import Catalogue
from mezzotint.data.loading import worker as worker_module
from mezzotint.data.loading.worker import BatchWorker
from mezzotint.stages import StepBatches
from support.loader_samples import _caches, data, rows_of, seen, steps, stream
from support.loading import open_loader
from support.messages import refused


def test_pixels_are_sent_as_bytes_and_scaled_to_minus_one_to_one(catalogue: Catalogue, folder: Path) -> None:
    loader = open_loader(catalogue, rows_of(catalogue), data(folder), seed=1, last_step=1)
    worker = BatchWorker(catalogue, data(folder), seed=1, caches=Caches())
    piece: Any = worker[next(loader.requests())]
    assert piece.pixels.dtype == torch.uint8
    batch = worker_module.to_batch(piece, torch.device("cpu"))
    assert batch.pixels.dtype == torch.float32
    assert torch.equal(batch.pixels, piece.pixels.float() / 127.5 - 1)
    assert batch.pixels.min() >= -1
    assert batch.pixels.max() <= 1


def test_weights_follow_the_sample(catalogue: Catalogue, folder: Path) -> None:
    heavy = replace(catalogue, weight=np.arange(len(catalogue), dtype=np.float32))
    for one in stream([steps(heavy, data(folder), 0, 4)]):
        assert one.weight == [heavy.key(row) for row in range(len(heavy))].index(one.key)


def test_pickled_worker_gives_the_same_batches(catalogue: Catalogue, folder: Path, tmp_path: Path) -> None:
    settings = data(folder, cache={"latents": True, "text": True, "crops": 2})
    latents, text = _caches(catalogue, settings, tmp_path)
    loader = open_loader(
        catalogue, rows_of(catalogue), settings, accumulation=1, seed=7, start_step=0, last_step=3,
        latents=latents, text=text,
    )  # fmt: skip
    worker: Any = BatchWorker(catalogue, settings, seed=7, caches=Caches(latents, text))
    copy = pickle.loads(pickle.dumps(worker))  # as torch sends it
    for request in loader.requests():
        one = worker_module.to_batch(worker[request], torch.device("cpu"))
        other = worker_module.to_batch(copy[request], torch.device("cpu"))
        assert list(seen(StepBatches(0, 0, 0, (one,)))) == list(seen(StepBatches(0, 0, 0, (other,))))
        assert torch.equal(one.text.states, other.text.states)


def test_pinning_covers_every_tensor_and_keeps_values(
    catalogue: Catalogue, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Simulates a machine with a GPU: pinning copies."""
    pinned: list[int] = []

    def pin(tensor: torch.Tensor) -> torch.Tensor:
        pinned.append(tensor.numel())
        return tensor.clone()

    monkeypatch.setattr(torch.Tensor, "pin_memory", pin)
    settings = data(folder, cache={"latents": True, "text": True})
    latents, text = _caches(catalogue, settings, tmp_path)
    for caches in (Caches(), Caches(latents, text)):
        loader = open_loader(
            catalogue, rows_of(catalogue), settings, seed=7, last_step=1, latents=caches.latents, text=caches.text
        )
        worker = BatchWorker(catalogue, settings, seed=7, caches=caches)
        piece: Any = worker[next(loader.requests())]
        pinned.clear()
        plain, moved = (worker_module.to_batch(p, torch.device("cpu")) for p in (piece, piece.pin_memory()))
        assert list(seen(StepBatches(0, 0, 0, (plain,)))) == list(seen(StepBatches(0, 0, 0, (moved,))))
        assert not caches.in_use or moved.text.lengths == (5,) * moved.size
        assert len(pinned) == (7 if caches.in_use else 4)  # three small ones, and pixels or latents with text


@pytest.mark.gpu
def test_batches_on_a_gpu_equal_those_on_the_cpu(catalogue: Catalogue, folder: Path) -> None:
    for workers in (0, 2):
        settings = data(folder, workers=workers)
        on_gpu = steps(catalogue, settings, 0, 5, device=torch.device("cuda"))
        for one, other in zip(on_gpu, steps(catalogue, settings, 0, 5), strict=True):
            for here, there in zip(one.batches, other.batches, strict=True):
                assert here.keys == there.keys
                assert there.pixels is not None
                assert here.pixels.is_cuda
                torch.testing.assert_close(here.pixels.cpu(), there.pixels, rtol=0, atol=1e-6)
                assert torch.equal(here.positions.cpu(), there.positions)


@pytest.mark.parametrize("workers", [0, 1])
def test_removed_image_is_reported(tmp_path: Path, workers: int) -> None:
    Image.new("RGB", (32, 32)).save(tmp_path / "a b.png")
    (tmp_path / "a b.txt").write_text("x")
    settings = data(tmp_path, workers=workers)
    catalogue = catalogues.build(settings, tmp_path / ".index", workers=1)
    (tmp_path / "a b.png").unlink()
    with refused("E1250", r"sample 'a b\.png' could be read .*a b\.png"):
        steps(catalogue, settings, 0, 2)


def test_image_changed_after_listing_is_reported(tmp_path: Path) -> None:
    Image.new("RGB", (32, 32)).save(tmp_path / "a.png")
    (tmp_path / "a.txt").write_text("x")
    settings = data(tmp_path, workers=0, verify="on_first_use")
    catalogue = catalogues.build(settings, tmp_path / ".index", workers=1)
    (tmp_path / "a.png").write_bytes(b"no image")
    with refused("E1250", "not an image of a known format"):
        steps(catalogue, settings, 0, 2)
