"""Blocks whose weights lie in the host's memory, and on the device for as long as they compute: `run.offload`.

A few neighbouring blocks are on the device at once: the one that computes, and those that come next, which are sent
ahead on a stream of their own; in the backward pass the other way round. What the device had of a block keeps its place
and loses its memory, so that whatever autograd has saved of a weight is whole again when the block comes back.

Of an adapter the frozen weights travel, and what is trained stays on the device. Where the weights themselves are
trained, masters, gradients and the optimizer's states are the host's, and the update is computed there: each gradient
goes there as soon as it is whole.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from mezzotint.errors import OutOfMemory

_ALIGNED = 64
"""Bytes of which each tensor's place in page-locked memory is a multiple."""


@dataclass(slots=True)
class Held:
    """A tensor of a block. home: on the host. here: on the device, of the same values while it has memory."""

    home: Tensor
    here: Tensor


@dataclass(slots=True)
class Unit:
    """What travels together. is_here: whether it has memory on the device. is_stale: whether the host's values have
    moved since."""

    held: list[Held] = field(default_factory=list)
    is_here: bool = False
    is_stale: bool = False
    arrived: torch.cuda.Event | None = None

    @property
    def bytes(self) -> int:
        """On the device."""
        return sum(one.here.nbytes for one in self.held)


class Offload:
    """device: where blocks compute. at_once: how many of them are there at most."""

    def __init__(self, device: torch.device, at_once: int) -> None:
        self._device, self._at_once = device, at_once
        self._units: list[Unit] = []
        self._rest = Unit()
        self._homes: list[tuple[nn.Parameter, Tensor]] = []
        self._when_arrived: dict[int, list[Callable[[nn.Parameter], None]]] = {}
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._place: tuple[int, bool] | None = None

    def take(
        self,
        parts: Mapping[str, nn.Module],
        blocks: Sequence[tuple[nn.Module, ...]],
        trained: Mapping[str, nn.Parameter],
        weights: torch.dtype | None = None,
    ) -> None:
        """Takes the blocks' weights to the host, where all weights are by now. trained: what is trained. weights: where
        those are the parts' own, the type in which the passes want them; None where they are an adapter's.

        The parameters of `trained` are then the host's, and others in their place in the networks. `settle` ends it.
        """
        moves = {id(p) for p in trained.values()} if weights is not None else set()
        stays = set() if weights is not None else {id(p) for p in trained.values()}
        counts: dict[int, int] = {}
        for block in blocks:
            for one in {id(t): t for t in _tensors(block)}.values():
                counts[id(one)] = counts.get(id(one), 0) + 1
        stays |= {key for key, count in counts.items() if count > 1}  # shared by blocks
        for number, block in enumerate(blocks):
            unit = Unit()
            self._units.append(unit)
            self._hold(unit, block, stays, moves, weights)
            for module in block:
                module.forward = self._gated(module.forward, number, trains=weights is not None)
        if weights is not None:
            others = {id(t) for t in _tensors(parts.values())} - moves
            self._hold(self._rest, parts.values(), others, moves, weights)
            for part in parts.values():
                part.register_forward_pre_hook(lambda *_: self._refresh())

    def _hold(
        self, unit: Unit, modules: Iterable[nn.Module], stays: set[int], moves: set[int], weights: torch.dtype | None
    ) -> None:
        seen: dict[int, Tensor] = {}
        places = [(holder, name, t) for holder, name, t in _places(modules) if id(t) not in stays]
        homes = self._laid([tensor for _, _, tensor in places], weights)
        for holder, name, tensor in places:
            if id(tensor) not in seen:
                seen[id(tensor)] = self._sent(unit, tensor, homes[id(tensor)], moves=id(tensor) in moves)
            table: dict[str, Any] = holder._parameters if isinstance(tensor, nn.Parameter) else holder._buffers
            table[name] = seen[id(tensor)]

    def _sent(self, unit: Unit, tensor: Tensor, home: Tensor, *, moves: bool) -> Tensor:
        """What takes a tensor's place in its network."""
        here = torch.empty_strided(home.size(), home.stride(), dtype=home.dtype, device=self._device)
        placed: Tensor = here
        if moves:
            assert isinstance(tensor, nn.Parameter)
            placed = nn.Parameter(here)
            placed.register_post_accumulate_grad_hook(partial(self._arrive, unit, tensor))
            self._homes.append((tensor, home))
            if tensor.dtype == home.dtype:
                tensor.data = home
        elif isinstance(tensor, nn.Parameter):
            tensor.data, placed = here, tensor
        here.untyped_storage().resize_(0)
        unit.held.append(Held(home, placed.data))  # which counts its versions apart from what computes
        return placed

    def _laid(self, tensors: Sequence[Tensor], weights: torch.dtype | None) -> dict[int, Tensor]:
        """The values of tensors on the host, by their ids; for a GPU one after the other in page-locked memory, from
        where they can be sent while it computes. weights: type of all that is floating."""
        every = {id(t): t.data for t in tensors}
        types = {key: weights if weights and t.is_floating_point() else t.dtype for key, t in every.items()}
        if self._stream is None:
            return {key: t.to(types[key]) for key, t in every.items()}
        sizes = [-(-_extent(t) * types[key].itemsize // _ALIGNED) * _ALIGNED for key, t in every.items()]
        flat = self._locked(sum(sizes))
        laid = {}
        for (key, t), end, size in zip(every.items(), accumulate(sizes), sizes, strict=True):
            laid[key] = flat[end - size : end].view(types[key]).as_strided(t.size(), t.stride())
            laid[key].copy_(t)
        return laid

    def _locked(self, size: int) -> Tensor:
        """Page-locked memory, of no more bytes than asked for; torch's own is rounded up to a power of two. It is
        locked for as long as this object is there. Raises OutOfMemory E1753."""
        flat = torch.empty(size, dtype=torch.uint8)
        if size:
            runtime: Any = torch.cuda.cudart()
            if int(runtime.cudaHostRegister(flat.data_ptr(), size, 0)):
                raise OutOfMemory(
                    f"run.offload.blocks needs {size:,} bytes of host memory that stay where they are (locked memory), "
                    "and the system refuses them; free memory on the host, raise the limit of locked memory (`ulimit "
                    "-l`), or leave run.offload.blocks out",
                    code="E1753",
                )
            weakref.finalize(self, runtime.cudaHostUnregister, flat.data_ptr()).atexit = False
        return flat

    def settle(self) -> None:
        """The trained parameters lie in the type in which they travel from now on; their masters have been taken."""
        for parameter, home in self._homes:
            parameter.data = home
        self._refresh()

    def when_arrived(self, parameter: nn.Parameter, hook: Callable[[nn.Parameter], None]) -> None:
        """Calls a function when a trained parameter's gradient has come to the host."""
        self._when_arrived.setdefault(id(parameter), []).append(hook)

    def written(self) -> None:
        """See Runtime: the host's values were written."""
        for unit in (*self._units, self._rest):
            unit.is_stale = True

    def bytes_here(self) -> int:
        """Of blocks, on the device."""
        return sum(one.here.untyped_storage().nbytes() for unit in self._units for one in unit.held)

    def _arrive(self, unit: Unit, home: nn.Parameter, parameter: nn.Parameter) -> None:
        grad, parameter.grad = parameter.grad, None
        assert grad is not None
        sent = grad.to(home.device, home.grad_dtype or home.dtype)
        home.grad = sent if home.grad is None else home.grad.add_(sent)
        unit.is_stale = True
        for hook in self._when_arrived.get(id(home), ()):
            hook(home)

    def _gated(self, forward: Callable[..., Any], number: int, *, trains: bool) -> Callable[..., Any]:
        def run(*inputs: Any, **named: Any) -> Any:
            self._enter(number, forward=True)
            with self._no_cache() if trains else nullcontext():
                result = forward(*inputs, **named)
            if torch.is_grad_enabled():
                shown = {id(one) for one in tree_leaves((inputs, named))}  # what is handed through is of another block
                for one in tree_leaves(result):
                    if isinstance(one, Tensor) and one.requires_grad and id(one) not in shown:
                        one.register_hook(lambda _: self._enter(number, forward=False))
            return result

        return run

    def _no_cache(self) -> AbstractContextManager[Any]:
        """Autocast would keep its copy of each trained weight to the end of the pass."""
        kind = self._device.type
        if not torch.is_autocast_enabled(kind):
            return nullcontext()
        return torch.autocast(kind, torch.get_autocast_dtype(kind), cache_enabled=False)

    def _enter(self, number: int, *, forward: bool) -> None:
        """A block is to compute: it is brought, its neighbours are sent ahead, others are let go."""
        if self._place == (number, forward):
            return
        self._place = (number, forward)
        most = min(self._at_once, len(self._units))
        first = min(number, len(self._units) - most) if forward else max(number + 1 - most, 0)
        window = range(first, first + most)
        for place, unit in enumerate(self._units):
            if unit.is_here and place not in window:
                _let_go(unit)
        for place in sorted(window, key=lambda one: abs(one - number)):
            unit = self._units[place]
            if not unit.is_here or (unit.is_stale and forward):
                self._bring(unit)
        arrived = self._units[number].arrived
        if arrived is not None:
            torch.cuda.current_stream(self._device).wait_event(arrived)

    def _refresh(self) -> None:
        """What stays on the device takes over the host's values."""
        self._place = None
        if self._rest.held and (self._rest.is_stale or not self._rest.is_here):
            self._bring(self._rest)
            if self._rest.arrived is not None:
                torch.cuda.current_stream(self._device).wait_event(self._rest.arrived)

    def _bring(self, unit: Unit) -> None:
        if self._stream is not None:  # of what was let go, and of what is written over, nothing is read any more
            self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream) if self._stream is not None else nullcontext(), torch.no_grad():
            try:
                for one in unit.held:
                    storage = one.here.untyped_storage()
                    if not storage.nbytes():
                        storage.resize_(one.here.element_size() * _extent(one.here))
                    one.here.copy_(one.home, non_blocking=True)
            except BaseException:
                _let_go(unit)
                raise
            unit.is_here, unit.is_stale = True, False
            if self._stream is not None:
                unit.arrived = torch.cuda.Event()
                unit.arrived.record(self._stream)


def _let_go(unit: Unit) -> None:
    unit.is_here = False
    for one in unit.held:
        one.here.untyped_storage().resize_(0)


def _extent(tensor: Tensor) -> int:
    """How many numbers a tensor spans in memory."""
    return 1 + sum((size - 1) * stride for size, stride in zip(tensor.size(), tensor.stride(), strict=True))


def _tensors(modules: Iterable[nn.Module]) -> Iterator[Tensor]:
    return (tensor for _, _, tensor in _places(modules))


def _places(modules: Iterable[nn.Module]) -> Iterator[tuple[nn.Module, str, Tensor]]:
    """Parameters and buffers with the module that has them and their name there."""
    for module in modules:
        for holder in module.modules():
            for table in (holder._parameters, holder._buffers):
                for name, tensor in list(table.items()):
                    if tensor is not None and tensor.numel():
                        yield holder, name, tensor
