"""Rows of the section `data`: batches that count less, listed sizes, ratings, tags, jitter."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from mezzotint import draws
from mezzotint.data.schedule import plan
from mezzotint.errors import RecipeError
from mezzotint.settings.reading.read import read_text
from mezzotint.settings.sections.data import DataSettings
from mezzotint.shapes import Size
from support.loading import place_by

Make = Callable[..., Any]


def captioned(folder: Path, *captions: str) -> Path:
    """An image for each caption."""
    folder.mkdir(parents=True, exist_ok=True)
    for i, caption in enumerate(captions):
        Image.new("RGB", (32, 32), (i, 5, 5)).save(folder / f"{i}.png")
        (folder / f"{i}.txt").write_text(caption)
    return folder


def captions_of(fed: Any) -> list[str]:
    return [caption for batch in fed.batches() for caption in batch.captions]


# breaks if a batch that is filled with its own images has full weight, or another power
@pytest.mark.effect("data.remainder_power", "data.remainder")
def test_discount_reduces_weight_of_repeated_batches(feed: Make, noisy: Make, tmp_path: Path) -> None:
    folder = noisy(tmp_path / "one", [(32, 32)] * 6)
    for power in (1.5, 3.0):
        batches = feed(folder, batch_size=4, remainder="repeat", remainder_power=power).batches()
        weights = {round(b.weight[0].item(), 6): len(set(b.keys)) for b in batches}
        assert weights == {1.0: 4, round(0.5**power, 6): 2}
        assert [b.size for b in batches] == [4, 4]


# breaks if the table is computed, or images are assigned by log(width / height), where 1.53 is nearer to 1.67
@pytest.mark.effect("data.buckets.shape")
def test_bucket_table_uses_the_listed_sizes(feed: Make, noisy: Make, tmp_path: Path) -> None:
    folder = noisy(tmp_path / "one", [(640, 512), (765, 500), (500, 773)])
    fed = feed(folder, resolution=512, buckets__shape="table", batch_size=1)
    sizes = {b.keys[0]: tuple(b.target_size[0].tolist()) for b in fed.batches()}
    assert sizes == {"000.png": (448, 576), "001.png": (384, 640), "002.png": (640, 384)}
    with pytest.raises(RecipeError, match="576, 640"):
        read_text("data: {path: x, resolution: 600, buckets: {shape: table}}")


# breaks if all images are used in each epoch, the share decreases in another way, or ratings have no effect
@pytest.mark.effect("data.rating.fraction", "data.rating.epochs")
def test_rating_share_and_epochs_drop_low_rated_images() -> None:
    n = 1000
    rating = np.where(np.arange(n) < n // 2, 4.0, 1.0).astype(np.float32)
    columns = plan.PlanColumns(
        draws.keys(0, "s", np.arange(n)), np.zeros(n, np.int16), np.ones(n, np.float32), rating=rating
    )

    def seen(epoch: int, **how: Any) -> Any:
        settings = DataSettings.model_validate({"rating": how})
        return plan.plan(columns, settings, accumulation=1, seed=0, epoch=epoch).order

    assert [len(seen(e, fraction=0.2, epochs=8)) for e in (0, 1, 2, 3, 7, 9)] == [1000, 1000, 900, 800, 400, 400]
    assert [len(seen(e, fraction=0.6, epochs=4)) for e in (1, 2, 3)] == [1000, 900, 800]
    assert len(seen(5)) == 1000
    late = seen(7, fraction=0.2, epochs=8)
    assert (late < n // 2).mean() > 0.65
    assert set(late.tolist()) != set(seen(8, fraction=0.2, epochs=8).tolist())
    with pytest.raises(RecipeError, match="belong together"):
        read_text("data: {path: x, rating: {fraction: 0.5}}")


# breaks if captions stay as written, the first part moves, or all visits have the same order
@pytest.mark.effect("data.captions.shuffle_tags", "data.captions.keep_tags")
def test_shuffle_tags_keeps_first_and_kept_tags(feed: Make, tmp_path: Path) -> None:
    folder = captioned(tmp_path / "one", "a cat, one, two, three, four")
    assert set(captions_of(feed(folder, steps=20))) == {"a cat, one, two, three, four"}
    moved = {tuple(caption.split(", ")) for caption in captions_of(feed(folder, steps=60, captions__shuffle_tags=True))}
    assert len(moved) > 15
    assert {order[0] for order in moved} == {"a cat"}
    assert {tuple(sorted(order)) for order in moved} == {("a cat", "four", "one", "three", "two")}
    kept = set(captions_of(feed(folder, steps=60, captions__shuffle_tags=True, captions__keep_tags=2)))
    assert kept == {"a cat, one, two, three, four", "a cat, one, two, four, three"}


# breaks if a cached run uses only one order, or requests one that is not in the cache
@pytest.mark.effect("data.cache.shuffles")
def test_cache_shuffles_counts_cached_tag_orders(prepare: Make, tmp_path: Path) -> None:
    folder = captioned(tmp_path / "own", *(f"{name}, one, two, three" for name in "abcd"))
    ready = prepare(
        data__path=folder,
        data__captions__shuffle_tags=True,
        data__cache__shuffles=3,
        data__captions__dropout=0,
        run__steps=20,
    )
    seen: dict[str, set[str]] = {}
    for _ in range(20):
        for batch in ready.next_batches().batches:
            assert batch.text.states.shape[0] == len(batch.keys)
            for key, caption in zip(batch.keys, batch.captions, strict=True):
                seen.setdefault(key, set()).add(caption)
    counts = {len(orders) for orders in seen.values()}
    assert counts <= {2, 3}  # of six; two of the three may be equal
    assert 3 in counts
    with pytest.raises(RecipeError, match=r"set data\.cache\.shuffles above 1"):
        read_text("data: {path: x, captions: {shuffle_tags: true}, cache: {text: true}}")


# breaks if the position is uniform or always the middle, or edges are not cropped
@pytest.mark.effect("data.crop", "data.jitter")
def test_jitter_crops_edges_and_triangular_favours_middle() -> None:
    def placed(size: Size, **how: Any) -> list[Any]:
        settings = DataSettings.model_validate({"crop": "triangular", **how})
        keys = [draws.key(1, "crop", n) for n in range(4000)]
        return [place_by(settings, size, Size(64, 64), crop_key=key, flip_key=key) for key in keys]

    wide = np.array([p.crop_top_left[1] for p in placed(Size(164, 64))])
    assert (wide.min() < 5, wide.max() > 94) == (True, True)
    quarters = np.histogram(wide, bins=[0, 25, 50, 75, 101])[0] / 4000
    np.testing.assert_allclose(quarters, [0.125, 0.375, 0.375, 0.125], atol=0.03)  # uniform: a quarter each
    square = Size(200, 200)
    assert {p.resized.width for p in placed(square, jitter=0)} == {64}
    for jitter in (0.02, 0.1):
        widths = [p.resized.width for p in placed(square, jitter=jitter)]
        assert max(widths) == pytest.approx(64 / (1 - 2 * jitter), abs=1.5)
        assert min(widths) <= 65
    assert {p.resized.width for p in placed(Size(64, 64), jitter=0.1)} == {64}  # no larger than its bucket
