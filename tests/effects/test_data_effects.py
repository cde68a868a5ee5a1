"""Rows of the section `data`: samples, placements, order and caches."""

from __future__ import annotations

import dataclasses
import json
import math
import multiprocessing
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from mezzotint import draws
from mezzotint.data.loading.loader import Loader
from mezzotint.data.loading.worker import BatchRequest
from mezzotint.data.media import timeouts
from mezzotint.data.schedule import captions, placement, plan
from mezzotint.data.schedule.plan import Visit
from mezzotint.errors import DatasetError, RecipeError
from mezzotint.families.base import batch_latents
from mezzotint.settings.sections.data import DataSettings
from mezzotint.settings.sections.holdout import HoldoutSettings
from mezzotint.shapes import Size
from mezzotint.tasks import holding
from mezzotint.weights.folder import state
from mezzotint.weights.folder.model_folder import shipped_folder
from support.images import broken_inside
from support.loading import open_loader
from support.messages import refused

Make = Callable[..., Any]
DRAWN = 10_000


def three_sigma(share: float, count: int = DRAWN) -> float:
    return float(3 * (share * (1 - share) / count) ** 0.5)


def columns(count: int, repeats: float = 1.0) -> plan.PlanColumns:
    """Samples without files, all of one bucket."""
    hashes = draws.keys(0, "effects", np.arange(count))
    return plan.PlanColumns(hashes, np.zeros(count, np.int16), np.full(count, repeats, np.float32))


def lengths(epoch: Any) -> list[int]:
    return sorted(np.diff(epoch.starts).tolist(), reverse=True)


def shapes(fed: Any) -> set[tuple[int, int]]:
    """Width and height of every batch."""
    return {(b.pixels.shape[3], b.pixels.shape[2]) for b in fed.batches()}


# breaks if only the first folder is read, or keys of two folders can be equal
@pytest.mark.effect("data.path", "data.sets")
def test_path_is_one_folder_and_sets_are_several(feed: Make, noisy: Make, tmp_path: Path) -> None:
    one, two = noisy(tmp_path / "one", [(32, 32)] * 2), noisy(tmp_path / "two", [(32, 32)] * 3)
    alone, both = feed(two), feed(one, two)
    assert sorted(k for b in alone.batches() for k in b.keys) == ["000.png", "001.png", "002.png"]
    assert sorted(k for b in both.batches() for k in b.keys) == [
        "0/000.png", "0/001.png", "1/000.png", "1/001.png", "1/002.png",
    ]  # fmt: skip


# breaks if the format is fixed: an unknown one would be read as a folder of images
@pytest.mark.effect("data.format")
def test_format_is_found_by_its_name(feed: Make, noisy: Make, tmp_path: Path) -> None:
    folder = noisy(tmp_path / "one", [(32, 32)])
    assert len(feed(folder, format="image-folder").catalogue) == 1
    with pytest.raises(RecipeError, match="image-folder"):
        feed(folder, format="image-folders")


# breaks if a fraction is rounded, or a folder's number does not reach its samples
@pytest.mark.effect("data.repeats")
def test_repeats_counts_visits_per_epoch(feed: Make, noisy: Make, tmp_path: Path) -> None:
    one, two = noisy(tmp_path / "one", [(32, 32)] * 2), noisy(tmp_path / "two", [(32, 32)] * 2)
    seen = Counter(k for b in feed(one, {"path": two, "repeats": 3}).batches() for k in b.keys)
    assert seen == {"0/000.png": 1, "0/001.png": 1, "1/000.png": 3, "1/001.png": 3}
    assert set(Counter(k for b in feed(one, repeats=4).batches() for k in b.keys).values()) == {4}
    epoch = plan.plan(columns(DRAWN, 2.5), DataSettings(), accumulation=1, seed=0, epoch=0)
    counts = np.bincount(epoch.order)
    assert set(counts) == {2, 3}
    assert abs((counts == 3).mean() - 0.5) < three_sigma(0.5)


# breaks if batches have another size
@pytest.mark.effect("data.batch_size")
def test_batch_size_is_the_size_of_full_batches(feed: Make, noisy: Make, tmp_path: Path) -> None:
    folder = noisy(tmp_path / "one", [(32, 32)] * 6)
    for size, sizes in ((4, [4, 2]), (3, [3, 3]), (6, [6])):
        assert sorted((b.size for b in feed(folder, batch_size=size).batches()), reverse=True) == sizes


# breaks if one policy behaves like another
@pytest.mark.effect("data.remainder")
def test_remainder_is_short_filled_or_dropped(feed: Make, noisy: Make, tmp_path: Path) -> None:
    folder = noisy(tmp_path / "one", [(32, 32)] * 6)
    by_kind = {kind: feed(folder, batch_size=4, remainder=kind) for kind in ("short", "fill", "drop")}
    sizes = {kind: sorted(b.size for b in fed.batches()) for kind, fed in by_kind.items()}
    assert sizes == {"short": [2, 4], "fill": [4, 4], "drop": [4]}
    assert {kind: (fed.epoch().filled, fed.epoch().left_out) for kind, fed in by_kind.items()} == {
        "short": (0, 0), "fill": (2, 0), "drop": (0, 2),
    }  # fmt: skip


# breaks if the order is shuffled although shuffling is off, or the shuffled order is the same in each epoch
@pytest.mark.effect("data.shuffle")
def test_without_shuffling_samples_keep_listing_order(feed: Make, noisy: Make, tmp_path: Path) -> None:
    folder = noisy(tmp_path / "one", [(32, 32)] * 9 + [(64, 32)] * 4)

    def keys(epoch: int, **settings: object) -> list[str]:
        fed = feed(folder, batch_size=2, **settings)
        return [fed.dataset.catalogue.key(row) for row in fed.epoch(epoch).order]

    listed = keys(0, shuffle=False)
    assert listed == keys(3, shuffle=False) == sorted(listed)
    assert keys(0) != listed
    assert keys(0) != keys(1)
    assert sorted(keys(0)) == listed


# breaks if the bucket table does not depend on the settings
@pytest.mark.effect("data.resolution", "data.buckets.shape", "data.buckets.step", "data.buckets.max_aspect")
def test_resolution_and_buckets_are_the_sizes_of_batches(feed: Make, noisy: Make, tmp_path: Path) -> None:
    folder = noisy(tmp_path / "one", [(100, 100), (130, 100), (400, 100)])
    assert shapes(feed(folder, resolution=64)) == {(64, 64), (72, 56), (80, 48)}
    assert shapes(feed(folder, resolution=96)) == {(96, 96), (112, 80), (128, 72)}
    assert shapes(feed(folder, resolution=64, buckets__shape="square")) == {(64, 64)}
    assert shapes(feed(folder, resolution=64, buckets__step=16)) == {(64, 64), (80, 48)}
    longest = {
        limit: max(w / h for w, h in shapes(feed(folder, resolution=64, buckets__max_aspect=limit)))
        for limit in (1.0, 2.0, 4.0)
    }
    assert longest[1.0] == 1.0
    assert 1.5 < longest[2.0] <= 2.0
    assert 3.0 < longest[4.0] <= 4.0


# breaks if images are assigned as with `aspect`, or a bound of the sides has no effect
@pytest.mark.effect("data.buckets.shape", "data.buckets.min_side", "data.buckets.max_side")
def test_range_has_sides_from_the_shortest_to_the_longest(feed: Make, noisy: Make, tmp_path: Path) -> None:
    folder = noisy(tmp_path / "one", [(64, 64), (200, 100), (400, 100)])

    def of_range(**sides: int) -> set[tuple[int, int]]:
        return shapes(feed(folder, resolution=64, buckets={"shape": "range", "step": 16, **sides}))

    assert of_range(min_side=16, max_side=128) == {(64, 64), (80, 48), (128, 32)}
    assert of_range(min_side=48, max_side=128) == {(64, 64), (80, 48)}
    assert of_range(min_side=16, max_side=64) == {(64, 64), (64, 32), (64, 16)}


# breaks if a small image is enlarged, a large one is not reduced, or an image without a bucket is used
@pytest.mark.effect("data.buckets.shape", "data.buckets.step")
def test_images_keep_their_own_size(feed: Make, noisy: Make, tmp_path: Path) -> None:
    folder = noisy(tmp_path / "one", [(50, 40), (64, 64), (400, 100), (12, 80)])
    fed = feed(folder, resolution=64, buckets={"shape": "own", "step": 16})
    pixels = {b.keys[0]: b.pixels[0].permute(1, 2, 0).numpy() for b in fed.batches()}
    assert {key: image.shape[:2] for key, image in pixels.items()} == {
        "000.png": (32, 48), "001.png": (64, 64), "002.png": (32, 128),
    }  # fmt: skip
    assert [path for path, _ in fed.report.left_out] == ["003.png"]
    assert shapes(feed(folder, resolution=64, buckets={"shape": "own", "step": 8})) == {
        (48, 40), (64, 64), (128, 32), (8, 80),
    }  # fmt: skip
    with Image.open(folder / "000.png") as image:
        expected = np.asarray(image.convert("RGB").crop((1, 4, 49, 36))) / 127.5 - 1
    assert np.abs(pixels["000.png"] - expected).max() < 1e-6  # not resampled


def corners(fed: Any, count: int) -> np.ndarray[Any, Any]:
    """Row and column of the crop of a sample, at so many visits of its bucket."""
    bucket, key_hash = Size(32, 32), int(fed.catalogue.key_hash[0])
    placed = (
        placement.at_visit(fed.catalogue, Visit(0, key_hash, 0, 0, visit), bucket, fed.recipe.data)
        for visit in range(count)
    )
    return np.array([(*p.crop_top_left, p.flipped) for p in placed])


# breaks if the center is not the center, the draw is not uniform, or the loader requests another placement
@pytest.mark.effect("data.crop")
def test_crop_is_centered_or_random_at_each_visit(feed: Make, noisy: Make, tmp_path: Path) -> None:
    folder = noisy(tmp_path / "one", [(42, 32)])
    square = {"buckets__shape": "square", "steps": 20}
    middle, drawn = feed(folder, crop="center", **square), feed(folder, crop="random", **square)
    assert {tuple(c) for c in corners(middle, 50).tolist()} == {(0, 5, 0)}
    column = corners(drawn, DRAWN)[:, 1]
    assert set(column.tolist()) == set(range(11))
    shares = np.bincount(column) / DRAWN
    assert np.abs(shares - 1 / 11).max() < 1.34 * three_sigma(1 / 11)  # eleven tests at once: four sigma
    assert {tuple(b.crop_top_left[0].tolist()) for b in middle.batches()} == {(0, 5)}
    seen = {b.crop_top_left[0, 1].item(): b.pixels[0] for b in drawn.batches()}
    whole = torch.from_numpy(np.asarray(Image.open(folder / "000.png")).transpose(2, 0, 1).copy()) / 127.5 - 1
    assert len(seen) > 5
    for left, pixels in seen.items():
        torch.testing.assert_close(pixels, whole[:, :, left : left + 32])
    [squeezed] = feed(folder, crop="stretch", buckets__shape="square").batches()
    resized = np.asarray(Image.open(folder / "000.png").resize((32, 32), Image.Resampling.LANCZOS))
    torch.testing.assert_close(squeezed.pixels[0], torch.from_numpy(resized.transpose(2, 0, 1).copy()) / 127.5 - 1)
    assert squeezed.crop_top_left.tolist() == [[0, 0]]


# breaks if the probability differs, or a flipped image is not mirrored
@pytest.mark.effect("data.flip")
def test_flip_is_the_share_of_mirrored_visits(feed: Make, noisy: Make, tmp_path: Path) -> None:
    folder = noisy(tmp_path / "one", [(32, 32)])
    flipped = corners(feed(folder, flip=0.3), DRAWN)[:, 2]
    assert abs(flipped.mean() - 0.3) < three_sigma(0.3)
    [never], [always] = (feed(folder, flip=share).batches() for share in (0, 1))
    assert torch.equal(always.pixels, never.pixels.flip(-1))
    assert not torch.equal(always.pixels, never.pixels)


# breaks if another filter resizes
@pytest.mark.effect("data.resize")
@pytest.mark.parametrize("name", ["lanczos", "bicubic", "bilinear", "hamming", "box", "nearest"])
def test_resize_names_the_filter(name: str, feed: Make, noisy: Make, tmp_path: Path) -> None:
    folder = noisy(tmp_path / "one", [(80, 80)])
    [batch] = feed(folder, resize=name).batches()
    with Image.open(folder / "000.png") as image:
        pixels = np.asarray(image.resize((32, 32), getattr(Image.Resampling, name.upper())))
    assert torch.equal(batch.pixels[0], torch.from_numpy(pixels.transpose(2, 0, 1).copy()).float() / 127.5 - 1)


# breaks if all samples are used, the first ones are used, or other samples are used at another start
@pytest.mark.effect("data.max_samples")
def test_max_samples_selects_a_random_subset(feed: Make, noisy: Make, tmp_path: Path) -> None:
    folder = noisy(tmp_path / "one", [(32, 32)] * 12)

    def keys(seed: int, **settings: Any) -> set[str]:
        return {key for batch in feed(folder, seed=seed, **settings).batches() for key in batch.keys}

    assert len(keys(0)) == 12
    assert len(keys(0, max_samples=5)) == 5
    assert keys(0, max_samples=4) < keys(0, max_samples=5)
    assert keys(0, max_samples=5) == keys(0, max_samples=5) != {f"{n:03d}.png" for n in range(5)}
    assert len(keys(0, max_samples=99)) == 12
    held = feed(folder, max_samples=6, holdout__fraction=0.5).dataset
    assert len(held.rows) + len(held.held) == 6
    assert not set(held.rows.tolist()) & set(held.held.tolist())


# breaks if small images are always used, or never
@pytest.mark.effect("data.small_images")
def test_small_images_are_enlarged_or_skipped(feed: Make, noisy: Make, tmp_path: Path) -> None:
    folder = noisy(tmp_path / "one", [(32, 32), (24, 24)])
    large, left = feed(folder, small_images="upscale"), feed(folder, small_images="skip")
    assert (len(large.catalogue), large.report.upscaled) == (2, 1)
    assert shapes(large) == {(32, 32)}
    assert len(left.catalogue) == 1
    assert [path for path, _ in left.report.left_out] == ["001.png"]


# breaks if another colour is behind transparent pixels
@pytest.mark.effect("data.background")
def test_background_replaces_transparency(feed: Make, tmp_path: Path) -> None:
    folder = tmp_path / "clear"
    folder.mkdir()
    Image.new("RGBA", (32, 32), (9, 9, 9, 0)).save(folder / "a.png")
    (folder / "a.txt").write_text("nothing")
    for colour, pixel in (("'#ff0000'", (1, -1, -1)), ("'#00ff00'", (-1, 1, -1))):
        [batch] = feed(folder, background=colour).batches()
        assert torch.equal(batch.pixels[0], torch.tensor(pixel).float()[:, None, None].expand(3, 32, 32))


# breaks if the size of images is not checked before they are decoded
@pytest.mark.effect("data.max_pixels")
def test_max_pixels_skips_larger_images(feed: Make, noisy: Make, tmp_path: Path) -> None:
    folder = noisy(tmp_path / "one", [(32, 32), (50, 50)])
    assert len(feed(folder, max_pixels=2500).catalogue) == 2
    tight = feed(folder, max_pixels=2499)
    assert len(tight.catalogue) == 1
    [(path, reason)] = tight.report.skipped
    assert path == "001.png"
    assert "2,499" in reason


# breaks if every image is decoded at the start, or a damaged one is never reported
@pytest.mark.effect("data.verify")
def test_verify_decides_when_corruption_is_found(feed: Make, noisy: Make, tmp_path: Path) -> None:
    folder = noisy(tmp_path / "one", [(32, 32)] * 3)
    broken_inside(folder / "001.png")
    data_set = feed(folder, verify="on_first_use")
    assert len(data_set.catalogue) == 3
    with refused("E1831", r"'001\.png' is corrupt.*data\.verify=on_start"):
        data_set.batches()
    decoded = feed(folder, verify="on_start")
    assert len(decoded.catalogue) == 2
    assert [path for path, _ in decoded.report.skipped] == ["001.png"]


# breaks if decoding never times out, or a slow image is skipped in a running run
@pytest.mark.effect("data.decode_timeout")
def test_hanging_image_is_skipped_at_start_and_stops_a_run(
    feed: Make, noisy: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, asleep, opened = noisy(tmp_path / "one", [(32, 32)] * 3), threading.Event(), os.open

    def hanging(path: Any, *options: Any, **named: Any) -> int:
        if str(path).endswith("001.png"):
            asleep.wait(20)
        return opened(path, *options, **named)

    monkeypatch.setattr(timeouts, "GRACE", 0.05)
    assert len(feed(folder, decode_timeout=None).catalogue) == 3
    monkeypatch.setattr(os, "open", hanging)
    with refused("E1233", r"'001\.png' .*: not decoded within 0\.3 s"):
        feed(folder, decode_timeout=0.3, on_corrupt="zero_weight").batches()
    (folder / "000.txt").write_text("another caption")
    os.utime(folder / "001.png", (1, 1))  # probed again
    hasty = feed(folder, decode_timeout=0.3)
    assert [path for path, _ in hasty.report.skipped] == ["001.png"]
    assert "not decoded within 0.3 s" in hasty.report.skipped[0][1]
    assert sorted(key for batch in hasty.batches() for key in batch.keys) == ["000.png", "002.png"]
    asleep.set()
    os.utime(folder / "001.png", (2, 2))
    assert len(feed(folder, decode_timeout=None).catalogue) == 3


# breaks if a damaged image ends the run, counts in the loss, or changes random draws of other images
@pytest.mark.effect("data.on_corrupt")
def test_on_corrupt_gives_a_damaged_image_zero_weight(feed: Make, noisy: Make, tmp_path: Path) -> None:
    folder = noisy(tmp_path / "one", [(40, 32)] * 5)
    settings = {"verify": "on_first_use", "batch_size": 5, "crop": "random", "flip": 0.5, "on_corrupt": "zero_weight"}
    [sound] = feed(folder, **settings).batches()
    broken_inside(folder / "001.png")
    data_set = feed(folder, **settings)
    [step] = list(data_set.loader)
    [batch] = step.batches
    assert step.broken == ("001.png",)
    assert (batch.keys, step.count) == (sound.keys, 5)
    here = batch.keys.index("001.png")
    others = [i for i in range(5) if i != here]
    assert batch.weight.tolist() == [float(i != here) for i in range(5)]
    assert torch.equal(batch.pixels[others], sound.pixels[others])
    assert torch.equal(batch.posterior_keys, sound.posterior_keys)
    assert torch.isfinite(batch.pixels).all()
    with refused("E1831", r"data\.on_corrupt=zero_weight"):
        feed(folder, **settings | {"on_corrupt": "stop"}).batches()


# breaks if large JPEGs are decoded the same with any setting, or share a cache address
@pytest.mark.effect("data.decode")
def test_decode_reads_large_jpegs_scaled_or_full(feed: Make, prepare: Make, tmp_path: Path) -> None:
    folder = tmp_path / "photos"
    folder.mkdir()
    Image.effect_mandelbrot((400, 400), (-2.0, -1.5, 1.0, 1.5), 100).save(folder / "a.jpg", quality=95)
    (folder / "a.txt").write_text("a set")
    [scaled], [full] = (feed(folder, decode=kind).batches() for kind in ("scaled", "full"))
    assert not torch.equal(scaled.pixels, full.pixels)
    torch.testing.assert_close(scaled.pixels, full.pixels, rtol=0, atol=0.2)
    kept = [prepare(data__decode=kind).job.caches.latents.identity for kind in ("scaled", "full")]
    assert ['"preprocessing":2' in kept[0], '"preprocessing":1' in kept[1]] == [True, True]


# breaks if no share of unusable files prevents a start, or any share does
@pytest.mark.effect("data.max_skipped")
def test_max_skipped_bounds_the_share_of_broken_files(feed: Make, noisy: Make, tmp_path: Path) -> None:
    folder = noisy(tmp_path / "one", [(32, 32)] * 4)
    for number in range(21):
        (folder / f"broken-{number}.png").write_bytes(b"no image")
        (folder / f"broken-{number}.txt").write_text("broken")
    with pytest.raises(DatasetError, match=r"21 of 25 files cannot be used"):
        feed(folder, max_skipped=0.5)
    assert len(feed(folder, max_skipped=0.9).report.skipped) == 21


def captions_of(fed: Any) -> list[str]:
    return sorted(c for b in fed.batches() for c in b.captions)


# breaks if captions come from another source
@pytest.mark.effect("data.captions.source")
def test_captions_source_is_sidecar_or_file_name(feed: Make, noisy: Make, tmp_path: Path) -> None:
    folder = noisy(tmp_path / "one", [(32, 32)] * 2)
    (folder / "000.png").rename(folder / "a_red_hat.png")
    (folder / "000.txt").unlink()
    assert captions_of(feed(folder, captions__source="filename")) == ["001", "a red hat"]
    assert captions_of(feed(folder, captions__source="either")) == ["a red hat", "image 1"]
    assert captions_of(feed(folder, captions__source="sidecar", captions__missing="skip")) == ["image 1"]


# breaks if missing captions are always an error, or never
@pytest.mark.effect("data.captions.missing")
def test_captions_missing_is_error_skip_or_empty(feed: Make, noisy: Make, tmp_path: Path) -> None:
    folder = noisy(tmp_path / "one", [(32, 32)] * 2)
    (folder / "000.txt").unlink()
    with refused("E1203", r"000\.png"):
        feed(folder, captions__missing="error")
    skipped = feed(folder, captions__missing="skip")
    assert captions_of(skipped) == ["image 1"]
    assert skipped.report.left_out == (("000.png", "no caption"),)
    assert captions_of(feed(folder, captions__missing="empty")) == ["", "image 1"]


# breaks if lines are joined instead of chosen, or chosen unevenly
@pytest.mark.effect("data.captions.lines")
def test_caption_lines_are_joined_or_chosen(feed: Make, noisy: Make, tmp_path: Path) -> None:
    folder = noisy(tmp_path / "one", [(32, 32)])
    (folder / "000.txt").write_text("one\ntwo\nthree\n")
    assert captions_of(feed(folder, captions__lines="join")) == ["one two three"]
    fed = feed(folder, captions__lines="random", steps=30)
    assert set(captions_of(fed)) == {"one", "two", "three"}
    lines = fed.catalogue.captions(0)
    drawn = Counter(captions.choose(lines, Visit(0, 5, 0, 0, visit), dropout=0.0) for visit in range(DRAWN))
    assert all(abs(n / DRAWN - 1 / 3) < three_sigma(1 / 3) for n in drawn.values())


# breaks if the probability differs, or does not reach the loader
@pytest.mark.effect("data.captions.dropout")
def test_caption_dropout_is_the_share_of_empty_captions(feed: Make, noisy: Make, tmp_path: Path) -> None:
    fed = feed(noisy(tmp_path / "one", [(32, 32)]), captions__dropout=0.2, steps=60)
    assert abs(captions_of(fed).count("") / 60 - 0.2) < three_sigma(0.2, 60)
    lines = fed.catalogue.captions(0)
    visits = (Visit(0, 5, 0, 0, visit) for visit in range(DRAWN))
    dropped = sum(captions.choose(lines, visit, dropout=0.2) == "" for visit in visits)
    assert abs(dropped / DRAWN - 0.2) < three_sigma(0.2)


# breaks if the share differs, the limit is exceeded, or held-out samples are trained
@pytest.mark.effect("data.holdout.fraction", "data.holdout.max_samples")
def test_holdout_fraction_is_not_trained(feed: Make, noisy: Make, tmp_path: Path) -> None:
    fed = feed(noisy(tmp_path / "one", [(32, 32)] * 8), holdout__fraction=0.4, holdout__max_samples=2)
    assert (len(fed.dataset.rows), len(fed.dataset.held)) == (6, 2)
    trained = {k for b in fed.batches() for k in b.keys}
    assert trained == {fed.catalogue.key(row) for row in fed.dataset.rows}
    assert not trained & {fed.catalogue.key(row) for row in fed.dataset.held}
    many = dataclasses.replace(
        fed.catalogue, key_hash=draws.keys(0, "effects", np.arange(DRAWN)), width=np.ones(DRAWN, np.int32)
    )
    held = len(many.split(HoldoutSettings(fraction=0.4, max_samples=DRAWN), seed=0)[1])
    assert held == math.ceil(0.4 * DRAWN)
    assert len(many.split(HoldoutSettings(fraction=0.4, max_samples=77), seed=0)[1]) == 77
    assert len(feed(tmp_path / "one", holdout__fraction=0.0).dataset.held) == 0


# breaks if no workers are started, or they decode other pixels
@pytest.mark.effect("data.workers")
def test_worker_processes_decode_the_same(feed: Make, noisy: Make, tmp_path: Path) -> None:
    folder = noisy(tmp_path / "one", [(32, 32)] * 4)
    by_workers = {}
    for workers in (0, 2):
        before = len(multiprocessing.active_children())
        fed = feed(folder, workers=workers, batch_size=2, crop="random", flip=0.5)
        batches = iter(fed.loader)
        first = next(batches)
        assert len(multiprocessing.active_children()) - before == workers
        by_workers[workers] = [b.pixels for step in (first, *batches) for b in step.batches]
        fed.loader.close()
    assert all(torch.equal(a, b) for a, b in zip(by_workers[0], by_workers[2], strict=True))


class Counting(Loader):
    """Counts the requests that workers have received."""

    taken = 0

    def requests(self) -> Iterator[BatchRequest]:
        for request in super().requests():
            self.taken += 1
            yield request


# breaks if another number of batches is requested from the workers in advance
@pytest.mark.effect("data.prefetch")
@pytest.mark.parametrize("ahead", [2, 5])
def test_prefetch_counts_batches_a_worker_prepares(ahead: int, feed: Make, noisy: Make, tmp_path: Path) -> None:
    fed = feed(noisy(tmp_path / "one", [(32, 32)]), workers=1, prefetch=ahead)
    data = fed.recipe.data
    rows = fed.dataset.rows
    with open_loader(
        fed.catalogue, rows, data, kind=Counting, accumulation=1, seed=0, start_step=0, last_step=50
    ) as loader:
        next(iter(loader))
        assert loader.taken == ahead + 1


# breaks if both modes give the same epochs, or `add` works in another way
@pytest.mark.effect("data.epoch_seed")
def test_epoch_seed_is_hashed_or_added(feed: Make, noisy: Make, tmp_path: Path) -> None:
    folder = noisy(tmp_path / "one", [(40, 32)] * 8)

    def epochs(kind: str, seed: int) -> list[Any]:
        """Order and crops of three epochs of one batch each."""
        square = {"buckets__shape": "square", "batch_size": 8, "crop": "random"}
        fed = feed(folder, epoch_seed=kind, seed=seed, steps=3, **square)
        return [(b.keys, b.crop_top_left.tolist()) for b in fed.batches()]

    added, later = epochs("add", 5), epochs("add", 6)
    assert added[1:] == later[:2]
    addressed = epochs("address", 5)
    assert addressed[0] == added[0]
    assert addressed[1] not in (*added, *epochs("address", 6))


# --- the cache ----------------------------------------------------------------------------------------------------


# breaks if a cached run loads the VAE, or encodes images
@pytest.mark.effect("data.cache.latents")
def test_cache_latents_trains_without_a_vae(prepare: Make) -> None:
    plain, cached = prepare(data__cache__latents=False), prepare(data__cache__latents=True)
    assert "vae" in plain.family.parts()
    assert "vae" not in cached.family.parts()
    [encoded], [stored] = plain.next_batches().batches, cached.next_batches().batches
    assert encoded.pixels is not None
    assert stored.pixels is None
    # one colour each, so all crops are equal
    torch.testing.assert_close(plain.family.encode_media(encoded.pixels), stored.moments, rtol=1e-4, atol=1e-4)


# breaks if a cached run loads the text encoder, or encodes captions
@pytest.mark.effect("data.cache.text")
def test_cache_text_trains_without_a_text_encoder(prepare: Make) -> None:
    plain, cached = prepare(data__cache__text=False), prepare(data__cache__text=True)
    assert "text_encoder" in plain.family.parts()
    assert "text_encoder" not in cached.family.parts()
    [encoded], [stored] = plain.next_batches().batches, cached.next_batches().batches
    assert encoded.text is None
    assert encoded.captions == stored.captions
    with torch.no_grad():
        torch.testing.assert_close(
            plain.family.encode_text(encoded.captions).states, stored.text.states, rtol=1e-4, atol=1e-5
        )


# breaks if the encoder is never streamed, or its mode ignores the free memory
@pytest.mark.effect("data.cache.encoders")
def test_cache_encoders_selects_layer_streaming(prepare: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[int] = []
    fill = state.Filling.fill
    monkeypatch.setattr(state.Filling, "fill", lambda self, names: (reads.append(1), fill(self, names))[1])

    def cached(how: str, free: int | None = None) -> tuple[Any, int]:
        monkeypatch.setattr(holding, "free_device_memory", lambda device, cap: free)
        reads.clear()
        cache = {"text": True, "encoders": how, "path": tmp_path / f"{how} {free}"}
        settings = {f"data__cache__{name}": value for name, value in cache.items()}
        ready = prepare(model__path=shipped_folder("mezzotint-mini"), model__weights="files", **settings)
        [batch] = ready.next_batches().batches
        return batch.text.states, len(reads)

    whole, once = cached("whole")
    for how, free, is_whole in (("layers", None, False), ("auto", 1000, False), ("auto", 1 << 40, True)):
        states, count = cached(how, free)
        assert torch.equal(states, whole), how
        assert (count == once) == is_whole, how


# breaks if caches or indexes are in another folder
@pytest.mark.effect("data.cache.path")
def test_cache_path_holds_caches_and_indexes(prepare: Make, tmp_path: Path) -> None:
    ready = prepare(data__cache__path=tmp_path / "here", data__cache__text=True)
    assert {"catalogues", "latents", "text"} <= {p.name for p in (tmp_path / "here").iterdir()}
    assert ready.job.caches.latents.folder.is_relative_to(tmp_path / "here")
    assert ready.job.caches.text.folder.is_relative_to(tmp_path / "here")


def row_bytes(ready: Any) -> dict[Any, int]:
    latents = ready.job.caches.latents
    sizes = {Size(b.latents.shape[-1] * 8, b.latents.shape[-2] * 8) if b.latents is not None else
             Size(b.moments.shape[-1] * 8, b.moments.shape[-2] * 8) for b in ready.next_batches().batches}  # fmt: skip
    return {size: latents.store(size).row_bytes for size in sizes}


# breaks if moments are stored whatever the setting, or a stored sample is drawn again
@pytest.mark.effect("data.cache.content")
def test_cache_content_is_moments_or_one_sample(prepare: Make) -> None:
    moments, sample = prepare(data__cache__content="moments"), prepare(data__cache__content="sample")
    [with_moments], [with_draw] = moments.next_batches().batches, sample.next_batches().batches
    assert with_moments.latents is None
    assert with_draw.moments is None
    assert with_moments.moments.shape[1] == 2 * with_draw.latents.shape[1] == 8
    assert sum(row_bytes(moments).values()) == 2 * sum(row_bytes(sample).values())
    mean, std = with_moments.moments.chunk(2, dim=1)
    assert float(((with_draw.latents - mean) / std).abs().max()) < 6, "a sample of this posterior"
    drawn = [
        batch_latents(moments.trainer.model.family, with_moments, torch.device("cpu")),
        batch_latents(sample.trainer.model.family, with_draw, torch.device("cpu")),
    ]
    assert torch.equal(drawn[1], with_draw.latents)
    assert not torch.equal(drawn[0], mean)


# breaks if numbers are stored in another dtype
@pytest.mark.effect("data.cache.dtype")
@pytest.mark.parametrize(("name", "dtype"), [("fp16", torch.float16), ("bf16", torch.bfloat16)])
def test_cache_dtype_is_the_type_of_stored_numbers(name: str, dtype: torch.dtype, prepare: Make) -> None:
    whole, small = (prepare(data__cache__dtype=kind, data__cache__text=True) for kind in ("fp32", name))
    [exact], [rounded] = whole.next_batches().batches, small.next_batches().batches
    assert torch.equal(rounded.moments, exact.moments.to(dtype).float())
    assert torch.equal(rounded.text.states, exact.text.states.to(dtype).float())
    assert not torch.equal(rounded.moments, exact.moments)
    assert sum(row_bytes(whole).values()) == 2 * sum(row_bytes(small).values())


# breaks if another number of placements is stored, or visits use only the first one
@pytest.mark.effect("data.cache.crops")
def test_cache_crops_counts_crops_per_image(prepare: Make, noisy: Make, tmp_path: Path) -> None:
    usual = {"data__path": noisy(tmp_path / "one", [(80, 48)]), "run__steps": 40, "data__buckets__shape": "square"}
    for crops in (1, 3):
        ready = prepare(data__cache__crops=crops, data__cache__path=tmp_path / "cache", **usual)
        seen = Counter(tuple(b.moments.flatten().tolist()) for step in ready.job.trainer.batches for b in step.batches)
        assert len(seen) == crops
        assert sum(seen.values()) == 40
        assert min(seen.values()) > 40 / crops / 3


# breaks if base sizes after the first are not trained, or a mode has the batches of the other
@pytest.mark.effect("data.resolution_mode")
def test_resolution_mode_trains_each_base_size_or_a_random_one(feed: Make, noisy: Make, tmp_path: Path) -> None:
    folder = noisy(tmp_path / "one", [(80, 80)] * 12)
    each = feed(folder, resolution=[32, 48], batch_size=4)
    assert Counter(tuple(batch.pixels.shape[-2:]) for batch in each.batches()) == {(32, 32): 3, (48, 48): 3}
    batches = feed(folder, resolution=[32, 48], resolution_mode="random", batch_size=4).batches()
    assert {batch.pixels.shape[-1] for batch in batches} == {32, 48}
    assert sorted(key for batch in batches for key in batch.keys) == [f"{n:03d}.png" for n in range(12)]


# breaks if a set's own value does not reach its samples, or reaches those of others
@pytest.mark.effect("data.sets")
def test_each_set_has_its_own_settings(feed: Make, noisy: Make, tmp_path: Path) -> None:
    one, two, other = (noisy(tmp_path / name, [(64, 48)] * 4) for name in ("one", "two", "other"))
    (two / "001.txt").write_text("a, b, c")
    sets = (
        {"path": one, "captions": {"dropout": 1.0}, "weight": 0.25},
        {"path": two, "batch_size": 2, "flip": 1.0, "captions": {"trigger": "sks"}, "repeats": 2},
        {"path": other, "class_images": True, "resolution": 48, "crop": "stretch"},
    )
    batches = feed(*sets, batch_size=4, prior__weight=0.5, prior__balance="none", captions__prefix="photo").batches()
    captions, facts = {}, {}
    for batch in batches:
        [number] = {key[0] for key in batch.keys}  # sets of other batch sizes or sizes share no batch
        captions.setdefault(number, set()).update(batch.captions)
        shape, is_class = tuple(batch.pixels.shape[-2:]), bool(batch.is_class.all())
        facts.setdefault(number, set()).add((batch.size, shape, is_class, *set(batch.weight.tolist())))
    assert captions == {
        "0": {""},
        "1": {"photo sks image 0", "photo sks a, b, c", "photo sks image 2", "photo sks image 3"},
        "2": {f"image {n}" for n in range(4)},
    }
    assert facts == {
        "0": {(4, (24, 40), False, 0.25)}, "1": {(2, (24, 40), False, 1.0)}, "2": {(4, (40, 56), True, 0.5)},
    }  # fmt: skip
    assert sum(batch.size for batch in batches) == 4 + 2 * 4 + 4


# breaks if a set or a base size is left out of the cache, or its entries are looked up with the settings of another
def test_latents_of_sets_and_base_sizes_are_cached_and_found(shared_world: Any, prepare: Make, noisy: Make) -> None:
    one, two = (noisy(shared_world.root / f"set-{name}", [(64, 64)] * 3) for name in ("one", "two"))
    sets = json.dumps([{"path": str(one), "resolution": [32, 48]}, {"path": str(two), "flip": 1.0}])
    ready = prepare(data__path=None, data__sets=sets, data__resolution=32, data__buckets__step=16, run__steps=3)
    sizes = {tuple(batch.moments.shape[-2:]) for _ in range(3) for batch in ready.next_batches().batches}
    assert len(sizes) == 2
