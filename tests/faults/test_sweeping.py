"""Partial files of a killed process are removed by the next of its kind: single files of exports, outputs of commands
that write weights, image indexes, thumbnails, small files of a cache."""

from __future__ import annotations

import io
import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch

from mezzotint import durable
from mezzotint.assets import MODELS
from mezzotint.cli import main
from mezzotint.data.cache import entry_folder
from mezzotint.data.catalogue import catalogue, thumbnails
from mezzotint.run_folder import RunFolder
from mezzotint.settings import weights_formats
from mezzotint.tasks.train.exports import choose_free_path
from mezzotint.tasks.weights import convert
from mezzotint.weights.files import formats, tensor_files
from support.data_sets import small_of
from support.image_catalogues import paint

pytestmark = pytest.mark.faults

MINI = MODELS / "mezzotint-mini"


def left(folder: Path) -> list[str]:
    """Names of partial files in a folder."""
    return [path.name for path in folder.rglob(".*.partial")]


def killed(work: Callable[[], object]) -> None:
    """Runs `work` in a process that is killed at the first sync of a file or folder."""
    child = os.fork()
    if not child:
        try:
            durable.sync = durable.sync_file = lambda path: os.kill(os.getpid(), signal.SIGKILL)
            work()
        finally:
            os._exit(70)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def test_temporary_file_of_a_killed_export_is_swept_by_the_next(tmp_path: Path) -> None:
    folder, shelf = RunFolder(tmp_path / "run").open(), tmp_path / "shelf"
    shelf.mkdir()
    killed(lambda: convert.single_file_of(MINI, shelf / "step-1.safetensors"))
    assert len(left(shelf)) == 1
    choose_free_path(folder, shelf / "step-2.safetensors", replaces=False, say=print)
    assert not left(shelf)
    killed(lambda: convert.single_file_of(MINI, folder.exports / "step-1.safetensors"))
    assert len(left(folder.exports)) == 1
    folder.sweep()
    assert not left(folder.exports)


@pytest.mark.parametrize("name", ["x.safetensors", "x"], ids=["file", "folder"])
@pytest.mark.parametrize("verb", ["convert", pytest.param("merge", marks=pytest.mark.slow)])
def test_leftovers_of_a_killed_command_are_swept_by_the_next(tmp_path: Path, verb: str, name: str) -> None:
    words = [verb, *[str(MINI)] * (2 if verb == "merge" else 1), str(tmp_path / name)]
    killed(lambda: main(words))
    assert left(tmp_path)
    assert main(words) == 0
    assert os.listdir(tmp_path) == [name]


@pytest.mark.parametrize("length", [8, 240], ids=["short", "long"])
def test_saving_weights_sweeps_leftovers_in_the_folder(tmp_path: Path, length: int) -> None:
    tensors, name = {"a": torch.ones(2)}, "n" * length
    writes = [partial(tensor_files.write, tensors, tmp_path / f"{name}.safetensors")]
    for spec in weights_formats.specs().values():
        file = tmp_path / f"{name}{spec.suffix}"
        other = formats.format_for(file)
        assert other is not None
        writes.append(partial(other.write, file, list(tensors.items())))
    for write in writes:
        for _ in range(2):
            killed(write)
        assert len(left(tmp_path)) == 1, "the second removes what the first left"
        write()
        assert not left(tmp_path)


class Killing(io.BytesIO):
    """A file that kills the process at its second read to the end."""

    has_ended = False

    def read(self, size: int | None = -1, /) -> bytes:
        chunk = super().read(size)
        if not chunk and self.has_ended:
            os.kill(os.getpid(), signal.SIGKILL)
        self.has_ended |= not chunk
        return chunk


def test_leftovers_of_a_killed_image_index_are_swept(tmp_path: Path) -> None:
    paint(tmp_path / "images", 3)
    settings, index = small_of(tmp_path / "images"), tmp_path / "catalogues"
    killed(lambda: catalogue.build(settings, index, workers=1))
    assert left(index)
    assert len(catalogue.build(settings, index, workers=1)) == 3
    assert not left(index)


def test_leftovers_of_small_cache_files_are_swept(tmp_path: Path) -> None:
    paint(tmp_path / "images", 1)
    settings = small_of(tmp_path / "images", cache={"path": tmp_path / "cache"})
    data_set = catalogue.build(settings, tmp_path / "cache" / "catalogues", workers=1)
    layout, journal = tmp_path / "cache" / "layout.json", data_set.memo.path.with_name("memo.sqlite-journal")
    killed(lambda: entry_folder.write_durably(layout, b"half"))
    killed(lambda: data_set.memo.put("thumbnail", 1, Killing(os.urandom(9 << 20))))  # spills before it is committed
    assert len(left(tmp_path)) == 1
    assert journal.exists()
    assert thumbnails.thumbnail(data_set, 0, settings)
    entry_folder.write_durably(layout, b"whole")
    assert not left(tmp_path)
    assert not journal.exists()
    assert data_set.memo.get("thumbnail", 1) is None
