"""Which files lie below a folder: order, links, roots that are none."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from data_sets import put
from refusals import refused

from mezzotint.data.files.listing import walk
from mezzotint.data.formats.image_folder import FORMAT


def test_order_depends_on_names_alone(tmp_path: Path) -> None:
    names = [f"{folder}/{i}.png" for folder in "zyx" for i in (10, 9, 2, 1)]
    for root, order in ((tmp_path / "one", names), (tmp_path / "two", names[::-1])):
        put(root, *order)
    one, two = (walk(tmp_path / name, FORMAT.suffixes).names for name in ("one", "two"))
    assert one == two == sorted(names)


def test_digest_of_a_listing_changes_with_name_size_and_time(tmp_path: Path) -> None:
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


def test_links_between_folders_end(tmp_path: Path) -> None:
    put(tmp_path, "a/1.png", "b/2.png")
    (tmp_path / "a" / "to_b").symlink_to(tmp_path / "b")
    (tmp_path / "b" / "to_a").symlink_to(tmp_path / "a")
    assert walk(tmp_path, FORMAT.suffixes).names == ["a/1.png", "a/to_b/2.png", "b/2.png", "b/to_a/1.png"]
    assert len(walk(tmp_path, FORMAT.suffixes).refused) == 2


@pytest.mark.parametrize("kind", ["missing", "file", "loop"])
def test_a_root_that_is_no_folder_is_named(tmp_path: Path, kind: str) -> None:
    root = tmp_path / "root"
    if kind == "file":
        root.write_text("x")
    if kind == "loop":
        root.symlink_to(root)
    with refused("E1201", r"data\.path") as caught:
        walk(root, FORMAT.suffixes)
    assert str(root) in caught.value.message
