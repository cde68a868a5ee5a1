"""Object storage: objects are fetched to the local disk once, as they were indexed; errors are reported."""

from __future__ import annotations

import io
import json
import os
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mezzotint import fault_injection
from mezzotint.data.catalogue.catalogue import Catalogue, build
from mezzotint.data.files import remote, tar_members
from mezzotint.data.loading.reading import read_image
from mezzotint.settings.sections.data import DataSettings
from mezzotint.shapes import Size
from mezzotint.stages import Placement
from support.data_sets import read
from support.messages import refused
from support.s3_server import S3Server, waits_between_tries
from support.shards import image_bytes, shard

PLACED = Placement(Size(40, 32), Size(40, 32), (0, 0), False)


@pytest.fixture
def memory() -> Iterator[Any]:
    """fsspec's storage in memory, empty before and after."""
    system = fsspec.filesystem("memory")
    system.store.clear()
    yield system
    system.store.clear()


def shard_in(tmp_path: Path, *shades: int) -> bytes:
    fields: list[tuple[str, bytes | str | dict[str, Any]]] = []
    for shade in shades:
        fields += [(f"{shade}.png", image_bytes(shade)), (f"{shade}.txt", f"shade {shade}")]
    return shard(tmp_path / "made.tar", *fields).read_bytes()


def catalogue_of(address: str, index: Path, **values: Any) -> Catalogue:
    return build(settings_of(address, **values), index, workers=2)


def settings_of(address: str, **values: Any) -> DataSettings:
    return DataSettings.model_validate({"path": [address], "format": "webdataset", **values})


def shades(catalogue: Catalogue, **values: Any) -> dict[str, int]:
    """The shade of each image by its caption, as a worker reads it."""
    settings = settings_of("memory://box", **values)
    pixels = {i: read_image(catalogue, i, PLACED, settings) for i in range(len(catalogue))}
    return {catalogue.captions(i)[0]: int(one[0, 0, 0]) for i, one in pixels.items()}


def kept(index: Path) -> list[Path]:
    return [path for path in (index / remote.FOLDER).glob("*/*") if path.name != "lock"]


def test_worker_fetches_only_its_samples_and_once(memory: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory.pipe_file("/box/0.tar", shard_in(tmp_path, 1, 2))
    memory.pipe_file("/box/deep/1.tar", shard_in(tmp_path, 3))
    built = catalogue_of("memory://box", tmp_path / "index")
    assert [built.key(i) for i in range(3)] == ["0.tar/1.png", "0.tar/2.png", "deep/1.tar/3.png"]
    elsewhere = tmp_path / "other machine"
    (tmp_path / "index").rename(elsewhere)
    for path in kept(elsewhere):
        path.unlink()
    folder = elsewhere / built.folder.relative_to(tmp_path / "index")
    catalogue, asked_for = Catalogue.open(folder, built.roots), []
    cat = type(memory).cat_file

    def watched(self: Any, path: str, start: int | None = None, end: int | None = None, **others: Any) -> bytes:
        asked_for.append((path, (end or 0) - (start or 0)))
        return bytes(cat(self, path, start=start, end=end, **others))

    monkeypatch.setattr(type(memory), "cat_file", watched)
    for _ in range(2):
        assert shades(pickle.loads(pickle.dumps(catalogue))) == {"shade 1": 1, "shade 2": 2, "shade 3": 3}
    sizes = [len(image_bytes(shade)) for shade in (1, 2, 3)]
    assert asked_for == list(zip(("/box/0.tar", "/box/0.tar", "/box/deep/1.tar"), sizes, strict=True))
    assert sorted(path.stat().st_size for path in kept(elsewhere)) == sorted(sizes), "no shard is fetched completely"


def test_index_does_not_depend_on_the_storage(memory: Any, tmp_path: Path) -> None:
    for number, own in enumerate(((1, 2), (3,))):
        data = shard_in(tmp_path, *own)
        memory.pipe_file(f"/box/{number}.tar", data)
        (tmp_path / "disk").mkdir(exist_ok=True)
        (tmp_path / "disk" / f"{number}.tar").write_bytes(data)
    here = catalogue_of(os.fspath(tmp_path / "disk"), tmp_path / "one")
    for address in ("memory://box", "memory://box/{0..1}.tar", f"file://{tmp_path}/disk"):
        there = catalogue_of(address, tmp_path / "two")
        assert there.fingerprint == here.fingerprint
    again = catalogue_of("memory://box", tmp_path / "two")
    assert again.folder == catalogue_of("memory://box", tmp_path / "two").folder
    memory.pipe_file("/box/1.tar", shard_in(tmp_path, 3, 4))
    more = catalogue_of("memory://box", tmp_path / "two")
    assert (len(more), more.report.decoded) == (4, 2), "the unchanged shard is not indexed again"


def test_tables_and_their_images_are_read_from_object_storage(memory: Any, tmp_path: Path) -> None:
    memory.pipe_file("/box/metadata.csv", b"file_name,text\na.png,shade 5\nin/b.png,shade 6\n")
    memory.pipe_file("/box/a.png", image_bytes(5))
    memory.pipe_file("/box/in/b.png", image_bytes(6))
    catalogue = catalogue_of("memory://box", tmp_path, format="metadata")
    assert shades(catalogue) == {"shade 5": 5, "shade 6": 6}
    memory.pipe_file("/box/metadata.csv", b"file_name,text\na.png,other\n")
    assert catalogue_of("memory://box", tmp_path, format="metadata").captions(0) == ("other",)
    with refused("E1842", "data.format=image-folder reads local disks only"):
        catalogue_of("memory://box", tmp_path, format="image-folder")


def test_bytes_that_differ_from_the_index_are_refused(memory: Any, tmp_path: Path) -> None:
    memory.pipe_file("/box/0.tar", shard_in(tmp_path, 1))
    catalogue = catalogue_of("memory://box", tmp_path)
    memory.pipe_file("/box/0.tar", shard_in(tmp_path, 9))
    with refused("E1843", r"memory://box/0\.tar/1\.png@\d+\+\d+: has other bytes"):
        shades(catalogue)


def test_network_errors_are_retried_and_then_reported(memory: Any, tmp_path: Path) -> None:
    memory.pipe_file("/box/0.tar", shard_in(tmp_path, 1))
    fault_injection.arm("data.fetch@1:raise,data.fetch@3:raise")
    try:
        assert shades(catalogue_of("memory://box", tmp_path)) == {"shade 1": 1}
    finally:
        fault_injection.arm("")
    calls = []

    def fails() -> None:
        calls.append(0)
        raise ConnectionError("GET https://user:SECRET@box/x?X-Amz-Signature=SECRET refused")

    with refused("E1841", r"memory://box: cannot be read \(GET https://…@box/x\?… refused\)") as error:
        remote.with_retries("memory://box", fails, waits=(0.0, 0.0))
    assert (len(calls), "SECRET" in str(error.value)) == (3, False)


def test_missing_objects_are_reported_without_retry(
    memory: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote.time, "sleep", lambda _: pytest.fail("nothing to wait for"))
    with refused("E1841", "memory://none: is empty"):
        read(Path("memory://none"), format="webdataset")
    memory.pipe_file("/box/0.tar", b"")
    with refused("E1841", r"memory://box/1\.tar: cannot be read"):
        read(Path("memory://box/{0..1}.tar"), format="webdataset")
    with refused("E1841", "nowhere://box: "):
        read(Path("nowhere://box"), format="webdataset")
    for address in ("https://me:SECRET@host/0.tar", "https://host/0.tar?sig=SECRET"):
        with refused("E1841", "https://host/…: contains a signature or credentials") as error:
            read(Path(address), format="webdataset")
        assert "SECRET" not in str(error.value)


def test_missing_package_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with refused("E1840", r"s3a://box: .*pip install 'mezzotint\[object-storage\]'"):  # another test has used s3://
        read(Path("s3a://box"), format="webdataset")


@pytest.mark.usefixtures("s3_server")
def test_shards_on_a_real_server_are_indexed_and_read(tmp_path: Path) -> None:
    system = fsspec.filesystem("s3")
    system.pipe_file("box/data/0.tar", shard_in(tmp_path, 1, 2))
    system.pipe_file("box/data/1.tar", shard_in(tmp_path, 3))
    first = catalogue_of("s3://box/data", tmp_path / "index")
    assert shades(first) == {"shade 1": 1, "shade 2": 2, "shade 3": 3}
    for path in kept(tmp_path / "index"):
        path.unlink()
    assert catalogue_of("s3://box/data", tmp_path / "index").folder == first.folder, (
        "the server reports the same version"
    )
    assert not kept(tmp_path / "index"), "a second start lists and fetches nothing"
    assert shades(first) == {"shade 1": 1, "shade 2": 2, "shade 3": 3}
    with refused("E1841", "s3://none/data: cannot be read"):
        catalogue_of("s3://none/data", tmp_path / "index")


@pytest.mark.usefixtures("s3_server")
def test_credentials_are_in_no_file_and_no_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fsspec.filesystem("s3").pipe_file("box/data/0.tar", shard_in(tmp_path, 1, 2))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.setenv(name, f"SECRET-{name}")
    fsspec.get_filesystem_class("s3").clear_instance_cache()
    assert shades(catalogue_of("s3://box/data", tmp_path / "index")) == {"shade 1": 1, "shade 2": 2}
    with refused("E1841") as error:
        catalogue_of("s3://none/data", tmp_path / "index")
    files = [path.read_bytes() for path in (tmp_path / "index").rglob("*") if path.is_file()]
    assert len(files) > 20
    assert not [text for text in (str(error.value).encode(), *files) if b"SECRET" in text]


def test_signed_url_is_refused_without_printing_it() -> None:
    with refused("E1841", "memory://box/…: contains a signature") as error:
        catalogue_of("memory://box/{0..1}.tar?part=SECRET", Path("index"))
    assert "SECRET" not in str(error.value)


def images_with_table(ending: str) -> dict[str, bytes]:
    """Two images and a table that names them, by path."""
    names, captions = ["a.png", "in/b.png"], ["shade 5", "shade 6"]
    table = io.BytesIO()
    if ending == "parquet":
        pq.write_table(pa.table({"file_name": names, "text": captions}), table)
    else:
        lines = (json.dumps({"file_name": n, "text": c}) + "\n" for n, c in zip(names, captions, strict=True))
        table.write("".join(lines).encode())
    return {f"metadata.{ending}": table.getvalue(), "a.png": image_bytes(5), "in/b.png": image_bytes(6)}


@pytest.mark.usefixtures("s3_server")
def test_table_on_a_real_server_is_read_like_a_local_one(tmp_path: Path) -> None:
    system = fsspec.filesystem("s3")
    for name, data in images_with_table("parquet").items():
        system.pipe_file(f"box/table/{name}", data)
        (tmp_path / "disk" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "disk" / name).write_bytes(data)
    here = catalogue_of(os.fspath(tmp_path / "disk"), tmp_path / "one", format="metadata")
    there = catalogue_of("s3://box/table", tmp_path / "two", format="metadata")
    assert there.fingerprint == here.fingerprint
    assert [there.key(i) for i in range(2)] == [here.key(i) for i in range(2)] == ["a.png", "in/b.png"]
    assert shades(there) == shades(here) == {"shade 5": 5, "shade 6": 6}


def test_requests_are_retried_when_the_server_is_overloaded(
    s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Status 503 once: for the list, the table and an image."""
    waits = waits_between_tries(monkeypatch)
    system = fsspec.filesystem("s3")
    for name, data in images_with_table("jsonl").items():
        system.pipe_file(f"box/table/{name}", data)
    of_table, of_image = ("GET", "/box/table/metadata.jsonl"), ("GET", "/box/table/a.png")
    s3_server.overloaded |= {("GET", "/box"), of_table}
    catalogue = catalogue_of("s3://box/table", tmp_path, format="metadata")
    assert not s3_server.overloaded
    assert waits == [remote.WAITS[0]] * 2
    for path in kept(tmp_path):
        path.unlink()
    s3_server.overloaded.add(of_image)
    assert shades(catalogue) == {"shade 5": 5, "shade 6": 6}
    assert not s3_server.overloaded
    assert waits == [remote.WAITS[0]] * 3
    assert s3_server.asked.count(of_table) == 2


def test_paths_and_urls_are_distinguished() -> None:
    for address in ("s3://box/a/b.tar", "memory://box", "file:///data/x", "https://host/a.tar"):
        assert remote.url_of(Path(address)) == address
        assert remote.is_remote(Path(address))
    for path in ("/data/s3:/x", "C:/x", "data", "~/x", "./s3:x"):
        assert not remote.is_remote(path)
    member = tar_members.Member(Path("s3://box/0.tar"), "in/a.png", 512, 9)
    assert tar_members.parse_member_path(member.path) == tar_members.Member(Path("s3://box/0.tar"), "a.png", 512, 9)
