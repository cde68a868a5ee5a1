"""MindSpore's checkpoints for tests: one that it wrote, and files made of entries."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from mezzotint.weights.files import _mindspore_wire as wire
from mezzotint.weights.files import mindspore

RECORD = Path(__file__).parents[1] / "parity" / "data" / "mindone-sdxl" / "mixed.ckpt"


def entry(name: str, dims: tuple[int, ...], kind: str, content: bytes) -> bytes:
    return wire.head_of(name, dims, kind, len(content)) + content


def file_of(path: Path, *entries: bytes) -> Path:
    path.write_bytes(b"".join(entries))
    return path


def everything(path: Path) -> dict[str, Tensor]:
    return dict(mindspore.read(path))
