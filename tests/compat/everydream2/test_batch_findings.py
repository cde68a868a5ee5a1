"""Batches kept to names: what fills them badly is a finding with what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from mezzotint.data.catalogue.catalogue import Catalogue, build
from mezzotint.data.findings import data_set
from mezzotint.settings.sections.data import DataSettings


def named_pictures(tmp_path: Path, **values: Any) -> tuple[Catalogue, np.ndarray[Any, Any], DataSettings]:
    """Nine squares without a name, five squares and two wide images of the name `horses`."""
    root = tmp_path / "data"
    for folder, count, size in ((root, 9, (530, 530)), (root / "h", 5, (530, 530)), (root / "h", 2, (300, 200))):
        folder.mkdir(exist_ok=True)
        for i in range(count):
            Image.new("RGB", size, (i, 1, 1)).save(folder / f"{size[0]}-{i}.png")
    (root / "h" / "batch_id.txt").write_text("horses")
    base = {"path": root, "format": "everydream", "buckets": {"shape": "table"}, "batch_size": 4}
    settings = DataSettings.model_validate(base | values)
    catalogue = build(settings, tmp_path / "index", workers=1)
    return catalogue, np.arange(len(catalogue), dtype=np.int32), settings


def test_buckets_that_fill_batches_badly_are_named_with_what_to_do(tmp_path: Path) -> None:
    [finding] = data_set.of_batches(*named_pictures(tmp_path, remainder="repeat"))
    assert [example.text for example in finding.examples] == [
        "'horses', bucket 512×512: 5 images for batches of 4; add 3 of about 1:1, remove 1, or multiply these by 1.6",
        "'horses', bucket 640×384: 2 images for batches of 4; add 2 of about 5:3, or multiply these by 2",
    ]


def test_batches_that_are_neither_filled_nor_named_have_no_finding(tmp_path: Path) -> None:
    catalogue, rows, settings = named_pictures(tmp_path)
    nameless = rows[catalogue.overrides.group == 0][:1]
    assert list(data_set.of_batches(catalogue, nameless, settings)) == []
    filled = settings.model_copy(update={"remainder": "fill"})
    assert len(list(data_set.of_batches(catalogue, nameless, filled))) == 1
    assert list(data_set.of_batches(catalogue, rows[catalogue.overrides.group == 0][:8], filled)) == []
