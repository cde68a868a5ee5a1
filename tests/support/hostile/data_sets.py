# ruff: noqa: E501 (an entry a line)
"""Tables, shards and folders: the rows H1 and I2. Those of a trainer in `compat` lie with its tests."""

from __future__ import annotations

import json
import struct
import tarfile
from typing import Any

from support.hostile import seeds
from support.hostile.entry import Content, Entry, Make, all_of, file
from support.hostile.texts import link, pipe

IMAGE = file("a.png", seeds.image_file(size=(64, 64)))


def entry(reader: str, id_: str, fault: str, make: Make, expected: str, row: str = "H1", **more: Any) -> Entry:
    return Entry(id=f"{reader}-{id_}", reader=reader, fault=fault, row=row, make=make, expected=expected, **more)


# --- folders of kohya's scripts ---------------------------------------------------------------------------------------

_KOHYA = [
    entry("kohya", id_, fault, all_of(file("2_fox/a.png", seeds.image_file()), file(f"{folder}/b.png", seeds.image_file())), expected, **more)
    for id_, fault, folder, expected, more in (
        ("huge", "10^300 repeats", "1" + "0" * 150 + "_dog", "S", {"names": "_dog", "is_quick": True}),
        ("digits", "signs that are digits elsewhere", "\u0663_dog", "S", {"names": "\u0663_dog"}),
        ("zero", "no repeats", "0_dog", "S", {"names": "0_dog"}),
        ("negative", "-3 repeats", "-3_dog", "S", {"names": "-3_dog"}),
        ("terminal", "a caption of a terminal's codes", "3_\x1b[31mdog\n\u202e", "ok", {}),
    )
]  # fmt: skip

# --- tables -----------------------------------------------------------------------------------------------------------


def table(id_: str, fault: str, name: str, content: Content, code: str = "", **more: Any) -> Entry:
    expected = "E2" if code else more.pop("expected", "S")
    names = more.pop("names", name)
    reader = more.pop("reader", "table")
    return entry(reader, id_, fault, all_of(IMAGE, file(name, content)), expected, code=code, names=names, **more)


def _lines(*rows: Any) -> str:
    rows = ({"file_name": "a.png", "text": "a fox"}, *rows)
    return "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows)


def _jsonl(id_: str, fault: str, *rows: Any, **more: Any) -> Entry:
    return table(f"jsonl-{id_}", fault, "metadata.jsonl", _lines(*rows), **more)


def _bomb() -> bytes:
    """An image of 100 MB in 10 KB."""
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
    _jsonl("many", "100,000 captions of an image", {"file_name": "a.png", "text": ["x"] * 100_000}, expected="ok", names=""),
    table("jsonl-array", "an array", "metadata.jsonl", "[" + _lines().strip() + "]", "E1211"),
    table("jsonl-utf-16", "UTF-16", "metadata.jsonl", _lines().encode("utf-16"), "E1211", is_quick=True),
    table("jsonl-lfs", "a pointer of Git LFS", "metadata.jsonl", "version https://git-lfs.github.com/spec/v1\n", "E1211"),
    table("jsonl-line", "a line of 20 MB", "metadata.jsonl", lambda: '{"text": "' + "x" * 20_000_000, "E1211"),
    table("csv-line", "a line of 40 MB", "metadata.csv", lambda: "file_name,text\n" + "a" * 40_000_000, "E1211"),
    table("csv-header", "a header of 40 MB", "metadata.csv", lambda: "a" * 40_000_000, "E1211", is_quick=True),
    table("csv-quote", "a quote that never closes", "metadata.csv", 'file_name,text\na.png,"x\n' + "y\n" * 200_000, "E1211", is_quick=True),
    table("csv-nul", "NUL bytes", "metadata.csv", b"file_name,text\na.png,x\na.png,\0\0\n"),
    table("csv-fields", "too many fields", "metadata.csv", "file_name,text\na.png,x\na.png,x,y,z\n"),
    table("csv-columns", "a column that stands twice", "metadata.csv", "file_name,text,text\na.png,x,y\n", "E1212"),
    table("csv-empty", "no byte", "metadata.csv", b"", "E1212"),
    table("csv-formula", "a caption that a spreadsheet would run", "metadata.csv", 'file_name,text\na.png,"=cmd|\'/c calc\'!A0"\n', expected="ok", names=""),
    table("parquet-empty", "no byte", "t.parquet", b"", "E1211"),
    table("parquet-magic", "its first and last bytes alone", "t.parquet", b"PAR1PAR1", "E1211", is_quick=True),
    table("parquet-footer", "a footer that says it is 2 GB long", "t.parquet", b"PAR1" + bytes(64) + struct.pack("<I", 2**31 - 1) + b"PAR1", "E1211", is_quick=True),
    table("parquet-columns", "other columns", "t.parquet", seeds.parquet({"a": [1], "b": [2]}), "E1212"),
    table("parquet-types", "numbers where images belong", "t.parquet", seeds.parquet({"image": [1], "text": [2]}), "E1212"),
    table("parquet-image", "bytes that are no image", "t.parquet", seeds.parquet({"image": [b"x", seeds.image_file()], "text": ["a", "b"]}), names="t.parquet"),
    table("parquet-bomb", "an image of 100 MB of zeros in 10 KB", "t.parquet", _bomb, "E1211", megabytes=300),
    table("arrow-empty", "no byte", "t.arrow", b"", "E1211"),
    table("arrow-noise", "noise", "t.arrow", b"ARROW1\0\0" + bytes(range(256)) * 8, "E1211"),
    table("arrow-length", "a message that says it is 2 GB long", "t.arrow", b"\xff\xff\xff\xff\xff\xff\xff\x7f" + bytes(64), "E1211", is_quick=True),
    table("arrow-pickle", "a pickle", "t.arrow", b"\x80\x04cos\nsystem\n(S'touch canary'\ntR.", "E1211"),
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
_GOOD = seeds.tar(("good.png", seeds.image_file(size=(64, 64))), ("good.txt", b"a fox")).rstrip(b"\0")
_WHOLE = _GOOD.ljust(-(-len(_GOOD) // 512) * 512, b"\0")


def _tar(id_: str, fault: str, content: bytes, expected: str = "E2", **more: Any) -> Entry:
    code = "E1280" if expected == "E2" else ""
    names = more.pop("names", "x.tar" if expected == "E2" else "")
    make = file("x.tar", content)
    return entry("tar", id_, fault, make, expected, row="I2", code=code, names=names, **more)


def _member_tar(id_: str, fault: str, *members: tuple[str, bytes], expected: str = "S", **more: Any) -> Entry:
    content = seeds.tar(("good.png", seeds.image_file(size=(64, 64))), ("good.txt", b"a fox"), *members)
    return _tar(id_, fault, content, expected, **more)


_LINK = tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE
_TARS = [
    _member_tar("out", "members whose names lead out", ("../../evil.png", seeds.image_file()), ("../../evil.txt", b"x"), expected="ok", is_quick=True),
    _member_tar("absolute", "an absolute name", ("/tmp/evil.png", seeds.image_file()), expected="ok"),
    _member_tar("terminal", "a name of a terminal's codes", ("\x1b[31m\n.png", b"x"), names="x.tar", is_quick=True),
    _member_tar("surrogate", "a name that is not UTF-8", ("\udcff\udcfe.png", b"x"), names="x.tar"),
    _member_tar("twice", "a name twice", ("a.png", seeds.image_file()), ("a.png", seeds.image_file()), names="a", says="twice", is_quick=True),
    _member_tar("two-images", "two images of one key", ("a.png", seeds.image_file()), ("a.jpg", seeds.image_file("JPEG")), names="a", says="the same key"),
    _member_tar("no-image", "an image that is none", ("a.png", b"text"), names="a"),
    _member_tar("json-deep", "a .json nested 100,000 deep", ("a.png", seeds.image_file()), ("a.json", b"[" * 100_000), names="a", is_quick=True),
    _member_tar("json-number", "a .json with a number of 5,000 digits", ("a.png", seeds.image_file()), ("a.json", b'{"x": ' + b"9" * 5000 + b"}"), names="a"),
    _member_tar("json-list", "a .json that is a list", ("a.png", seeds.image_file()), ("a.json", b"[1]"), names="a"),
    _member_tar("caption", "a caption that is not UTF-8", ("a.png", seeds.image_file()), ("a.txt", b"\xff\xfe"), names="a"),
    _member_tar("caption-long", "a caption of 3 MB", ("a.png", seeds.image_file()), ("a.txt", b"x" * 3_000_000), names="a"),
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
    _tar("zip", "zip under .tar", seeds.archive({"a.png": seeds.image_file()})),
    _tar("web-page", "a web page", b"<!doctype html>" * 100),
    entry("tar", "zeros", "10,240 zero bytes: an archive of nothing", file("x.tar", bytes(10_240)), "E2", row="I2", code="E1202"),
    entry("tar", "pipe", "a pipe", all_of(file("good.tar", _WHOLE + _END), pipe("x.tar")), "S", row="I2", names="x.tar", is_quick=True),
    entry("tar", "out-link", "a link out", all_of(file("good.tar", _WHOLE + _END), link("x.tar", "/etc/hostname")), "S", row="I2", names="x.tar"),
]  # fmt: skip

ENTRIES = _KOHYA + _TABLES + _TARS
