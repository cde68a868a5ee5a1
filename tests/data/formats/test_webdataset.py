"""The format webdataset: shards, keys, captions and damaged files."""

from __future__ import annotations

import gzip
import os
import tarfile
from functools import partial
from pathlib import Path

import pytest

from mezzotint.data.formats.webdataset import expand_braces
from mezzotint.errors import RecipeError
from mezzotint.settings.reading.read import read_text, resolve_paths
from mezzotint.tasks.reading.arguments import parse
from support import data_sets
from support.data_sets import captions_of, notes_of, skipped_of
from support.messages import refused
from support.shards import image_bytes, opened, shard

read = partial(data_sets.read, format="webdataset")


@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT])
def test_members_with_one_key_are_a_sample_in_any_order(tmp_path: Path, form: int) -> None:
    shard(tmp_path / "0.tar", ("./a.jpg", image_bytes(1, kind="JPEG")), ("a.txt", "a cat\n asleep"),
          ("deep/b.c.txt", "no"), ("deep/b.png", image_bytes(2)), ("deep/b.txt", "a dog"), format=form)  # fmt: skip
    long = "a/" * 40 + "x" * 60 if form != tarfile.USTAR_FORMAT else "x"
    shard(tmp_path / "more" / "1.tar", (f"{long}.cls", "7"), (f"{long}.webp", image_bytes(3, kind="WEBP")), format=form)
    assert captions_of(read(tmp_path)) == {
        "0.tar/./a.jpg": ("a cat asleep",), "0.tar/deep/b.png": ("a dog",), f"more/1.tar/{long}.webp": ("7",),
    }  # fmt: skip


def test_caption_is_taken_from_json_column_or_text_file(tmp_path: Path) -> None:
    columns = {"text": ["one", "two"], "caption": "three"}
    shard(tmp_path / "0.tar", ("a.png", image_bytes(1)), ("a.txt", "beside"), ("a.json", columns),
          ("b.png", image_bytes(2)), ("b.txt", "beside"), ("b.json", {"caption": "four"}))  # fmt: skip
    assert captions_of(read(tmp_path)) == {"0.tar/a.png": ("one", "two"), "0.tar/b.png": ("beside",)}
    of_caption = read(tmp_path, columns={"caption": "caption"})
    assert captions_of(of_caption) == {"0.tar/a.png": ("three",), "0.tar/b.png": ("four",)}
    with refused("E1212", r"no \.json has 'prompt'; they have 'caption', 'text'"):
        read(tmp_path, columns={"caption": "prompt"})


def test_unusable_members_are_reported(tmp_path: Path) -> None:
    path = shard(
        tmp_path / "0.tar", ("a.png", image_bytes(1)), ("a.jpg", image_bytes(2, kind="JPEG")), ("a.txt", "x"),
        ("b.png", image_bytes(1)), ("b.txt", "x"), ("b.png", image_bytes(2)),
        ("c.png", image_bytes(1)), ("c.txt", b"\xff\xfe"), ("d.png", image_bytes(1)), ("d.json", "[1]"),
        ("e.txt", "no image"), (".hidden.png", b""), ("f.png", image_bytes(1)), ("f.json", {"text": 4}),
        ("g.png", b"no image"), ("g.txt", "x"),
    )  # fmt: skip
    with tarfile.open(path, "a") as archive:
        link = tarfile.TarInfo("h.png")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    items = read(tmp_path)
    assert skipped_of(items) == {
        "0.tar/a": "'a.png' and 'a.jpg' are images with the same key, which is ambiguous",
        "0.tar/b": "'b.png' is twice in the shard, which is ambiguous",
        "0.tar/c": "'c.txt': not UTF-8 at byte 0; save it as UTF-8",
        "0.tar/d": "'d.json': not a JSON object",
        "0.tar/e.txt": "no image with its key",
        "0.tar/f": "its caption is a number (4), not a text",
        "0.tar/h": "'h.png' is a link or a device, not a file",
    }
    assert list(captions_of(items)) == ["0.tar/g.png"], "images are checked only when they are decoded"
    assert notes_of(items) == [("0.tar", "1 members without a key are ignored")]


@pytest.mark.parametrize("missing", ["error", "skip", "empty"])
def test_missing_caption_is_an_error_skipped_or_empty(tmp_path: Path, missing: str) -> None:
    shard(tmp_path / "0.tar", ("a.png", image_bytes(1)), ("b.png", image_bytes(2)), ("b.txt", ""))
    if missing == "error":
        with refused("E1203", r"no caption for 0\.tar/a\.png: a \.txt of the same key"):
            read(tmp_path)
    else:
        captions = captions_of(read(tmp_path, captions={"missing": missing}))
        assert captions == {"0.tar/b.png": ("",)} | ({"0.tar/a.png": ("",)} if missing == "empty" else {})


def test_shards_are_given_as_folder_file_or_range(tmp_path: Path) -> None:
    for number in range(12):
        shard(tmp_path / f"t-{number:03d}.tar", ("a.png", image_bytes(number)), ("a.txt", str(number)))
    assert len(captions_of(read(tmp_path))) == 12
    assert list(captions_of(read(tmp_path / "t-004.tar")).values()) == [("4",)]
    assert [c for (c,) in captions_of(read(tmp_path / "t-{003..005}.tar")).values()] == ["3", "4", "5"]
    assert [c for (c,) in captions_of(read(tmp_path / "t-{001,011}.tar")).values()] == ["1", "11"]
    with refused("E1201", r"no such file: .*t-012\.tar, .*t-013\.tar"):
        read(tmp_path / "t-{010..013}.tar")


def test_ranges_are_expanded_like_in_a_shell() -> None:
    assert expand_braces("a{8..11}b") == ["a8b", "a9b", "a10b", "a11b"]
    assert expand_braces("{08..10}") == ["08", "09", "10"]
    assert expand_braces("{x,y}{0..1}") == ["x0", "x1", "y0", "y1"]
    for wrong in ("{5..2}", "{a..c}", "{}", "{0..1", "{x}", "{0..9999999}"):
        with refused("E1281", "write a range of shards as"):
            expand_braces(wrong)


def test_range_is_resolved_next_to_the_recipe(tmp_path: Path) -> None:
    shard(tmp_path / "shards" / "0.tar", ("a.png", image_bytes(1)), ("a.txt", "x"))
    (tmp_path / "recipe.yaml").write_text("data: {path: 'shards/{0..0}.tar', format: webdataset}")
    recipe = resolve_paths(parse([str(tmp_path / "recipe.yaml")], "check"))
    assert recipe.data.path == tmp_path / "shards" / "{0..0}.tar"


@pytest.mark.parametrize("address", ["pipe:curl -s host", "pipe:aws s3 cp s3://bucket/{0..3}.tar -"])
def test_commands_are_refused(address: str) -> None:
    with refused("E1281", "commands are not supported"):
        read(Path(address))


def test_damaged_shard_is_an_error(tmp_path: Path) -> None:
    fields = [(f"{i}.{end}", image_bytes(i) if end == "png" else "x") for i in range(6) for end in ("png", "txt")]
    whole = shard(tmp_path / "whole.tar", *fields).read_bytes()

    def error_for(content: bytes) -> str:
        (tmp_path / "x" / "0.tar").parent.mkdir(exist_ok=True)
        (tmp_path / "x" / "0.tar").write_bytes(content)
        with refused("E1280") as error:
            read(tmp_path / "x")
        return error.value.message

    place = whole.index(b"3.png")  # the header of a member
    assert "after its member '2.txt'" in error_for(whole[:place] + b"\xff" * 512 + whole[place + 512 :])
    assert "after its member '3.png'" in error_for(whole[: place + 600])
    assert "after its member '2.txt'" in error_for(whole[: place + 100])
    assert "is compressed (gzip)" in error_for(gzip.compress(whole))
    assert "is empty" in error_for(b"")
    assert "is a truncated or damaged tar archive" in error_for(b"x" * 4096)
    (tmp_path / "x" / "0.tar").write_bytes(whole[: whole.rindex(b"x") + 512])  # some writers omit the end marker
    assert len(captions_of(read(tmp_path / "x"))) == 6


def test_folder_without_shards_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "0.tar.gz").write_bytes(b"")
    with refused("E1210", r"no \.tar file at any depth; decompress the 1 compressed files"):
        read(tmp_path)


def test_table_settings_are_refused() -> None:
    for words in ("data.split=test", "data.columns.image=x", "data.captions.source=filename"):
        with pytest.raises(RecipeError, match="no effect with data"):
            read_text("schema: 1", overrides=["data.format=webdataset", words])


def test_only_changed_shards_are_indexed_again(tmp_path: Path) -> None:
    for number in range(2):
        shard(tmp_path / "s" / f"{number}.tar", ("a.png", image_bytes(number)), ("a.txt", "x"))
    before = opened(tmp_path / "s", tmp_path / "index")
    shard(tmp_path / "s" / "1.tar", ("a.png", image_bytes(200)), ("a.txt", "x"))
    after = opened(tmp_path / "s", tmp_path / "index")
    assert after.report.decoded == 1
    assert after.fingerprint != before.fingerprint
    moved = tmp_path / "elsewhere"
    os.rename(tmp_path / "s", moved)
    assert opened(moved, tmp_path / "index").fingerprint == after.fingerprint
