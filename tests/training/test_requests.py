"""Files that ask a run for something: each is followed once, whatever lies there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mezzotint.training import requests
from mezzotint.training.requests import Requests


def test_each_file_is_taken_once(tmp_path: Path) -> None:
    said: list[str] = []
    files = Requests(tmp_path / "requests", said.append)
    assert files.take() == []
    (tmp_path / "requests").mkdir()
    for name in ("stop", "draw", "another"):
        (tmp_path / "requests" / name).write_text("")
    assert files.take() == ["draw", "stop"]
    assert files.take() == []
    assert [path.name for path in (tmp_path / "requests").iterdir()] == ["another"]
    (tmp_path / "requests" / "draw").touch()
    assert files.take() == ["draw"]
    assert said == []


def test_what_is_no_plain_file_is_warned_of_once_and_followed_never(tmp_path: Path) -> None:
    said: list[str] = []
    folder = tmp_path / "requests"
    folder.mkdir()
    os.mkfifo(folder / "draw")
    (folder / "save").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").write_text("")
    (folder / "stop").write_bytes(bytes(100_000))
    files = Requests(folder, said.append)
    assert [files.take(), files.take()] == [[], []]
    assert len(said) == 3
    assert (tmp_path / "elsewhere").exists()


def test_a_file_in_the_place_of_the_folder_is_no_request(tmp_path: Path) -> None:
    (tmp_path / "requests").symlink_to(tmp_path)
    assert Requests(tmp_path / "requests", pytest.fail).take() == []


def test_requests_of_before_a_start_are_swept(tmp_path: Path) -> None:
    (tmp_path / "stop").touch()
    (tmp_path / "mine.txt").touch()
    requests.sweep(tmp_path)
    requests.sweep(tmp_path / "none")
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
