"""Many processes, each with the whole model: gradients are summed over them while the backward pass still runs.

Why not torch's DistributedDataParallel: it averages over processes, wants every process to run the same number of
forwards and renames parameters; short batches give processes unequal shares, some of them empty. See
docs/decisions/0003-gradient-exchange.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import Tensor, nn

from mezzotint.recipe.sections.run import RunSettings
from mezzotint.runtimes import base
from mezzotint.runtimes.shared.processes import Processes

_BUCKET_BYTES = 25 * 2**20


class Runtime(Processes):
    """Data parallel over `torch.distributed`: every process has the whole model."""

    def __init__(self, device: torch.device, launch: base.Launch, settings: RunSettings) -> None:
        super().__init__(device, launch, settings)
        self._exchange: _Exchange | None = None

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
        if last:
            self._exchange.begin()
        yield
        if last:
            self._exchange.finish()

    def close(self) -> None:
        """See Processes."""
        self._exchange = None
        super().close()


@dataclass(slots=True)
class _Bucket:
    parameters: list[nn.Parameter]
    flat: Tensor
    waiting: int = 0
    work: dist.Work | None = None
    views: list[Tensor] = field(default_factory=list)


class _Exchange:
    """Sums gradients over processes in buckets, in the order in which the backward pass finishes them.

    Which parameters have a gradient at all is agreed at the first step and stays: those without one are left without,
    as in one process.
    """

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self._parameters = list(parameters)
        self._buckets: list[_Bucket] | None = None
        self._where: dict[int, _Bucket] = {}
        self._active = False
        self._next = 0
        for parameter in self._parameters:
            parameter.register_post_accumulate_grad_hook(self._ready)

    def begin(self) -> None:
        """The last micro-batch of a step starts: from here on a finished gradient may travel."""
        self._active = self._buckets is not None
        self._next = 0
        for bucket in self._buckets or ():
            bucket.waiting = len(bucket.parameters)
            bucket.work = None

    def finish(self) -> None:
        """Sends what has not been sent, waits, and leaves the sums in the parameters' gradients."""
        if self._buckets is None:
            self._buckets = self._arrange()
        for bucket in self._buckets[self._next :]:
            self._send(bucket)
        self._next = 0
        self._active = False
        for bucket in self._buckets:
            assert bucket.work is not None
            bucket.work.wait()
            for parameter, view in zip(bucket.parameters, bucket.views, strict=True):
                parameter.grad = view

    def _ready(self, parameter: nn.Parameter) -> None:
        if not self._active or self._buckets is None:
            return
        bucket = self._where.get(id(parameter))
        assert bucket is not None, "a parameter has its first gradient after the first step"
        bucket.waiting -= 1
        while self._next < len(self._buckets) and self._buckets[self._next].waiting == 0:
            self._send(self._buckets[self._next])
            self._next += 1

    def _send(self, bucket: _Bucket) -> None:
        if any(p.grad is None for p in bucket.parameters):
            bucket.flat.zero_()
        pairs = [(v, p.grad) for v, p in zip(bucket.views, bucket.parameters, strict=True) if p.grad is not None]
        if pairs:
            torch._foreach_copy_([view for view, _ in pairs], [grad for _, grad in pairs])
        bucket.work = dist.all_reduce(bucket.flat, async_op=True)

    def _arrange(self) -> list[_Bucket]:
        """Buckets of parameters that have a gradient on any process, last layers first, one type each."""
        mask = torch.tensor([p.grad is not None for p in self._parameters], dtype=torch.int32)
        dist.all_reduce(mask, op=dist.ReduceOp.MAX)
        live = [p for p, has in zip(self._parameters, mask.tolist(), strict=True) if has]
        groups: list[list[nn.Parameter]] = []
        for parameter in reversed(live):
            size = sum(p.numel() for p in (*groups[-1], parameter)) * parameter.element_size() if groups else 0
            if groups and groups[-1][0].dtype == parameter.dtype and size <= _BUCKET_BYTES:
                groups[-1].append(parameter)
            else:
                groups.append([parameter])
        buckets = [_bucket(group) for group in groups]
        self._where = {id(p): bucket for bucket in buckets for p in bucket.parameters}
        return buckets


def _bucket(parameters: list[nn.Parameter]) -> _Bucket:
    flat = torch.zeros(sum(p.numel() for p in parameters), dtype=parameters[0].dtype, device=parameters[0].device)
    views = [part.view_as(p) for part, p in zip(flat.split([p.numel() for p in parameters]), parameters, strict=True)]
    return _Bucket(parameters, flat, views=views)
