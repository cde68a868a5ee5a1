"""Crop and rotation in `mezzotint.jsonl`: as if the image file had that region, in sizes, pixels, masks and caches."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from mezzotint.data.cache.entries import LatentCache
from mezzotint.data.catalogue import thumbnails
from mezzotint.data.catalogue.catalogue import Catalogue, build
from mezzotint.data.editing.editor import DataEditor
from mezzotint.data.files.regions import Region
from mezzotint.data.loading import reading
from mezzotint.errors import DatasetError
from mezzotint.settings.sections.data import DataSettings
from mezzotint.shapes import Size
from mezzotint.stages import Placement
from support.image_catalogues import Looks

PIXELS = np.random.default_rng(5).integers(0, 255, (60, 80, 3), np.uint8)
MASK = np.random.default_rng(6).integers(0, 255, (60, 80), np.uint8)


def paint(folder: Path, lines: Mapping[str, object] | None = None) -> DataSettings:
    folder.mkdir(parents=True)
    Image.fromarray(PIXELS).save(folder / "fox.png")
    Image.fromarray(MASK).save(folder / "fox-masklabel.png")
    Image.fromarray(PIXELS[:20]).save(folder / "hen.png")
    if lines:
        (folder / "mezzotint.jsonl").write_text(json.dumps({"file": "fox.png", **lines}))
    values = {"path": folder, "captions": {"missing": "empty"}, "mask": {"source": "files"}, "resolution": 64}
    return DataSettings.model_validate(values)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ({"crop": [0.25, 0.1, 0.75, 0.9]}, lambda a: a[6:54, 20:60]),
        ({"rotate": 90}, lambda a: np.rot90(a, -1)),
        ({"rotate": 180}, lambda a: np.rot90(a, 2)),
        ({"crop": [0, 0.5, 1, 1], "rotate": 270}, lambda a: np.rot90(a[30:], 1)),
    ],
)
def test_region_is_what_a_cropped_file_would_be(tmp_path: Path, lines: dict[str, object], expected: object) -> None:
    settings = paint(tmp_path / "data", lines)
    catalogue = build(settings, tmp_path / "index")
    part, part_of_mask = (np.ascontiguousarray(expected(a)) for a in (PIXELS, MASK))  # type: ignore[operator]
    size = Size(part.shape[1], part.shape[0])
    assert (catalogue.width[0], catalogue.height[0]) == (size.width, size.height)
    placed = Placement(size, size, (0, 0))
    assert np.array_equal(reading.read_image(catalogue, 0, placed, settings).transpose(1, 2, 0), part)
    assert np.array_equal(reading.read_mask(catalogue, 0, placed, settings), part_of_mask)
    frames = reading.read_frames(catalogue, 0, placed, np.zeros(0), settings)
    assert torch.equal(frames[:, 0].permute(1, 2, 0), torch.from_numpy(part))
    assert catalogue.verify(0)
    thumbnail = Image.open(_file(thumbnails.thumbnail(catalogue, 0, settings)))
    assert thumbnail.size == (size.width, size.height)
    whole = Image.open(_file(thumbnails.preview_image(catalogue, 0, settings, is_whole=True)))
    assert whole.size == (80, 60)


def _file(content: bytes | None) -> io.BytesIO:
    assert content is not None
    return io.BytesIO(content)


def test_changed_region_is_another_image_to_every_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = Looks(monkeypatch)
    settings = paint(tmp_path / "data")
    cache = LatentCache(tmp_path / "cache", settings, identity="vae", compute="fp32", seed=1)
    placed = Placement(Size(16, 16), Size(16, 16), (0, 0))

    def addresses(catalogue: Catalogue) -> list[bytes]:
        thumbnail = thumbnails.thumbnail(catalogue, 0, settings)
        assert thumbnail is not None
        return [cache.address(catalogue, 0, placed, 0), cache.mask_address(catalogue, 0, placed), thumbnail]

    whole = build(settings, tmp_path / "index")
    editor = DataEditor(tmp_path / "data", settings)
    seen = [addresses(whole)]
    for region in (Region((0, 0, 0.5, 0.5)), Region((0.5, 0.5, 1, 1)), Region(rotate=180)):
        editor.change_settings(["fox.png"], lambda one, new=region: replace(one, region=new), label="crop")  # type: ignore[misc]
        catalogue = build(settings, tmp_path / "index")
        seen.append(addresses(catalogue))
        assert catalogue.fingerprint != whole.fingerprint
        assert cache.address(catalogue, 1, placed, 0) == cache.address(whole, 1, placed, 0)
    assert [len(set(kind)) for kind in zip(*seen, strict=True)] == [4, 4, 4]
    for _ in range(3):
        editor.undo()
    assert addresses(build(settings, tmp_path / "index")) == seen[0]
    assert looks.names.count("hen.png") == 1, "others are not decoded again"
    digest = build(settings, tmp_path / "index").digest
    editor.change_settings(["fox.png"], lambda one: replace(one, review=True), label="review")
    assert np.array_equal(build(settings, tmp_path / "index").digest, digest)


@pytest.mark.parametrize(
    "line",
    [
        '{"file": "a", "crop": [0, 0, 1]}', '{"file": "a", "crop": [0.5, 0, 0.5, 1]}', '{"file": "a", "rotate": 45}',
        '{"file": "a", "crop": [0, 0, 1, 1.1]}', '{"file": "a", "crop": [NaN, 0, 1, 1]}',
        '{"file": "a", "rotate": "90"}',
        '{"file": "a", "review": "no"}',
    ],
)  # fmt: skip
def test_invalid_region_is_an_error(tmp_path: Path, line: str) -> None:
    settings = paint(tmp_path / "data")
    (tmp_path / "data" / "mezzotint.jsonl").write_text(line)
    with pytest.raises(DatasetError, match=r"mezzotint.jsonl:1") as caught:
        build(settings, tmp_path / "index")
    assert caught.value.code == "E1264"


def test_condition_image_needs_the_region_of_its_sample(tmp_path: Path) -> None:
    settings = paint(tmp_path / "data", {"crop": [0, 0, 0.5, 0.5]})
    paint(tmp_path / "before")
    for folder in ("data", "before"):
        (tmp_path / folder / "fox-masklabel.png").unlink()
    conditions = {"conditions": {"source": {"folder": tmp_path / "before"}}, "mask": {"source": "none"}}
    settings = DataSettings.model_validate(settings.model_dump() | conditions)
    with pytest.raises(DatasetError, match="crop or rotate") as caught:
        build(settings, tmp_path / "index")
    assert caught.value.code == "E1295"
    (tmp_path / "before" / "mezzotint.jsonl").write_text((tmp_path / "data" / "mezzotint.jsonl").read_text())
    assert len(build(settings, tmp_path / "index")) == 2
