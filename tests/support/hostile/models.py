# ruff: noqa: E501 (an entry a line)
"""Files of weights and folders of models: the rows I1 and I7."""

from __future__ import annotations

import json
import os
import pickle as pickles
import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mezzotint.weights.files.protobuf import field
from support.hostile import seeds
from support.hostile.entry import Content, Entry, Make, all_of, file
from support.hostile.seeds import safetensors, tensor
from support.hostile.texts import link, pipe


def entry(reader: str, id_: str, fault: str, make: Make, code: str, **more: Any) -> Entry:
    more = {"row": "I1", "expected": "E2" if code else "ok"} | more
    return Entry(id=f"{reader}-{id_}", reader=reader, fault=fault, make=make, code=code, **more)


def _weights(id_: str, fault: str, content: Content, code: str = "E1402", **more: Any) -> Entry:
    more = {"names": "x.safetensors" if code else ""} | more
    return entry("weights", id_, fault, file("x.safetensors", content), code, **more)


def _header(**tensors: Any) -> bytes:
    return safetensors(tensors, bytes(64))


_F = {"a": tensor("F32", [2, 3], 0, 24)}
_NAN = np.array([1.0, np.nan], "<f4").tobytes()
_WEIGHTS = [
    _weights("empty", "no byte", b"", says="empty", is_quick=True),
    _weights("seven-bytes", "seven bytes", b"\x01\0\0\0\0\0\0"),
    _weights("zeros", "a header of no length", bytes(100)),
    _weights("length", "a header of 2^64 bytes", b"\xff" * 8 + b"{}", is_quick=True),
    _weights("length-file", "a header that is longer than the file", struct.pack("<Q", 10**7) + b'{"a":', says="cut short"),
    _weights("deep", "a header nested 100,000 deep", safetensors(b'{"a":' + b"[" * 100_000), is_quick=True),
    _weights("number", "a number of 5,000 digits", safetensors(b'{"a": ' + b"9" * 5000 + b"}")),
    _weights("twice", "a tensor twice", safetensors(b'{"a": {"dtype":"F32","shape":[1],"data_offsets":[0,4]}, "a": {"dtype":"F32","shape":[1],"data_offsets":[0,4]}}', bytes(4)), is_quick=True),
    _weights("list", "a header that is a list", safetensors(b"[1, 2]")),
    _weights("not-utf-8", "a header that is not UTF-8", safetensors(b"\xff\xfe")),
    _weights("metadata-list", "texts that are a list", _header(__metadata__=[1, 2], a=tensor("F32", [16], 0, 64)), is_quick=True),
    _weights("metadata-number", "a text that is a number", _header(__metadata__={"a": 3}, a=tensor("F32", [16], 0, 64))),
    _weights("overlap", "tensors that overlap", _header(a=tensor("F32", [8], 0, 32), b=tensor("F32", [12], 16, 64)), says="overlap", is_quick=True),
    _weights("hole", "a hole between two", _header(a=tensor("F32", [4], 0, 16), b=tensor("F32", [8], 32, 64)), says="gaps", is_quick=True),
    _weights("begins-late", "a hole before the first", _header(a=tensor("F32", [12], 16, 64))),
    _weights("negative", "a tensor that ends before it begins", _header(a=tensor("F32", [1], 64, 0))),
    _weights("negative-offset", "it begins at -4", _header(a=tensor("F32", [17], -4, 64)), is_quick=True),
    _weights("beyond", "it ends behind the file", _header(a=tensor("F32", [1000], 0, 4000)), says="missing"),
    _weights("after", "bytes behind the last tensor", _header(a=tensor("F32", [8], 0, 32)), says="too many"),
    _weights("huge", "a side of 10^30", _header(a=tensor("F32", [10**30], 0, 64)), is_quick=True),
    _weights("wraps", "sides whose product is 16 modulo 2^64", _header(a=tensor("F32", [2**60 + 1, 16], 0, 64)), is_quick=True),
    _weights("shape", "a shape of other bytes than it has", _header(a=tensor("F32", [7], 0, 64)), is_quick=True),
    _weights("shape-negative", "a side of -16", _header(a=tensor("F32", [-16], 0, 64))),
    _weights("shape-text", "a shape that is a text", _header(a={"dtype": "F32", "shape": "44", "data_offsets": [0, 64]}), is_quick=True),
    _weights("shape-float", "a side of 16.5", _header(a=tensor("F32", [16.5], 0, 64)), is_quick=True),
    _weights("shape-bool", "a side of true", _header(a=tensor("U8", [True, 64], 0, 64))),
    _weights("rank", "100,000 dimensions", _header(a=tensor("F32", [1] * 100_000 + [16], 0, 64)), is_quick=True),
    _weights("offsets-text", "places that are texts", _header(a=tensor("F32", [16], "0", "64"))),
    _weights("offsets-three", "three places", _header(a={"dtype": "F32", "shape": [16], "data_offsets": [0, 64, 64]})),
    _weights("offsets-nan", "places that are no numbers", safetensors(b'{"a":{"dtype":"F32","shape":[16],"data_offsets":[NaN,Infinity]}}', bytes(64)), is_quick=True),
    _weights("dtype", "a type of nobody's", _header(a=tensor("F31", [16], 0, 64)), is_quick=True),
    _weights("dtype-list", "a type that is a list", _header(a={"dtype": ["F32"], "shape": [16], "data_offsets": [0, 64]})),
    _weights("unaligned", "three bytes for a number of four", safetensors({"a": tensor("F32", [1], 0, 3)}, bytes(3)), is_quick=True),
    _weights("null", "a tensor that is null", _header(a=None)),
    _weights("nan", "NaN among the numbers", safetensors({"a": tensor("F32", [2], 0, 8)}, _NAN), "E1403", says="not finite", is_quick=True),
    _weights("many", "10,000 tensors of nothing", lambda: safetensors({f"a{n}": tensor("F32", [0], 0, 0) for n in range(10_000)}), "", seconds=4.0, expected="ok"),
    _weights("web-page", "a web page", b"<!DOCTYPE html><html>" * 30, says="web page"),
    _weights("lfs", "a pointer of Git LFS", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 4\n", says="Git LFS"),
    _weights("gguf", "a GGUF file", b"GGUF" + bytes(100), says="GGUF"),
    _weights("pickle", "a pickle under .safetensors", b"\x80\x02cos\nsystem\nU\x0ctouch canaryq\x85R.", says="pickle", is_quick=True),
    _weights("json", "a JSON", b'{"a": 1}' * 20, says="JSON"),
    entry("weights", "pipe", "a pipe that nobody writes to", pipe("x.safetensors"), "E1401", names="x.safetensors", is_quick=True),
    entry("weights", "endless", "a link to a device without end", link("x.safetensors", "/dev/zero"), "E1401", names="x.safetensors", is_quick=True),
    entry("weights", "folder", "a folder", lambda folder: (folder / "x.safetensors").mkdir(), "E1401", names="x.safetensors"),
    entry("weights", "absent", "a link to nothing", link("x.safetensors", "nothing"), "E1401", names="x.safetensors"),
]  # fmt: skip

# --- indexes of shards ------------------------------------------------------------------------------------------------

_INDEX = "x.safetensors.index.json"


def _index(id_: str, fault: str, content: Any, code: str = "E1404", **more: Any) -> Entry:
    text = content if isinstance(content, (str, bytes)) else json.dumps(content)
    make = all_of(file("a.safetensors", seeds.weights()), file(_INDEX, text))
    return entry("index", id_, fault, make, code, names=more.pop("names", _INDEX), **more)


_INDEXES = [
    _index("deep", "nested 100,000 deep", "[" * 100_000, is_quick=True),
    _index("number", "a number of 5,000 digits", '{"weight_map": ' + "9" * 5000 + "}"),
    _index("list", "a list", [1]),
    _index("map-list", "a map that is a list", {"weight_map": ["a"]}),
    _index("map-types", "a map to numbers", {"weight_map": {"a": 3, "b": None}}, is_quick=True),
    _index("map-unhashable", "a map to lists", {"weight_map": {"a": []}}),
    _index("out", "a shard that lies outside", {"weight_map": {"a": "../a.safetensors"}}, is_quick=True),
    _index("absolute", "an absolute name", {"weight_map": {"a": "/etc/a.safetensors"}}),
    _index("pickle", "a shard that is a pickle", {"weight_map": {"a": "a.bin"}}),
    _index("long", "a name that no file can have", {"weight_map": {"a": "x" * 300 + ".safetensors"}}),
    _index("nul", "a NUL in a name", {"weight_map": {"a": "a\0.safetensors"}}),
    _index("absent", "a shard that is not there", {"weight_map": {"a": "b.safetensors"}}, says="does not exist"),
    _index("twice", "a key twice", '{"weight_map": {"a": "a.safetensors", "a": "b.safetensors"}}'),
    _index("utf-16", "UTF-16", json.dumps({"weight_map": {}}).encode("utf-16")),
    _index("two", "a tensor in two shards", {"weight_map": {"a": "a.safetensors", "b": "b.safetensors"}}, names="safetensors"),
    entry("index", "pipe", "a pipe", pipe(_INDEX), "E1401", names=_INDEX),
    entry("index", "shard-pipe", "a shard that is a pipe", all_of(file(_INDEX, '{"weight_map": {"a": "b.safetensors"}}'), pipe("b.safetensors")), "E1404", names=_INDEX),
]  # fmt: skip
_INDEXES[-3] = entry(
    "index", "two", "a tensor in two shards",
    all_of(file("a.safetensors", seeds.weights()), file("b.safetensors", seeds.weights()),
           file(_INDEX, '{"weight_map": {"a": "a.safetensors", "b": "b.safetensors"}}')),
    "E1404", names="b.safetensors",
)  # fmt: skip

# --- pickles ----------------------------------------------------------------------------------------------------------


class _Calls:
    """Calls a program when it is unpickled in the usual way."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self._call = function, arguments

    def __reduce__(self) -> tuple[Any, ...]:
        return self._call


def _pickled(folder: Path, *, value: Callable[[Path], Any], form: str, name: str = "x.ckpt") -> None:
    place = folder / name
    place.parent.mkdir(parents=True, exist_ok=True)
    if form == "raw":
        place.write_bytes(pickles.dumps(value(folder), protocol=2))
    else:
        torch.save(value(folder), place, _use_new_zipfile_serialization=form == "zip")


def canary(folder: Path) -> _Calls:
    """Leaves a file `canary` in a folder when it is unpickled."""
    return _Calls(os.system, f"touch '{folder}/canary'")


def _evil(folder: Path) -> dict[str, Any]:
    return {"state_dict": {"a": torch.ones(2), "b": canary(folder)}}


def _pickle(id_: str, fault: str, make: Make, **more: Any) -> Entry:
    return entry("pickle", id_, fault, make, "E1411", names="x.ckpt", **{"seconds": 10.0} | more)


_DEEP = b"\x80\x02" + b"]" * 100_000 + b"a" * 99_999 + b"."
_PICKLES = [
    *(_pickle(f"canary-{form}", f"a call of a program ({form})", partial(_pickled, value=_evil, form=form), is_quick=form == "zip") for form in ("zip", "legacy", "raw")),
    _pickle("eval", "a call of eval", partial(_pickled, value=lambda folder: {"a": _Calls(eval, f"open('{folder}/canary', 'w')")}, form="zip")),
    _pickle("import", "a call of importlib", partial(_pickled, value=lambda folder: {"a": _Calls(__import__, "antigravity")}, form="raw")),
    _pickle("open", "a call of open", partial(_pickled, value=lambda folder: {"a": _Calls(open, f"{folder}/canary", "w")}, form="zip")),
    _pickle("deep", "lists nested 100,000 deep", file("x.ckpt", _DEEP), is_quick=True),
    _pickle("doubling", "lists that double 60 times", file("x.ckpt", b"\x80\x02]q\0" + b"".join(b"]q%c(h%ch%ce" % (n + 1, n, n) for n in range(60)) + b".")),
    _pickle("cut", "it ends in its middle", file("x.ckpt", b"\x80\x02}q\x00(X\x05\x00\x00\x00"), is_quick=True),
    _pickle("memo", "a place of 2^31 in its memory", file("x.ckpt", b"\x80\x02]r\xff\xff\xff\x7f.")),
    _pickle("text", "a text of 4 GB that is not there", file("x.ckpt", b"\x80\x02X\xff\xff\xff\xffabc.")),
    _pickle("zip-bomb", "1 GB of zeros in 1 MB", file("x.ckpt", seeds.archive({"archive/data.pkl": b"\x80\x02}q\0.", "archive/data/0": bytes(1 << 24), "archive/version": b"3\n"}, compression=8))),
    _pickle("zip-names", "a zip whose members lead out", file("x.ckpt", seeds.archive({"../../evil/data.pkl": b"\x80\x02}q\0.", "../../evil/version": b"3\n"}))),
    _pickle("script", "a TorchScript program", file("x.ckpt", seeds.archive({"archive/constants.pkl": b"\x80\x02).", "archive/data.pkl": b"\x80\x02}q\0.", "archive/version": b"3\n", "archive/code/a.py": b"x"}))),
    _pickle("no-tensors", "numbers alone", partial(_pickled, value=lambda folder: {"a": 1}, form="zip")),
    entry("pickle", "pipe", "a pipe", pipe("x.ckpt"), "E1401", names="x.ckpt", is_quick=True),
    entry("pickle", "endless", "a link to a device without end", link("x.ckpt", "/dev/zero"), "E1401", names="x.ckpt"),
]  # fmt: skip

# --- tokenizers -------------------------------------------------------------------------------------------------------


def _tokenizer(id_: str, fault: str, name: str, content: Any, code: str = "E1409", **more: Any) -> Entry:
    text = content if isinstance(content, (str, bytes)) else json.dumps(content)
    make = all_of(seeds.tokenizer, file(name, text))
    return entry("clip-tokenizer", id_, fault, make, code, **{"seconds": 4.0} | more)


_TOKENIZERS = [
    _tokenizer("vocab-deep", "a vocabulary nested 100,000 deep", "vocab.json", "[" * 100_000, names="vocab.json", is_quick=True),
    _tokenizer("vocab-list", "a vocabulary that is a list", "vocab.json", ["a"], names="vocab.json"),
    _tokenizer("vocab-types", "numbers that are texts", "vocab.json", {"a": "b"}, is_quick=True),
    _tokenizer("vocab-huge", "a number of 10^30", "vocab.json", {"a": 10**30, "<|endoftext|>": 1}),
    _tokenizer("vocab-negative", "a number of -1", "vocab.json", {"a": -1, "<|endoftext|>": 1}),
    _tokenizer("vocab-large", "a vocabulary of 100,000", "vocab.json", {f"w{n}": n for n in range(60_000)}),
    _tokenizer("merges-noise", "pairs that are noise", "merges.txt", bytes(range(256)) * 10, is_quick=True),
    _tokenizer("merges-unknown", "pairs of words that nobody has", "merges.txt", "#version: 0.2\nqq zz\n"),
    _tokenizer("merges-one", "a line of one word", "merges.txt", "#version: 0.2\nfox\n"),
    _tokenizer("merges-empty", "no byte", "merges.txt", b"", "", expected="ok"),
    _tokenizer("config-deep", "settings nested 100,000 deep", "tokenizer_config.json", "[" * 100_000, is_quick=True),
    _tokenizer("config-length", "a length that is a list", "tokenizer_config.json", {"model_max_length": [], "unk_token": "<|endoftext|>"}, says="model_max_length", is_quick=True),
    _tokenizer("config-list", "settings that are a list", "tokenizer_config.json", [1]),
    _tokenizer("config-code", "settings that name a program", "tokenizer_config.json", {"auto_map": {"AutoTokenizer": ["evil.Evil", None]}, "tokenizer_class": "Evil", "unk_token": "<|endoftext|>"}, "", row="I7", expected="ok", is_quick=True),
    entry("clip-tokenizer", "pipe", "a vocabulary that is a pipe", all_of(file("merges.txt", "#\n"), pipe("vocab.json")), "E1409", names="vocab.json"),
    entry("clip-tokenizer", "none", "no file at all", lambda folder: None, "E1409", says="merges.txt"),
]  # fmt: skip


def _t5(id_: str, fault: str, makes: Make, **more: Any) -> Entry:
    return entry("t5-tokenizer", id_, fault, makes, "E1463", **{"seconds": 4.0} | more)


_SPIECE = file("spiece.model", seeds.spiece())
_T5 = [
    _t5("empty", "no byte", file("spiece.model", b""), is_quick=True),
    _t5("noise", "noise", file("spiece.model", bytes(range(256)))),
    _t5("cut", "it ends in its middle", file("spiece.model", seeds.spiece()[:-3])),
    _t5("not-utf-8", "a piece that is not UTF-8", file("spiece.model", field(1, field(1, b"\xff\xfe")))),
    _t5("extra", "10^12 words that it adds by itself", all_of(_SPIECE, file("tokenizer_config.json", '{"extra_ids": 1000000000000}')), is_quick=True),
    _t5("extra-text", "a number of them that is a text", all_of(_SPIECE, file("tokenizer_config.json", '{"extra_ids": "many"}')), is_quick=True),
    _t5("extra-list", "a number of them that is a list", all_of(_SPIECE, file("tokenizer_config.json", '{"extra_ids": [1]}'))),
    _t5("json-deep", "a tokenizer.json nested 100,000 deep", file("tokenizer.json", "[" * 100_000), is_quick=True),
    _t5("json-types", "a tokenizer.json of nothing", file("tokenizer.json", '{"model": 3}')),
    _t5("none", "no file at all", lambda folder: None),
    entry("t5-tokenizer", "pipe", "a pipe", pipe("spiece.model"), "E1409", names="spiece.model"),
]  # fmt: skip

# --- configurations ---------------------------------------------------------------------------------------------------


def _config(id_: str, fault: str, name: str, change: Any, code: str = "E1409", **more: Any) -> Entry:
    def make(folder: Path) -> None:
        seeds.model(folder)
        place = folder / name
        if isinstance(change, dict):
            place.write_text(json.dumps(json.loads(place.read_text()) | change))
        else:
            place.write_bytes(change if isinstance(change, bytes) else change.encode())

    return entry("config", id_, fault, make, code, **{"names": name.rpartition("/")[2]} | more)


_UNET, _VAE, _TEXT = "unet/config.json", "vae/config.json", "text_encoder/config.json"
_CONFIGS = [
    _config("index-deep", "an index nested 100,000 deep", "model_index.json", "[" * 100_000, is_quick=True),
    _config("index-list", "an index that is a list", "model_index.json", "[]"),
    _config("index-code", "an index that names programs", "model_index.json", {"_class_name": "os.system", "unet": ["evil", "Evil"], "custom_pipeline": "evil"}, "", row="I7", expected="ok", names="", is_quick=True),
    _config("deep", "nested 100,000 deep", _UNET, "[" * 100_000),
    _config("number", "a number of 5,000 digits", _UNET, '{"sample_size": ' + "9" * 5000 + "}"),
    _config("twice", "a key twice", _UNET, '{"a": 1, "a": 2}'),
    _config("utf-16", "UTF-16", _UNET, "{}".encode("utf-16")),
    _config("layers", "a billion layers", _UNET, {"layers_per_block": 10**9}, is_quick=True),
    _config("width", "a width of 10^15", _UNET, {"cross_attention_dim": 10**15}, names="width"),
    _config("width-negative", "a width of -8", _UNET, {"cross_attention_dim": -8}, names="width"),
    _config("width-text", "a width that is a text", _UNET, {"cross_attention_dim": "wide"}, names="width", is_quick=True),
    _config("channels-negative", "-1 channels", _VAE, {"out_channels": -1}, is_quick=True),
    _config("function-list", "a function that is a list", _UNET, {"act_fn": []}),
    _config("blocks-empty", "no blocks", _UNET, {"block_out_channels": []}, is_quick=True),
    _config("blocks-types", "blocks of nobody's", _UNET, {"down_block_types": ["os.system"] * 4}),
    _config("groups", "no groups of a norm", _VAE, {"norm_num_groups": 0}),
    _config("scaling", "a scaling of NaN", _VAE, '{"scaling_factor": NaN}'),
    _config("scaling-zero", "a scaling of 0", _VAE, {"scaling_factor": 0}, is_quick=True),
    _config("vocabulary", "10^12 words", _TEXT, {"vocab_size": 10**12}),
    _config("layers-text", "10^9 layers of a text encoder", _TEXT, {"num_hidden_layers": 10**9}),
    _config("layers-null", "a null for the layers of a text encoder", _TEXT, {"num_hidden_layers": None}, names="num_hidden_layers", is_quick=True),
    _config("layers-odd", "a width that its heads do not divide", _TEXT, {"num_attention_heads": 7}),
    _config("heads", "0 heads", _TEXT, {"num_attention_heads": 0}, is_quick=True),
    _config("code", "a configuration that names a program", _TEXT, {"auto_map": {"AutoModel": "evil.Evil"}, "_class_name": "Evil", "torch_dtype": "os.system"}, "", row="I7", expected="ok", names=""),
    _config("schedule", "10^12 timesteps", "scheduler/scheduler_config.json", {"num_train_timesteps": 10**12}, "E1450", names="", is_quick=True),
    _config("prediction", "a prediction of nobody's", "scheduler/scheduler_config.json", {"prediction_type": "__import__"}),
]  # fmt: skip


def _with_code(folder: Path) -> None:
    """A model's folder with programs in it, each of which leaves a canary when it is imported."""
    program = f"import os\nos.system(\"touch '{folder}/canary'\")\n"
    for name in ("pipeline.py", "unet/evil.py", "unet/__init__.py", "unet/torch.py", "modeling_evil.py", "setup.py"):
        file(name, program)(folder)


_FOLDERS = [
    entry("config", "programs", "a folder with programs", all_of(seeds.model, _with_code), "", row="I7", expected="ok", is_quick=True),
    entry("model", "programs", "a folder with programs and pickles, converted", all_of(seeds.model, _with_code, partial(_pickled, value=_evil, form="zip", name="unet/diffusion_pytorch_model.bin")), "E", row="I7", expected="E2", seconds=10.0),
    entry("model", "pickles", "weights that are pickles", all_of(seeds.model, partial(_pickled, value=_evil, form="zip", name="unet/diffusion_pytorch_model.bin")), "E", row="I7", expected="E2", seconds=10.0),
    entry("model", "shard-out", "an index of shards that leads out", all_of(seeds.model, file("unet/diffusion_pytorch_model.safetensors.index.json", '{"weight_map": {"a": "../../../x.safetensors"}}')), "E1404", row="I7", expected="E2", seconds=10.0),
    entry("model", "mindone", "a file whose texts name a program", file("x.safetensors", safetensors({"__metadata__": {"target": "os.system", "modelspec.architecture": "__import__('os')"}} | _F, bytes(24))), "E", row="I7", expected="E2", seconds=10.0),
]  # fmt: skip

ENTRIES = (
    _WEIGHTS + _INDEXES + _PICKLES + _TOKENIZERS + _T5 + _CONFIGS + _FOLDERS
)  # fmt: skip
