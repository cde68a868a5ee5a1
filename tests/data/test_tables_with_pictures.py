"""The format metadata over parquet and arrow: named pictures, pictures inside the table, data sets of the hub."""

from __future__ import annotations

import builtins
import errno
import io
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets.packaged_modules.imagefolder.imagefolder import ImageFolder
from datasets.packaged_modules.parquet.parquet import Parquet
from loading import open_loader
from PIL import Image

from mezzotint import durable
from mezzotint.data.catalogue import indexing
from mezzotint.data.catalogue.catalogue import Catalogue, build
from mezzotint.errors import DatasetError, StorageError
from mezzotint.recipe.sections.data import DataSettings

PICTURE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def png(shade: int, size: tuple[int, int] = (70, 60)) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", size, (shade, 7, 9)).save(file, "PNG")
    return file.getvalue()


def pictures(*shades: int) -> list[dict[str, Any]]:
    return [{"bytes": png(shade), "path": f"{shade}.png"} for shade in shades]


def write(path: Path, columns: Mapping[str, Any], schema: Mapping[str, Any] | None = None) -> Path:
    """A parquet or arrow file by its ending; a column `image` holds embedded pictures unless the schema says more."""
    kinds = {"image": PICTURE, **(schema or {})}
    table = pa.table({name: pa.array(values, kinds.get(name)) for name, values in columns.items()})
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        pq.write_table(table, path, row_group_size=3)
    else:
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as stream:
            stream.write_table(table, max_chunksize=3)
    return path


def catalogue(root: Path, index: Path, **values: Any) -> Catalogue:
    settings = {"path": [root], "format": "metadata", "resolution": 64, "buckets": {"step": 8}, **values}
    return build(DataSettings.model_validate(settings), index)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


@pytest.fixture
def index(tmp_path: Path) -> Path:
    return tmp_path / "index"


def error_of(root: Path, index: Path, **values: Any) -> DatasetError:
    with pytest.raises(DatasetError) as found:
        catalogue(root, index, **values)
    return found.value


def kept(index: Path) -> list[str]:
    """Names of the pictures that are kept beside the index."""
    return sorted(path.name for path in index.glob("*/pictures/*/*"))


# --- pictures by name ---------------------------------------------------------------------------------------


def test_metadata_parquet_names_pictures(root: Path, index: Path) -> None:
    root.mkdir()
    for shade in range(3):
        (root / f"{shade}.png").write_bytes(png(shade))
    captions = [["one", "uno"], None, ["three"]]
    write(root / "metadata.parquet", {"file_name": ["0.png", "1.png", "2.png"], "text": captions, "image": [None] * 3})
    made = catalogue(root, index, captions={"missing": "skip"})
    assert {made.key(i): made.captions(i) for i in range(len(made))} == {"0.png": ("one", "uno"), "2.png": ("three",)}
    assert made.report.left_out == (("metadata.parquet:1", "no caption"),)
    assert made.path(1) == root / "2.png"


def test_rows_of_parquet_are_counted_from_0_across_row_groups(root: Path, index: Path) -> None:
    root.mkdir()
    (root / "0.png").write_bytes(png(0))
    write(root / "metadata.parquet", {"file_name": [*["0.png"], *["../x.png"] * 4], "text": ["x"] * 5})
    error = error_of(root, index)
    assert error.code == "E1213"
    assert "metadata.parquet:1 ('../x.png'), metadata.parquet:2" in error.message
    assert "metadata.parquet:4" in error.message


# --- pictures inside the table ------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["parquet", "arrow"])
def test_pictures_inside_a_table_are_samples_like_others(root: Path, index: Path, ending: str) -> None:
    shades = list(range(0, 200, 20))
    write(root / f"data.{ending}", {"image": pictures(*shades), "text": [f"shade {s}" for s in shades]})
    made = catalogue(root, index)
    assert [made.key(i) for i in range(10)] == sorted(f"data.{ending}:{i}" for i in range(10))
    assert made.captions(3) == ("shade 60",)
    assert made.verify(3)
    assert made.path(3).read_bytes() == png(60)
    assert (int(made.width[3]), int(made.height[3])) == (70, 60)
    assert kept(index) == sorted(made.digest[i].tobytes().hex() for i in range(10))
    assert made.report.used == 10


def test_arrow_in_the_file_layout_is_read_as_in_the_stream_layout(root: Path, index: Path) -> None:
    path = write(root / "data.arrow", {"image": pictures(1, 2, 3, 4), "text": ["a", "b", "c", "d"]})
    stream = catalogue(root, index)
    table = pa.ipc.open_stream(path.read_bytes()).read_all()
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=3)
    assert path.read_bytes()[:6] == b"ARROW1"
    assert catalogue(root, index).fingerprint == stream.fingerprint


@pytest.mark.parametrize("workers", [0, 1])
def test_the_loader_reads_them_in_workers_too(root: Path, index: Path, workers: int) -> None:
    write(root / "data.parquet", {"image": pictures(10, 90, 200), "text": ["10", "90", "200"]})
    settings = DataSettings.model_validate(
        {"path": [root], "format": "metadata", "resolution": 64, "buckets": {"step": 8}, "workers": workers}
    )
    made = build(settings, index)
    rows = np.arange(3, dtype=np.int32)
    with open_loader(made, rows, settings, accumulation=1, seed=0, start_step=0, last_step=1) as loader:
        (batch,) = next(iter(loader)).batches
    assert batch.pixels is not None
    red = {c: round((float(p[0].mean()) + 1) * 127.5) for c, p in zip(batch.captions, batch.pixels, strict=True)}
    assert red == {"10": 10, "90": 90, "200": 200}


def test_second_start_decodes_and_writes_nothing(root: Path, index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(root / "data.parquet", {"image": pictures(1, 2), "text": ["a", "b"]})
    first = catalogue(root, index)
    monkeypatch.setattr(indexing, "make", None)
    assert catalogue(root, index).fingerprint == first.fingerprint


def test_an_edited_caption_keeps_the_pictures(root: Path, index: Path) -> None:
    write(root / "data.parquet", {"image": pictures(1, 2), "text": ["a", "b"]})
    first = catalogue(root, index)
    times = {path: path.stat().st_mtime_ns for path in index.glob("*/pictures/*/*")}
    write(root / "data.parquet", {"image": pictures(1, 2), "text": ["a", "c"]})
    second = catalogue(root, index)
    assert (second.captions(1), second.report.decoded) == (("c",), 0)
    assert second.fingerprint != first.fingerprint
    assert {path: path.stat().st_mtime_ns for path in index.glob("*/pictures/*/*")} == times


@pytest.mark.parametrize("damage", ["removed", "changed", "all removed"])
def test_pictures_that_are_lost_or_changed_are_put_again(root: Path, index: Path, damage: str) -> None:
    write(root / "data.parquet", {"image": pictures(1, 2), "text": ["a", "b"]})
    first = catalogue(root, index)
    path = first.path(1)
    match damage:
        case "removed":
            path.unlink()
        case "changed":
            path.write_bytes(b"\0" * path.stat().st_size)
        case _:
            for place in (first.path(0), path):
                place.unlink()
    again = catalogue(root, index)
    assert again.fingerprint == first.fingerprint
    assert all(again.verify(i) for i in range(2))


def test_pictures_that_no_index_names_are_swept(root: Path, index: Path) -> None:
    for number in range(7):
        write(root / "data.parquet", {"image": pictures(number, 100), "text": ["a", str(number)]})
        made = catalogue(root, index)
    assert len(made) == 2
    assert 5 <= len(kept(index)) <= 6  # the last four indexes, perhaps the one being replaced, and the shared picture
    assert made.digest[0].tobytes().hex() in kept(index)


def test_pictures_are_on_disk_before_the_index_that_names_them(
    root: Path, index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(root / "data.parquet", {"image": pictures(1, 2), "text": ["a", "b"]})
    synced: list[str] = []
    monkeypatch.setattr(durable, "sync_file", lambda path: synced.append(path.name))
    monkeypatch.setattr(durable, "sync_folder", lambda path: synced.append(path.name))
    made = catalogue(root, index)
    names = [made.digest[i].tobytes().hex() for i in range(2)]
    at_index = synced.index("manifest.json")
    assert {*names, *(name[:2] for name in names), "pictures"} <= set(synced[:at_index])


def test_a_full_disk_is_said_as_such(root: Path, index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(root / "data.parquet", {"image": pictures(1), "text": ["a"]})

    def full(path: Path, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(StorageError, match="No space left on device") as found:
        catalogue(root, index)
    assert found.value.code == "E1720"


def test_rows_without_a_usable_picture_are_named(root: Path, index: Path) -> None:
    broken = {"bytes": png(3)[:60], "path": "x.png"}
    other = {"bytes": b"<html>not a picture</html>", "path": "y.png"}
    values = [*pictures(1), None, {"bytes": None, "path": None}, broken, other, {"bytes": None, "path": "gone.png"}]
    values += [{"bytes": b"", "path": None}, *pictures(1)]
    write(root / "data.parquet", {"image": values, "text": ["x"] * 8})
    made = catalogue(root, index)
    assert [made.key(i) for i in range(len(made))] == ["data.parquet:0", "data.parquet:7"]
    reasons = dict(made.report.skipped)
    assert set(reasons) == {f"data.parquet:{i}" for i in range(1, 7)}
    assert reasons["data.parquet:1"] == reasons["data.parquet:2"] == reasons["data.parquet:6"] == "no picture"
    assert "damaged" in reasons["data.parquet:3"] or "truncated" in reasons["data.parquet:3"]
    assert "not a picture of a known format" in reasons["data.parquet:4"]
    assert "'gone.png': no such file" in reasons["data.parquet:5"]
    assert len(kept(index)) == 1  # the same picture twice lies there once


@pytest.mark.parametrize("path", ["/etc/hostname", "/tmp/x.png", "../x.png", "https://example.org/x.png"])
def test_an_embedded_path_may_not_leave_the_folder(root: Path, index: Path, path: str) -> None:
    write(root / "data.parquet", {"image": [*pictures(1), {"bytes": None, "path": path}], "text": ["x", "y"]})
    error = error_of(root, index)
    assert error.code == "E1213"
    assert "data.parquet:1" in error.message


@pytest.mark.parametrize(
    ("image", "kind"),
    [
        (png(5), pa.binary()),
        (png(5), pa.large_binary()),
        ({"bytes": png(5)}, pa.struct([("bytes", pa.large_binary())])),
        ("5.png", pa.large_string()),
        ("5.png", pa.dictionary(pa.int32(), pa.string())),
        ({"path": "5.png"}, pa.struct([("path", pa.string())])),
    ],
)
def test_ways_to_write_a_picture(root: Path, index: Path, image: Any, kind: Any) -> None:
    root.mkdir()
    (root / "5.png").write_bytes(png(5))
    write(root / "data.parquet", {"image": [image], "text": ["x"]}, {"image": kind, "text": pa.large_string()})
    made = catalogue(root, index)
    assert made.path(0).read_bytes() == png(5)


@pytest.mark.parametrize(
    ("columns", "values", "words"),
    [
        ({"image": "picture"}, {}, "no column 'picture' for the picture; its columns are 'image', 'text', 'label'"),
        ({"caption": "prompt"}, {}, "no column 'prompt' for the caption; its columns are 'image', 'text', 'label'"),
        ({"caption": "label"}, {}, "'label' holds int64, not texts"),
        ({"image": "label"}, {}, "'label' holds int64, not pictures"),
        ({"caption": "image"}, {}, "'image' holds struct<bytes: binary, path: string>, not texts"),
    ],
)
def test_columns_are_checked_before_a_row_is_read(
    root: Path, index: Path, columns: dict[str, str], values: dict[str, Any], words: str
) -> None:
    write(root / "data.parquet", {"image": pictures(1), "text": ["x"], "label": [3]})
    error = error_of(root, index, columns=columns)
    assert error.code == "E1212"
    assert words in error.message
    assert kept(index) == []


def test_columns_of_other_names(root: Path, index: Path) -> None:
    write(root / "data.parquet", {"img": pictures(1), "file_name": ["informal"], "prompt": ["x"]}, {"img": PICTURE})
    made = catalogue(root, index, columns={"image": "img", "caption": "prompt"})
    assert made.captions(0) == ("x",)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("data.parquet", lambda data: data[: len(data) // 2]),
        ("data.parquet", lambda data: b"PAR1" + data[4:2000].replace(b"\0", b"\xff") + data[2000:][:-8]),
        ("data.parquet", lambda data: b"not parquet at all"),
        ("data.parquet", lambda data: b""),
        ("data.arrow", lambda data: b"\xff" * 100),
        ("data.arrow", lambda data: b""),
        ("data.parquet", lambda data: b"version https://git-lfs.github.com/spec/v1\noid sha256:0"),
    ],
)
def test_files_that_are_not_what_they_are_called(
    root: Path, index: Path, name: str, change: Callable[[bytes], bytes]
) -> None:
    path = write(root / name, {"image": pictures(*range(9)), "text": ["x"] * 9})
    path.write_bytes(change(path.read_bytes()))
    error = error_of(root, index)
    assert error.code == "E1211"
    assert name in error.message


def test_files_of_the_split_are_read_and_the_others_counted(root: Path, index: Path) -> None:
    for name, shade in (
        ("data/train-00000-of-00002", 1),
        ("data/train-00001-of-00002", 2),
        ("data/test-00000-of-00001", 3),
    ):
        write(root / f"{name}.parquet", {"image": pictures(shade), "text": [name]})
    (root / "README.md").write_text("about")
    made = catalogue(root, index)
    assert [made.key(i) for i in range(2)] == [f"data/train-0000{i}-of-00002.parquet:0" for i in range(2)]
    assert made.report.unknown == ((".md", 1), (".parquet", 1))
    assert len(catalogue(root, index, split="test")) == 1
    write(root / "data" / "extra-00000-of-00001.parquet", {"image": pictures(4), "text": ["extra"]})
    assert len(catalogue(root, index)) == 2
    assert catalogue(root, index, split="extra").captions(0) == ("extra",)
    assert error_of(root, index, split="validation").code == "E1216"


def test_a_data_set_saved_by_the_library_is_read(root: Path, index: Path) -> None:
    features = datasets.Features({"image": datasets.Image(), "text": datasets.Value("string")})
    saved = datasets.Dataset.from_dict({"image": pictures(1, 2), "text": ["one", "two"]}, features=features)
    datasets.DatasetDict({"train": saved, "test": saved.select([0])}).save_to_disk(root)
    made = catalogue(root, index)
    assert [made.captions(i) for i in range(len(made))] == [("one",), ("two",)]
    assert made.path(0).read_bytes() == png(1)


# --- without the extra --------------------------------------------------------------------------------------


def without(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    """Imports as on a machine where the package is not installed."""
    real = builtins.__import__

    def imported(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.split(".")[0] == package:
            raise ModuleNotFoundError(f"No module named {package!r}", name=package)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", imported)
    for name in [name for name in sys.modules if name.startswith("mezzotint.data.formats.shared._")]:
        if name.endswith(("_arrow", "_hub")):
            monkeypatch.delitem(sys.modules, name)
    formats = sys.modules["mezzotint.data.formats.shared"]
    for name in ("_arrow", "_hub"):
        if hasattr(formats, name):
            monkeypatch.delattr(formats, name)


def test_without_the_extra_parquet_is_refused_by_name(root: Path, index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(root / "data.parquet", {"image": pictures(1), "text": ["x"]})
    without(monkeypatch, "pyarrow")
    error = error_of(root, index)
    assert error.code == "E1214"
    assert "need the package pyarrow: pip install 'mezzotint[data]'" in error.message


def test_without_the_extra_text_tables_are_read(root: Path, index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root.mkdir()
    (root / "a.png").write_bytes(png(1))
    (root / "metadata.jsonl").write_text('{"file_name": "a.png", "text": "x"}')
    without(monkeypatch, "pyarrow")
    assert len(catalogue(root, index)) == 1


def test_without_the_extra_a_name_of_the_hub_is_refused(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "datasets")
    error = error_of(Path("someone/pictures"), index)
    assert error.code == "E1214"
    assert "someone/pictures: no such folder" in error.message
    assert "pip install 'mezzotint[data]'" in error.message


# --- the hub ------------------------------------------------------------------------------------------------


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The library's cache, and no network."""

    def offline(*args: Any, **kwargs: Any) -> Any:
        raise ConnectionError("Couldn't reach the hub (offline)")

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "hub")
    monkeypatch.setattr(datasets, "load_dataset", offline)
    return tmp_path / "hub"


def cached(cache: Path, tmp_path: Path, config: str = "default", **splits: Mapping[str, Any]) -> None:
    """Puts someone/pictures into the cache, as the library does it when it has fetched the files."""
    files = {split: [str(write(tmp_path / f"{config}-{split}.parquet", some))] for split, some in splits.items()}
    features = datasets.Features({"image": datasets.Image(), "text": datasets.Value("string")})
    prepare(Parquet, cache, "pictures", config, files, features=features)


def prepare(builder: Any, cache: Path, name: str, config: str, files: dict[str, list[str]], **more: Any) -> None:
    lists = {split: datasets.data_files.DataFilesList(some, [()] * len(some)) for split, some in files.items()}
    builder(
        cache_dir=str(cache), dataset_name=name, config_name=config, config_id=config, hash="abc",
        data_files=datasets.data_files.DataFilesDict(lists), **more,
    ).download_and_prepare()  # fmt: skip
    target = cache / f"someone___{name}"
    target.mkdir(exist_ok=True)
    (cache / name / config).rename(target / config)


HUB = Path("someone/pictures")


def test_a_name_of_the_hub_is_read_from_the_local_cache(tmp_path: Path, index: Path, cache: Path) -> None:
    some = {"image": pictures(1, 2, 3), "text": ["one", "two", "three"]}
    cached(cache, tmp_path, train=some, test={"image": pictures(9), "text": ["nine"]})
    made = catalogue(HUB, index)
    assert [made.captions(i) for i in range(len(made))] == [("one",), ("two",), ("three",)]
    assert made.path(1).read_bytes() == png(2)
    assert made.key(0).endswith("-train.arrow:0")
    test = catalogue(HUB, index, split="test")
    assert [test.captions(i) for i in range(len(test))] == [("nine",)]
    error = error_of(HUB, index, split="validation")
    assert error.code == "E1216"
    assert "it has 'train', 'test'" in error.message


def test_a_configuration_is_chosen_by_name(tmp_path: Path, index: Path, cache: Path) -> None:
    cached(cache, tmp_path, "small", train={"image": pictures(1), "text": ["one"]})
    cached(cache, tmp_path, "large", train={"image": pictures(1, 2), "text": ["one", "two"]})
    assert len(catalogue(HUB, index, hub_config="small")) == 1
    assert len(catalogue(HUB, index, hub_config="large")) == 2
    error = error_of(HUB, index)
    assert error.code == "E1215"
    assert "set data.hub_config" in error.message


def test_what_is_neither_a_folder_nor_cached_is_named(index: Path, cache: Path) -> None:
    error = error_of(HUB, index)
    assert error.code == "E1215"
    assert "someone/pictures: no such folder, and no data set of the hub" in error.message
    assert "Couldn't reach the hub" in error.message


@pytest.mark.parametrize("path", ["pictures", "~/pictures", "../some", "a/b/c", "/a/b", "some one/pictures"])
def test_other_paths_are_never_asked_of_the_hub(index: Path, cache: Path, path: str) -> None:
    assert error_of(Path(path), index).code == "E1201"


def test_a_folder_goes_before_a_name(tmp_path: Path, index: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cached(cache, tmp_path, train={"image": pictures(1), "text": ["of the hub"]})
    monkeypatch.chdir(tmp_path)
    write(tmp_path / HUB / "data.parquet", {"image": pictures(1), "text": ["of the folder"]})
    assert catalogue(HUB, index).captions(0) == ("of the folder",)


def test_what_is_not_cached_is_fetched(
    tmp_path: Path, index: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[Any, ...]] = []

    def fetch(name: str, config: str | None, cache_dir: str | None) -> Any:
        asked.append((name, config, cache_dir))
        cached(cache, tmp_path, train={"image": pictures(1), "text": ["fetched"]})
        return datasets.DatasetDict({"train": in_cache(cache)})

    monkeypatch.setattr(datasets, "load_dataset", fetch)
    assert catalogue(HUB, index).captions(0) == ("fetched",)
    assert catalogue(HUB, index).captions(0) == ("fetched",)
    assert asked == [("someone/pictures", None, None)]


def in_cache(cache: Path) -> datasets.Dataset:
    (file,) = cache.glob("someone___pictures/*/*/*/*.arrow")
    return datasets.Dataset.from_file(str(file))


def test_pictures_that_the_cache_names_by_path_are_read_from_caches_only(
    tmp_path: Path, index: Path, cache: Path
) -> None:
    for place in (cache / "downloads", tmp_path / "private"):
        place.mkdir(parents=True)
        (place / "0.png").write_bytes(png(4))
        (place / "metadata.jsonl").write_text('{"file_name": "0.png", "text": "x"}')
    found = []
    for number, place in enumerate((cache / "downloads", tmp_path / "private")):
        files = [str(path) for path in sorted(place.iterdir())]
        prepare(ImageFolder, cache, f"set{number}", "default", {"train": files})
        found.append(Path(f"someone/set{number}"))
    made = catalogue(found[0], index)
    assert made.path(0).read_bytes() == png(4)
    assert made.path(0) != cache / "downloads" / "0.png"
    assert error_of(found[1], index).code == "E1213"


# --- against the library  -----------------------------------------------------------------


@pytest.mark.parametrize("ending", ["jsonl", "csv", "parquet"])
def test_rows_are_those_that_the_library_reads(root: Path, index: Path, tmp_path: Path, ending: str) -> None:
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
    made = catalogue(root, index)
    ours = [(str(made.path(i)), made.captions(i)) for i in range(len(made))]
    assert sorted(ours) == sorted((row["image"]["path"], (row["text"],)) for row in rows)
    assert len(ours) == 3
