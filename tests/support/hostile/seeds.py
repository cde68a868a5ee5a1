"""Sound files of every reader: what hostile ones are made of, and what mutations begin with."""

from __future__ import annotations

import hashlib
import io
import json
import struct
import tarfile
import zipfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, PngImagePlugin

from mezzotint.assets import ASSETS, MODELS
from mezzotint.settings.reading.read import read_text
from mezzotint.training.checkpoints import state
from mezzotint.training.progress import Progress

MINI = MODELS / "mezzotint-mini"
RECIPE = """schema: 1
model: {path: mezzotint-mini, weights: files}
data:
  path: images
  resolution: 64
  captions: &c {dropout: 0.1, missing: empty}
  batch_size: 4
optim:
  lr: 1e-4
  optimizer: {kind: adamw, betas: [0.9, 0.999]}
run: {steps: 8, name: "a-run"}
"""
PROMPTS = {
    "seed": 7, "steps": 4, "size": [64, 64], "guidance": [3, 7.5], "solver": "ddim",
    "samples": [{"prompt": "a red fox", "aspect_ratio": 1.5}, {"random_caption": True, "negative_prompt": "snow"}],
}  # fmt: skip
GLOBAL = "main_prompt: a fox\ntags: [{tag: red, weight: 2}, snow]\nmultiply: 2\nflip_p: 0.5\nbatch_id: foxes\n"


@cache
def image_file(kind: str = "PNG", size: tuple[int, int] = (40, 32), mode: str = "RGB", **options: Any) -> bytes:
    """An image of four stripes as a file."""
    image = Image.new("RGB", size, (200, 30, 10))
    image.paste((10, 80, 220), (0, 0, max(size[0] // 2, 1), size[1]))
    file = io.BytesIO()
    image.convert(mode).save(file, kind, **options)
    return file.getvalue()


def png_text(**texts: str) -> bytes:
    """A PNG with texts in it."""
    info = PngImagePlugin.PngInfo()
    for name, text in texts.items():
        info.add_text(name, text)
    return image_file.__wrapped__(pnginfo=info)


def safetensors(header: Mapping[str, Any] | bytes, body: bytes = b"") -> bytes:
    """A file of a header and bytes."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


def tensor(dtype: str, shape: Sequence[Any], start: Any, end: Any) -> dict[str, Any]:
    """What a header says of a tensor."""
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [start, end]}


def weights() -> bytes:
    """A safetensors file of three tensors."""
    header = {"__metadata__": {"format": "pt"}, "a": tensor("F32", [2, 3], 0, 24), "b": tensor("F16", [4], 24, 32)}
    return safetensors(header | {"c": tensor("I64", [], 32, 40)}, np.arange(6, dtype="<f4").tobytes() + bytes(16))


def tar(*members: tuple[str, bytes], **facts: Any) -> bytes:
    """A tar archive. facts: of the TarInfo of each member."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=facts.pop("format", tarfile.PAX_FORMAT)) as archive:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            for fact, value in facts.items():
                setattr(info, fact, value)
            archive.addfile(info, io.BytesIO(content))
    return file.getvalue()


def shard() -> bytes:
    """A tar shard of two samples."""
    return tar(
        ("0/a.png", image_file()), ("0/a.txt", b"a fox"), ("0/b.png", image_file()), ("0/b.json", b'{"text": "an owl"}')
    )


def npy(header: str, body: bytes = b"", version: bytes = b"\x01\x00") -> bytes:
    """A .npy file of a header and bytes."""
    text = header.encode("latin-1").ljust(118, b" ")
    return b"\x93NUMPY" + version + struct.pack("<H", len(text)) + text + body


def array(value: Any) -> bytes:
    """A .npy file of an array."""
    file = io.BytesIO()
    np.save(file, value, allow_pickle=True)
    return file.getvalue()


def archive(members: Mapping[str, bytes] | Sequence[tuple[str, bytes]], **options: Any) -> bytes:
    """A zip archive."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", **options) as packed:
        for name, content in members.items() if isinstance(members, Mapping) else members:
            packed.writestr(zipfile.ZipInfo(name), content, packed.compression)
    return file.getvalue()


def npz() -> bytes:
    """A text embedding of five tokens, three wide."""
    states, mask = np.linspace(0, 1, 15, dtype=np.float32).reshape(1, 5, 3), np.ones((1, 5), np.uint8)
    return archive({"text_emb.npy": array(states), "mask.npy": array(mask)})


def parquet(columns: Mapping[str, Any] | None = None, **options: Any) -> bytes:
    """A parquet file, of an image and its caption unless told otherwise."""
    import pyarrow as pa  # slow to import, and few entries need it
    import pyarrow.parquet as pq

    file = pa.BufferOutputStream()
    columns = columns or {"image": [{"bytes": image_file(), "path": "a.png"}], "text": ["a fox"]}
    pq.write_table(pa.table(dict(columns)), file, **options)
    return bytes(file.getvalue())


def arrow(columns: Mapping[str, Any] | None = None) -> bytes:
    """The same as a stream of arrow."""
    import pyarrow as pa  # slow to import, and few entries need it

    table = pa.table(dict(columns or {"image": [{"bytes": image_file(), "path": "a.png"}], "text": ["a fox"]}))
    file = pa.BufferOutputStream()
    with pa.ipc.new_stream(file, table.schema) as stream:
        stream.write_table(table)
    return bytes(file.getvalue())


def tokenizer(folder: Path) -> None:
    """A CLIP tokenizer of few words."""
    folder.mkdir(parents=True, exist_ok=True)
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = [*letters, *(f"{one}</w>" for one in letters), "fo", "fox</w>", "<|startoftext|>", "<|endoftext|>"]
    (folder / "vocab.json").write_text(json.dumps({word: number for number, word in enumerate(words)}))
    (folder / "merges.txt").write_text("#version: 0.2\nf o\nfo x</w>\n")
    names = {"bos_token": "<|startoftext|>", "eos_token": "<|endoftext|>", "unk_token": "<|endoftext|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 77, **names}))


def spiece() -> bytes:
    """SentencePiece's model of few words."""
    from mezzotint.weights.files.protobuf import field

    def piece(text: str, kind: int = 1) -> bytes:
        return field(1, field(1, text.encode()) + b"\x15" + struct.pack("<f", -1.0) + bytes((3 << 3, kind)))

    return b"".join(piece(text) for text in ("<pad>", "</s>", "<unk>", "▁", "f", "o", "x", "fox"))


def model(folder: Path) -> None:
    """The folder of a model: configurations that are sound, and no weights."""
    for source in sorted(MINI.rglob("*.json")):
        place = folder / source.relative_to(MINI)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(source.read_bytes())
    for name in ("vocab.json", "merges.txt"):
        (folder / "tokenizer" / name).write_bytes((ASSETS / "tokenizers" / "clip" / name).read_bytes())


@cache
def _recipe_values() -> str:
    return json.dumps(read_text("schema: 1").recipe.model_dump(mode="json", by_alias=True))


def state_values() -> dict[str, Any]:
    """What a state.json says at least."""
    identity = {"data": "d", "parts": {}, "world_size": 1, "device": "cpu", "torch": "2", "threads": 1}
    recipe = json.loads(_recipe_values())
    return {"progress": Progress(step=1).state(), "callbacks": {}, "recipe": recipe, "identity": identity}


def checkpoints(folder: Path) -> Path:
    """Two sound checkpoints in a run folder; returns the newer one."""
    place = folder / "checkpoints"
    place.mkdir(parents=True)
    for step in (1, 2):
        tensors = {"w/a": torch.arange(6.0).reshape(2, 3), "opt.m/a": torch.zeros(2, 3)}
        state.write(place, step=step, tensors=tensors, values=state_values(), recipe_digest="")
    return place / "step-00000002"


def seal(checkpoint: Path) -> None:
    """Has the manifest of a checkpoint say what its files are now: whoever changed them has thought of it."""
    manifest = json.loads((checkpoint / "manifest.json").read_text())
    for name in manifest["files"]:
        data = (checkpoint / name).read_bytes()
        manifest["files"][name] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    (checkpoint / "manifest.json").write_text(json.dumps(manifest))
