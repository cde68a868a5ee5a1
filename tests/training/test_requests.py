"""Request files: each is handled once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mezzotint.training import requests
from mezzotint.training.requests import Requests


def test_each_request_file_is_taken_once(tmp_path: Path) -> None:
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


def test_links_and_folders_are_no_requests_and_warned_about_once(tmp_path: Path) -> None:
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


def test_link_in_place_of_the_request_folder_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "requests").symlink_to(tmp_path)
    assert Requests(tmp_path / "requests", pytest.fail).take() == []


def test_requests_from_before_the_start_are_removed(tmp_path: Path) -> None:
    (tmp_path / "stop").touch()
    (tmp_path / "mine.txt").touch()
    requests.sweep(tmp_path)
    requests.sweep(tmp_path / "none")
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
