"""What every optimizer's step has in common, and how much memory a step may take for intermediate results.

A module here makes the step of the optimizer that `settings/optimizers/` has under the same name: `step_of(settings,
masters, applied)`, over float32 masters by name. applied: () float32, the count of steps that moved something, which
`Update` raises before it calls. A step owns its state by parameter name, so that checkpoints restore it by name and in
its own type.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

Item = TypeVar("Item")

CHUNK = 256 * 2**20
"""Bytes that a step may take for copies and intermediate results at once; one tensor alone may need more."""

PIECE = 1 << 24
"""Numbers of which a step that works number by number holds intermediate results at once."""


@dataclass(frozen=True, slots=True)
class StepInputs:
    """One group of parameters, or a chunk of it, and how it is to move: in the order of names, float32 masters, which
    move in place, and their gradients, which may be written over. scale: () what the gradients have to be divided by.
    found_inf: () float32, 1 when nothing may move."""

    names: Sequence[str]
    masters: list[Tensor]
    grads: list[Tensor]
    lr: float
    weight_decay: float
    scale: Tensor
    found_inf: Tensor

    def unscaled(self) -> list[Tensor]:
        """The gradients themselves, in their place; zeros when nothing may move."""
        torch._foreach_div_(self.grads, self.scale)
        for grad in self.grads:
            grad.masked_fill_(self.found_inf > 0, 0.0)
        return self.grads


class OptimizerStep(ABC):
    """What `Update` asks of an optimizer: its step, and its state by the names of parameters.

    is_by_tensor: each tensor moves by itself, so that a group may be moved in chunks to the same bits. reads_on_host:
    `step` asks on the host whether something may move. state: by its name in checkpoints (`opt.STATE/…`) and then by
    parameter, tensors of the parameter's shape.
    """

    is_by_tensor: bool = True
    reads_on_host: bool = False

    def __init__(self, **state: dict[str, Tensor]) -> None:
        self.state = state

    def working_bytes(self, sizes: Sequence[int]) -> int:
        """The bytes of intermediate results that `step` holds at most. sizes: numbers of the tensors that it is given
        at once."""
        return 0

    @abstractmethod
    def step(self, inputs: StepInputs) -> None:
        """One step of one group, in place."""

    def tensors(self) -> dict[str, Tensor]:
        """The state by flat name, `opt.STATE/PART/PARAMETER`."""
        return {f"opt.{kind}/{name}": t for kind, by_name in self.state.items() for name, t in by_name.items()}

    def load(self, tensors: Mapping[str, Tensor], masters: Mapping[str, Tensor]) -> None:
        """Takes back what `tensors` gave."""
        for name, mine in self.tensors().items():
            mine.copy_(tensors[name])

    def state_bytes(self, masters: Mapping[str, Tensor]) -> int:
        """The bytes that the state will have once it stands: what `check` counts before a first step."""
        kinds = self.state.values()
        return sum(kind[name].element_size() * master.numel() for kind in kinds for name, master in masters.items())


def zeros_like(masters: Mapping[str, Tensor], dtype: torch.dtype | None = None) -> dict[str, Tensor]:
    """A state that begins with zeros; dtype: another type than the masters'."""
    return {name: torch.zeros_like(master, dtype=dtype) for name, master in masters.items()}


def in_pieces(*lists: Sequence[Tensor]) -> Iterator[list[list[Tensor]]]:
    """Views of tensors, the same in each list, of at most PIECE numbers together: for rules that know each number by
    itself. A tensor that does not lie in one row of memory stays whole."""
    held: list[list[Tensor]] = [[] for _ in lists]
    room = PIECE
    for alike in zip(*lists, strict=True):
        in_a_row = all(tensor.is_contiguous() for tensor in alike)
        views = [tensor.view(-1).split(PIECE) if in_a_row else (tensor,) for tensor in alike]
        for one in zip(*views, strict=True):
            if held[0] and one[0].numel() > room:
                yield held
                held, room = [[] for _ in lists], PIECE
            for kept, view in zip(held, one, strict=True):
                kept.append(view)
            room -= one[0].numel()
    if held[0]:
        yield held


def chunked(items: Sequence[Item], size: Callable[[Sequence[Item]], int]) -> list[list[Item]]:
    """Neighbours in chunks, as many as stay within CHUNK bytes together; what is larger alone stands alone. size: never
    less with one more."""
    chunks: list[list[Item]] = []
    start = 0
    while start < len(items):
        most = 2  # doubled until too many: what a chunk's end costs grows with the chunk, not with what lies behind it
        while start + most <= len(items) and size(items[start : start + most]) <= CHUNK:
            most *= 2
        counts = range(1, min(most, len(items) - start + 1))
        count = bisect_right(counts, CHUNK, key=lambda count: size(items[start : start + count])) or 1
        chunks.append(list(items[start : start + count]))
        start += count
    return chunks


def cast(tensors: Sequence[Tensor], dtype: torch.dtype) -> list[Tensor]:
    """Copies in another type, in one launch."""
    copies = [torch.empty_like(tensor, dtype=dtype) for tensor in tensors]
    torch._foreach_copy_(copies, list(tensors))
    return copies
