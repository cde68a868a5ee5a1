"""The interface of optimizer steps, and the memory limit for their intermediate results.

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
"""Bytes that a step may use for copies and intermediate results at once; a single tensor may need more."""

PIECE = 1 << 24
"""Number of elements for which an elementwise step holds intermediate results at once."""


@dataclass(frozen=True, slots=True)
class StepInputs:
    """A group of parameters, or a chunk of it. masters: float32, in the order of names, updated in place. grads: their
    gradients, which may be overwritten. scale: () divisor of the gradients. found_inf: () float32, 1 if nothing may
    change."""

    names: Sequence[str]
    masters: list[Tensor]
    grads: list[Tensor]
    lr: float
    weight_decay: float
    scale: Tensor
    found_inf: Tensor

    def unscale(self) -> list[Tensor]:
        """Divides the gradients by the scale in place and returns them; zeros if found_inf is 1."""
        torch._foreach_div_(self.grads, self.scale)
        for grad in self.grads:
            grad.masked_fill_(self.found_inf > 0, 0.0)
        return self.grads


class OptimizerStep(ABC):
    """The interface that `Update` uses: an optimizer's step, and its state by parameter name.

    is_by_tensor: each tensor is updated independently, so updating a group in chunks is bitwise identical.
    reads_on_host: `step` reads found_inf on the host. has_evaluation_weights: gradients are taken at the masters, and
    other weights are evaluated and exported. state: by its name in checkpoints (`opt.STATE/…`) and then by parameter,
    tensors of the parameter's shape.
    """

    is_by_tensor: bool = True
    reads_on_host: bool = False
    has_evaluation_weights: bool = False

    def __init__(self, **state: dict[str, Tensor]) -> None:
        self.state = state

    def working_bytes(self, sizes: Sequence[int]) -> int:
        """Peak of bytes of intermediate results of `step`. sizes: numbers of elements of the tensors passed at once."""
        return 0

    def begin_step(self, lr: float, found_inf: Tensor) -> None:  # noqa: B027 (most have nothing to do)
        """Called once per step, before its groups. lr: the highest rate of a group. found_inf: as in `StepInputs`."""

    def evaluation_weights(self, masters: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """The weights to evaluate and export, float32: the masters, or with `has_evaluation_weights` new tensors.
        Changes neither masters nor state."""
        return masters

    @abstractmethod
    def step(self, inputs: StepInputs) -> None:
        """Performs one step of one group, in place."""

    def tensors(self) -> dict[str, Tensor]:
        """The state by flat name, `opt.STATE/PART/PARAMETER`."""
        return {f"opt.{kind}/{name}": t for kind, by_name in self.state.items() for name, t in by_name.items()}

    def load(self, tensors: Mapping[str, Tensor], masters: Mapping[str, Tensor]) -> None:
        """Restores a result of `tensors`."""
        for name, tensor in self.tensors().items():
            tensor.copy_(tensors[name])

    def state_bytes(self, masters: Mapping[str, Tensor]) -> int:
        """The bytes of the complete state, also before the first step (for `check`)."""
        kinds = self.state.values()
        return sum(kind[name].element_size() * master.numel() for kind in kinds for name, master in masters.items())


def zeros_like(masters: Mapping[str, Tensor], dtype: torch.dtype | None = None) -> dict[str, Tensor]:
    """An initial state of zeros. dtype: overrides that of the masters."""
    return {name: torch.zeros_like(master, dtype=dtype) for name, master in masters.items()}


def in_pieces(*lists: Sequence[Tensor]) -> Iterator[list[list[Tensor]]]:
    """Yields corresponding views of the tensors in each list, of at most PIECE elements together, for elementwise
    rules. A tensor that is not contiguous is not split."""
    pieces: list[list[Tensor]] = [[] for _ in lists]
    room = PIECE
    for tensors in zip(*lists, strict=True):
        are_contiguous = all(tensor.is_contiguous() for tensor in tensors)
        splits = [tensor.view(-1).split(PIECE) if are_contiguous else (tensor,) for tensor in tensors]
        for views in zip(*splits, strict=True):
            if pieces[0] and views[0].numel() > room:
                yield pieces
                pieces, room = [[] for _ in lists], PIECE
            for piece, view in zip(pieces, views, strict=True):
                piece.append(view)
            room -= views[0].numel()
    if pieces[0]:
        yield pieces


def split_into_chunks(items: Sequence[Item], size: Callable[[Sequence[Item]], int]) -> list[list[Item]]:
    """Groups consecutive items into chunks of at most CHUNK bytes; a larger item is a chunk by itself. size: bytes of
    items; never decreases with more items."""
    chunks: list[list[Item]] = []
    start = 0
    while start < len(items):
        max_items = 2  # doubled until too many: the search costs grow with the chunk, not with the remaining items
        while start + max_items <= len(items) and size(items[start : start + max_items]) <= CHUNK:
            max_items *= 2
        counts = range(1, min(max_items, len(items) - start + 1))
        count = bisect_right(counts, CHUNK, key=lambda count: size(items[start : start + count])) or 1
        chunks.append(list(items[start : start + count]))
        start += count
    return chunks


def cast(tensors: Sequence[Tensor], dtype: torch.dtype) -> list[Tensor]:
    """Copies in another dtype, in one launch."""
    copies = [torch.empty_like(tensor, dtype=dtype) for tensor in tensors]
    torch._foreach_copy_(copies, list(tensors))
    return copies
