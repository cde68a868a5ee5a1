"""The format `kohya-subsets`: which images and captions it reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from mezzotint.data.catalogue.catalogue import build
from mezzotint.stages import Sample
from support import data_sets
from support.data_sets import captions_of, notes_of, put, skipped_of
from support.messages import refused

USUAL = {"captions": {"missing": "empty", "lines": "first"}}


def read(path: Path, captions: dict[str, Any] | None = None, **rules: Any) -> list[Any]:
    given = {"format": "kohya-subsets", "kohya_subsets": rules, "captions": {**USUAL["captions"], **(captions or {})}}
    return data_sets.read(path, **given)


def test_images_without_a_caption_file_have_class_tokens(tmp_path: Path) -> None:
    put(tmp_path, "a.png", "b.png", "c.png")
    put(tmp_path, "a.txt", text="text, of a\nsecond line")
    put(tmp_path, "b.caption", text="caption of b")
    by_caption = read(tmp_path, {"extension": ".caption"})
    assert captions_of(by_caption) == {"a.png": ("",), "b.png": ("caption of b",), "c.png": ("",)}
    by_text = read(tmp_path, {"extension": ".txt"}, class_tokens="sks dog")
    assert captions_of(by_text) == {"a.png": ("text, of a",), "b.png": ("sks dog",), "c.png": ("sks dog",)}


def test_several_lines_are_choices_only_with_wildcards(tmp_path: Path) -> None:
    put(tmp_path, "a.png")
    put(tmp_path, "a.caption", text="one\n\ntwo\n")
    assert captions_of(read(tmp_path)) == {"a.png": ("one",)}
    assert captions_of(read(tmp_path, {"lines": "random", "wildcards": True})) == {"a.png": ("one", "two")}


def test_images_in_subfolders_are_left_out(tmp_path: Path) -> None:
    items = read(put(tmp_path, "a.png", "under/b.png", "under/deep/c.png"))
    assert list(captions_of(items)) == ["a.png"]
    assert set(skipped_of(items, is_wanted=True)) == {"under/b.png", "under/deep/c.png"}
    assert notes_of(items) == [("under", "2 images left out: in a subfolder, which kohya's scripts do not read")]


@pytest.mark.parametrize(
    ("entry", "caption"),
    [
        ({"caption": "a dog", "tags": "one, two"}, "a dog,one, two"), ({"tags": "one"}, "one"), ({}, ""),
        ({"caption": "a dog", "train_resolution": [512, 640]}, "a dog"), ({"caption": "x\ny"}, "x"),
    ],
)  # fmt: skip
def test_metadata_file_has_captions_and_tags(tmp_path: Path, entry: dict[str, Any], caption: str) -> None:
    put(tmp_path, "a.png", "b.png")
    path = tmp_path / "meta.json"
    path.write_text(json.dumps({"a": entry}))
    assert captions_of(read(tmp_path, metadata_file=path)) == {"a": (caption,)}


def test_metadata_file_names_images_by_path_name_or_stem(tmp_path: Path) -> None:
    put(tmp_path, "a.png", "b.JPG", "sub/c.webp")
    outside = put(tmp_path.parent / "elsewhere", "d.png") / "d.png"
    path = tmp_path / "meta.json"
    path.write_text(json.dumps({name: {"caption": name} for name in ("a", "b", "sub/c.webp", str(outside), "gone")}))
    items = read(tmp_path, metadata_file=path)
    assert [one.media.name for one in items if isinstance(one, Sample)] == ["a.png", "b.JPG", "c.webp", "d.png"]
    assert "meta.json names it" in skipped_of(items)["gone"]


@pytest.mark.parametrize(
    ("content", "code", "message"),
    [
        ("[]", "E1217", "a metadata file is an object of images"), ('{"a": 1}', "E1217", "is an object of images"),
        ('{"a":\n x}', "E1217", r"meta\.json:2: not JSON"), (None, "E1201", "No such file"),
    ],
)  # fmt: skip
def test_malformed_metadata_files_are_refused(tmp_path: Path, content: str | None, code: str, message: str) -> None:
    path = tmp_path / "meta.json"
    if content is not None:
        path.write_text(content)
    with refused(code, message):
        read(put(tmp_path, "a.png"), metadata_file=path)
    path.write_text('{"a": {"caption": 3}}')
    assert skipped_of(read(tmp_path, metadata_file=path)) == {"a": "its caption and tags must be texts"}


def test_missing_captions_are_an_error_only_if_asked(tmp_path: Path) -> None:
    put(tmp_path, "a.png")
    with refused("E1203", r"1 image has no caption: a\.png"):
        read(tmp_path, {"missing": "error"})
    put(tmp_path, "a.caption", text=b"\xff\xfe\xff")
    assert "not UTF-8" in skipped_of(read(tmp_path, {"missing": "error"}))["a.png"]


def test_folders_have_their_own_rules(tmp_path: Path) -> None:
    put(tmp_path, "a/x.png", "b/x.png")
    rules = {"class_tokens": "shared", "folders": [{"path": tmp_path / "a", "class_tokens": "own"}]}
    assert captions_of(read(tmp_path / "a", **rules)) == {"x.png": ("own",)}
    assert captions_of(read(tmp_path / "b", **rules)) == {"x.png": ("shared",)}


def test_index_is_made_again_when_a_metadata_file_changes(tmp_path: Path) -> None:
    Image.new("RGB", (64, 64)).save(tmp_path / "a.png")
    path = tmp_path / "meta.json"
    seen = []
    for caption in ("one", "two"):
        path.write_text(json.dumps({"a": {"caption": caption}}))
        settings = data_sets.small_of(
            tmp_path, format="kohya-subsets", kohya_subsets={"metadata_file": path}, cache={"path": tmp_path / "cache"}
        )
        catalogue = build(settings, tmp_path / "cache")
        seen.append(catalogue.captions(0))
    assert seen == [("one",), ("two",)]
