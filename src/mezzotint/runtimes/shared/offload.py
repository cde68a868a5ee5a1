"""Block offload, `run.offload`: weights stay in host memory, and are on the device only while their block computes.

A few neighbouring blocks are on the device at once: the current one, and the next ones, which are copied ahead on a
separate stream; in reverse order in the backward pass. The device tensors of an offloaded block stay alive with an
empty storage, so tensors that autograd saved are valid again when the block is loaded.

When an adapter is trained, frozen weights are offloaded and trained ones stay on the device. When the weights are
trained, master weights, gradients and optimizer state are on the host, and the update is computed there: each gradient
is copied to the host as soon as it is complete.
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

_ALIGNMENT = 64
"""Alignment of each tensor in page-locked memory, in bytes."""


@dataclass(slots=True)
class OffloadedTensor:
    """A tensor of a block. home: on the host. on_device: on the device, with the same values while its storage is
    allocated."""

    home: Tensor
    on_device: Tensor


@dataclass(slots=True)
class Unit:
    """Tensors that are copied together. is_on_device: whether they are on the device. is_stale: whether the host's
    values have changed since."""

    tensors: list[OffloadedTensor] = field(default_factory=list)
    is_on_device: bool = False
    is_stale: bool = False
    arrived: torch.cuda.Event | None = None

    @property
    def bytes(self) -> int:
        """Bytes on the device."""
        return sum(tensor.on_device.nbytes for tensor in self.tensors)


class Offload:
    """device: where blocks compute. at_once: the maximum number of blocks on it."""

    def __init__(self, device: torch.device, at_once: int) -> None:
        self._device, self._at_once = device, at_once
        self._units: list[Unit] = []
        self._rest = Unit()
        self._homes: list[tuple[nn.Parameter, Tensor]] = []
        self._when_arrived: dict[int, list[Callable[[nn.Parameter], None]]] = {}
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._position: tuple[int, bool] | None = None

    def take(
        self,
        parts: Mapping[str, nn.Module],
        blocks: Sequence[tuple[nn.Module, ...]],
        trained: Mapping[str, nn.Parameter],
        weights: torch.dtype | None = None,
    ) -> None:
        """Sets up offload of the blocks' weights; all weights must be on the host. trained: the trained parameters.
        weights: their dtype in the forward pass if they are the parts' weights; None if they belong to an adapter.

        The parameters in `trained` then stay on the host, and the networks get other parameters. Call `settle`
        afterwards.
        """
        moves = {id(p) for p in trained.values()} if weights is not None else set()
        excluded = set() if weights is not None else {id(p) for p in trained.values()}
        counts: dict[int, int] = {}
        for block in blocks:
            for tensor in {id(t): t for t in _tensors(block)}.values():
                counts[id(tensor)] = counts.get(id(tensor), 0) + 1
        excluded |= {key for key, count in counts.items() if count > 1}  # shared by blocks
        for number, block in enumerate(blocks):
            unit = Unit()
            self._units.append(unit)
            self._hold(unit, block, excluded, moves, weights)
            for module in block:
                module.forward = self._wrap_forward(module.forward, number, trains=weights is not None)
        if weights is not None:
            others = {id(t) for t in _tensors(parts.values())} - moves
            self._hold(self._rest, parts.values(), others, moves, weights)
            for part in parts.values():
                part.register_forward_pre_hook(lambda *_: self._refresh())

    def _hold(
        self, unit: Unit, modules: Iterable[nn.Module], excluded: set[int], moves: set[int], weights: torch.dtype | None
    ) -> None:
        replacements: dict[int, Tensor] = {}
        named = [(holder, name, t) for holder, name, t in _named_tensors(modules) if id(t) not in excluded]
        homes = self._copy_to_host([tensor for _, _, tensor in named], weights)
        for holder, name, tensor in named:
            if id(tensor) not in replacements:
                replacements[id(tensor)] = self._replace(unit, tensor, homes[id(tensor)], moves=id(tensor) in moves)
            table: dict[str, Any] = holder._parameters if isinstance(tensor, nn.Parameter) else holder._buffers
            table[name] = replacements[id(tensor)]

    def _replace(self, unit: Unit, tensor: Tensor, home: Tensor, *, moves: bool) -> Tensor:
        """Creates the tensor that replaces another one in its network."""
        on_device = torch.empty_strided(home.size(), home.stride(), dtype=home.dtype, device=self._device)
        placed: Tensor = on_device
        if moves:
            assert isinstance(tensor, nn.Parameter)
            placed = nn.Parameter(on_device)
            placed.register_post_accumulate_grad_hook(partial(self._arrive, unit, tensor))
            self._homes.append((tensor, home))
            if tensor.dtype == home.dtype:
                tensor.data = home
        elif isinstance(tensor, nn.Parameter):
            tensor.data, placed = on_device, tensor
        on_device.untyped_storage().resize_(0)
        # `.data` has a version counter separate from the computation's
        unit.tensors.append(OffloadedTensor(home, placed.data))
        return placed

    def _copy_to_host(self, tensors: Sequence[Tensor], weights: torch.dtype | None) -> dict[int, Tensor]:
        """Host copies of tensors, by their ids; for a GPU in one page-locked buffer, which can be copied during
        computation. weights: dtype of floating-point tensors."""
        every = {id(t): t.data for t in tensors}
        types = {key: weights if weights and t.is_floating_point() else t.dtype for key, t in every.items()}
        if self._stream is None:
            return {key: t.to(types[key]) for key, t in every.items()}
        sizes = [-(-_extent(t) * types[key].itemsize // _ALIGNMENT) * _ALIGNMENT for key, t in every.items()]
        flat = self._allocate_locked(sum(sizes))
        copies = {}
        for (key, t), end, size in zip(every.items(), accumulate(sizes), sizes, strict=True):
            copies[key] = flat[end - size : end].view(types[key]).as_strided(t.size(), t.stride())
            copies[key].copy_(t)
        return copies

    def _allocate_locked(self, size: int) -> Tensor:
        """Page-locked memory of exactly this size in bytes; torch would round it up to a power of two. It stays locked
        for the lifetime of this object. Raises OutOfMemory E1753."""
        flat = torch.empty(size, dtype=torch.uint8)
        if size:
            runtime: Any = torch.cuda.cudart()
            if int(runtime.cudaHostRegister(flat.data_ptr(), size, 0)):
                raise OutOfMemory(
                    f"run.offload.blocks needs {size:,} bytes of page-locked host memory, which the system refused; "
                    "free memory on the host, raise the limit of locked memory (`ulimit -l`), or remove "
                    "run.offload.blocks",
                    code="E1753",
                )
            weakref.finalize(self, runtime.cudaHostUnregister, flat.data_ptr()).atexit = False
        return flat

    def settle(self) -> None:
        """Stores the trained parameters in the dtype of the forward pass from now on; master weights have been
        created."""
        for parameter, home in self._homes:
            parameter.data = home
        self._refresh()

    def when_arrived(self, parameter: nn.Parameter, hook: Callable[[nn.Parameter], None]) -> None:
        """Registers a function that is called when a trained parameter's gradient has arrived on the host."""
        self._when_arrived.setdefault(id(parameter), []).append(hook)

    def refresh_copies(self) -> None:
        """See Runtime: the host's values were changed."""
        for unit in (*self._units, self._rest):
            unit.is_stale = True

    def bytes_on_device(self) -> int:
        """Bytes of blocks on the device."""
        return sum(offloaded.on_device.untyped_storage().nbytes() for unit in self._units for offloaded in unit.tensors)

    def _arrive(self, unit: Unit, home: nn.Parameter, parameter: nn.Parameter) -> None:
        grad, parameter.grad = parameter.grad, None
        assert grad is not None
        on_host = grad.to(home.device, home.grad_dtype or home.dtype)
        home.grad = on_host if home.grad is None else home.grad.add_(on_host)
        unit.is_stale = True
        for hook in self._when_arrived.get(id(home), ()):
            hook(home)

    def _wrap_forward(self, forward: Callable[..., Any], number: int, *, trains: bool) -> Callable[..., Any]:
        def run(*inputs: Any, **named: Any) -> Any:
            self._enter(number, forward=True)
            with self._no_cache() if trains else nullcontext():
                result = forward(*inputs, **named)
            if torch.is_grad_enabled():
                input_ids = {id(leaf) for leaf in tree_leaves((inputs, named))}  # passed through from other blocks
                for leaf in tree_leaves(result):
                    if isinstance(leaf, Tensor) and leaf.requires_grad and id(leaf) not in input_ids:
                        leaf.register_hook(lambda _: self._enter(number, forward=False))
            return result

        return run

    def _no_cache(self) -> AbstractContextManager[Any]:
        """Context without autocast's cache, which would keep a copy of each trained weight until the end of the
        pass."""
        kind = self._device.type
        if not torch.is_autocast_enabled(kind):
            return nullcontext()
        return torch.autocast(kind, torch.get_autocast_dtype(kind), cache_enabled=False)

    def _enter(self, number: int, *, forward: bool) -> None:
        """Called before a block computes: loads it, copies its neighbours ahead, frees the others."""
        if self._position == (number, forward):
            return
        self._position = (number, forward)
        count = min(self._at_once, len(self._units))
        first = min(number, len(self._units) - count) if forward else max(number + 1 - count, 0)
        window = range(first, first + count)
        for index, unit in enumerate(self._units):
            if unit.is_on_device and index not in window:
                _free(unit)
        for index in sorted(window, key=lambda other: abs(other - number)):
            unit = self._units[index]
            if not unit.is_on_device or (unit.is_stale and forward):
                self._load(unit)
        arrived = self._units[number].arrived
        if arrived is not None:
            torch.cuda.current_stream(self._device).wait_event(arrived)

    def _refresh(self) -> None:
        """Updates the tensors that stay on the device with the host's values."""
        self._position = None
        if self._rest.tensors and (self._rest.is_stale or not self._rest.is_on_device):
            self._load(self._rest)
            if self._rest.arrived is not None:
                torch.cuda.current_stream(self._device).wait_event(self._rest.arrived)

    def _load(self, unit: Unit) -> None:
        if self._stream is not None:  # all reads of freed or overwritten memory must be finished
            self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream) if self._stream is not None else nullcontext(), torch.no_grad():
            try:
                for offloaded in unit.tensors:
                    storage = offloaded.on_device.untyped_storage()
                    if not storage.nbytes():
                        storage.resize_(offloaded.on_device.element_size() * _extent(offloaded.on_device))
                    offloaded.on_device.copy_(offloaded.home, non_blocking=True)
            except BaseException:
                _free(unit)
                raise
            unit.is_on_device, unit.is_stale = True, False
            if self._stream is not None:
                unit.arrived = torch.cuda.Event()
                unit.arrived.record(self._stream)


def count_loaded_bytes(blocks: Sequence[int], at_once: int, *, trains: bool) -> int:
    """Bytes of blocks that are copied to the device for a forward and a backward pass, once training runs. blocks:
    bytes of each. at_once: how many are on the device. trains: whether the blocks are trained, so that the forward pass
    loads all of them again."""
    stay = min(at_once, len(blocks))
    forward = sum(blocks) if trains else sum(blocks[stay:])
    return forward + sum(blocks[: len(blocks) - stay])


def _free(unit: Unit) -> None:
    unit.is_on_device = False
    for offloaded in unit.tensors:
        offloaded.on_device.untyped_storage().resize_(0)


def _extent(tensor: Tensor) -> int:
    """The number of elements that a tensor spans in memory."""
    return 1 + sum((size - 1) * stride for size, stride in zip(tensor.size(), tensor.stride(), strict=True))


def _tensors(modules: Iterable[nn.Module]) -> Iterator[Tensor]:
    return (tensor for _, _, tensor in _named_tensors(modules))


def _named_tensors(modules: Iterable[nn.Module]) -> Iterator[tuple[nn.Module, str, Tensor]]:
    """Parameters and buffers with their module and their name in it."""
    for module in modules:
        for holder in module.modules():
            for table in (holder._parameters, holder._buffers):
                for name, tensor in list(table.items()):
                    if tensor is not None and tensor.numel():
                        yield holder, name, tensor
