# ruff: noqa: E501 (an entry a line)
"""Hostile tables, arrays and checkpoints of MindONE: entries of the corpus of `tests/faults`, their doors and readers."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from mindspore_files import entry as tensor_entry

from mezzotint.compat.mindone.encoded_files import sinusoid
from mezzotint.weights.files.protobuf import field, varint
from support.hostile import models, seeds
from support.hostile.data_sets import entry, table
from support.hostile.doors import Door, data, weights
from support.hostile.entry import Entry, file
from support.hostile.readers import Reader, listed, through

_TABLES = [
    table("mindone-columns", "a table without its columns", "t.csv", "a,b\n1,2\n", "E1212", reader="csv"),
    table("mindone-out", "a path that leads out", "t.csv", "dir,text\n../../x.png,y\n", "E1213", reader="csv"),
]  # fmt: skip


def arrays(folder: Path, *, name: str, latents: bytes) -> None:
    """A sound entry of MindONE's cache, and one of other latents."""
    numbers = [sinusoid(float(n), 256) for n in (64, 64, 0, 0, 64, 64)]
    vector = np.concatenate([np.ones(1280, np.float32), *numbers])[None]
    parts = {"latent_cache": np.ones((1, 4, 8, 8), np.float32), "crossattn_cache": np.ones((1, 77, 8), np.float32)}
    for part, value in (parts | {"vector_cache": vector}).items():
        file(f"{part}/good.npy", seeds.array(value))(folder)
        file(f"{part}/{name}.npy", latents if part == "latent_cache" else seeds.array(value))(folder)


def _npy(id_: str, fault: str, latents: bytes, **more: Any) -> Entry:
    make = partial(arrays, name="x", latents=latents)
    return entry("npy", id_, fault, make, "S", row="I1", names="x", **more)


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


def checkpoint() -> bytes:
    """A checkpoint of MindSpore's of two tensors and a text."""
    return b"".join((
        tensor_entry("a.weight", (2, 3), "Float32", np.arange(6, dtype="<f4").tobytes()),
        tensor_entry("b", (4,), "Float16", bytes(8)),
        tensor_entry("note", (0,), "str", "made by a trainer".encode("utf-32-le")),
    ))  # fmt: skip


def _ms(id_: str, fault: str, content: bytes, code: str = "E1420", **more: Any) -> Entry:
    return models.entry(
        "mindspore", id_, fault, file("x.safetensors", content), code, names="x.safetensors" if code else "", **more
    )


_FLOATS = np.arange(6, dtype="<f4").tobytes()
_MINDSPORE = [
    _ms("cut", "it ends in its middle", checkpoint()[:-30], is_quick=True),
    _ms("twice", "a name twice with other shapes", tensor_entry("a", (6,), "Float32", _FLOATS) + tensor_entry("a", (2, 3), "Float32", _FLOATS), is_quick=True),
    _ms("type", "a type of nobody's", tensor_entry("a", (6,), "Float31", _FLOATS)),
    _ms("huge", "a side of 2^62", tensor_entry("a", (2**62,), "Float32", _FLOATS), is_quick=True),
    _ms("wraps", "sides whose product is 6 modulo 2^64", tensor_entry("a", (2**63, 2, 6), "Float32", _FLOATS)),
    _ms("rank", "1,000 dimensions", tensor_entry("a", (1,) * 1000, "Float32", _FLOATS[:4]), is_quick=True),
    _ms("shape", "another shape than it has bytes", tensor_entry("a", (7,), "Float32", _FLOATS)),
    _ms("length", "an entry that says it is 2^63 bytes long", tensor_entry("a", (6,), "Float32", _FLOATS) + b"\x0a" + varint(2**63) + b"x"),
    _ms("varint", "a number of eleven bytes", tensor_entry("a", (6,), "Float32", _FLOATS) + b"\x0a" + b"\xff" * 11),
    _ms("nan", "NaN among the numbers", tensor_entry("a", (2,), "Float32", np.array([1.0, np.nan], "<f4").tobytes()), "E1403", is_quick=True),
    _ms("sum", "a checksum that is wrong", checkpoint() + b"crc_num" + bytes(10)),
    _ms("unnamed", "an entry without a name", field(1, field(2, field(2, b"Float32"))), "E1402"),
    _ms("text-long", "a text of 3 MB", checkpoint() + tensor_entry("n", (0,), "str", b"x" * 3_000_000)),
]  # fmt: skip

ENTRIES = (*_TABLES, *_ARRAYS, *_MINDSPORE)

DOORS: dict[str, Door] = {"csv": data(format="mindone"), "npy": data(format="mindone-cache"), "mindspore": weights}

READERS = {
    "mindspore": Reader(file("x.safetensors", checkpoint()), ("x.safetensors",), through(weights), (b"crc_num", b"Float16", b"str")),
    "npy": Reader(partial(arrays, name="x", latents=seeds.array(np.ones((1, 4, 8, 8), np.float32))), ("latent_cache/x.npy", "vector_cache/x.npy"), listed("mindone-cache"), (b"'|O'", b"(3L,")),
}  # fmt: skip
