"""Data sets of the Hugging Face hub by name, compared with the `datasets` library."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import datasets
import pytest
from datasets.packaged_modules.imagefolder.imagefolder import ImageFolder
from datasets.packaged_modules.parquet.parquet import Parquet

from support.arrow_tables import catalogue, error_of, images, png, without, write


def test_hub_name_without_datasets_is_refused_with_the_install_command(
    index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without(monkeypatch, "datasets")
    error = error_of(Path("someone/images"), index)
    assert error.code == "E1214"
    assert "someone/images: no such folder" in error.message
    assert "pip install 'mezzotint[data]'" in error.message


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache of the library, without network access."""

    def offline(*args: Any, **kwargs: Any) -> Any:
        raise ConnectionError("Couldn't reach the hub (offline)")

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "hub")
    monkeypatch.setattr(datasets, "load_dataset", offline)
    return tmp_path / "hub"


def cached(cache: Path, tmp_path: Path, config: str = "default", **splits: Mapping[str, Any]) -> None:
    """Puts someone/images into the cache as the library does after downloading."""
    files = {split: [str(write(tmp_path / f"{config}-{split}.parquet", some))] for split, some in splits.items()}
    features = datasets.Features({"image": datasets.Image(), "text": datasets.Value("string")})
    prepare(Parquet, cache, "images", config, files, features=features)


def prepare(builder: Any, cache: Path, name: str, config: str, files: dict[str, list[str]], **more: Any) -> None:
    lists = {split: datasets.data_files.DataFilesList(some, [()] * len(some)) for split, some in files.items()}
    builder(
        cache_dir=str(cache), dataset_name=name, config_name=config, config_id=config, hash="abc",
        data_files=datasets.data_files.DataFilesDict(lists), **more,
    ).download_and_prepare()  # fmt: skip
    target = cache / f"someone___{name}"
    target.mkdir(exist_ok=True)
    (cache / name / config).rename(target / config)


HUB = Path("someone/images")


def test_hub_data_set_is_read_from_the_local_cache(tmp_path: Path, index: Path, cache: Path) -> None:
    some = {"image": images(1, 2, 3), "text": ["one", "two", "three"]}
    cached(cache, tmp_path, train=some, test={"image": images(9), "text": ["nine"]})
    data_set = catalogue(HUB, index)
    assert [data_set.captions(i) for i in range(len(data_set))] == [("one",), ("two",), ("three",)]
    assert data_set.path(1).read_bytes() == png(2)
    assert data_set.key(0).endswith("-train.arrow:0")
    test = catalogue(HUB, index, split="test")
    assert [test.captions(i) for i in range(len(test))] == [("nine",)]
    error = error_of(HUB, index, split="validation")
    assert error.code == "E1216"
    assert "it has 'train', 'test'" in error.message


def test_hub_configuration_is_chosen_by_name(tmp_path: Path, index: Path, cache: Path) -> None:
    cached(cache, tmp_path, "small", train={"image": images(1), "text": ["one"]})
    cached(cache, tmp_path, "large", train={"image": images(1, 2), "text": ["one", "two"]})
    assert len(catalogue(HUB, index, hub_config="small")) == 1
    assert len(catalogue(HUB, index, hub_config="large")) == 2
    error = error_of(HUB, index)
    assert error.code == "E1215"
    assert "set data.hub_config" in error.message


def test_name_that_is_neither_folder_nor_cached_is_reported(index: Path, cache: Path) -> None:
    error = error_of(HUB, index)
    assert error.code == "E1215"
    assert "someone/images: no such folder, and no data set of the hub" in error.message
    assert "Couldn't reach the hub" in error.message


@pytest.mark.parametrize("path", ["images", "~/images", "../some", "a/b/c", "/a/b", "some one/images"])
def test_other_paths_are_never_requested_from_the_hub(index: Path, cache: Path, path: str) -> None:
    assert error_of(Path(path), index).code == "E1201"


def test_folder_takes_precedence_over_a_hub_name(
    tmp_path: Path, index: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cached(cache, tmp_path, train={"image": images(1), "text": ["of the hub"]})
    monkeypatch.chdir(tmp_path)
    write(tmp_path / HUB / "data.parquet", {"image": images(1), "text": ["of the folder"]})
    assert catalogue(HUB, index).captions(0) == ("of the folder",)


def test_missing_data_set_is_downloaded_once(
    tmp_path: Path, index: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched: list[tuple[Any, ...]] = []

    def fetch(name: str, config: str | None, cache_dir: str | None) -> Any:
        fetched.append((name, config, cache_dir))
        cached(cache, tmp_path, train={"image": images(1), "text": ["fetched"]})
        return datasets.DatasetDict({"train": in_cache(cache)})

    monkeypatch.setattr(datasets, "load_dataset", fetch)
    assert catalogue(HUB, index).captions(0) == ("fetched",)
    assert catalogue(HUB, index).captions(0) == ("fetched",)
    assert fetched == [("someone/images", None, None)]


def in_cache(cache: Path) -> datasets.Dataset:
    (file,) = cache.glob("someone___images/*/*/*/*.arrow")
    return datasets.Dataset.from_file(str(file))


def test_image_paths_in_the_cache_must_be_inside_the_cache(tmp_path: Path, index: Path, cache: Path) -> None:
    for place in (cache / "downloads", tmp_path / "private"):
        place.mkdir(parents=True)
        (place / "0.png").write_bytes(png(4))
        (place / "metadata.jsonl").write_text('{"file_name": "0.png", "text": "x"}')
    names = []
    for number, place in enumerate((cache / "downloads", tmp_path / "private")):
        files = [str(path) for path in sorted(place.iterdir())]
        prepare(ImageFolder, cache, f"set{number}", "default", {"train": files})
        names.append(Path(f"someone/set{number}"))
    data_set = catalogue(names[0], index)
    assert data_set.path(0).read_bytes() == png(4)
    assert data_set.path(0) != cache / "downloads" / "0.png"
    assert error_of(names[1], index).code == "E1213"


@pytest.mark.parametrize("ending", ["jsonl", "csv", "parquet"])
def test_rows_match_the_datasets_library(root: Path, index: Path, tmp_path: Path, ending: str) -> None:
    names = ["0.png", "deep/1.png", "2.png"]
    texts = ["plain", 'a "quoted", one', "größer"]
    for shade, name in enumerate([*names, "unnamed.png"]):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(png(shade))
    table = datasets.Dataset.from_dict({"file_name": names, "text": texts})
    {"jsonl": table.to_json, "csv": table.to_csv, "parquet": table.to_parquet}[ending](root / f"metadata.{ending}")
    files = {"train": [str(path) for path in sorted(root.rglob("*.*"))]}
    theirs = ImageFolder(cache_dir=str(tmp_path / "theirs"), data_files=datasets.data_files.DataFilesDict(
        {"train": datasets.data_files.DataFilesList(files["train"], [()] * 5)}
    ))  # fmt: skip
    theirs.download_and_prepare()
    rows = theirs.as_dataset(split="train").cast_column("image", datasets.Image(decode=False))
    data_set = catalogue(root, index)
    ours = [(str(data_set.path(i)), data_set.captions(i)) for i in range(len(data_set))]
    assert sorted(ours) == sorted((row["image"]["path"], (row["text"],)) for row in rows)
    assert len(ours) == 3
