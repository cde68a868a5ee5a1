# ruff: noqa: E501 (an entry a line)
"""Lists, tables, shards and folders of other trainers: the rows H1 and I2."""

from __future__ import annotations

import json
import struct
import tarfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from hostile import seeds
from hostile.entry import Content, Entry, Make, all_of, file
from hostile.texts import link, pipe

_PICTURE = file("a.png", seeds.picture(size=(64, 64)))


def _entry(reader: str, id_: str, fault: str, make: Make, expected: str, row: str = "H1", **more: Any) -> Entry:
    return Entry(id=f"{reader}-{id_}", reader=reader, fault=fault, row=row, make=make, expected=expected, **more)


# --- lists of clips ---------------------------------------------------------------------------------------------------


def _list(
    id_: str, fault: str, annotation: Any, code: str = "E1232", text: Any = "media,a.json\n", **more: Any
) -> Entry:
    content = annotation if isinstance(annotation, (str, bytes)) else json.dumps(annotation)
    make = all_of(file("media/a.png", seeds.picture(size=(64, 64))), file("a.json", content), file("clips.txt", text))
    expected = more.pop("expected", "E2")
    names = more.pop("names", "a.json" if code == "E1232" else "clips.txt")
    return _entry("clip-list", id_, fault, make, expected, code=code, names=names, **more)


def _one(**more: Any) -> list[dict[str, Any]]:
    return [{"path": "a.png", "cap": "a fox"}, {"path": "a.png", "cap": "an owl"} | more]


_LISTS = [
    _list("deep", "an annotation nested 100,000 deep", "[" * 100_000, is_quick=True),
    _list("number", "a number of 5,000 digits", '[{"path": "a.png", "cap": "x", "n": ' + "9" * 5000 + "}]"),
    _list("object", "an object where a list belongs", {"path": "a.png"}),
    _list("null", "null entries", [None, 3, "a"]),
    _list("no-path", "an entry without a path", [{"cap": "x"}]),
    _list("path-number", "a path that is a number", _one(path=3)),
    _list("out", "a path that leads out", _one(path="../../etc/passwd"), is_quick=True),
    _list("absolute", "an absolute path", _one(path="/etc/passwd")),
    _list("address", "an address of the net", _one(path="https://example.org/a.mp4")),
    _list("drive", "a path of Windows", _one(path="C:\\a.mp4")),
    _list("nul", "a NUL in a path", _one(path="a\0.png")),
    _list("frames", "a start that is none", _one(frame_idx="-1:x")),
    _list("frames-huge", "a start of 5,000 digits", _one(frame_idx="9" * 5000 + ":1")),
    _list("utf-16", "UTF-16", json.dumps(_one()).encode("utf-16")),
    _list("cut", "JSON that ends in its middle", json.dumps(_one())[:-20]),
    _list("twice", "a key twice", '[{"path": "a.png", "path": "b.png", "cap": "x"}]'),
    _list("long-name", "a name that no file can have", _one(path="x" * 300 + ".png"), "", expected="S", names="x" * 50, is_quick=True),
    _list("long-clip", "such a name of a clip", _one(path="x" * 300 + ".mp4"), "", expected="S", names="x" * 50, is_quick=True),
    _list("long-folder", "folders whose names come to 5,000 bytes", _one(path="x/" * 2500 + "a.png"), "", expected="S", names="x/x"),
    _list("size-huge", "a size of 10^300", _one(resolution={"width": 10**300, "height": 1}), "", expected="ok", names=""),
    _list("empty", "a list of nothing", _one(), "E1231", ""),
    _list("paths", "a line of four paths", _one(), "E1231", "a,b,c,d\n"),
    _list("absent", "a line that names nothing", _one(), "E1231", "nothing,a.json\n"),
    _list("list-utf-16", "a list in UTF-16", _one(), "E1231", "media,a.json".encode("utf-16"), is_quick=True),
    _list("list-long", "a line of 900,000 letters", _one(), "E1231", "x" * 900_000, is_quick=True),
    _list("list-large", "a list of 2 MB", _one(), "E1231", "media,a.json\n" * 200_000),
    _list("list-nul", "a list with NUL", _one(), "E1231", "media\0,a.json\n"),
    _entry("clip-list", "list-pipe", "a pipe", pipe("clips.txt"), "E2", code="E1231", names="clips.txt"),
    _entry("clip-list", "pipe", "an annotation that is a pipe", all_of(file("media/a.png", seeds.picture()), file("clips.txt", "media,a.json\n"), pipe("a.json")), "E2", code="E1232", names="a.json", is_quick=True),
    _entry("clip-texts", "out", "a key that leads out of the folder of embeddings", all_of(file("media/a.png", seeds.picture()), file("texts/.keep", ""), file("a.json", json.dumps(_one(x="/../../../evil"))), file("clips.txt", "media,texts,a.json\n")), "E2", row="I2", code="E1232", names="a.json", is_quick=True),
    _entry("clip-texts", "long", "a value of 5,000 letters, which is part of a file's name", all_of(file("media/a.png", seeds.picture()), file("texts/.keep", ""), file("a.json", json.dumps(_one(x="y" * 5000))), file("clips.txt", "media,texts,a.json\n")), "E2", code="E1202", names="y" * 99, is_quick=True),
]  # fmt: skip

# --- folders of EveryDream2 -------------------------------------------------------------------------------------------


def _dream(id_: str, fault: str, name: str, content: bytes | str, says: str = "", **more: Any) -> Entry:
    expected = more.pop("expected", "E2")
    code, names = ("E1217", name) if expected == "E2" else ("", more.pop("names", ""))
    make = all_of(_PICTURE, file("sub/b.png", seeds.picture()), file(name, content))
    return _entry("everydream", id_, fault, make, expected, code=code, names=names, says=says, **more)


_DREAMS = [
    _dream("bomb", "aliases of aliases", "global.yaml", seeds.GLOBAL + "x0: &x0 [a, a, a, a, a, a, a, a, a]\n" + "".join(f"x{n}: &x{n} [{', '.join([f'*x{n - 1}'] * 9)}]\n" for n in range(1, 8)), is_quick=True),
    _dream("merge", "merge keys", "local.yaml", "a: &a {multiply: 2}\n<<: *a\n", "merge keys"),
    _dream("tag", "a tag that calls a program", "global.yaml", "main_prompt: !!python/object/apply:os.system ['touch canary']\n", "tag", is_quick=True),
    _dream("deep", "300,000 brackets", "a.yaml", "tags: " + "[" * 300_000, "nested deeper"),
    _dream("unknown", "an unknown key", "global.yaml", "multiplay: 3\n", "did you mean multiply"),
    _dream("list", "a list at the top", "global.yaml", "- a\n"),
    _dream("infinite", "an infinite number of visits", "multiply.txt", "1e999", is_quick=True),
    _dream("nan", "NaN for a chance", "flip_p.txt", "nan"),
    _dream("words", "words where a number belongs", "cond_dropout.txt", "often"),
    _dream("digits", "a number of 5,000 digits", "loss_scale.txt", "9" * 5000),
    _dream("huge", "10^300 visits", "multiply.txt", "1" + "0" * 300, is_quick=True),
    _dream("negative", "a chance below 0", "sub/flip_p.txt", "-1"),
    _dream("nul", "a NUL in a caption", "a.txt", b"a\0fox", "NUL"),
    _dream("utf-16", "a caption in UTF-16", "a.txt", "a fox".encode("utf-16"), "NUL"),
    _dream("latin-1", "a caption in ISO-8859-1, which is read and reported", "a.txt", "caf\xe9".encode("latin-1"), expected="ok", is_quick=True),
    _dream("megabytes", "a caption of 3 MB", "a.txt", "a fox, " * 450_000),
    _dream("tags", "100,000 tags", "a.txt", "fox, " + "red, " * 100_000, expected="ok"),
    _dream("batch", "a name for batches with line ends and markup", "batch_id.txt", "<b>\x1b[31m\nfoxes\u202e", expected="ok"),
    _dream("caption-out", "a caption file that lies outside", "a.yaml", "caption: ../../../etc/passwd.txt\n"),
    _dream("caption-absolute", "a caption file by its absolute name", "a.yaml", "caption: /etc/hosts.txt\n"),
    _entry("everydream", "pipe", "a pipe called global.yaml", all_of(_PICTURE, pipe("global.yaml")), "S", names="global.yaml", is_quick=True),
    _entry("everydream", "endless", "a link to a device called a.txt", all_of(_PICTURE, link("a.txt", "/dev/zero")), "S", names="a.txt"),
]  # fmt: skip


def _manifest(id_: str, fault: str, content: Any, expected: str = "E2", **more: Any) -> Entry:
    text = content if isinstance(content, (str, bytes)) else json.dumps(content)
    code = "E1217" if expected == "E2" else ""
    names = more.pop("names", "list.json")
    return _entry(
        "manifest", id_, fault, all_of(_PICTURE, file("list.json", text)), expected, code=code, names=names, **more
    )


_MANIFESTS = [
    _manifest("deep", "nested 100,000 deep", "[" * 100_000, is_quick=True),
    _manifest("number", "a number of 5,000 digits", '[{"image": "a.png", "multiply": ' + "9" * 5000 + "}]"),
    _manifest("nan", "NaN for a chance", '[{"image": "a.png", "flip_p": NaN}]'),
    _manifest("infinite", "an infinite scale", '[{"image": "a.png", "loss_scale": 1e999}]', is_quick=True),
    _manifest("object", "an object", {"image": "a.png"}),
    _manifest("types", "values of other types", [{"image": "a.png", "tags": {"a": [3]}}]),
    _manifest("image", "a picture that is a number", [{"image": 3}]),
    _manifest("unknown", "an unknown key", [{"image": "a.png", "x": 1}]),
    _manifest("twice", "a key twice", '[{"image": "a.png", "image": "b.png"}]'),
    _manifest("latin-1", "ISO-8859-1", '[{"image": "caf\xe9.png"}]'.encode("latin-1")),
    _manifest("absent", "pictures that are not there", [{"image": "a.png"}, {"image": "x" * 300 + ".png"}, {"image": "b\0.png"}], "S", names="x" * 50),
    _manifest("ending", "a file that is no picture", [{"image": "a.png"}, {"image": "list.json"}], "S"),
]  # fmt: skip

# --- folders of kohya's scripts ---------------------------------------------------------------------------------------

_KOHYA = [
    _entry("kohya", id_, fault, all_of(file("2_fox/a.png", seeds.picture()), file(f"{folder}/b.png", seeds.picture())), expected, **more)
    for id_, fault, folder, expected, more in (
        ("huge", "10^300 repeats", "1" + "0" * 150 + "_dog", "S", {"names": "_dog", "is_quick": True}),
        ("digits", "signs that are digits elsewhere", "\u0663_dog", "S", {"names": "\u0663_dog"}),
        ("zero", "no repeats", "0_dog", "S", {"names": "0_dog"}),
        ("negative", "-3 repeats", "-3_dog", "S", {"names": "-3_dog"}),
        ("terminal", "a caption of a terminal's codes", "3_\x1b[31mdog\n\u202e", "ok", {}),
    )
]  # fmt: skip

# --- tables -----------------------------------------------------------------------------------------------------------


def _table(id_: str, fault: str, name: str, content: Content, code: str = "", **more: Any) -> Entry:
    expected = "E2" if code else more.pop("expected", "S")
    names = more.pop("names", name)
    reader = more.pop("reader", "table")
    return _entry(reader, id_, fault, all_of(_PICTURE, file(name, content)), expected, code=code, names=names, **more)


def _lines(*rows: Any) -> str:
    rows = ({"file_name": "a.png", "text": "a fox"}, *rows)
    return "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows)


def _jsonl(id_: str, fault: str, *rows: Any, **more: Any) -> Entry:
    return _table(f"jsonl-{id_}", fault, "metadata.jsonl", _lines(*rows), **more)


def _bomb() -> bytes:
    """A picture of 100 MB in 10 KB."""
    return seeds.parquet({"image": [bytes(100_000_000)], "text": ["a fox"]}, compression="zstd", use_dictionary=False)


_TABLES = [
    _jsonl("deep", "a line nested 100,000 deep", "[" * 100_000, is_quick=True),
    _jsonl("number", "a number of 5,000 digits", '{"file_name": "b.png", "text": ' + "9" * 5000 + "}", is_quick=True),
    _jsonl("twice", "a key twice", '{"file_name": "a.png", "file_name": "b.png", "text": "x"}'),
    _jsonl("types", "a caption that is an object", {"file_name": "a.png", "text": {"a": 1}}),
    _jsonl("nan", "a caption that is NaN, which is none", '{"file_name": "a.png", "text": [NaN]}', expected="ok", names=""),
    _jsonl("cut", "a line that ends in its middle", '{"file_name": "a.p'),
    _jsonl("latin-1", "half a pair of surrogates", '{"file_name": "a.png", "text": "\\ud800"}'),
    _jsonl("out", "a path that leads out", {"file_name": "../../etc/passwd.png", "text": "x"}, code="E1213", is_quick=True),
    _jsonl("absolute", "an absolute path", {"file_name": "/etc/passwd.png", "text": "x"}, code="E1213"),
    _jsonl("address", "an address", {"file_name": "http://169.254.169.254/a.png", "text": "x"}, code="E1213", is_quick=True),
    _jsonl("long-name", "a name that no file can have", {"file_name": "x" * 5000 + ".png", "text": "x"}),
    _jsonl("nul", "a NUL in a name", {"file_name": "a\0.png", "text": "x"}),
    _jsonl("megabytes", "a caption of 3 MB", {"file_name": "a.png", "text": "x" * 3_000_000}),
    _jsonl("many", "100,000 captions of a picture", {"file_name": "a.png", "text": ["x"] * 100_000}, expected="ok", names=""),
    _table("jsonl-array", "an array", "metadata.jsonl", "[" + _lines().strip() + "]", "E1211"),
    _table("jsonl-utf-16", "UTF-16", "metadata.jsonl", _lines().encode("utf-16"), "E1211", is_quick=True),
    _table("jsonl-lfs", "a pointer of Git LFS", "metadata.jsonl", "version https://git-lfs.github.com/spec/v1\n", "E1211"),
    _table("jsonl-line", "a line of 20 MB", "metadata.jsonl", lambda: '{"text": "' + "x" * 20_000_000, "E1211"),
    _table("csv-line", "a line of 40 MB", "metadata.csv", lambda: "file_name,text\n" + "a" * 40_000_000, "E1211"),
    _table("csv-header", "a header of 40 MB", "metadata.csv", lambda: "a" * 40_000_000, "E1211", is_quick=True),
    _table("csv-quote", "a quote that never closes", "metadata.csv", 'file_name,text\na.png,"x\n' + "y\n" * 200_000, "E1211", is_quick=True),
    _table("csv-nul", "NUL bytes", "metadata.csv", b"file_name,text\na.png,x\na.png,\0\0\n"),
    _table("csv-fields", "too many fields", "metadata.csv", "file_name,text\na.png,x\na.png,x,y,z\n"),
    _table("csv-columns", "a column that stands twice", "metadata.csv", "file_name,text,text\na.png,x,y\n", "E1212"),
    _table("csv-empty", "no byte", "metadata.csv", b"", "E1212"),
    _table("csv-formula", "a caption that a spreadsheet would run", "metadata.csv", 'file_name,text\na.png,"=cmd|\'/c calc\'!A0"\n', expected="ok", names=""),
    _table("mindone-columns", "a table without its columns", "t.csv", "a,b\n1,2\n", "E1212", reader="csv"),
    _table("mindone-out", "a path that leads out", "t.csv", "dir,text\n../../x.png,y\n", "E1213", reader="csv"),
    _table("parquet-empty", "no byte", "t.parquet", b"", "E1211"),
    _table("parquet-magic", "its first and last bytes alone", "t.parquet", b"PAR1PAR1", "E1211", is_quick=True),
    _table("parquet-footer", "a footer that says it is 2 GB long", "t.parquet", b"PAR1" + bytes(64) + struct.pack("<I", 2**31 - 1) + b"PAR1", "E1211", is_quick=True),
    _table("parquet-columns", "other columns", "t.parquet", seeds.parquet({"a": [1], "b": [2]}), "E1212"),
    _table("parquet-types", "numbers where pictures belong", "t.parquet", seeds.parquet({"image": [1], "text": [2]}), "E1212"),
    _table("parquet-picture", "bytes that are no picture", "t.parquet", seeds.parquet({"image": [b"x", seeds.picture()], "text": ["a", "b"]}), names="t.parquet"),
    _table("parquet-bomb", "a picture of 100 MB of zeros in 10 KB", "t.parquet", _bomb, "E1211", megabytes=300),
    _table("arrow-empty", "no byte", "t.arrow", b"", "E1211"),
    _table("arrow-noise", "noise", "t.arrow", b"ARROW1\0\0" + bytes(range(256)) * 8, "E1211"),
    _table("arrow-length", "a message that says it is 2 GB long", "t.arrow", b"\xff\xff\xff\xff\xff\xff\xff\x7f" + bytes(64), "E1211", is_quick=True),
    _table("arrow-pickle", "a pickle", "t.arrow", b"\x80\x04cos\nsystem\n(S'touch canary'\ntR.", "E1211"),
]  # fmt: skip

# --- tar shards -------------------------------------------------------------------------------------------------------


def member(name: bytes, size: bytes = b"00000000000\0", kind: bytes = b"0", *, linked: bytes = b"") -> bytes:
    """The header of a tar member."""
    fields = [name.ljust(100, b"\0"), b"0000644\0", b"0000000\0" * 2, size, b"0" * 11 + b"\0", b" " * 8, kind]
    block = (b"".join(fields) + linked.ljust(100, b"\0") + b"ustar\x0000").ljust(512, b"\0")
    return block[:148] + b"%06o\0 " % sum(block) + block[156:]


def _in_base_256(number: int) -> bytes:
    return b"\xff" + (2**88 + number).to_bytes(11, "big") if number < 0 else b"\x80" + number.to_bytes(11, "big")


def _pax(text: bytes) -> bytes:
    return member(b"pax", b"%011o\0" % len(text), b"x") + text.ljust(-(-len(text) // 512) * 512, b"\0")


_END = bytes(1024)
_GOOD = seeds.tar(("good.png", seeds.picture(size=(64, 64))), ("good.txt", b"a fox")).rstrip(b"\0")
_WHOLE = _GOOD.ljust(-(-len(_GOOD) // 512) * 512, b"\0")


def _tar(id_: str, fault: str, content: bytes, expected: str = "E2", **more: Any) -> Entry:
    code = "E1280" if expected == "E2" else ""
    names = more.pop("names", "x.tar" if expected == "E2" else "")
    make = file("x.tar", content)
    return _entry("tar", id_, fault, make, expected, row="I2", code=code, names=names, **more)


def _member_tar(id_: str, fault: str, *members: tuple[str, bytes], expected: str = "S", **more: Any) -> Entry:
    content = seeds.tar(("good.png", seeds.picture(size=(64, 64))), ("good.txt", b"a fox"), *members)
    return _tar(id_, fault, content, expected, **more)


_LINK = tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE
_TARS = [
    _member_tar("out", "members whose names lead out", ("../../evil.png", seeds.picture()), ("../../evil.txt", b"x"), expected="ok", is_quick=True),
    _member_tar("absolute", "an absolute name", ("/tmp/evil.png", seeds.picture()), expected="ok"),
    _member_tar("terminal", "a name of a terminal's codes", ("\x1b[31m\n.png", b"x"), names="x.tar", is_quick=True),
    _member_tar("surrogate", "a name that is not UTF-8", ("\udcff\udcfe.png", b"x"), names="x.tar"),
    _member_tar("twice", "a name twice", ("a.png", seeds.picture()), ("a.png", seeds.picture()), names="a", says="twice", is_quick=True),
    _member_tar("two-pictures", "two pictures of one key", ("a.png", seeds.picture()), ("a.jpg", seeds.picture("JPEG")), names="a", says="one key"),
    _member_tar("no-picture", "a picture that is none", ("a.png", b"text"), names="a"),
    _member_tar("json-deep", "a .json nested 100,000 deep", ("a.png", seeds.picture()), ("a.json", b"[" * 100_000), names="a", is_quick=True),
    _member_tar("json-number", "a .json with a number of 5,000 digits", ("a.png", seeds.picture()), ("a.json", b'{"x": ' + b"9" * 5000 + b"}"), names="a"),
    _member_tar("json-list", "a .json that is a list", ("a.png", seeds.picture()), ("a.json", b"[1]"), names="a"),
    _member_tar("caption", "a caption that is not UTF-8", ("a.png", seeds.picture()), ("a.txt", b"\xff\xfe"), names="a"),
    _member_tar("caption-long", "a caption of 3 MB", ("a.png", seeds.picture()), ("a.txt", b"x" * 3_000_000), names="a"),
    *(_tar(f"kind-{kind.decode()}", f"a member of the kind {kind.decode()} that names a file of this machine", _WHOLE + member(b"a.png", kind=kind, linked=b"/etc/passwd") + _END, "S", names="a", says="a link or a device", is_quick=kind == b"2") for kind in _LINK),
    _tar("sparse", "a sparse member of 1 TB", _WHOLE + member(b"a.png", kind=b"S") + _END, "S", names="a", is_quick=True),
    _tar("sparse-pax", "a sparse member by pax headers, of a table of 10^9 parts", _WHOLE + _pax(b"22 GNU.sparse.major=1\n22 GNU.sparse.minor=0\n") + member(b"a.png", b"%011o\0" % 512) + b"1000000000\n".ljust(512, b"\0") + _END),
    _tar("negative", "a size of -512, which leads back to itself", _WHOLE + member(b"b.png", _in_base_256(-512)) + _END, is_quick=True),
    _tar("negative-sparse", "a sparse member of -512 bytes", _WHOLE + member(b"b.png", _in_base_256(-512), b"S") + _END),
    _tar("negative-one", "a size of -1", _WHOLE + member(b"b.png", _in_base_256(-1)) + _END, is_quick=True),
    _tar("negative-far", "a size of -2^80", _WHOLE + member(b"b.png", _in_base_256(-(2**80))) + _END),
    _tar("huge", "a size of 2^88", _WHOLE + member(b"b.png", _in_base_256(2**87)) + _END),
    _tar("huge-pax", "a size of 24 digits", _WHOLE + _pax(b"33 size=100000000000000000000000\n") + member(b"b.png") + _END),
    _tar("beyond", "a member that is longer than the file", _WHOLE + member(b"b.png", b"00077777777\0"), is_quick=True),
    _tar("pax-chain", "3,000 pax headers in a row", _pax(b"10 path=x\n") * 3000 + member(b"a.png") + _END, is_quick=True),
    _tar("pax-length", "a pax header whose length is a lie", _WHOLE + _pax(b"9999999999 path=x\n") + member(b"a.png") + _END, "ok"),
    _tar("pax-zero", "a pax header of no length", _pax(b"0 path=x\n") + member(b"a.png") + _END),
    _tar("cut", "it ends in a member", seeds.shard()[:700], is_quick=True),
    _tar("cut-header", "it ends in a header", _WHOLE + member(b"b.png")[:300]),
    _tar("checksum", "a header whose checksum is wrong", _WHOLE + member(b"b.png").replace(b"b.png", b"c.png") + _END),
    _tar("empty", "no byte", b"", is_quick=True),
    _tar("gzip", "gzip under .tar", b"\x1f\x8b" + bytes(100), says="compressed"),
    _tar("zip", "zip under .tar", seeds.archive({"a.png": seeds.picture()})),
    _tar("web-page", "a web page", b"<!doctype html>" * 100),
    _entry("tar", "zeros", "10,240 zero bytes: an archive of nothing", file("x.tar", bytes(10_240)), "E2", row="I2", code="E1202"),
    _entry("tar", "pipe", "a pipe", all_of(file("good.tar", _WHOLE + _END), pipe("x.tar")), "S", row="I2", names="x.tar", is_quick=True),
    _entry("tar", "out-link", "a link out", all_of(file("good.tar", _WHOLE + _END), link("x.tar", "/etc/hostname")), "S", row="I2", names="x.tar"),
]  # fmt: skip

# --- arrays of MindONE's cache ----------------------------------------------------------------------------------------


def arrays(folder: Path, *, name: str, latents: bytes) -> None:
    """A sound entry of MindONE's cache, and one of other latents."""
    from mezzotint.compat.mindone.encoded_files import sinusoid

    numbers = [sinusoid(float(n), 256) for n in (64, 64, 0, 0, 64, 64)]
    vector = np.concatenate([np.ones(1280, np.float32), *numbers])[None]
    parts = {"latent_cache": np.ones((1, 4, 8, 8), np.float32), "crossattn_cache": np.ones((1, 77, 8), np.float32)}
    for part, value in (parts | {"vector_cache": vector}).items():
        file(f"{part}/good.npy", seeds.array(value))(folder)
        file(f"{part}/{name}.npy", latents if part == "latent_cache" else seeds.array(value))(folder)


def _npy(id_: str, fault: str, latents: bytes, **more: Any) -> Entry:
    make = partial(arrays, name="x", latents=latents)
    return _entry("npy", id_, fault, make, "S", row="I1", names="x", **more)


_HEADER = "{{'descr': {}, 'fortran_order': False, 'shape': {}, }}\n"
_ARRAYS = [
    _npy("empty", "no byte", b""),
    _npy("objects", "objects, whose numbers are a pickle", seeds.array(np.array([{"a": 1}], dtype=object)), is_quick=True),
    _npy("huge", "10^22 rows", seeds.npy(_HEADER.format("'<f4'", "(9999999999999999999999, 3)"))),
    _npy("terabytes", "4 TB", seeds.npy(_HEADER.format("'<f4'", "(1048576, 1048576)"), bytes(64)), is_quick=True),
    _npy("negative", "-1 rows", seeds.npy(_HEADER.format("'<f4'", "(-1, 3)"))),
    _npy("deep", "a header of 4,000 brackets", seeds.npy("(" * 4000 + "\n"), is_quick=True),
    _npy("quote", "a header that does not end", seeds.npy("{'descr': '<f4', 'shape': (3L,, \"\"\" \n"), is_quick=True),
    _npy("code", "a header that calls a program", seeds.npy("__import__('os').system('touch canary')\n")),
    _npy("nan", "NaN among the numbers", seeds.array(np.full((1, 4, 8, 8), np.nan, np.float32))),
    _npy("shape", "another shape", seeds.array(np.ones((3,), np.float32))),
    _npy("cut", "it ends in its middle", seeds.array(np.ones((1, 4, 8, 8), np.float32))[:300]),
]  # fmt: skip

ENTRIES = _LISTS + _DREAMS + _MANIFESTS + _KOHYA + _TABLES + _TARS + _ARRAYS
