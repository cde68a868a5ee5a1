"""Images inside tar archives are read in place."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from PIL import Image

from mezzotint.data.catalogue.catalogue import build
from mezzotint.data.files import tar_members
from mezzotint.data.media import decoding
from support.loading import open_loader
from support.messages import refused
from support.shards import image_bytes, opened, settings_of, shard


def test_images_are_read_in_place_without_unpacking(tmp_path: Path) -> None:
    shard(tmp_path / "s" / "0.tar", *((f"{i}.{e}", image_bytes(i * 9) if e == "png" else "x") for i in range(5)
                                       for e in ("png", "txt")))  # fmt: skip
    shard(tmp_path / "s" / "1.tar", ("bad.jpg", image_bytes(1, kind="JPEG")[:300]), ("bad.txt", "x"))
    data_set = opened(tmp_path / "s", tmp_path / "index")
    assert [skipped[0] for skipped in data_set.report.skipped] == ["1.tar/bad.jpg"]
    for row in range(5):
        place = data_set.path(row)
        with decoding.readable_file(place) as file, Image.open(file) as image:
            assert image.getpixel((0, 0)) == (row * 9, 7, 9)
        assert place.name.startswith(f"{row}.png@")
        assert decoding.digest_of(place) == bytes(data_set.digest[row])
        assert data_set.verify(row)
    assert not [path for path in (tmp_path / "index").rglob("*") if path.suffix in (".png", ".jpg")]
    assert opened(tmp_path / "s", tmp_path / "index").report.decoded == 6


def test_member_path_must_be_below_a_file(tmp_path: Path) -> None:
    folder = tmp_path / "plain.tar"
    folder.mkdir()
    (folder / "a.png@512+9").write_bytes(image_bytes(5))
    assert tar_members.member_at(folder / "a.png@512+9") is None
    assert decoding.probe(folder / "a.png@512+9", 10**6).size.width == 40
    archive = shard(tmp_path / "0.tar", ("a.png", image_bytes(5)))
    size = archive.stat().st_size
    for place in (
        tar_members.Member(archive, "a.png", size - 4, 100).path,
        tar_members.Member(archive, "a.png", 0, 1 << 40).path,
    ):
        with refused("E1206", r"ends before|more than an image"):
            decoding.probe(place, 10**6)


def test_shard_truncated_during_a_run_names_the_sample(tmp_path: Path) -> None:
    path = shard(tmp_path / "s" / "0.tar", *((f"{i}.{e}", image_bytes(i) if e == "png" else "x") for i in range(4)
                                              for e in ("png", "txt")))  # fmt: skip
    settings = settings_of(tmp_path / "s", resolution=32, buckets={"step": 8}, workers=0)
    data_set = build(settings, tmp_path / "index", workers=1)
    os.truncate(path, 700)
    rows = np.arange(len(data_set), dtype=np.int32)
    loader = open_loader(data_set, rows, settings, accumulation=1, seed=0, start_step=0, last_step=1)
    with loader, refused("E1250", r"sample '0\.tar/\d\.png' could be read when"):
        list(loader)
