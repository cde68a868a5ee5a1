"""Data parallelism: every process has the full model; gradients are summed while the backward pass is running.

Why not torch's DistributedDataParallel: it averages over processes, requires the same number of forward passes in every
process and renames parameters; short batches are split unequally, with nothing for some processes. See
docs/decisions/0003-gradient-all-reduce.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate

import torch
import torch.distributed as dist
from torch import Tensor, nn

from mezzotint.runtimes import base
from mezzotint.runtimes.shared.processes import Processes
from mezzotint.settings.sections.run import RunSettings

_BUCKET_BYTES = 25 * 2**20


class Runtime(Processes):
    """Data parallelism over `torch.distributed`: every process has the full model."""

    def __init__(self, device: torch.device, launch: base.Launch, settings: RunSettings) -> None:
        super().__init__(device, launch, settings)
        self._exchange: _Exchange | None = None
        self._attached = torch.zeros(0)

    def prepare(
        self,
        parts: Mapping[str, nn.Module],
        trained: Mapping[str, nn.Parameter],
        blocks: Sequence[tuple[nn.Module, ...]] = (),
        weights: torch.dtype = torch.float32,
    ) -> Mapping[str, nn.Parameter]:
        super().prepare(parts, trained)
        with torch.no_grad():
            for parameter in trained.values():
                dist.broadcast(parameter.detach(), src=0)
        self._exchange = _Exchange(list(trained.values()))
        return trained

    @contextmanager
    def micro_batch(self, last: bool) -> Iterator[None]:
        assert self._exchange is not None, "call prepare() first"
        self._exchange.begin(last)
        yield
        if last:
            self.set_phase("waiting for the others' gradients")
            self._exchange.finish(self._attached)

    def join_failed_step(self, smallest: Callable[[], object]) -> None:
        assert self._exchange is not None, "call prepare() first"
        self._exchange.finish(self._attached)

    def read_allreduced(self) -> Tensor:
        assert self._exchange is not None, "call prepare() first"
        summed = self._exchange.extra
        return super().read_allreduced() if summed is None else summed

    def repeat_step(self) -> None:
        assert self._exchange is not None, "call prepare() first"
        self._exchange.repeat_step()

    def close(self) -> None:
        """See Processes."""
        self._exchange = None
        super().close()


@dataclass(slots=True)
class _Bucket:
    """Parameters that are neighbours in the order of readiness. views: slices of `flat`, the gradient of each
    parameter. extra: the values after them."""

    parameters: list[nn.Parameter]
    flat: Tensor
    views: list[Tensor]
    extra: Tensor
    waiting: int = 0
    work: dist.Work | None = None


class _Exchange:
    """Sums gradients over processes in buckets, in the order in which the backward pass finishes them.

    Which parameters have a gradient, and in which order rank 0 finishes them, is agreed in the first step and stays
    fixed: parameters without a gradient keep none, as in a single process. From then on gradients are views of the
    buckets and accumulate in them.

    The last bucket has room for a few more values and is sent at the end of the micro-batch, so they cover everything
    that happens in it.
    """

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self._parameters = list(parameters)
        self._number = {id(p): number for number, p in enumerate(self._parameters)}
        self._order: dict[int, None] = {}
        self._buckets: list[_Bucket] | None = None
        self._bucket_of: dict[int, _Bucket] = {}
        self._step_is_open = self._is_last = self._is_new = False
        self._next = 0
        self.extra: Tensor | None = None
        """The values summed with the last bucket; None if it has room for another number of values, or there is no
        bucket."""
        for parameter in self._parameters:
            parameter.register_post_accumulate_grad_hook(self._on_gradient)

    def begin(self, last: bool) -> None:
        """Starts a micro-batch. last: of the step; finished gradients are then sent."""
        self._is_last = last
        if not self._step_is_open:
            self._step_is_open, self._is_new = True, False
            for bucket in self._buckets or ():
                bucket.flat.zero_()
                bucket.waiting = len(bucket.parameters)
                for parameter, view in zip(bucket.parameters, bucket.views, strict=True):
                    parameter.grad = view

    def finish(self, extra: Tensor) -> None:
        """Sends the remaining buckets, waits, and leaves the sums in the parameters' gradients. extra: (n,) float32, n
        the same in every step; the sums are then in `extra`."""
        if self._buckets is None:
            self._buckets = self._arrange(len(extra))
            self._is_new = True
        room = self._buckets[-1].extra if self._buckets else extra[:0]
        fits = len(extra) == len(room) and room.dtype == extra.dtype
        if fits:
            room.copy_(extra)
        self.extra = room if fits else None
        while self._next < len(self._buckets):
            self._send()
        self._next = 0
        self._step_is_open = False
        for bucket in self._buckets:
            assert bucket.work is not None
            bucket.work.wait()

    def repeat_step(self) -> None:
        """Called after a failed step: an order agreed in it is discarded, because a process did not finish the step."""
        if self._is_new:
            self._buckets, self._bucket_of, self._order = None, {}, {}

    def _on_gradient(self, parameter: nn.Parameter) -> None:
        if self._buckets is None:
            self._order[self._number[id(parameter)]] = None
        elif self._is_last:
            bucket = self._bucket_of.get(id(parameter))
            assert bucket is not None, "a parameter has its first gradient after the first step"
            bucket.waiting -= 1
            while self._next < len(self._buckets) - 1 and self._buckets[self._next].waiting == 0:
                self._send()

    def _send(self) -> None:
        assert self._buckets is not None
        bucket = self._buckets[self._next]
        bucket.work = dist.all_reduce(bucket.flat, async_op=True)
        self._next += 1

    def _arrange(self, extra: int) -> list[_Bucket]:
        """Buckets of the parameters that have a gradient on any process, containing this step's gradients. extra:
        additional values in the last one."""
        count = len(self._parameters)
        mask = torch.tensor([p.grad is not None for p in self._parameters], dtype=torch.int32)
        dist.all_reduce(mask, op=dist.ReduceOp.MAX)
        rest = (number for number in reversed(range(count)) if number not in self._order)
        order = torch.tensor([*self._order, *rest], dtype=torch.int64)
        dist.broadcast(order, src=0)
        live = [self._parameters[number] for number in order.tolist() if mask[number]]
        groups = _group_by_size(live)
        buckets = [_fill_bucket(group, extra if group is groups[-1] else 0) for group in groups]
        self._bucket_of = {id(p): bucket for bucket in buckets for p in bucket.parameters}
        return buckets


def _group_by_size(parameters: Sequence[nn.Parameter]) -> list[list[nn.Parameter]]:
    """Groups of neighbours with the same dtype, up to the size of a bucket."""
    groups: list[list[nn.Parameter]] = []
    size = 0
    for parameter in parameters:
        size += _num_bytes(parameter)
        if groups and _grad_dtype(groups[-1][0]) == _grad_dtype(parameter) and size <= _BUCKET_BYTES:
            groups[-1].append(parameter)
        else:
            groups.append([parameter])
            size = _num_bytes(parameter)
    return groups


def _num_bytes(parameter: nn.Parameter) -> int:
    return parameter.numel() * _grad_dtype(parameter).itemsize


def _grad_dtype(parameter: nn.Parameter) -> torch.dtype:
    """The dtype of a parameter's gradient."""
    return parameter.grad_dtype or parameter.dtype


def _fill_bucket(parameters: list[nn.Parameter], extra: int) -> _Bucket:
    """A bucket with the existing gradients, which become views of it, and room for `extra` values after them."""
    sizes = [p.numel() for p in parameters]
    flat = torch.zeros(sum(sizes) + extra, dtype=_grad_dtype(parameters[0]), device=parameters[0].device)
    # with the strides of the parameters
    views = [
        flat.as_strided(p.size(), p.stride(), end - p.numel())
        for p, end in zip(parameters, accumulate(sizes), strict=True)
    ]
    for parameter, view in zip(parameters, views, strict=True):
        if parameter.grad is not None:
            view.copy_(parameter.grad)
        parameter.grad = view
    return _Bucket(parameters, flat, views, flat[sum(sizes) :])
