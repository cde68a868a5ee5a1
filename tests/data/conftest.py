"""Shared fixtures of the tests of data: index folders and small data sets."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from mezzotint import durable
from mezzotint.data.catalogue import catalogue as catalogues
from mezzotint.data.catalogue.catalogue import Catalogue
from support.clip_folders import write_images
from support.image_catalogues import Looks, paint
from support.loader_samples import SIZES, data
from support.s3_server import S3Server


@pytest.fixture(scope="session")
def only_s3_server() -> Iterator[S3Server]:
    server = S3Server()
    yield server
    server.stop()


@pytest.fixture
def s3_server(only_s3_server: S3Server) -> Iterator[S3Server]:
    """An S3 server on this machine that s3:// addresses use, with an empty bucket `box`."""
    with pytest.MonkeyPatch.context() as patch:
        only_s3_server.make_known(patch)
        yield only_s3_server


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


@pytest.fixture
def index(tmp_path: Path) -> Path:
    return tmp_path / "index"


@pytest.fixture
def painted(tmp_path: Path) -> Path:
    """Six images with captions."""
    paint(tmp_path / "images", 6)
    return tmp_path / "images"


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Looks:
    return Looks(monkeypatch)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Nine images of several shapes with three-line captions."""
    folder = tmp_path_factory.mktemp("images")
    for i, (width, height) in enumerate(SIZES):
        rng = np.random.Generator(np.random.Philox(key=i))
        Image.fromarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8)).save(folder / f"{i}.png")
        (folder / f"{i}.txt").write_text(f"image {i}\nnumber {i}\n{i} it is\n")
    return folder


@pytest.fixture(scope="module")
def catalogue(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Catalogue:
    return catalogues.build(data(folder), tmp_path_factory.mktemp("index"), workers=1)


ClipWriter = Callable[..., Path]


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory, write_clip: ClipWriter) -> Path:
    """Two folders: clips of several lengths and shapes and files that are not clips, and seven images."""
    folder = tmp_path_factory.mktemp("films")
    entries: list[dict[str, Any]] = []
    for n, (num, size) in enumerate([(14, (48, 32)), (7, (48, 32)), (6, (32, 48)), (9, (64, 32)), (20, (40, 40))]):
        write_clip(folder / f"media/{n}.mp4", num, size=size)
        entries += [{"file_name": f"{n}.mp4", "text": text} for text in (f"clip {n}", f"clip {n} once more")]
    whole = (folder / "media/4.mp4").read_bytes()
    (folder / "media/cut.mp4").write_bytes(whole[: len(whole) // 2])
    (folder / "media/list.mp4").write_text("#EXTM3U\nhttp://127.0.0.1/a.mp4\n")
    write_clip(folder / "media/sound.mp4", 0, sound=True)
    write_clip(folder / "media/short.mp4", 3)
    entries += [{"file_name": f"{name}.mp4", "text": name} for name in ("cut", "list", "sound", "short")]
    lines = "".join(json.dumps(entry) + "\n" for entry in entries)
    (folder / "media/metadata.jsonl").write_text(lines)
    write_images(folder, 7)
    return folder


@pytest.fixture(autouse=True)
def _no_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are not synced, which takes long; `test_extracted` tests the order of syncs."""
    monkeypatch.setattr(durable, "sync_file", lambda path: None)
    monkeypatch.setattr(durable, "sync_folder", lambda path: None)
