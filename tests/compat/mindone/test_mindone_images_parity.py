"""Pixels and sizes of MindONE's example for SDXL, recorded, against ours.

The square chain resizes the shorter side to 32 (its code 3), cuts a square at a random position; the other covers one
of three sizes (bilinear) and cuts at a random position. The positions are in the record and given to ours.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from mezzotint.data.catalogue import catalogue as catalogues
from mezzotint.data.catalogue.catalogue import Catalogue
from mezzotint.data.loading.reading import read_image
from mezzotint.data.media import decoding
from mezzotint.data.schedule import placement
from mezzotint.data.schedule.plan import Visit
from mezzotint.settings.sections.data import DataSettings
from mezzotint.shapes import Size, cover
from mezzotint.stages import Placement
from support.loading import open_loader

DATA = Path(__file__).parents[2] / "parity" / "data" / "mindone-sdxl"
RECORD: dict[str, Any] = json.loads((DATA / "pipeline.json").read_text())
PIXELS = load_file(DATA / "pipeline.safetensors")
BATCHES = [(batch, place) for batch in RECORD["multi_aspect"]["batches"] for place in (0, 1)]


def settings_of(**more: Any) -> DataSettings:
    values = {"path": DATA / "images", "format": "mindone", "resize": "bicubic", "antialias": False, "workers": 0}
    return DataSettings.model_validate(
        values | {"resolution": 32, "buckets": {"shape": "square", "step": 8}, "batch_size": 1, "crop": "random"} | more
    )


@pytest.fixture(scope="module")
def catalogue(tmp_path_factory: pytest.TempPathFactory) -> Catalogue:
    return catalogues.build(settings_of(), tmp_path_factory.mktemp("index"), workers=1)


def recorded(name: str) -> Any:
    """Bytes of a recorded image, from x / 127.5 − 1."""
    return np.rint((PIXELS[name].astype(np.float64) + 1) * 127.5).astype(np.uint8)


@pytest.mark.parametrize("line", RECORD["square32"], ids=lambda line: line["file"])
def test_square_transforms_are_bit_exact(line: dict[str, Any], catalogue: Catalogue) -> None:
    row = next(row for row in range(len(catalogue)) if catalogue.key(row) == line["file"])
    size, bucket = Size(int(catalogue.width[row]), int(catalogue.height[row])), Size(32, 32)
    corner = tuple(line["crop_coords_top_left"])
    placed = Placement(bucket, cover(size, bucket), corner)
    assert np.array_equal(read_image(catalogue, row, placed, settings_of()), recorded(f"square32/{row}/image"))
    sampled = {
        placement.at_visit(catalogue, Visit(row, 1, 0, epoch, 0), bucket, settings_of()).crop_top_left
        for epoch in range(200)
    }
    assert corner in sampled, "ours samples the same positions"
    assert catalogue.captions(row) == (line["txt"].replace("nan", ""),), "an empty caption stays empty"


def test_recorded_sizes_match_the_sampled_crop(catalogue: Catalogue) -> None:
    rows = np.arange(len(catalogue), dtype=np.int32)
    lines = {line["file"]: line for line in RECORD["square32"]}
    settings = settings_of()
    with open_loader(catalogue, rows, settings, accumulation=1, seed=3, start_step=0, last_step=4) as loader:
        for batch in (batch for step in loader for batch in step.batches):
            [key] = batch.keys
            assert batch.original_size.tolist() == [lines[key]["original_size_as_tuple"]]
            assert batch.target_size.tolist() == [lines[key]["target_size_as_tuple"]]
            row = next(row for row in range(len(catalogue)) if catalogue.key(row) == key)
            [corner] = batch.crop_top_left.tolist()
            size = Size(int(catalogue.width[row]), int(catalogue.height[row]))
            placed = Placement(Size(32, 32), cover(size, Size(32, 32)), tuple(corner))
            assert batch.pixels is not None
            pixels = np.rint((batch.pixels[0].numpy() + 1) * 127.5).astype(np.uint8)
            assert np.array_equal(pixels, read_image(catalogue, row, placed, settings))


@pytest.mark.parametrize(("batch", "place"), BATCHES, ids=lambda value: str(value)[:24])
def test_multi_size_transforms_are_bit_exact(batch: dict[str, Any], place: int) -> None:
    """It rounds the free side up where ours truncates it: with its size the pixels are the same."""
    height, width = batch["size_hw"]
    path = DATA / "images" / RECORD["square32"][place]["file"]
    old_height, old_width = batch["original"][place]
    factor = max(height / old_height, width / old_width)
    resized = Size(int(np.ceil(old_width * factor - 1e-9)), int(np.ceil(old_height * factor - 1e-9)))
    placed = Placement(Size(width, height), resized, tuple(batch["crop"][place]))
    pixels = decoding.decode_image(
        path, placed, resize="bilinear", antialias=False, background="#ffffff", max_pixels=1_000_000
    )  # fmt: skip
    assert np.array_equal(pixels, recorded(f"multi_aspect/e{batch['epoch']}b{batch['batch']}/image")[place])
