"""Rows of the section `data` that concern tables: columns, splits, data sets of the hub."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pytest
from datasets.packaged_modules.imagefolder.imagefolder import ImageFolder
from PIL import Image

Make = Callable[..., Any]


def folder_of(folder: Path, *rows: dict[str, Any]) -> Path:
    """Images a.png and b.png, and a table with these rows."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in "ab":
        Image.new("RGB", (32, 32), (ord(name), 0, 0)).save(folder / f"{name}.png")
    (folder / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def seen(fed: Any) -> dict[str, str]:
    """Captions by key, of one epoch."""
    return {key: caption for b in fed.batches() for key, caption in zip(b.keys, b.captions, strict=True)}


def prepare(cache: Path, config: str, folder: Path) -> None:
    """Puts one configuration of someone/images where the library `datasets` stores its downloads."""
    files = datasets.data_files.DataFilesList([str(path) for path in sorted(folder.iterdir())], [()] * 3)
    ImageFolder(
        str(cache), "images", config_name=config, config_id=config, hash="abc",
        data_files=datasets.data_files.DataFilesDict({"train": files}),
    ).download_and_prepare()  # fmt: skip
    (cache / "someone___images").mkdir(exist_ok=True)
    (cache / "images" / config).rename(cache / "someone___images" / config)


# breaks if fixed column names are read
@pytest.mark.effect("data.columns.image", "data.columns.caption")
def test_named_columns_are_read(feed: Make, tmp_path: Path) -> None:
    row = {"file_name": "a.png", "other_file_name": "b.png", "text": "one", "prompt": "two"}
    folder = folder_of(tmp_path / "one", row)
    by_columns = [
        seen(feed(folder, format="metadata", **columns))
        for columns in ({}, {"columns__caption": "prompt"}, {"columns__image": "other"})
    ]
    assert by_columns == [{"a.png": "one"}, {"a.png": "two"}, {"b.png": "one"}]


# breaks if all tables are read, or the first one
@pytest.mark.effect("data.split")
def test_split_is_the_subset_read(feed: Make, tmp_path: Path) -> None:
    for part in ("train", "test"):
        folder_of(tmp_path / "one" / part, {"file_name": "a.png", "text": part})
    by_part = [seen(feed(tmp_path / "one", format="metadata", split=part)) for part in ("train", "test")]
    assert by_part == [{"train/a.png": "train"}, {"test/a.png": "test"}]


# breaks if the library's default folder is always used, or the newest configuration
@pytest.mark.effect("data.hub_config", "data.hub_cache")
def test_hub_name_is_searched_in_hub_cache_and_config(
    feed: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datasets, "load_dataset", None)
    for place in ("own", "given"):
        for config in ("small", "large"):
            text = f"{place} {config}"
            folder = folder_of(tmp_path / place / "downloads" / config, {"file_name": "a.png", "text": text})
            prepare(tmp_path / place, config, folder)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "own")
    name = Path("someone/images")
    captions = [
        list(seen(feed(name, format="metadata", hub_config=config, **place)).values())
        for place in ({}, {"hub_cache": tmp_path / "given"})
        for config in ("small", "large")
    ]
    assert captions == [["own small"], ["own large"], ["given small"], ["given large"]]
