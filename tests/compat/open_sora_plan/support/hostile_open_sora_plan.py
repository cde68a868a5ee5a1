# ruff: noqa: E501 (an entry a line)
"""Hostile lists of clips and files of text embeddings: entries of the corpus of `tests/faults`, their doors and readers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from mezzotint.compat.open_sora_plan import text_files
from support.hostile import seeds
from support.hostile.data_sets import entry
from support.hostile.doors import Door, Outcome, data
from support.hostile.entry import Content, Entry, all_of, file
from support.hostile.models import entry as file_entry
from support.hostile.readers import Reader, both, listed, through
from support.hostile.texts import link, pipe


def _list(
    id_: str, fault: str, annotation: Any, code: str = "E1232", text: Any = "media,a.json\n", **more: Any
) -> Entry:
    content = annotation if isinstance(annotation, (str, bytes)) else json.dumps(annotation)
    make = all_of(
        file("media/a.png", seeds.image_file(size=(64, 64))), file("a.json", content), file("clips.txt", text)
    )
    expected = more.pop("expected", "E2")
    names = more.pop("names", "a.json" if code == "E1232" else "clips.txt")
    return entry("clip-list", id_, fault, make, expected, code=code, names=names, **more)


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
    entry("clip-list", "list-pipe", "a pipe", pipe("clips.txt"), "E2", code="E1231", names="clips.txt"),
    entry("clip-list", "pipe", "an annotation that is a pipe", all_of(file("media/a.png", seeds.image_file()), file("clips.txt", "media,a.json\n"), pipe("a.json")), "E2", code="E1232", names="a.json", is_quick=True),
    entry("clip-texts", "out", "a key that leads out of the folder of embeddings", all_of(file("media/a.png", seeds.image_file()), file("texts/.keep", ""), file("a.json", json.dumps(_one(x="/../../../evil"))), file("clips.txt", "media,texts,a.json\n")), "E2", row="I2", code="E1232", names="a.json", is_quick=True),
    entry("clip-texts", "long", "a value of 5,000 letters, which is part of a file's name", all_of(file("media/a.png", seeds.image_file()), file("texts/.keep", ""), file("a.json", json.dumps(_one(x="y" * 5000))), file("clips.txt", "media,texts,a.json\n")), "E2", code="E1202", names="y" * 99, is_quick=True),
]  # fmt: skip


def _npz(id_: str, fault: str, content: Content, **more: Any) -> Entry:
    code = more.pop("code", "E1310")
    return file_entry("npz", id_, fault, file("x.npz", content), code, **{"names": "x.npz"} | more)


_MASK = seeds.array(np.ones((1, 5), np.uint8))
_STATES = seeds.array(np.zeros((1, 5, 3), np.float32))
_HEADER = "{{'descr': {}, 'fortran_order': False, 'shape': {}, }}\n"


def _large(more: dict[str, bytes]) -> bytes:
    """A member of 160 MB in a small archive, before others."""
    states = seeds.npy(_HEADER.format("'<f4'", "(1, 40000, 1000)")) + bytes(160_000_000)
    return seeds.archive({"text_emb.npy": states} | more, compression=8)


def _with_states(states: bytes) -> bytes:
    return seeds.archive({"text_emb.npy": states, "mask.npy": _MASK})


_NPZ = [
    _npz("empty", "no byte", b""),
    _npz("noise", "noise", bytes(range(256))),
    _npz("objects", "objects, whose numbers are a pickle", _with_states(seeds.array(np.array([{"a": 1}], dtype=object))), is_quick=True),
    _npz("terabytes", "a header of 4 TB", _with_states(seeds.npy(_HEADER.format("'<f4'", "(1048576, 1048576)"))), is_quick=True),
    _npz("deep", "a header of 4,000 brackets", _with_states(seeds.npy("(" * 4000 + "\n")), is_quick=True),
    _npz("quote", "a header that does not end", _with_states(seeds.npy("{'descr': '<f4', 'shape': (3L,, \"\"\" \n")), is_quick=True),
    _npz("bomb", "200 MB of zeros in 200 KB", lambda: _large({"mask.npy": _MASK}), says="more than the model's text"),
    _npz("two", "a small member and a large one of the same name", lambda: _large({"text_emb": _STATES, "mask.npy": _MASK}), is_quick=True, code="", expected="ok", names=""),
    _npz("nan", "NaN among the numbers", _with_states(seeds.array(np.full((1, 5, 3), np.nan, np.float32))), says="has non-finite numbers"),
    _npz("shape", "another shape", _with_states(seeds.array(np.zeros((7,), np.float32)))),
    _npz("mask", "a mask of sevens", seeds.archive({"text_emb.npy": _STATES, "mask.npy": seeds.array(np.full((1, 5), 7, np.uint8))})),
    _npz("method", "packed by a method of nobody's", seeds.npz().replace(b"\0\0\0\0\0\0!\0", b"\0\0\x63\0\0\0!\0")),
    _npz("cut", "it ends in its middle", seeds.npz()[:200]),
    file_entry("npz", "pipe", "a pipe", pipe("x.npz"), "E1310", names="x.npz", is_quick=True),
    file_entry("npz", "endless", "a link to a device without end", link("x.npz", "/dev/zero"), "E1310", names="x.npz"),
]  # fmt: skip

ENTRIES = (*_LISTS, *_NPZ)


def npz(folder: Path, _work: Path) -> Outcome:
    """An embedding in another trainer's file."""
    text_files.read(folder / "x.npz", length=None, width=None)
    return Outcome()


DOORS: dict[str, Door] = {
    "clip-list": data(format="clip-list", path="clips.txt", clips={"frames": 1}),
    "clip-texts": data(
        format="clip-list",
        path="clips.txt",
        clips={"frames": 1},
        clip_list={"text_embeddings": True},
        cache={"text": True},
    ),
    "npz": npz,
}

_LIST = '[{"path": "a.png", "cap": "a fox", "frame_idx": "3:9", "resolution": {"height": 8, "width": 8}}]'
READERS = {
    "npz": Reader(file("x.npz", seeds.npz()), ("x.npz",), through(npz), (b"'|O'", b"(3L,", b"PK\x01\x02")),
    "clip-list": Reader(both(file("media/a.png", seeds.image_file()), file("clips.txt", "media,a.json\n"), file("a.json", _LIST)), ("clips.txt", "a.json"), listed("clip-list", "clips.txt", clips={"frames": 1}), (b"resolution", b"frame_idx")),
}  # fmt: skip
