"""Small copies of clips for a report: of the clip itself, and of no other file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mezzotint.board.reading import small_clips


def test_a_playlist_in_place_of_a_clip_opens_no_other_file(
    tmp_path: Path, write_clip: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert small_clips.small(write_clip(tmp_path / "secret.mp4"), 64) is not None
    monkeypatch.chdir(tmp_path)  # FFmpeg looks up what a playlist names in the current folder
    (tmp_path / "list.mp4").write_text("ffconcat version 1.0\nfile 'secret.mp4'\n")
    assert small_clips.small(tmp_path / "list.mp4", 64) is None
