"""Condition images in batches: placed as their samples, cached once, dropped as the recipe says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from mezzotint.data.loading.loader import held_out_batches
from mezzotint.families.base import condition_latents
from mezzotint.settings.sections.data import DataSettings
from mezzotint.stages import Batch
from support.cache_filling import Encoder, Filled, data, filled, write_images
from support.loading import open_loader


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Six samples, and for each its negative as a condition image."""
    write_images(tmp_path / "images")
    (tmp_path / "before").mkdir()
    for path in (tmp_path / "images").glob("*.png"):
        Image.fromarray(255 - np.asarray(Image.open(path).convert("RGB"))).save(tmp_path / "before" / path.name)
    return tmp_path


def settings(root: Path, **changes: Any) -> DataSettings:
    return data(root, **{"conditions": {"source": root / "before"}, "crop": "random", "flip": 0.5} | changes)


def batches(cache: Filled, chosen: DataSettings, *, is_cached: bool, epochs: int = 1) -> list[Batch]:
    rows = np.arange(len(cache.catalogue), dtype=np.int32)
    caches = {"latents": cache.latents} if is_cached else {}
    with open_loader(cache.catalogue, rows, chosen, seed=7, last_step=6 * epochs, **caches) as loader:  # type: ignore[arg-type]
        return [batch for step in loader for batch in step.batches]


def test_condition_is_cropped_and_mirrored_like_its_sample(root: Path) -> None:
    chosen = settings(root, batch_size=1)
    for batch in batches(filled(root, chosen), chosen, is_cached=False):
        pixels = batch.conditions["source"].pixels
        assert pixels is not None
        assert batch.pixels is not None
        assert (pixels + batch.pixels).abs().max() <= 4 / 127.5  # its negative, resized separately
        assert batch.conditions["source"].is_kept.all()


def test_cached_condition_equals_the_mean_of_the_encoded_one(root: Path) -> None:
    chosen = settings(root, batch_size=1, cache={"path": root / "cache", "latents": True, "crops": 2})
    cache = filled(root, chosen)
    assert "cache: 11 condition images stored with the latents" in cache.said  # two crops of one are the same
    encoder = Encoder("media")
    for batch in batches(cache, chosen, is_cached=True):
        images = batch.conditions["source"]
        assert images.pixels is None
        latents = condition_latents(encoder, batch, torch.device("cpu"))["source"]  # type: ignore[arg-type]
        assert latents.shape[1] * 2 == batch.moments.shape[1]  # type: ignore[union-attr]
        assert latents.abs().max() > 0
    assert "condition image" not in " ".join(filled(root, chosen).said)


def test_changed_condition_is_encoded_alone(root: Path) -> None:
    chosen = settings(root, cache={"path": root / "cache", "latents": True, "crops": 1})
    filled(root, chosen)
    path = root / "before" / "3.png"
    Image.new("RGB", Image.open(path).size, (9, 99, 199)).save(path)
    again = filled(root, chosen)
    assert again.images == 1  # the condition image
    assert "cache: 1 condition image stored with the latents" in again.said


def test_captions_and_images_are_dropped_together_and_alone(root: Path) -> None:
    chosen = settings(root, batch_size=1, condition_dropout=0.2)
    counts = {(True, True): 0, (True, False): 0, (False, True): 0, (False, False): 0}
    for batch in batches(filled(root, chosen), chosen, is_cached=False, epochs=100):
        counts[bool(batch.captions[0]), bool(batch.conditions["source"].is_kept[0])] += 1
    shares = {key: count / 600 for key, count in counts.items()}
    assert shares == pytest.approx(
        {(True, True): 0.4, (True, False): 0.2, (False, True): 0.2, (False, False): 0.2}, abs=0.06
    )


def test_dropped_condition_is_zero_for_the_model(root: Path) -> None:
    chosen = settings(root, condition_dropout=0.3)
    encoder = Encoder("media")
    for batch in batches(filled(root, chosen), chosen, is_cached=False, epochs=3):
        latents = condition_latents(encoder, batch, torch.device("cpu"))["source"]  # type: ignore[arg-type]
        kept = batch.conditions["source"].is_kept
        assert torch.equal(latents.flatten(1).abs().sum(dim=1) > 0, kept)
        half = batch.rows(0, 1)
        assert torch.equal(half.conditions["source"].is_kept, kept[:1])


def test_condition_of_its_own_shape_is_whole_and_shares_batches_with_its_size(root: Path) -> None:
    for number, path in enumerate(sorted((root / "before").glob("*.png"))):
        side = (64, 32) if number % 2 else (40, 90)
        Image.new("RGB", side, (40 * number, 0, 0)).save(path)
    conditions = {"source": {"folder": root / "before", "align": "own"}}
    caching = {"path": root / "cache", "latents": True, "crops": 2}
    chosen = settings(root, conditions=conditions, batch_size=3, cache=caching)
    cache = filled(root, chosen)
    shapes = set()
    for is_cached in (False, True):
        for batch in batches(cache, chosen, is_cached=is_cached, epochs=2):
            images = batch.conditions["source"]
            sizes = {int(key[0]) % 2 for key in batch.keys}
            assert len(sizes) == 1, "one size of condition images in a batch"
            latents = condition_latents(Encoder("media"), batch, torch.device("cpu"))["source"]  # type: ignore[arg-type]
            shapes.add((sizes.pop(), latents.shape[2:]))
            if images.pixels is not None:
                red = (images.pixels[:, 0, 0, 0] + 1) * 127.5 / 40
                assert red.round().int().tolist() == [int(key[0]) for key in batch.keys]
    assert shapes == {(0, (6, 3)), (1, (3, 6))}
    rows = np.arange(6, dtype=np.int32)
    held = [set(batch.keys) for batch in held_out_batches(cache.catalogue, rows, chosen, seed=1)]
    assert set.union(*held) == {f"{number}.png" for number in range(6)}
    assert all(len({int(key[0]) % 2 for key in keys}) == 1 for keys in held)
