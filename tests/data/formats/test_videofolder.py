"""The format videofolder: captions in sidecar files or a table."""

from __future__ import annotations

import json
from pathlib import Path

from mezzotint.data.catalogue import catalogue as catalogues
from mezzotint.settings.sections.data import DataSettings
from support.clip_folders import ClipWriter
from support.messages import refused


def test_clip_captions_come_from_sidecars_or_a_table(tmp_path: Path, write_clip: ClipWriter) -> None:
    for name in ("a", "b", "sub/c"):
        write_clip(tmp_path / f"set/{name}.mp4", 6)
        (tmp_path / f"set/{name}.txt").write_text(f"beside {name}")
    plain = {"path": tmp_path / "set", "format": "videofolder", "resolution": 32, "buckets": {"step": 8}}
    settings = DataSettings(**plain, clips={"frames": 5})
    data_set = catalogues.build(settings, tmp_path / "index", workers=1)
    assert [(data_set.key(row), data_set.captions(row)) for row in range(3)] == [
        ("a.mp4", ("beside a",)), ("b.mp4", ("beside b",)), ("sub/c.mp4", ("beside sub/c",)),
    ]  # fmt: skip
    rows = [{"file_name": "sub/c.mp4", "text": "from the table"}, {"file_name": "gone.mp4", "text": "x"}]
    (tmp_path / "set/metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    data_set = catalogues.build(settings, tmp_path / "index", workers=1)
    assert [(data_set.key(row), data_set.captions(row)) for row in range(len(data_set))] == [
        ("sub/c.mp4", ("from the table",))
    ]
    assert dict(data_set.report.left_out) == {f"{name}.mp4": "not named in any row of a table" for name in "ab"}
    assert dict(data_set.report.skipped) == {
        "metadata.jsonl:2": "'gone.mp4': no such file below the folder of the table"
    }  # fmt: skip
    (tmp_path / "set/metadata.jsonl").unlink()
    (tmp_path / "set/b.txt").unlink()
    with refused("E1203", r"1 clip has no caption: b\.mp4"):
        catalogues.build(settings, tmp_path / "index", workers=1)
