"""The report of how samples fill batches and buckets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from mezzotint.data.catalogue.catalogue import Catalogue, build
from mezzotint.data.findings import data_set
from mezzotint.reports import batch_report
from mezzotint.settings.sections.data import DataSettings


def catalogue_of(tmp_path: Path, **values: Any) -> tuple[Catalogue, np.ndarray[Any, Any], DataSettings]:
    """Nine squares without a name, five squares and two wide images of the name `horses`."""
    root = tmp_path / "data"
    for folder, count, size in ((root, 9, (530, 530)), (root / "h", 5, (530, 530)), (root / "h", 2, (300, 200))):
        folder.mkdir(exist_ok=True)
        for i in range(count):
            Image.new("RGB", size, (i, 1, 1)).save(folder / f"{size[0]}-{i}.png")
    (root / "h" / "batch_id.txt").write_text("horses")
    base = {"path": root, "format": "everydream", "buckets": {"shape": "table"}, "batch_size": 4}
    settings = DataSettings.model_validate(base | values)
    result = build(settings, tmp_path / "index", workers=1)
    return result, np.arange(len(result), dtype=np.int32), settings


def test_table_lists_left_over_missing_and_filled_up_samples(tmp_path: Path) -> None:
    assert batch_report.rows_of(*catalogue_of(tmp_path, remainder="repeat")) == [
        ("-", "512×512", "9 + 1", "1", "3", "2"),
        ("-", "640×384", "0 + 2", "-", "-", "2"),
        ("horses", "512×512", "5", "1", "3", "-"),
        ("horses", "640×384", "2", "2", "2", "-"),
    ]


def test_images_that_are_upscaled_are_listed(tmp_path: Path) -> None:
    result, rows, settings = catalogue_of(tmp_path)
    path = batch_report.write_undersized(result, rows, settings, tmp_path)
    assert path is not None
    lines = path.read_text("utf-8").splitlines()
    assert lines == [f"{tmp_path}/data/h/300-{i}.png, 300×200, bucket 640×384" for i in range(2)]
    assert batch_report.write_undersized(result, rows[result.width == 530], settings, tmp_path / "gone") is None


def test_buckets_with_badly_filled_batches_are_reported_with_a_remedy(tmp_path: Path) -> None:
    [finding] = data_set.of_batches(*catalogue_of(tmp_path, remainder="repeat"))
    assert [example.text for example in finding.examples] == [
        "'horses', bucket 512×512: 5 images for batches of 4; add 3 of about 1:1, remove 1, or multiply these by 1.6",
        "'horses', bucket 640×384: 2 images for batches of 4; add 2 of about 5:3, or multiply these by 2",
    ]


def test_unnamed_batches_without_filling_have_no_finding(tmp_path: Path) -> None:
    catalogue, rows, settings = catalogue_of(tmp_path)
    nameless = rows[catalogue.overrides.group == 0][:1]
    assert list(data_set.of_batches(catalogue, nameless, settings)) == []
    filled = settings.model_copy(update={"remainder": "fill"})
    assert len(list(data_set.of_batches(catalogue, nameless, filled))) == 1
    assert list(data_set.of_batches(catalogue, rows[catalogue.overrides.group == 0][:8], filled)) == []
