"""Atomic writes, and messages of storage errors."""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

import pytest

from mezzotint import durable
from mezzotint.errors import CheckpointError, RecipeError, StorageError


def test_failed_write_keeps_the_old_file_and_leaves_nothing_else(tmp_path: Path) -> None:
    durable.write_file(tmp_path / "a", "old")
    with contextlib.suppress(KeyError), durable.replacing(tmp_path / "a") as aside:
        aside.write_text("new")
        raise KeyError
    assert (tmp_path / "a").read_text() == "old"
    assert os.listdir(tmp_path) == ["a"]


def test_folder_replaces_another(tmp_path: Path) -> None:
    for content in ("old", "new"):
        with durable.replace_atomically(tmp_path / "a") as aside:
            aside.mkdir()
            (aside / content).write_text(content)
    assert [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")] == ["a", "a/new"]


def test_existing_file_is_never_overwritten(tmp_path: Path) -> None:
    durable.write_new(tmp_path / "a", "mine")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for name in ("a", "link"):
        with pytest.raises(RecipeError, match="already exists"):
            durable.write_new(tmp_path / name, "other")
    assert (tmp_path / "a").read_text() == "mine"
    assert sorted(os.listdir(tmp_path)) == ["a", "link"]


@pytest.mark.parametrize(
    ("number", "code", "words"),
    [
        (errno.ENOSPC, "E1701", "9 bytes are needed"),
        (errno.EROFS, "E1702", "its permissions"),
        (errno.EIO, "E1700", "failed"),
    ],
)
def test_storage_errors_name_the_path_and_the_remedy(tmp_path: Path, number: int, code: str, words: str) -> None:
    with pytest.raises(StorageError, match=words) as refused, durable.storage_errors(tmp_path / "a", needed=9):
        raise OSError(number, os.strerror(number))
    assert refused.value.code == code
    with pytest.raises(IsADirectoryError), durable.storage_errors(tmp_path):
        raise IsADirectoryError


def test_appending_does_not_follow_links(tmp_path: Path) -> None:
    (tmp_path / "log").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CheckpointError, match="is a link"):
        durable.append_line(tmp_path / "log", {})
    assert not (tmp_path / "elsewhere").exists()


def test_sweep_removes_only_leftovers_of_dead_processes(tmp_path: Path) -> None:
    current = durable.temporary_path(tmp_path / "a")
    dead = current.name.replace(str(os.getpid()), "4194305")  # larger than any PID of Linux
    other_machine = dead.replace(dead.rpartition("-")[2], "00000000.partial")
    for name in (current.name, dead, other_machine, "mine.partial", ".b.partial", ".a.12.partial"):
        (tmp_path / name).write_text("x")
    (tmp_path / dead.replace(".a.", ".c.scratch.")).mkdir()
    assert durable.sweep(tmp_path, "a") == [dead]
    assert durable.sweep(tmp_path) == [dead.replace(".a.", ".c.scratch.")]
    assert len(os.listdir(tmp_path)) == 5
    assert len(os.fsencode(durable.temporary_path(tmp_path / ("ä" * 125)).name)) <= 255


def test_scratch_folder_is_removed_after_an_error(tmp_path: Path) -> None:
    with contextlib.suppress(KeyError), durable.temporary_folder(tmp_path / "a") as folder:
        (folder / "x").write_text("x")
        raise KeyError
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("fails", [False, True], ids=["moved", "moved-back"])
def test_folder_is_restored_when_it_cannot_be_replaced(
    fails: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, aside = tmp_path / "model", tmp_path / "new"
    for folder in (place, aside):
        folder.mkdir()
        (folder / "what").write_text(folder.name)
    moves, plain = [], os.replace

    def replace(source: Path, target: Path) -> None:
        moves.append(source)
        if fails and len(moves) == 2:
            raise OSError(errno.EIO, "the disk failed")
        plain(source, target)

    def exchange(*paths: Path) -> None:
        raise OSError(errno.EINVAL, "no such move here")

    monkeypatch.setattr(durable, "exchange_names", exchange)
    monkeypatch.setattr(os, "replace", replace)
    with pytest.raises(OSError, match="failed") if fails else contextlib.nullcontext():
        durable.move_into_place(aside, place)
    assert (place / "what").read_text() == ("model" if fails else "new")
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
