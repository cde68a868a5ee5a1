"""The schedule of an epoch as a text file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from mezzotint.data.catalogue.catalogue import Catalogue, build
from mezzotint.data.schedule import plan, schedule_file
from mezzotint.data.schedule.columns import plan_columns
from mezzotint.settings.sections.data import DataSettings


def planned(tmp_path: Path, **values: Any) -> tuple[Any, np.ndarray[Any, Any], Catalogue, DataSettings]:
    root = tmp_path / "data"
    root.mkdir(exist_ok=True)
    for i in range(7):
        Image.new("RGB", (64, 64) if i else (90, 64), (i, 0, 0)).save(root / f"{i}.png")
        (root / f"{i}.txt").write_text(f"image {i}")
    settings = DataSettings.model_validate(
        {"path": root, "resolution": 64, "buckets": {"step": 8}, "batch_size": 4, **values}
    )
    data_set = build(settings, tmp_path / "index", workers=1)
    rows = np.arange(len(data_set), dtype=np.int32)
    epoch = plan.plan(plan_columns(data_set, rows, settings), settings, accumulation=1, seed=0, epoch=3)
    return epoch, rows, data_set, settings


def test_each_visit_has_a_line_with_the_batch_fill(tmp_path: Path) -> None:
    epoch, rows, data_set, settings = planned(tmp_path, remainder="repeat")
    path = schedule_file.write(epoch, rows, data_set, settings, tmp_path)
    assert path.name == "ep3_batch_schedule.txt"
    lines = path.read_text("utf-8").splitlines()
    assert len(lines) == len(epoch.order) == 12
    own = {"[72, 56]": {1}, "[64, 64]": {0, 2}}
    for number, line in enumerate(lines):
        step, rest = line.split(", ", 1)
        assert step == f"step:{number // 4:05}"
        size = rest[3 : rest.index("]") + 1]
        assert int(rest.split("r:")[1].split(",")[0]) in own[size]
        assert rest.endswith(f"path:{data_set.path(int(rows[epoch.order[number]]))}")
    assert sum("r:2," in line for line in lines) == 4
    assert schedule_file.bytes_of(epoch, rows, data_set, settings) == path.stat().st_size


def test_newline_in_a_name_is_escaped(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    name = b"a\nb\xff.png"
    Image.new("RGB", (64, 64)).save(Path(os.fsdecode(os.fsencode(tmp_path / "data") + b"/" + name)))
    epoch, rows, data_set, settings = planned(tmp_path, captions={"missing": "empty"})
    lines = list(schedule_file.lines(epoch, rows, data_set, settings))
    assert len(lines) == 8
    assert all(line.count("\n") == 1 for line in lines)
    assert any("a\\nb\\xff.png" in line for line in lines)
