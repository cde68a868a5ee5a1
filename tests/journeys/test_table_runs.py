"""Whole runs over the format metadata."""

from __future__ import annotations

import io
import json
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image


def test_metadata_table_and_sidecar_files_give_bit_identical_runs(world: Any) -> None:
    lines = []
    for sidecar in sorted(world.images.rglob("*.txt")):
        (image,) = (path for path in sidecar.parent.glob(f"{sidecar.stem}.*") if path.suffix != ".txt")
        name = image.relative_to(world.images).as_posix()
        lines.append(json.dumps({"file_name": name, "text": sidecar.read_text()}))
    (world.images / "metadata.jsonl").write_text("\n".join(reversed(lines)))
    assert world.train("beside", run__steps=2) == 0
    assert world.train("table", run__steps=2, data__format="metadata") == 0
    assert world.end("table") == world.end("beside")


def png(shade: int) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (70, 60), (shade, 7, 9)).save(file, "PNG")
    return file.getvalue()


@pytest.mark.slow
def test_images_in_a_table_are_trained_with_cached_latents(world: Any) -> None:
    root = world.root / "embedded"
    root.mkdir()
    table = {"image": [{"bytes": png(shade), "path": None} for shade in range(0, 240, 30)], "text": [["a", "b"]] * 8}
    pq.write_table(pa.table(table), root / "data.parquet")
    more = {"data__format": "metadata", "data__path": root, "data__cache__latents": True, "data__crop": "center"}
    assert world.train("embedded", run__steps=2, **more) == 0
    assert world.end("embedded").step == 2
