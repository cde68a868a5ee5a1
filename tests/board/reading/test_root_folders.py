"""Names of runs and files lead only below the folders of the page."""

from __future__ import annotations

import html
import os
import re
from pathlib import Path

import pytest

from mezzotint.board.reading.root_folders import OutsideFolders, RootFolders, inside
from support.board_runs import opened, write_run


def test_runs_are_found_below_the_folders_without_following_links(tmp_path: Path) -> None:
    write_run(tmp_path / "a" / "deep" / "first", steps=2)
    write_run(tmp_path / "elsewhere" / "other", steps=2)
    (tmp_path / "a" / "link").symlink_to(tmp_path / "elsewhere")
    roots = RootFolders.of([tmp_path / "a", tmp_path / "a" / "deep"])
    assert roots.folders == (tmp_path / "a",)
    assert roots.runs() == ["0/deep/first"]
    assert roots.run("0/deep/first") == tmp_path / "a" / "deep" / "first"
    with pytest.raises(OutsideFolders):
        roots.run("0/link/other")


def test_folders_keep_the_order_in_which_they_were_given(tmp_path: Path) -> None:
    """Images, recipes and runs are written to the first folder."""
    for name in ("z", "a", "m/deep"):
        (tmp_path / name).mkdir(parents=True)
    named = [tmp_path / "m" / "deep", tmp_path / "z", tmp_path / "a", tmp_path / "z", tmp_path / "m"]
    assert RootFolders.of(named).folders == (tmp_path / "z", tmp_path / "a", tmp_path / "m")


@pytest.mark.parametrize(
    "name",
    ["", "1", "x", "-1", "0/..", "0/../elsewhere", "0/first/../../secret.txt", "0//etc/passwd", "0/a\0b", "0/nothing",
     "²", "0/first/out"],
)  # fmt: skip
def test_names_that_leave_the_folder_are_refused(name: str, tmp_path: Path) -> None:
    write_run(tmp_path / "runs" / "first", steps=2)
    (tmp_path / "secret.txt").write_text("a secret")
    (tmp_path / "runs" / "first" / "out").symlink_to(tmp_path)
    with pytest.raises(OutsideFolders):
        RootFolders.of([tmp_path / "runs"]).path(name)


def test_link_inside_the_folder_is_followed(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "file").write_text("x")
    (tmp_path / "here" / "link").symlink_to("file")
    assert inside(tmp_path / "here", "link") == tmp_path / "here" / "file"


def test_too_many_folders_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mezzotint.board.reading.root_folders._MOST_FOLDERS", 3)
    for number in range(5):
        (tmp_path / str(number)).mkdir()
    roots = RootFolders.of([tmp_path])
    assert roots.runs() == []
    assert roots.is_cut


def test_run_with_a_name_that_is_not_utf_8_has_a_page(tmp_path: Path) -> None:
    odd = tmp_path / os.fsdecode(b"caf\xe9 run")
    write_run(odd, steps=2)
    write_run(tmp_path / ("n" * 254), steps=2)
    write_run(tmp_path / "a \n 'b' %2e%2e ü", steps=2)
    with opened(tmp_path) as board:
        names = board.pages.roots.runs()
        assert len(names) == 3
        assert "0/caf\\udce9 run" in names
        status, text, _ = board.ask("/")
        assert status == 200
        for address in re.findall(r'<th scope="row"><a href="([^"]+)"', text):
            assert board.ask(html.unescape(address))[0] == 200
        assert board.pages.roots.run("0/caf\\udce9 run") == odd


def test_label_is_relative_unless_there_are_several_folders(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    one, two = RootFolders.of([first]), RootFolders.of([first, second])
    assert (one.label("0/runs/x"), one.label("0")) == ("runs/x", "a")
    assert (two.label("1/runs/x"), two.label("0")) == (f"{second}/runs/x", str(first))
    assert one.label("7/x") == "7/x"
    assert one.label("9" * 5000) == "9" * 5000
