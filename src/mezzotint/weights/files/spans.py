"""Where the bytes of a tensor are in a file, and reading them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO

import torch
from torch import Tensor

_BLOCK = 4 << 20


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor of a file. dtype: in safetensors' words ("F32"), torch_dtype: in torch's, None for what torch has not.
    spans: where its bytes are, (offset, count)."""

    dtype: str
    shape: tuple[int, ...]
    spans: tuple[tuple[int, int], ...]
    torch_dtype: torch.dtype | None


def blocks(file: BinaryIO, spans: Iterable[tuple[int, int]]) -> Iterator[bytes]:
    """The bytes of spans of a file, a few at a time."""
    for start, count in spans:
        file.seek(start)
        while count > 0 and (block := file.read(min(count, _BLOCK))):
            yield block
            count -= len(block)


def bytes_at(file: BinaryIO, spans: Sequence[tuple[int, int]]) -> Tensor:
    """The bytes of spans in one allocation, uint8. Raises EOFError where the file ends before."""
    raw = torch.empty(sum(count for _, count in spans), dtype=torch.uint8)
    read_into(raw, file, spans)
    return raw


def read_into(raw: Tensor, file: BinaryIO, spans: Sequence[tuple[int, int]]) -> None:
    """Reads the bytes of spans into a uint8 tensor of their size. Raises EOFError where the file ends before, as
    one that another process truncates meanwhile does."""
    left = memoryview(raw.numpy().data)
    for start, count in spans:
        file.seek(start)
        while count:
            read_count = file.readinto(left[:count])  # type: ignore[attr-defined]
            if not read_count:
                raise EOFError("it ends before its header says")
            left, count = left[read_count:], count - read_count
