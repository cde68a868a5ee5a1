"""Byte ranges of tensors in files, and reading them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO

import torch
from torch import Tensor

_BLOCK = 4 << 20


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor of a file. dtype: by safetensors' name ("F32"). torch_dtype: torch's, None if torch has no such type.
    spans: the ranges of its bytes, (offset, count)."""

    dtype: str
    shape: tuple[int, ...]
    spans: tuple[tuple[int, int], ...]
    torch_dtype: torch.dtype | None


def blocks(file: BinaryIO, spans: Iterable[tuple[int, int]]) -> Iterator[bytes]:
    """The bytes of spans of a file, in blocks."""
    for start, count in spans:
        file.seek(start)
        while count > 0 and (block := file.read(min(count, _BLOCK))):
            yield block
            count -= len(block)


def bytes_at(file: BinaryIO, spans: Sequence[tuple[int, int]]) -> Tensor:
    """The bytes of spans in one uint8 tensor. Raises EOFError where the file ends before."""
    raw = torch.empty(sum(count for _, count in spans), dtype=torch.uint8)
    read_into(raw, file, spans)
    return raw


def read_into(raw: Tensor, file: BinaryIO, spans: Sequence[tuple[int, int]]) -> None:
    """Reads the bytes of spans into a uint8 tensor of their size. Raises EOFError where the file ends before, such as
    when another process truncates it."""
    left = memoryview(raw.numpy().data)
    for start, count in spans:
        file.seek(start)
        while count:
            read_count = file.readinto(left[:count])  # type: ignore[attr-defined]
            if not read_count:
                raise EOFError("it is shorter than its header declares")
            left, count = left[read_count:], count - read_count
