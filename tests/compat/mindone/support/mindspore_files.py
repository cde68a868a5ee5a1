"""MindSpore's checkpoints for tests: one that it wrote, and files made of entries."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from mezzotint.compat.mindone import _mindspore_wire as wire
from mezzotint.compat.mindone import mindspore_format

RECORD = Path(__file__).parents[3] / "parity" / "data" / "mindone-sdxl" / "mixed.ckpt"


def entry(name: str, dims: tuple[int, ...], kind: str, content: bytes) -> bytes:
    return wire.head_of(name, dims, kind, len(content)) + content


def file_of(path: Path, *entries: bytes) -> Path:
    path.write_bytes(b"".join(entries))
    return path


def everything(path: Path) -> dict[str, Tensor]:
    return dict(mindspore_format.read(path))
