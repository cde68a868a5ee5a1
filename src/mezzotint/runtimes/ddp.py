"""Many processes, each with the whole model: gradients are summed over them while the backward pass still runs.

Why not torch's DistributedDataParallel: it averages over processes, wants every process to run the same number of
forwards and renames parameters; short batches give processes unequal shares, some of them empty. See
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
    """Data parallel over `torch.distributed`: every process has the whole model."""

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
        assert self._exchange is not None, "prepare() comes first"
        self._exchange.begin(last)
        yield
        if last:
            self.set_phase("waiting for the others' gradients")
            self._exchange.finish(self._attached)

    def join_failed_step(self, smallest: Callable[[], object]) -> None:
        assert self._exchange is not None, "prepare() comes first"
        self._exchange.finish(self._attached)

    def allreduced(self) -> Tensor:
        assert self._exchange is not None, "prepare() comes first"
        summed = self._exchange.extra
        return super().allreduced() if summed is None else summed

    def repeat_step(self) -> None:
        assert self._exchange is not None, "prepare() comes first"
        self._exchange.repeat_step()

    def close(self) -> None:
        """See Processes."""
        self._exchange = None
        super().close()


@dataclass(slots=True)
class _Bucket:
    """Neighbours in the order of readiness. views: of `flat`, a parameter's gradient each. extra: what lies behind
    them."""

    parameters: list[nn.Parameter]
    flat: Tensor
    views: list[Tensor]
    extra: Tensor
    waiting: int = 0
    work: dist.Work | None = None


class _Exchange:
    """Sums gradients over processes in buckets, in the order in which the backward pass finishes them.

    Which parameters have a gradient at all, and in which order the first process finishes them, is agreed at the first
    step and stays: those without one are left without, as in one process. From then on gradients grow in the buckets
    themselves, of which they are views.

    The last bucket has room for a few numbers more, and travels when the micro-batch is through, so that nothing that
    happens in it comes after them.
    """

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self._parameters = list(parameters)
        self._number = {id(p): number for number, p in enumerate(self._parameters)}
        self._order: dict[int, None] = {}
        self._buckets: list[_Bucket] | None = None
        self._where: dict[int, _Bucket] = {}
        self._step_is_open = self._is_last = self._is_new = False
        self._next = 0
        self.extra: Tensor | None = None
        """What has come with the last bucket; None where it takes other numbers, or there is none."""
        for parameter in self._parameters:
            parameter.register_post_accumulate_grad_hook(self._ready)

    def begin(self, last: bool) -> None:
        """A micro-batch starts. last: of the step, from where on a finished gradient may travel."""
        self._is_last = last
        if not self._step_is_open:
            self._step_is_open, self._is_new = True, False
            for bucket in self._buckets or ():
                bucket.flat.zero_()
                bucket.waiting = len(bucket.parameters)
                for parameter, view in zip(bucket.parameters, bucket.views, strict=True):
                    parameter.grad = view

    def finish(self, extra: Tensor) -> None:
        """Sends what has not been sent, waits, and leaves the sums in the parameters' gradients. extra: (n,) float32,
        as many in every step, whose sums are then in `extra`."""
        if self._buckets is None:
            self._buckets = self._arrange(len(extra))
            self._is_new = True
        place = self._buckets[-1].extra if self._buckets else extra[:0]
        fits = len(extra) == len(place) and place.dtype == extra.dtype
        if fits:
            place.copy_(extra)
        self.extra = place if fits else None
        while self._next < len(self._buckets):
            self._send()
        self._next = 0
        self._step_is_open = False
        for bucket in self._buckets:
            assert bucket.work is not None
            bucket.work.wait()

    def repeat_step(self) -> None:
        """The step failed: an order that was agreed in it is of a process that did not come to its end."""
        if self._is_new:
            self._buckets, self._where, self._order = None, {}, {}

    def _ready(self, parameter: nn.Parameter) -> None:
        if self._buckets is None:
            self._order[self._number[id(parameter)]] = None
        elif self._is_last:
            bucket = self._where.get(id(parameter))
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
        """Buckets of parameters that have a gradient on any process, with the gradients of this step in them. extra:
        numbers that the last one has room for besides."""
        count = len(self._parameters)
        mask = torch.tensor([p.grad is not None for p in self._parameters], dtype=torch.int32)
        dist.all_reduce(mask, op=dist.ReduceOp.MAX)
        rest = (number for number in reversed(range(count)) if number not in self._order)
        order = torch.tensor([*self._order, *rest], dtype=torch.int64)
        dist.broadcast(order, src=0)
        live = [self._parameters[number] for number in order.tolist() if mask[number]]
        groups = _in_groups(live)
        buckets = [_bucket(group, extra if group is groups[-1] else 0) for group in groups]
        self._where = {id(p): bucket for bucket in buckets for p in bucket.parameters}
        return buckets


def _in_groups(parameters: Sequence[nn.Parameter]) -> list[list[nn.Parameter]]:
    """Neighbours of one type, up to the size of a bucket."""
    groups: list[list[nn.Parameter]] = []
    size = 0
    for parameter in parameters:
        size += _size(parameter)
        if groups and _type(groups[-1][0]) == _type(parameter) and size <= _BUCKET_BYTES:
            groups[-1].append(parameter)
        else:
            groups.append([parameter])
            size = _size(parameter)
    return groups


def _size(parameter: nn.Parameter) -> int:
    return parameter.numel() * _type(parameter).itemsize


def _type(parameter: nn.Parameter) -> torch.dtype:
    """Of its gradient."""
    return parameter.grad_dtype or parameter.dtype


def _bucket(parameters: list[nn.Parameter], extra: int) -> _Bucket:
    """With the gradients that are there, which become views of it, and room for `extra` numbers behind them."""
    sizes = [p.numel() for p in parameters]
    flat = torch.zeros(sum(sizes) + extra, dtype=_type(parameters[0]), device=parameters[0].device)
    # in the order in which the parameters lie in memory themselves
    views = [
        flat.as_strided(p.size(), p.stride(), end - p.numel())
        for p, end in zip(parameters, accumulate(sizes), strict=True)
    ]
    for parameter, view in zip(parameters, views, strict=True):
        if parameter.grad is not None:
            view.copy_(parameter.grad)
        parameter.grad = view
    return _Bucket(parameters, flat, views, flat[sum(sizes) :])
