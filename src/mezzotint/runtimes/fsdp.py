"""Sharded data parallelism with torch's FSDP2 (`fully_shard`): each process keeps its rows of every trained tensor, of
the gradient, optimizer state and EMA, and gathers a block's weights when it computes with it.

    run.shard.parameters=true    a block's weights are freed after its forward pass and gathered again for backward
    run.shard.parameters=false   weights stay gathered until backward; gradients and optimizer state are sharded
    run.shard.group=G            sharded over groups of G neighbouring processes, replicated between the groups

The optimizer gets plain tensors: this process's rows, in the storage of the library's shards. Frozen parts are not
sharded. Gradients are summed, as in every runtime.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.fsdp._fully_shard._fsdp_api import AllGather, ReduceScatter
from torch.distributed.tensor import DTensor

from mezzotint.errors import RecipeError, WeightsError
from mezzotint.runtimes import base
from mezzotint.runtimes.shared.processes import Processes
from mezzotint.settings.sections.run import RunSettings, ShardSettings
from mezzotint.weights.folder import state

_SHARD = "shard"


class Runtime(Processes):
    """Sharded data parallel: NCCL between GPUs, gloo between CPUs."""

    holds_masters = True

    def __init__(self, device: torch.device, launch: base.Launch, settings: RunSettings) -> None:
        group = group_size(settings.shard, launch.world_size)
        super().__init__(device, launch, settings)
        self._reshard = settings.shard.parameters
        # torch from 2.13 on can reset a failed pass, but not gradients that are summed over groups, or later
        self.may_repeat = hasattr(FSDPModule, "reset_iter_state") and self._reshard and group == launch.world_size
        self._counter = _ExchangeCounter()
        self._mesh = _mesh(device, launch.world_size, group)
        self.is_writer = launch.rank < group
        self._roots: list[FSDPModule] = []
        self._units: list[FSDPModule] = []
        self._sharded: dict[str, nn.Parameter] = {}
        self._local: dict[str, nn.Parameter] = {}

    def prepare(
        self,
        parts: Mapping[str, nn.Module],
        trained: Mapping[str, nn.Parameter],
        blocks: Sequence[tuple[nn.Module, ...]] = (),
        weights: torch.dtype = torch.float32,
    ) -> Mapping[str, nn.Parameter]:
        trained_parts = dict.fromkeys(name.split("/")[0] for name in trained)
        for name, part in parts.items():
            if name not in trained_parts:
                part.to(self.device)
        with torch.no_grad():
            for parameter in (p for p in trained.values() if not p.is_meta):
                values = parameter.detach().to(self.device)
                dist.broadcast(values, src=0)
                parameter.copy_(values)
        policy = MixedPrecisionPolicy(
            param_dtype=None if weights == torch.float32 else weights,
            reduce_dtype=torch.float32,
            cast_forward_inputs=False,  # sizes passed as numbers are exact only in float32
        )
        names = {id(p): f"{name}/{path}" for name, part in parts.items() for path, p in part.named_parameters()}
        network_names = {name: names[id(parameter)] for name, parameter in trained.items()}
        of_trained_parts = {id(p) for name in trained_parts for p in parts[name].parameters()}
        for block in blocks:
            if any(id(p) in of_trained_parts for module in block for p in module.parameters()):
                self._shard(list(block), policy)
        for name in trained_parts:
            self._roots.append(self._shard([parts[name]], policy))
            self._fill(parts[name])
        self._units = [unit for name in trained_parts for unit in parts[name].modules() if isinstance(unit, FSDPModule)]
        for unit in self._units:
            unit.set_gradient_divide_factor(1.0)
            unit.set_force_sum_reduction_for_comms(True)
            unit.set_custom_all_gather(_CountedAllGather(self._counter))
            unit.set_custom_reduce_scatter(_CountedReduceScatter(self._counter))
        self._create_local_parameters(parts, network_names)
        return self._local

    def _shard(self, modules: list[nn.Module], policy: MixedPrecisionPolicy) -> FSDPModule:
        fully_shard(modules, mesh=self._mesh, reshard_after_forward=self._reshard, mp_policy=policy)
        return cast(FSDPModule, modules[-1])

    def _fill(self, part: nn.Module) -> None:
        """Reads this process's rows of a part that was opened without values. Raises WeightsError E1485 if another
        process sees different weights."""
        filling = state.get_deferred_filling(part)
        if filling is None:
            return
        sample = filling.sample()
        if self.agree(self.share(sample) != sample):
            raise WeightsError(
                "the processes of this run see different weights under the same name; put the same model on every "
                "machine and start again",
                code="E1485",
            )
        part._apply(lambda t: torch.empty_like(t, device=self.device) if t.is_meta else t.to(self.device))
        rank, group = int(self._mesh[_SHARD].get_local_rank()), int(self._mesh[_SHARD].size())
        rows = {name: _tensor(parameter).to_local() for name, parameter in part.named_parameters()}
        shapes = {name: tuple(parameter.shape) for name, parameter in part.named_parameters()}
        shares = {name: _share(shapes[name], len(local), rank, group) for name, local in rows.items() if len(local)}
        with torch.no_grad():
            for name, values in filling.rows({name: slice(s.start, s.stop) for name, s in shares.items()}):
                rows[name].copy_(values)

    def _create_local_parameters(self, parts: Mapping[str, nn.Module], network_names: Mapping[str, str]) -> None:
        """Creates plain parameters that share storage with the library's rows. network_names: by a trained parameter's
        name its name in the network, prefixed with the part."""
        parameters = {f"{part}/{name}": p for part, module in parts.items() for name, p in module.named_parameters()}
        self._sharded = {name: parameters[path] for name, path in network_names.items()}
        rank, group = int(self._mesh[_SHARD].get_local_rank()), int(self._mesh[_SHARD].size())
        shares = {}
        for name, parameter in self._sharded.items():
            rows = _tensor(parameter).to_local()
            self._local[name] = nn.Parameter(rows.detach(), requires_grad=True)
            shares[name] = _share(tuple(parameter.shape), len(rows), rank, group)
        self.shares = shares

    @contextmanager
    def micro_batch(self, last: bool) -> Iterator[None]:
        for root in self._roots:
            # unsharded gradients stay on the device until they are exchanged: to save memory, exchange at once
            root.set_requires_gradient_sync(last or self._reshard)
        yield
        self._counter.end(last)
        # move the gradients of this process's rows to the plain parameters
        for name, parameter in self._sharded.items() if last else ():
            grad, parameter.grad = parameter.grad, None
            has_rows = grad is not None and self._local[name].numel() > 0
            self._local[name].grad = _tensor(grad).to_local() if grad is not None and has_rows else None

    def join_failed_step(self, smallest: Callable[[], object]) -> None:
        """See Runtime. Blocks are gathered and gradients exchanged in the middle of a pass: passes over one sample
        perform the remaining exchanges, and skip those that were made already."""
        for root in self._roots:
            root.reset_iter_state()
        self._clear_grads()
        self._counter.skip_made()
        smallest()
        self._clear_grads()
        self._counter.end()

    def _clear_grads(self) -> None:
        for parameter in (*self._sharded.values(), *self._local.values()):
            parameter.grad = None

    def grad_norms(self, trained: Mapping[str, nn.Parameter], scope: base.Scope) -> Tensor:
        squares = base.norms_of(trained, scope).square()
        dist.all_reduce(squares, group=self._mesh[_SHARD].get_group())
        return squares.sqrt()

    def refresh_copies(self) -> None:
        """See Runtime: gathered weights are freed, and gathered again when needed."""
        for unit in self._units:
            unit.reshard()

    def gather_shards(self, tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        on_first: dict[str, Tensor] = {}
        for name, rows in tensors.items():
            like = _tensor(self._sharded[name])
            sharded = DTensor.from_local(
                rows.detach().to(self.device), like.device_mesh, like.placements,
                run_check=False, shape=like.shape, stride=like.stride(),
            )  # fmt: skip
            whole = sharded.full_tensor()
            if self.is_first:
                on_first[name] = whole.cpu()
        return on_first

    def close(self) -> None:
        """See Processes."""
        self._roots, self._units, self._sharded, self._local = [], [], {}, {}
        super().close()


class _ExchangeCounter:
    """Counts a step's exchanges, and how many are skipped because the other processes have made them."""

    def __init__(self) -> None:
        self._num_made = self._skipped = 0

    def is_due(self) -> bool:
        """Whether to make the next exchange; counts it."""
        if self._skipped:
            self._skipped -= 1
            return False
        self._num_made += 1
        return True

    def skip_made(self) -> None:
        """Called before the step's passes are repeated: the exchanges so far are skipped."""
        self._skipped, self._num_made = self._num_made, 0

    def end(self, last: bool = True) -> None:
        """Called at the end of a micro-batch. last: of the step."""
        if last:
            self._skipped = self._num_made = 0


class _Counted:
    """The library's default exchange, counted."""

    def __init__(self, counter: _ExchangeCounter) -> None:
        self._counter = counter

    def allocate(self, size: Sequence[int | torch.SymInt], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        """See the library's `Comm`."""
        return torch.empty(*size, dtype=dtype, device=device)


class _CountedAllGather(_Counted, AllGather):
    def __call__(
        self, output_tensor: Tensor, input_tensor: Tensor, group: dist.ProcessGroup, async_op: bool = False
    ) -> dist.Work | None:
        if self._counter.is_due():
            work = dist.all_gather_into_tensor(output_tensor, input_tensor, group=group, async_op=async_op)
            return cast("dist.Work | None", work)
        output_tensor.zero_()
        return None


class _CountedReduceScatter(_Counted, ReduceScatter):
    def __call__(
        self, output_tensor: Tensor, input_tensor: Tensor, group: dist.ProcessGroup, op: Any, async_op: bool = False
    ) -> dist.Work | None:
        if self._counter.is_due():
            work = dist.reduce_scatter_tensor(output_tensor, input_tensor, group=group, op=op, async_op=async_op)
            return cast("dist.Work | None", work)
        output_tensor.zero_()
        return None


def group_size(settings: ShardSettings, world_size: int) -> int:
    """The number of processes that share one copy of the weights. Raises RecipeError E1880 if it does not divide the
    number of processes."""
    group = settings.group or world_size
    if world_size % group:
        divisors = ", ".join(str(n) for n in range(1, world_size + 1) if world_size % n == 0)
        raise RecipeError(
            f"run.shard.group is {group}, which does not divide the {world_size} processes of this run; write one of "
            f"{divisors}, or remove it to shard over all processes",
            code="E1880",
        )
    return group


def _mesh(device: torch.device, world_size: int, group: int) -> DeviceMesh:
    if group == world_size:
        return init_device_mesh(device.type, (group,), mesh_dim_names=(_SHARD,))
    return init_device_mesh(device.type, (world_size // group, group), mesh_dim_names=("replicate", _SHARD))


def _share(shape: tuple[int, ...], rows: int, rank: int, group: int) -> base.Share:
    """The library splits the first dimension into equal parts, of which the last may be short or empty."""
    size = -(-shape[0] // group)
    start = min(rank * size, shape[0])
    assert rows == min(size, shape[0] - start), "the library splits tensors in another way"
    return base.Share(shape, start, start + rows)


def _tensor(parameter: Tensor) -> DTensor:
    assert isinstance(parameter, DTensor)
    return parameter
