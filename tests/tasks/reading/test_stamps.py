"""Run folders with the time of their start in their names, and the newest of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mezzotint.errors import CheckpointError
from mezzotint.tasks.reading import stamps
from support.run_folders import run_at


def test_each_start_gets_a_folder_with_timestamp(tmp_path: Path) -> None:
    open_name = tmp_path / "fox-{stamp}"
    run_at(tmp_path, "20260101-120000")
    assert re.fullmatch(r"fox-\d{8}-\d{6}", stamps.choose_folder(open_name, "never").name)
    assert stamps.choose_folder(tmp_path / "fox", "latest") == tmp_path / "fox"


def test_resuming_uses_newest_timestamped_folder_with_checkpoint(tmp_path: Path) -> None:
    open_name = tmp_path / "fox-{stamp}"
    assert stamps.choose_folder(open_name, "auto").parent == tmp_path
    newest = run_at(tmp_path, "20260102-090000")
    run_at(tmp_path, "20260101-120000", step=900)
    run_at(tmp_path, "20260103-090000", step=None)
    run_at(tmp_path, "20260104-090000", name="foxes")
    (tmp_path / "fox-20260105").mkdir()
    for resume in ("auto", "latest"):
        assert stamps.choose_folder(open_name, resume) == newest


def test_nothing_to_resume_is_reported_with_existing_folders(tmp_path: Path) -> None:
    run_at(tmp_path, "20260103-090000", step=None)
    with pytest.raises(CheckpointError, match=r"existing ones \(fox-20260103-090000\) have none") as caught:
        stamps.choose_folder(tmp_path / "fox-{stamp}", "latest")
    assert caught.value.code == "E1507"
    with pytest.raises(CheckpointError, match="no such folder exists"):
        stamps.choose_folder(tmp_path / "elsewhere" / "fox-{stamp}", "latest")
