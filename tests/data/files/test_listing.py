"""Listing the files below a folder: order, links, invalid roots."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mezzotint.data.files import listing
from mezzotint.data.files.listing import walk
from mezzotint.data.formats.image_folder import FORMAT
from support.data_sets import put
from support.messages import refused


def test_order_depends_only_on_names(tmp_path: Path) -> None:
    names = [f"{folder}/{i}.png" for folder in "zyx" for i in (10, 9, 2, 1)]
    for root, order in ((tmp_path / "one", names), (tmp_path / "two", names[::-1])):
        put(root, *order)
    one, two = (walk(tmp_path / name, FORMAT.suffixes).names for name in ("one", "two"))
    assert one == two == sorted(names)


def test_digest_depends_on_names_sizes_and_times(tmp_path: Path) -> None:
    put(tmp_path, "a.png", "b.png")
    seen = [walk(tmp_path, FORMAT.suffixes).digest()]
    assert walk(tmp_path, FORMAT.suffixes).digest() == seen[0]
    changes: list[Callable[[], object]] = [
        lambda: put(tmp_path, "a.png", text="xy"),
        lambda: os.utime(tmp_path / "b.png", ns=(1, 1)),
        lambda: os.rename(tmp_path / "b.png", tmp_path / "c.png"),
        lambda: put(tmp_path, "other.md"),
    ]
    for change in changes:
        change()
        seen.append(walk(tmp_path, FORMAT.suffixes).digest())
    assert len(set(seen)) == 5


def test_circular_links_are_not_followed(tmp_path: Path) -> None:
    put(tmp_path, "a/1.png", "b/2.png")
    (tmp_path / "a" / "to_b").symlink_to(tmp_path / "b")
    (tmp_path / "b" / "to_a").symlink_to(tmp_path / "a")
    assert walk(tmp_path, FORMAT.suffixes).names == ["a/1.png", "a/to_b/2.png", "b/2.png", "b/to_a/1.png"]
    assert len(walk(tmp_path, FORMAT.suffixes).refused) == 2


def test_similar_folder_name_is_suggested(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photo.txt").write_text("")
    with refused("E1201", re.escape(f"did you mean {tmp_path / 'photos'}?")):
        walk(tmp_path / "photo", {".png"})
    monkeypatch.chdir(tmp_path)
    with refused("E1201", r"; did you mean photos\?$"):
        walk(Path("fotos"), {".png"})
    (tmp_path / "samples").mkdir()
    with refused("E1201", r"; did you mean shapes\?$"):  # a shipped data set
        walk(Path("shapez"), {".png"})
    with refused("E1201", r"; set data\.path to the folder of images$"):
        walk(Path("zzz"), {".png"})


@pytest.mark.parametrize("kind", ["missing", "file", "loop"])
def test_root_that_is_not_a_folder_is_reported(tmp_path: Path, kind: str) -> None:
    root = tmp_path / "root"
    if kind == "file":
        root.write_text("x")
    if kind == "loop":
        root.symlink_to(root)
    with refused("E1201", r"data\.path") as caught:
        walk(root, FORMAT.suffixes)
    assert str(root) in caught.value.message


@pytest.mark.parametrize("ends_early", [False, True])
def test_listing_is_the_same_with_several_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends_early: bool
) -> None:
    names = [f"{folder}/{inner}/{number} é\udcff.png" for folder in "abc" for inner in "de" for number in range(3)]
    for name in (*names, "a/notes.doc", "c/d/f/deep.txt"):
        put(tmp_path, name)
    (tmp_path / "b/out.png").symlink_to("/etc/passwd")
    (tmp_path / "link").symlink_to("a")
    single = walk(tmp_path, {".png", ".txt"})
    monkeypatch.setattr(listing, "_MANY", 1)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(3))
    forks: list[Any] = []
    forked = listing._scan_in_fork

    def watched(walker: Any) -> Any:
        answer = forked(walker)
        forks.append(answer)
        if not ends_early:
            return answer
        answer()
        return lambda: None  # like a killed process

    monkeypatch.setattr(listing, "_scan_in_fork", watched)
    parallel = walk(tmp_path, {".png", ".txt"})
    assert (len(forks), len(single.names)) == (2, 25)
    assert (parallel.stats == single.stats).all()
    assert (parallel.names, parallel.refused, parallel.unknown) == (single.names, single.refused, single.unknown)
    assert parallel.digest() == single.digest()
