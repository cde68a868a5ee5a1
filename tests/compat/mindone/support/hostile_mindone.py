# ruff: noqa: E501 (an entry a line)
"""Hostile tables and arrays of MindONE: entries of the corpus of `tests/faults`, their doors and readers."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from hostile import seeds
from hostile.data_sets import entry, table
from hostile.doors import Door, data
from hostile.entry import Entry, file
from hostile.readers import Reader, listed

from mezzotint.compat.mindone.encoded_files import sinusoid

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

ENTRIES = (*_TABLES, *_ARRAYS)

DOORS: dict[str, Door] = {"csv": data(format="mindone"), "npy": data(format="mindone-cache")}

READERS = {
    "npy": Reader(partial(arrays, name="x", latents=seeds.array(np.ones((1, 4, 8, 8), np.float32))), ("latent_cache/x.npy", "vector_cache/x.npy"), listed("mindone-cache"), (b"'|O'", b"(3L,")),
}  # fmt: skip
