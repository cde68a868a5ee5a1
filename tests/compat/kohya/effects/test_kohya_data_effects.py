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
    """An image for each name, with a caption file."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, (name, caption) in enumerate(captions.items()):
        Image.new("RGB", (32, 32), (number, 5, 5)).save(folder / f"{name}.png")
        (folder / f"{name}.caption").write_text(caption)
    return folder


def seen(feed: Make, *folders: Path, steps: int = 6, **settings: Any) -> set[str]:
    """The captions that are trained."""
    fed = feed(*folders, format="kohya-subsets", captions__missing="empty", batch_size=1, steps=steps, **settings)
    return {caption for batch in fed.batches() for caption in batch.captions}


# breaks if class tokens replace captions, or do not reach images without one
@pytest.mark.effect("data.kohya_subsets.class_tokens")
def test_images_without_a_file_have_class_tokens(feed: Make, tmp_path: Path) -> None:
    folder = captioned(tmp_path / "set", a="a dog")
    Image.new("RGB", (32, 32)).save(folder / "b.png")
    assert seen(feed, folder) == {"a dog", ""}
    assert seen(feed, folder, kohya_subsets__class_tokens="sks dog") == {"a dog", "sks dog"}


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
    Image.new("RGB", (32, 32)).save(folder / "b.png")
    rules = [{"path": str(folder), "class_tokens": "own"}]
    assert seen(feed, folder, kohya_subsets__folders=rules, kohya_subsets__class_tokens="all") == {"a dog", "own"}
