"""Parquet and arrow: images named in or embedded in the table."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.arrow_tables import IMAGE, catalogue, error_of, images, kept, png, without, write


def test_metadata_parquet_refers_to_image_files(root: Path, index: Path) -> None:
    root.mkdir()
    for shade in range(3):
        (root / f"{shade}.png").write_bytes(png(shade))
    captions = [["one", "uno"], None, ["three"]]
    write(root / "metadata.parquet", {"file_name": ["0.png", "1.png", "2.png"], "text": captions, "image": [None] * 3})
    data_set = catalogue(root, index, captions={"missing": "skip"})
    assert {data_set.key(i): data_set.captions(i) for i in range(len(data_set))} == {
        "0.png": ("one", "uno"),
        "2.png": ("three",),
    }
    assert data_set.report.left_out == (("metadata.parquet:1", "no caption"),)
    assert data_set.path(1) == root / "2.png"


def test_parquet_rows_are_counted_from_0_across_row_groups(root: Path, index: Path) -> None:
    root.mkdir()
    (root / "0.png").write_bytes(png(0))
    write(root / "metadata.parquet", {"file_name": [*["0.png"], *["../x.png"] * 4], "text": ["x"] * 5})
    error = error_of(root, index)
    assert error.code == "E1213"
    assert "metadata.parquet:1 ('../x.png'), metadata.parquet:2" in error.message
    assert "metadata.parquet:4" in error.message


@pytest.mark.parametrize("ending", ["parquet", "arrow"])
def test_embedded_images_are_samples_like_others(root: Path, index: Path, ending: str) -> None:
    shades = list(range(0, 200, 20))
    write(root / f"data.{ending}", {"image": images(*shades), "text": [f"shade {s}" for s in shades]})
    data_set = catalogue(root, index)
    assert [data_set.key(i) for i in range(10)] == sorted(f"data.{ending}:{i}" for i in range(10))
    assert data_set.captions(3) == ("shade 60",)
    assert data_set.verify(3)
    assert data_set.path(3).read_bytes() == png(60)
    assert (int(data_set.width[3]), int(data_set.height[3])) == (70, 60)
    assert kept(index) == sorted(data_set.digest[i].tobytes().hex() for i in range(10))
    assert data_set.report.used == 10


def test_arrow_file_layout_equals_the_stream_layout(root: Path, index: Path) -> None:
    path = write(root / "data.arrow", {"image": images(1, 2, 3, 4), "text": ["a", "b", "c", "d"]})
    stream = catalogue(root, index)
    table = pa.ipc.open_stream(path.read_bytes()).read_all()
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=3)
    assert path.read_bytes()[:6] == b"ARROW1"
    assert catalogue(root, index).fingerprint == stream.fingerprint


def test_rows_without_usable_image_are_reported(root: Path, index: Path) -> None:
    broken = {"bytes": png(3)[:60], "path": "x.png"}
    other = {"bytes": b"<html>not an image</html>", "path": "y.png"}
    values = [*images(1), None, {"bytes": None, "path": None}, broken, other, {"bytes": None, "path": "gone.png"}]
    values += [{"bytes": b"", "path": None}, *images(1)]
    write(root / "data.parquet", {"image": values, "text": ["x"] * 8})
    data_set = catalogue(root, index)
    assert [data_set.key(i) for i in range(len(data_set))] == ["data.parquet:0", "data.parquet:7"]
    reasons = dict(data_set.report.skipped)
    assert set(reasons) == {f"data.parquet:{i}" for i in range(1, 7)}
    assert reasons["data.parquet:1"] == reasons["data.parquet:2"] == reasons["data.parquet:6"] == "no image"
    assert "damaged" in reasons["data.parquet:3"] or "truncated" in reasons["data.parquet:3"]
    assert "not an image of a known format" in reasons["data.parquet:4"]
    assert "'gone.png': no such file" in reasons["data.parquet:5"]
    assert len(kept(index)) == 1  # the same image twice is stored once


@pytest.mark.parametrize("path", ["/etc/hostname", "/tmp/x.png", "../x.png", "https://example.org/x.png"])
def test_embedded_path_may_not_leave_the_folder(root: Path, index: Path, path: str) -> None:
    write(root / "data.parquet", {"image": [*images(1), {"bytes": None, "path": path}], "text": ["x", "y"]})
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
def test_image_column_types_are_read(root: Path, index: Path, image: Any, kind: Any) -> None:
    root.mkdir()
    (root / "5.png").write_bytes(png(5))
    write(root / "data.parquet", {"image": [image], "text": ["x"]}, {"image": kind, "text": pa.large_string()})
    data_set = catalogue(root, index)
    assert data_set.path(0).read_bytes() == png(5)


@pytest.mark.parametrize(
    ("columns", "values", "words"),
    [
        ({"image": "photo"}, {}, "no column 'photo' for the image; its columns are 'image', 'text', 'label'"),
        ({"caption": "prompt"}, {}, "no column 'prompt' for the caption; its columns are 'image', 'text', 'label'"),
        ({"caption": "label"}, {}, "'label' contains int64, not strings"),
        ({"image": "label"}, {}, "'label' contains int64, not images"),
        ({"caption": "image"}, {}, "'image' contains struct<bytes: binary, path: string>, not strings"),
    ],
)
def test_columns_are_checked_before_a_row_is_read(
    root: Path, index: Path, columns: dict[str, str], values: dict[str, Any], words: str
) -> None:
    write(root / "data.parquet", {"image": images(1), "text": ["x"], "label": [3]})
    error = error_of(root, index, columns=columns)
    assert error.code == "E1212"
    assert words in error.message
    assert kept(index) == []


def test_columns_can_have_other_names(root: Path, index: Path) -> None:
    write(root / "data.parquet", {"img": images(1), "file_name": ["informal"], "prompt": ["x"]}, {"img": IMAGE})
    data_set = catalogue(root, index, columns={"image": "img", "caption": "prompt"})
    assert data_set.captions(0) == ("x",)


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
def test_damaged_or_mislabelled_files_are_refused(
    root: Path, index: Path, name: str, change: Callable[[bytes], bytes]
) -> None:
    path = write(root / name, {"image": images(*range(9)), "text": ["x"] * 9})
    path.write_bytes(change(path.read_bytes()))
    error = error_of(root, index)
    assert error.code == "E1211"
    assert name in error.message


@pytest.mark.parametrize(("layout", "codec"), [("file", "zstd"), ("stream", "lz4")])
def test_arrow_decompression_bombs_are_refused_before_unpacking(
    root: Path, index: Path, layout: str, codec: str
) -> None:
    root.mkdir()
    table = pa.table({"image": [bytes(70 << 20)], "text": ["x"]})
    options = pa.ipc.IpcWriteOptions(compression=codec)
    open_writer = pa.ipc.new_file if layout == "file" else pa.ipc.new_stream
    with open_writer(str(root / "data.arrow"), table.schema, options=options) as writer:
        writer.write_table(table)
    before = pa.default_memory_pool().max_memory()
    error = error_of(root, index)
    assert (error.code, "bytes unpack to 73,4" in error.message) == ("E1211", True)
    assert pa.default_memory_pool().max_memory() == before


def test_compressed_arrow_files_are_read(root: Path, index: Path) -> None:
    root.mkdir()
    table = pa.table({"image": [png(1) + bytes(1000)], "text": ["x"]})
    with pa.ipc.new_file(
        str(root / "data.arrow"), table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")
    ) as writer:
        writer.write_table(table)
    assert catalogue(root, index).captions(0) == ("x",)


def test_parquet_file_that_repeats_a_large_value_is_refused(root: Path, index: Path) -> None:
    root.mkdir()
    text = pa.DictionaryArray.from_arrays(pa.array([0] * 200, pa.int32()), pa.array(["x" * (1 << 20)]))
    pq.write_table(pa.table({"image": [png(1)] * 200, "text": text}), root / "data.parquet", compression="zstd")
    error = error_of(root, index)
    assert (error.code, "or more; no valid table of images does" in error.message) == ("E1211", True)


def test_table_with_more_rows_than_bytes_is_refused(root: Path, index: Path) -> None:
    root.mkdir()
    table = pa.table({"image": pa.nulls(20_000, pa.binary()), "text": pa.nulls(20_000, pa.string())})
    pq.write_table(table, root / "data.parquet")
    error = error_of(root, index)
    assert (error.code, "has more rows than bytes" in error.message) == ("E1211", True)


def test_only_files_of_the_split_are_read(root: Path, index: Path) -> None:
    for name, shade in (
        ("data/train-00000-of-00002", 1),
        ("data/train-00001-of-00002", 2),
        ("data/test-00000-of-00001", 3),
    ):
        write(root / f"{name}.parquet", {"image": images(shade), "text": [name]})
    (root / "README.md").write_text("about")
    data_set = catalogue(root, index)
    assert [data_set.key(i) for i in range(2)] == [f"data/train-0000{i}-of-00002.parquet:0" for i in range(2)]
    assert data_set.report.unknown == ((".md", 1), (".parquet", 1))
    assert len(catalogue(root, index, split="test")) == 1
    write(root / "data" / "extra-00000-of-00001.parquet", {"image": images(4), "text": ["extra"]})
    assert len(catalogue(root, index)) == 2
    assert catalogue(root, index, split="extra").captions(0) == ("extra",)
    assert error_of(root, index, split="validation").code == "E1216"


def test_data_set_saved_by_the_library_is_read(root: Path, index: Path) -> None:
    features = datasets.Features({"image": datasets.Image(), "text": datasets.Value("string")})
    saved = datasets.Dataset.from_dict({"image": images(1, 2), "text": ["one", "two"]}, features=features)
    datasets.DatasetDict({"train": saved, "test": saved.select([0])}).save_to_disk(root)
    data_set = catalogue(root, index)
    assert [data_set.captions(i) for i in range(len(data_set))] == [("one",), ("two",)]
    assert data_set.path(0).read_bytes() == png(1)


def test_parquet_without_pyarrow_is_refused_with_the_install_command(
    root: Path, index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(root / "data.parquet", {"image": images(1), "text": ["x"]})
    without(monkeypatch, "pyarrow")
    error = error_of(root, index)
    assert error.code == "E1214"
    assert "need the package pyarrow: pip install 'mezzotint[data]'" in error.message


def test_text_tables_are_read_without_pyarrow(root: Path, index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root.mkdir()
    (root / "a.png").write_bytes(png(1))
    (root / "metadata.jsonl").write_text('{"file_name": "a.png", "text": "x"}')
    without(monkeypatch, "pyarrow")
    assert len(catalogue(root, index)) == 1
