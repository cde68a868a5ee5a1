"""MindSpore's checkpoints for tests: one that it wrote, and files made of entries."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from mezzotint.compat.mindone import mindspore_format
from mezzotint.weights.files.protobuf import VARINT, field, head, varint

RECORD = Path(__file__).parents[3] / "parity" / "data" / "mindone-sdxl" / "mixed.ckpt"


def entry_head(name: str, dims: tuple[int, ...], kind: str, size: int) -> bytes:
    """An entry without its content of `size` bytes."""
    tensor = b"".join(varint(1 << 3 | VARINT) + varint(dim) for dim in dims) + field(2, kind.encode()) + head(3, size)
    before = field(1, name.encode()) + head(2, len(tensor) + size)
    return head(1, len(before) + len(tensor) + size) + before + tensor


def entry(name: str, dims: tuple[int, ...], kind: str, content: bytes) -> bytes:
    return entry_head(name, dims, kind, len(content)) + content


def file_of(path: Path, *entries: bytes) -> Path:
    path.write_bytes(b"".join(entries))
    return path


def everything(path: Path) -> dict[str, Tensor]:
    return dict(mindspore_format.read(path))
