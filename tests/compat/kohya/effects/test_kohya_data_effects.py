"""Rows of `data.kohya_subsets`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

Make = Callable[..., Any]


def captioned(folder: Path, **captions: str) -> Path:
    """An image for each name, with a caption file of both extensions."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, (name, caption) in enumerate(captions.items()):
        Image.new("RGB", (32, 32), (number, 5, 5)).save(folder / f"{name}.png")
        (folder / f"{name}.caption").write_text(caption)
        (folder / f"{name}.txt").write_text(f"{caption} as text")
    return folder


def seen(feed: Make, *folders: Path, steps: int = 6, **settings: Any) -> set[str]:
    """The captions that are trained."""
    fed = feed(*folders, format="kohya-subsets", captions__missing="empty", batch_size=1, steps=steps, **settings)
    return {caption for batch in fed.batches() for caption in batch.captions}


# breaks if numbered folders are read as one folder, or their numbers do not reach the plan
@pytest.mark.effect("data.kohya_subsets.numbered")
def test_numbered_folders_are_read(feed: Make, tmp_path: Path) -> None:
    captioned(tmp_path / "set" / "3_dog", a="a dog")
    captioned(tmp_path / "set", b="outside")
    assert seen(feed, tmp_path / "set") == {"outside"}
    fed = feed(tmp_path / "set", format="kohya-subsets", captions__missing="empty", kohya_subsets__numbered=True)
    assert [caption for batch in fed.batches() for caption in batch.captions] == ["a dog"] * 3


# breaks if caption files of another extension are read
@pytest.mark.effect("data.kohya_subsets.caption_extension")
def test_caption_files_have_one_extension(feed: Make, tmp_path: Path) -> None:
    folder = captioned(tmp_path / "set", a="a dog")
    assert seen(feed, folder) == {"a dog"}
    assert seen(feed, folder, kohya_subsets__caption_extension=".txt") == {"a dog as text"}


# breaks if class tokens replace captions, or do not reach images without one
@pytest.mark.effect("data.kohya_subsets.class_tokens")
def test_images_without_a_file_have_class_tokens(feed: Make, tmp_path: Path) -> None:
    folder = captioned(tmp_path / "set", a="a dog")
    Image.new("RGB", (32, 32)).save(folder / "b.png")
    assert seen(feed, folder) == {"a dog", ""}
    assert seen(feed, folder, kohya_subsets__class_tokens="sks dog") == {"a dog", "sks dog"}


# breaks if texts before and after captions are missing
@pytest.mark.effect("data.kohya_subsets.caption_prefix", "data.kohya_subsets.caption_suffix")
def test_captions_have_a_prefix_and_a_suffix(feed: Make, tmp_path: Path) -> None:
    folder = captioned(tmp_path / "set", a="a dog")
    assert seen(feed, folder, kohya_subsets__caption_prefix="sks") == {"sks a dog"}
    assert seen(feed, folder, kohya_subsets__caption_suffix="photo") == {"a dog photo"}


# breaks if the first tag stays, or kept tags move
@pytest.mark.effect("data.kohya_subsets.shuffle_first")
def test_first_tags_are_shuffled(feed: Make, tmp_path: Path) -> None:
    folder = captioned(tmp_path / "set", a="one, two, three")
    shuffled = {"captions__shuffle_tags": True, "steps": 40}
    assert {caption[:3] for caption in seen(feed, folder, **shuffled)} == {"one"}
    first = {**shuffled, "kohya_subsets__shuffle_first": True}
    assert {caption[:3] for caption in seen(feed, folder, **first)} == {"one", "two", "thr"}
    assert seen(feed, folder, **first, captions__keep_tags=2) == {"one, two, three"}
    assert seen(feed, folder, captions__tag_dropout=1, kohya_subsets__shuffle_first=True) == {""}


# breaks if captions come from files next to the images
@pytest.mark.effect("data.kohya_subsets.metadata_file")
def test_metadata_file_has_the_captions(feed: Make, tmp_path: Path) -> None:
    folder = captioned(tmp_path / "set", a="a dog", b="a fox")
    path = tmp_path / "meta.json"
    path.write_text(json.dumps({"a": {"caption": "of the file", "tags": "one"}}))
    assert seen(feed, folder, kohya_subsets__metadata_file=str(path)) == {"of the file,one"}


# breaks if the rules of one folder reach others
@pytest.mark.effect("data.kohya_subsets.folders")
def test_folders_differ_from_the_shared_rules(feed: Make, tmp_path: Path) -> None:
    folder = captioned(tmp_path / "set", a="a dog")
    rules = [{"path": str(folder), "caption_prefix": "own"}]
    assert seen(feed, folder, kohya_subsets__folders=rules, kohya_subsets__caption_suffix="all") == {"own a dog all"}
