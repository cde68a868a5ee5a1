# ruff: noqa: E501 (an entry a line)
"""What Mezzotint itself keeps: checkpoints, caches and the files of a run. The rows E7, I1 and I7."""

from __future__ import annotations

import json
import os
import pickle as pickles
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mezzotint.data.cache import shard_files, store
from support.hostile import seeds
from support.hostile.entry import Entry, Make, file
from support.hostile.models import canary
from support.hostile.seeds import safetensors, tensor
from support.hostile.texts import aliases, link, merges, pipe

Change = Callable[[Path], None]


def _checkpoint(id_: str, fault: str, change: Change, says: str = "", **more: Any) -> Entry:
    def make(folder: Path) -> None:
        change(seeds.checkpoints(folder))

    more = {"row": "I1", "expected": "S", "names": "step-00000002"} | more
    return Entry(id=f"checkpoint-{id_}", reader="checkpoint", fault=fault, make=make, says=says, **more)


def _json(name: str, change: Callable[[Any], Any], *, sealed: bool = False) -> Change:
    def apply(checkpoint: Path) -> None:
        path = checkpoint / name
        path.write_text(json.dumps(change(json.loads(path.read_text()))))
        if sealed:
            seeds.seal(checkpoint)

    return apply


def _put(name: str, content: bytes | str, *, sealed: bool = False) -> Change:
    def apply(checkpoint: Path) -> None:
        file(name, content)(checkpoint)
        if sealed:
            seeds.seal(checkpoint)

    return apply


def _instead(name: str, make: Make) -> Change:
    def apply(checkpoint: Path) -> None:
        (checkpoint / name).unlink()
        make(checkpoint)

    return apply


def _pickle_at(name: str) -> Change:
    def apply(checkpoint: Path) -> None:
        torch.save({"a": canary(checkpoint)}, checkpoint / name)
        seeds.seal(checkpoint)

    return apply


def _files(change: Callable[[dict[str, Any]], Any]) -> Change:
    return _json("manifest.json", lambda manifest: manifest | {"files": change(manifest["files"])})


def _weights(header: dict[str, Any], body: bytes) -> Change:
    """Another file of weights, in the manifest too, as somebody would write it who knows the rules."""

    def apply(checkpoint: Path) -> None:
        (checkpoint / "weights.safetensors").write_bytes(safetensors(header, body))
        manifest = json.loads((checkpoint / "manifest.json").read_text())
        entry = header["w/a"]
        names = {"F32": "float32", "F16": "float16"}
        known = {
            "shape": entry["shape"],
            "dtype": names.get(entry["dtype"], entry["dtype"]),
            "rows": [{"file": "weights.safetensors", "start": 0, "stop": entry["shape"][0]}],
        }
        manifest["tensors"]["w/a"] = known
        (checkpoint / "manifest.json").write_text(json.dumps(manifest))
        seeds.seal(checkpoint)

    return apply


_ROWS = {
    "schema": 7,
    "tensors": {"w/a": {"shape": [2, 3], "dtype": "float32", "rows": [{"file": "weights.safetensors", "start": "x"}]}},
}
_CHECKPOINTS = [
    _checkpoint("manifest-deep", "a manifest nested 100,000 deep", _put("manifest.json", "[" * 100_000), is_quick=True),
    _checkpoint("manifest-list", "a manifest that is a list", _put("manifest.json", "[]")),
    _checkpoint("manifest-null", "null", _put("manifest.json", "null")),
    _checkpoint("manifest-number", "a number of 5,000 digits", _put("manifest.json", '{"step": ' + "9" * 5000 + "}")),
    _checkpoint("manifest-pipe", "a manifest that is a pipe", _instead("manifest.json", pipe("manifest.json")), is_quick=True),
    _checkpoint("manifest-endless", "a manifest that is a device without end", _instead("manifest.json", link("manifest.json", "/dev/zero"))),
    _checkpoint("manifest-step", "another step", _json("manifest.json", lambda m: m | {"step": 7}), "manifest.json is of step 7", is_quick=True),
    _checkpoint("manifest-step-list", "a step that is a list", _json("manifest.json", lambda m: m | {"step": [2]})),
    _checkpoint("manifest-schema", "a schema of the future", _json("manifest.json", lambda m: m | {"schema": 99}), "another version"),
    _checkpoint("manifest-schema-list", "a schema that is a list", _json("manifest.json", lambda m: m | {"schema": [3]})),
    _checkpoint("manifest-rows", "rows of weights without sense", _json("manifest.json", lambda m: m | _ROWS | {"schema": _of_rows()}), is_quick=True),
    _checkpoint("manifest-tensors", "tensors that are a list", _json("manifest.json", lambda m: m | {"tensors": [1]}), is_quick=True),
    _checkpoint("manifest-out", "a file that lies outside", _files(lambda files: files | {"../../evil.json": {"bytes": 1, "sha256": ""}}), "which is not a checkpoint file", is_quick=True),
    _checkpoint("manifest-absolute", "an absolute name", _files(lambda files: files | {"/etc/passwd": {"bytes": 1, "sha256": ""}}), "which is not a checkpoint file"),
    _checkpoint("manifest-file-list", "a file that is a list", _files(lambda files: {name: [1] for name in files})),
    _checkpoint("manifest-no-hash", "files without a hash", _files(lambda files: {n: {"bytes": f["bytes"]} for n, f in files.items()}), is_quick=True),
    _checkpoint("manifest-bytes", "sizes that are texts", _files(lambda files: {n: f | {"bytes": str(f["bytes"])} for n, f in files.items()})),
    _checkpoint("manifest-hash", "hashes that are null", _files(lambda files: {n: f | {"sha256": None} for n, f in files.items()}), "SHA-256"),
    _checkpoint("state-deep", "a state that is whole and nested 100,000 deep", _put("state.json", "[" * 100_000, sealed=True), "state.json", is_quick=True),
    _checkpoint("state-null", "a state that is whole and null", _put("state.json", "null", sealed=True), "state.json"),
    _checkpoint("state-number", "a state with a number of 5,000 digits", _put("state.json", '{"a": ' + "9" * 5000 + "}", sealed=True), "state.json"),
    _checkpoint("state-step", "a step of 10^400", _json("state.json", lambda v: v | {"progress": v["progress"] | {"step": 10**390}}, sealed=True), "state.json", is_quick=True),
    _checkpoint("state-negative", "a step of -5", _json("state.json", lambda v: v | {"progress": v["progress"] | {"step": -5}}, sealed=True), "state.json", is_quick=True),
    _checkpoint("state-nan", "seconds that are NaN", _json("state.json", lambda v: v | {"progress": v["progress"] | {"seconds": float("nan")}}, sealed=True), "state.json", is_quick=True),
    _checkpoint("state-pipe", "a state that is a pipe", _instead("state.json", pipe("state.json")), "state.json"),
    _checkpoint("weights-flip", "a flipped bit", lambda c: _flip(c / "weights.safetensors"), "weights.safetensors"),
    _checkpoint("weights-cut", "weights that end in their middle", lambda c: os.truncate(c / "weights.safetensors", 40), "weights.safetensors"),
    _checkpoint("weights-shape", "weights of another shape than they have bytes, whole by their hash", _weights({"w/a": tensor("F32", [7], 0, 24)}, bytes(24)), is_quick=True),
    _checkpoint("weights-odd", "23 bytes for numbers of four, whole by their hash", _weights({"w/a": tensor("F32", [6], 0, 23)}, bytes(23)), is_quick=True),
    _checkpoint("weights-type", "a type of nobody's, whole by its hash", _weights({"w/a": tensor("F31", [6], 0, 24)}, bytes(24)), is_quick=True),
    _checkpoint("weights-huge", "a side of 10^30, whole by its hash", _weights({"w/a": tensor("F32", [10**30], 0, 24)}, bytes(24))),
    _checkpoint("weights-nan", "NaN among the numbers, whole by its hash", _weights({"w/a": tensor("F32", [6], 0, 24)}, np.full(6, np.nan, "<f4").tobytes()), "", expected="E2", code="E1403", names="weights.safetensors"),
    _checkpoint("weights-pipe", "weights that are a pipe", _instead("weights.safetensors", pipe("weights.safetensors")), "weights.safetensors"),
    _checkpoint("folder-file", "a file in the place of a checkpoint's folder", lambda c: (c.parent / "step-00000003").write_text("x"), expected="ok", names=""),
    *(_checkpoint(f"pickle-{name.partition('.')[0]}", f"a program in the place of {name}, whole by its hash", _pickle_at(name), row="E7", is_quick=name == "state.json") for name in ("state.json", "weights.safetensors", "optimizer.safetensors")),
    _checkpoint("pickle-beside", "programs beside a sound checkpoint", lambda c: [(c / name).write_bytes(pickles.dumps(canary(c))) for name in ("state.pt", "optimizer.bin", "random_states_0.pkl", ".metadata")], row="E7", expected="ok", names=""),
    _checkpoint("pickle-manifest", "a program in the place of the manifest", lambda c: torch.save({"a": canary(c)}, c / "manifest.json"), "manifest.json", row="E7"),
]  # fmt: skip


def _of_rows() -> int:
    from mezzotint.run_folder import CHECKPOINT_SCHEMA

    return CHECKPOINT_SCHEMA


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-3] ^= 4
    path.write_bytes(data)


# --- the cache --------------------------------------------------------------------------------------------------------


def rows(folder: Path) -> None:
    """A store of four rows."""
    addresses = store.as_addresses([bytes([n]) * 32 for n in range(4)])
    kept = store.Store(folder, shape=(4, 3), dtype="fp32")
    kept.append(addresses, torch.arange(48.0).reshape(4, 4, 3))
    kept.close_writer()
    (index,) = folder.rglob("*.index")
    for path in (index, index.with_suffix(".rows")):
        path.rename(path.with_stem("0123456789abcdef"))


def _cache(id_: str, fault: str, change: Callable[[Path, Path], object], expected: str = "S", **more: Any) -> Entry:
    def make(folder: Path) -> None:
        rows(folder)
        (index,) = folder.rglob("*.index")
        change(index, index.with_suffix(".rows"))

    names = "row" if expected == "S" else ""
    return Entry(
        id=f"cache-{id_}", reader="cache", fault=fault, row="I1", make=make, expected=expected, names=names, **more
    )


def _record(row: int) -> bytes:
    records = shard_files.records_of(np.full((1, 32), 9, np.uint8), np.array([row]), np.array([1], np.uint64))
    return bytes(records.tobytes())


_CACHES = [
    _cache("index-noise", "an index of noise", lambda index, rows: index.write_bytes(bytes(range(256)) * 6), is_quick=True),
    _cache("index-cut", "an index that ends in a record", lambda index, rows: os.truncate(index, 100)),
    _cache("index-zeros", "an index of zeros", lambda index, rows: index.write_bytes(bytes(48 * 4))),
    _cache("index-beyond", "a record of the row 4 billion", lambda index, rows: index.write_bytes(index.read_bytes() + _record(2**32 - 1)), "ok", is_quick=True),
    _cache("index-wrong", "a record whose row has another checksum", lambda index, rows: index.write_bytes(index.read_bytes() + _record(0)), "ok"),
    _cache("index-pipe", "an index that is a pipe", lambda index, rows: (index.unlink(), os.mkfifo(index)), is_quick=True),
    _cache("index-folder", "an index that is a folder", lambda index, rows: (index.unlink(), index.mkdir()), is_quick=True),
    _cache("index-endless", "an index that is a device without end", lambda index, rows: (index.unlink(), index.symlink_to("/dev/zero"))),
    _cache("rows-cut", "rows that end in one", lambda index, rows: os.truncate(rows, 100)),
    _cache("rows-flip", "a flipped bit", lambda index, rows: _flip(rows), is_quick=True),
    _cache("rows-gone", "rows that are gone", lambda index, rows: rows.unlink()),
    _cache("rows-pipe", "rows that are a pipe", lambda index, rows: (rows.unlink(), os.mkfifo(rows)), is_quick=True),
    _cache("rows-folder", "rows that are a folder", lambda index, rows: (rows.unlink(), rows.mkdir()), is_quick=True),
    _cache("rows-sparse", "rows of 1 TB that take no room", lambda index, rows: os.truncate(rows, 1 << 40), "ok"),
    _cache("damaged-noise", "a note of damage that is noise", lambda index, rows: (index.parent / "damaged").write_bytes(bytes(range(255))), "ok", is_quick=True),
    _cache("damaged-pipe", "a note of damage that is a pipe", lambda index, rows: os.mkfifo(index.parent / "damaged"), "ok"),
    _cache("origin-list", "an address of rows that is a list", lambda index, rows: (rows.unlink(), index.with_suffix(".origin").write_text("[]")), is_quick=True),
    _cache("origin-deep", "an address of rows nested 100,000 deep", lambda index, rows: (rows.unlink(), index.with_suffix(".origin").write_text("[" * 100_000))),
    _cache("origin-types", "an address of rows that is a number", lambda index, rows: (rows.unlink(), index.with_suffix(".origin").write_text('{"address": 3, "bytes": "x", "kept": [], "keep_gb": null}')), is_quick=True),
]  # fmt: skip


def _layout(id_: str, fault: str, content: Any, **more: Any) -> Entry:
    text = content if isinstance(content, (str, bytes)) else json.dumps(content)
    make = more.pop("make", file("layout.json", text))
    return Entry(
        id=f"layout-{id_}", reader="layout", fault=fault, row="I1", make=make, expected="S", names="layout.json", **more
    )


_LAYOUTS = [
    _layout("deep", "nested 100,000 deep", "[" * 100_000, is_quick=True),
    _layout("list", "a list", [1]),
    _layout("null", "a layout that is null", {"layout": None}),
    _layout("zero", "no channels", {"layout": {"channels": 0, "pixels": 8}}, is_quick=True),
    _layout("negative", "-4 channels", {"layout": {"channels": -4, "pixels": 8}}, is_quick=True),
    _layout("pixels", "no pixels for a latent", {"layout": {"channels": 4, "pixels": 0}}, is_quick=True),
    _layout("huge", "10^15 channels", {"layout": {"channels": 10**15, "pixels": 8}}, is_quick=True),
    _layout("bool", "channels that are true", {"layout": {"channels": True, "pixels": 8}}),
    _layout("more", "a key of nobody's", {"layout": {"channels": 4, "pixels": 8, "x": 1}}),
    _layout("pipe", "a pipe", "", make=pipe("layout.json")),
]  # fmt: skip

# --- a run's own files ------------------------------------------------------------------------------------------------

_RUNS = [
    Entry(id=f"run-{id_}", reader="run", fault=fault, row="I1", make=make, expected="ok", is_quick=id_ in ("history-deep", "recipe-bomb"))
    for id_, fault, make in (
        ("history-deep", "a history nested 100,000 deep", file("history.jsonl", '{"event": "started"}\n' + "[" * 100_000 + "\n")),
        ("history-types", "a history of numbers", file("history.jsonl", "3\nnull\n[]\n")),
        ("history-cut", "a history that ends in a line", file("history.jsonl", '{"event": "started"}\n{"eve')),
        ("history-noise", "a history of noise", file("history.jsonl", bytes(range(256)))),
        ("recipe-bomb", "a recipe of merge keys of merge keys", file("recipe.yaml", merges(9))),
        ("recipe-aliases", "a recipe of aliases of aliases", file("recipe.yaml", aliases(9))),
        ("recipe-deep", "a recipe nested 100,000 deep", file("recipe.yaml", "a: " + "[" * 100_000)),
        ("history-struct", "numbers", file("history.jsonl", struct.pack("<100d", *range(100)))),
    )
]  # fmt: skip

ENTRIES = _CHECKPOINTS + _CACHES + _LAYOUTS + _RUNS
