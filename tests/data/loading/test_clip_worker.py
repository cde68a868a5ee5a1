"""Batches of clips with joined images: deterministic, with the pixels of each resize rule."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from mezzotint.data.buckets.clip_sampling import times_of
from mezzotint.data.catalogue import catalogue as catalogues
from mezzotint.data.catalogue.catalogue import Catalogue
from mezzotint.data.loading.loader import held_out_batches
from mezzotint.data.loading.worker import to_pixels
from mezzotint.data.media import clip_files
from mezzotint.data.media.clip_transforms import port_square, project_square, to_bytes
from mezzotint.reports import data_report
from mezzotint.settings.sections.data import DataSettings
from mezzotint.stages import Batch
from support.clip_folders import SIZES, ClipWriter, settings_of
from support.loading import open_loader
from support.messages import refused

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def catalogue(films: Path, tmp_path_factory: pytest.TempPathFactory) -> Catalogue:
    return catalogues.build(settings_of(films), tmp_path_factory.mktemp("index"), workers=2)


def batches(catalogue: Catalogue, settings: DataSettings, first: int, last: int, **options: Any) -> list[Batch]:
    rows = np.arange(len(catalogue), dtype=np.int32)
    loader = open_loader(
        catalogue, rows, settings, **{"accumulation": 1, "seed": 3} | options, start_step=first, last_step=last
    )
    with loader:
        return [batch for step in loader for batch in step.batches]


def same(one: Batch, other: Batch) -> bool:
    """Whether two batches are bitwise identical, including joined images."""
    for field in fields(Batch):
        a, b = getattr(one, field.name), getattr(other, field.name)
        if isinstance(a, Batch):
            assert isinstance(b, Batch)
            equal = same(a, b)
        else:
            equal = torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b
        if not equal:
            return False
    return True


def joined(parts: Sequence[Batch]) -> dict[str, Any]:
    """Keys, captions, pixels and positions of the samples of several batches of one size, and of their joined
    images."""
    samples: dict[str, Any] = {}
    for part in parts:
        for number, key in enumerate(part.keys):
            of_sample = slice(2 * number, 2 * number + 2)
            samples[f"{key} {int(part.positions[number])}"] = (
                part.captions[number], part.pixels[number].tolist(), part.joined_images.keys[of_sample],
                part.joined_images.captions[of_sample], part.joined_images.pixels[of_sample].tolist(),
                part.joined_images.posterior_keys[of_sample].tolist(),
            )  # fmt: skip
    return samples


def test_batches_do_not_depend_on_workers_or_start_step(catalogue: Catalogue, films: Path) -> None:
    without_workers = batches(catalogue, settings_of(films), 0, 6)
    assert {tuple(batch.pixels.shape[2:]) for batch in without_workers if batch.pixels is not None} == {
        tuple(s) for s in SIZES
    }
    assert all(
        batch.joined_images is not None and batch.joined_images.size == 2 * batch.size for batch in without_workers
    )
    with_workers = batches(catalogue, settings_of(films, workers=2), 0, 6)
    later = batches(catalogue, settings_of(films), 2, 6)
    assert all(same(a, b) for a, b in zip(without_workers, with_workers, strict=True))
    assert all(same(a, b) for a, b in zip(without_workers[2:], later, strict=True))
    other = batches(catalogue, settings_of(films), 0, 6, seed=4)
    assert not any(same(a, b) for a, b in zip(without_workers, other, strict=True))


def test_two_ranks_share_each_batch_and_its_joined_images(catalogue: Catalogue, films: Path) -> None:
    without_workers = batches(catalogue, settings_of(films), 0, 4)
    ranks = [batches(catalogue, settings_of(films), 0, 4, rank=rank, world_size=2) for rank in (0, 1)]
    for whole, *parts in zip(without_workers, *ranks, strict=True):
        assert len({tuple(part.pixels.shape[2:]) for part in parts if part.pixels is not None}) == 1
        assert joined(parts) == joined([whole])


def test_repeated_visits_sample_other_frames_and_images(catalogue: Catalogue, films: Path) -> None:
    seen = [batch for batch in batches(catalogue, settings_of(films), 0, 12) if batch.pixels is not None]
    of_last = [
        (batch.pixels[n].numpy().tobytes(), batch.joined_images.keys[2 * n : 2 * n + 2])
        for batch in seen
        for n, key in enumerate(batch.keys)
        if key == "4.mp4" and batch.joined_images is not None and batch.pixels is not None
    ]
    assert len({pixels for pixels, _ in of_last}) > 2
    assert len({keys for _, keys in of_last}) > 1


def test_files_that_are_not_clips_are_reported_with_the_reason(
    films: Path, catalogue: Catalogue, tmp_path: Path
) -> None:
    reasons = dict(catalogue.report.skipped)
    assert set(reasons) == {"cut.mp4", "list.mp4", "sound.mp4"}
    assert reasons["list.mp4"] == "a playlist, not a clip; use the clips that it lists"
    assert reasons["sound.mp4"] == "contains sound but no video"
    assert "damaged" in reasons["cut.mp4"]
    left_out = dict(catalogue.report.left_out)
    assert left_out["short.mp4"] == "too short: 3 frames, but 5 are needed"
    lines = [
        json.loads(line) for line in data_report.write(catalogue, tmp_path, settings_of(films)).read_text().splitlines()
    ]
    assert {line["id"]: line["reason"] for line in lines if line["class"] == "skipped"} == reasons | left_out
    assert sum(line.get("set") == "stills" for line in lines) == 7


def test_second_start_and_other_frame_settings_decode_nothing(films: Path, tmp_path: Path) -> None:
    settings = settings_of(films, clips={"images": 0, "images_from": "none", "images_path": ()})
    first = catalogues.build(settings, tmp_path, workers=1)
    assert first.report.decoded == 9  # five clips, each named twice, a short one and three invalid files
    assert catalogues.build(settings, tmp_path, workers=1).folder == first.folder
    without_workers = {"images": 0, "images_from": "none", "images_path": (), "frames": 5, "buckets": []}
    fewer = settings_of(films, clips=without_workers, resolution=32, buckets={"step": 8})
    again = catalogues.build(fewer, tmp_path, workers=1)
    assert again.folder != first.folder
    assert again.report.decoded == 4  # unusable files are probed again
    assert again.frames.tolist() == first.frames.tolist() == [14, 14, 7, 7, 6, 6, 9, 9, 20, 20]
    assert again.rate.tolist() == [10.0] * 10


@pytest.mark.parametrize("rule", ["square-then-bilinear", "bicubic-then-square"])
def test_square_resize_rules_give_their_pixels(rule: str, films: Path, tmp_path: Path) -> None:
    more = {"start": "first", "buckets": [], "frames": 5}
    settings = settings_of(
        films, clips=more, resize=rule, resolution=32, buckets={"shape": "square", "step": 8}, flip=1.0, crop="center"
    )
    data_set = catalogues.build(settings, tmp_path, workers=1)
    (batch, *_) = batches(data_set, settings, 0, 1)
    for number, key in enumerate(batch.keys):
        name, _, start = key.partition("@")
        stored = clip_files.decoder().frames(
            films / "media" / name.partition("#")[0], times_of(range(5), begin=0.0, rate=10.0)
        )
        if start:
            continue
        frames = torch.from_numpy(stored).to(torch.uint8)
        squares = port_square(frames, 32) if rule == "bicubic-then-square" else to_bytes(project_square(frames, 32))
        assert torch.equal(batch.pixels[number].transpose(0, 1), to_pixels(squares.flip(-1), CPU))
    image = torch.from_numpy(np.array(Image.open(films / "images" / batch.joined_images.keys[0]))).permute(2, 0, 1)[
        None
    ]
    squares = port_square(image, 32) if rule == "bicubic-then-square" else to_bytes(project_square(image, 32))
    assert torch.equal(batch.joined_images.pixels[:1], to_pixels(squares.flip(-1), CPU))


def test_held_out_batches_are_deterministic(catalogue: Catalogue, films: Path) -> None:
    rows = np.asarray([0, 4, 9], dtype=np.int32)
    first, again = (held_out_batches(catalogue, rows, settings_of(films), seed=3) for _ in range(2))
    assert sum(batch.size for batch in first) == 3
    assert all(same(a, b) for a, b in zip(first, again, strict=True))
    assert all("" not in batch.captions for batch in first)


def test_clip_removed_during_a_run_is_reported(tmp_path: Path, write_clip: ClipWriter) -> None:
    write_clip(tmp_path / "a.mp4", 8)
    (tmp_path / "a.txt").write_text("a clip")
    plain = {"path": tmp_path, "format": "videofolder", "resolution": 32, "buckets": {"step": 8}, "workers": 0}
    settings = DataSettings(**plain, clips={"frames": 5})
    data_set = catalogues.build(settings, tmp_path / "index", workers=1)
    (tmp_path / "a.mp4").unlink()
    with refused("E1250", r"sample 'a\.mp4' could be read .* but not now"):
        batches(data_set, settings, 0, 1)
