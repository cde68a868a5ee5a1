"""Cache entries of a visit."""

from __future__ import annotations

from pathlib import Path

import torch

from mezzotint.data.buckets import buckets
from mezzotint.data.cache.entries import LatentCache
from mezzotint.data.catalogue.catalogue import Catalogue
from mezzotint.data.schedule import placement
from support.loader_samples import _caches, _embedding, data, steps
from support.messages import refused


def test_cached_batches_have_the_entries_of_their_samples(catalogue: Catalogue, folder: Path, tmp_path: Path) -> None:
    settings = data(folder, cache={"latents": True, "text": True, "crops": 3, "dtype": "fp16"})
    latents, text = _caches(catalogue, settings, tmp_path)
    assert latents.views == 3
    keys = [catalogue.key(row) for row in range(len(catalogue))]
    used: set[tuple[str, float]] = set()
    for step in steps(catalogue, settings, 0, 12, latents=latents, text=text):
        for batch in step.batches:
            assert batch.pixels is None
            assert batch.moments.dtype == batch.text.states.dtype == torch.float32
            height, width = batch.target_size[0].tolist()
            assert batch.moments.shape[1:] == (8, height // 8, width // 8)
            for i in range(batch.size):
                row, view = divmod(int(batch.moments[i, 0, 0, 0]), 100)
                assert keys[row] == batch.keys[i]
                used.add((batch.keys[i], view))
                expected = _embedding(batch.captions[i])
                assert torch.equal(batch.text.states[i], expected.states[0])
                assert batch.text.mask[i].tolist() == [1] * 5
                assert torch.equal(batch.text.pooled[i], expected.pooled[0])  # type: ignore[index]
    assert len({view for _, view in used}) == 3


def test_cached_crops_match_the_reported_positions(catalogue: Catalogue, folder: Path, tmp_path: Path) -> None:
    settings = data(folder, cache={"latents": True, "crops": 4})
    latents, _ = _caches(catalogue, settings, tmp_path)
    table = buckets.table(settings)
    of_row = buckets.assign(catalogue.width, catalogue.height, table)
    keys = [catalogue.key(row) for row in range(len(catalogue))]
    for step in steps(catalogue, settings, 0, 8, latents=latents):
        for batch in step.batches:
            for i in range(batch.size):
                row, view = keys.index(batch.keys[i]), int(batch.moments[i, 0, 0, 0]) % 100
                placed = placement.cached_view(catalogue, row, table[of_row[row]], settings, seed=7, view=view)
                assert tuple(batch.crop_top_left[i].tolist()) == placed.crop_top_left


def test_missing_entry_is_reported_with_advice(catalogue: Catalogue, folder: Path, tmp_path: Path) -> None:
    settings = data(folder, cache={"latents": True, "text": True})
    latents, text = _caches(catalogue, settings, tmp_path)
    other = LatentCache(tmp_path, settings, identity="another VAE", compute="fp32", seed=7)
    with refused("E1303", "mezzotint cache"):
        steps(catalogue, settings, 0, 2, latents=other, text=text)
    for path in tmp_path.rglob("*.rows"):
        if "latents" in path.parts:
            path.write_bytes(bytes(path.stat().st_size))
    damaged = LatentCache(tmp_path, settings, identity="vae", compute="fp32", seed=7)
    with refused("E1303", r"\.png.*no valid entry"):
        steps(catalogue, settings, 0, 2, latents=damaged, text=text)
    assert latents.views == 1
