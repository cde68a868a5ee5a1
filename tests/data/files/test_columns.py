"""Columns on disk: damaged ones are rebuilt, and write errors are reported."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mezzotint.data.catalogue.catalogue import build
from mezzotint.data.files.columns import TextBuilder
from mezzotint.errors import StorageError
from support.data_sets import small_of as settings_of
from support.image_catalogues import indexes_in


@pytest.mark.parametrize(
    "harm",
    [
        lambda folder: (folder / "width.npy").write_bytes(b""),
        lambda folder: (folder / "caption.npy").unlink(),
        lambda folder: flip(folder / "digest.npy", -1),
        lambda folder: flip(folder / "manifest.json", 40),
        lambda folder: (folder / "manifest.json").write_text("{}"),
        lambda folder: (folder / "manifest.json").write_text("[1]"),
        lambda folder: (folder / "manifest.json").unlink(),
    ],
)
def test_damaged_index_is_rebuilt(painted: Path, index: Path, harm: Callable[[Path], Any]) -> None:
    first = build(settings_of(painted), index)
    harm(first.folder)
    second = build(settings_of(painted), index)
    assert second.fingerprint == first.fingerprint
    assert second.captions(5) == ("image 5",)
    assert second.report.decoded == 6


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def test_index_folder_that_cannot_be_created_is_reported(painted: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(StorageError, match=r"set data\.cache\.path to another folder") as caught:
        build(settings_of(painted), tmp_path / "file")
    assert str(tmp_path / "file") in caught.value.message
    assert "make room" not in caught.value.message
    assert caught.value.code == "E1720"


def test_full_disk_is_reported_and_leaves_no_index(painted: Path, index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(np, "save", full)
        with pytest.raises(
            StorageError, match=r"No space left on device .*free space there, or set data\.cache"
        ) as caught:
            build(settings_of(painted), index)
    assert caught.value.code == "E1720"
    assert indexes_in(index) == []
    assert len(build(settings_of(painted), index)) == 6


def test_iterating_texts_equals_indexing_them() -> None:
    builder = TextBuilder()
    texts = ["one", "", "zwei ü", os.fsdecode(b"no utf-8 \xff"), "\n"]
    for text in texts:
        builder.append(text)
    kept = builder.texts()
    assert list(kept) == [kept[number] for number in range(len(kept))] == texts
