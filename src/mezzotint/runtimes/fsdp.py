"""Many processes that share the weights among them, by torch's FSDP2 (`fully_shard`): each keeps its rows of every
trained tensor, of their gradients, moments and average, and gathers a block's weights when it computes with it.

    run.shard.parameters=true    a block's weights are let go after its forward pass and gathered again for backward
    run.shard.parameters=false   weights stay gathered until backward; gradients and optimizer state are shared
    run.shard.group=G            shared among G neighbouring processes, of which there are several such groups

What moves weights never sees this: it is given plain tensors, the rows that this process holds, in the storage that the
library shares. Frozen parts are whole in every process. Gradients are summed, as everywhere.
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
        self._lets_go = settings.shard.parameters
        # torch forgets a pass that failed since 2.13; gradients that groups add up elsewhere, or later, it keeps
        self.may_repeat = hasattr(FSDPModule, "reset_iter_state") and self._lets_go and group == launch.world_size
        self._tally = _Tally()
        self._mesh = _mesh(device, launch.world_size, group)
        self.is_writer = launch.rank < group
        self._roots: list[FSDPModule] = []
        self._units: list[FSDPModule] = []
        self._shared: dict[str, nn.Parameter] = {}
        self._here: dict[str, nn.Parameter] = {}

    def prepare(
        self,
        parts: Mapping[str, nn.Module],
        trained: Mapping[str, nn.Parameter],
        blocks: Sequence[tuple[nn.Module, ...]] = (),
        weights: torch.dtype = torch.float32,
    ) -> Mapping[str, nn.Parameter]:
        moved = dict.fromkeys(name.split("/")[0] for name in trained)
        for name, part in parts.items():
            if name not in moved:
                part.to(self.device)
        with torch.no_grad():
            for parameter in (p for p in trained.values() if not p.is_meta):
                here = parameter.detach().to(self.device)
                dist.broadcast(here, src=0)
                parameter.copy_(here)
        policy = MixedPrecisionPolicy(
            param_dtype=None if weights == torch.float32 else weights,
            reduce_dtype=torch.float32,
            cast_forward_inputs=False,  # sizes given as numbers are whole in float32 alone
        )
        own = {id(p): f"{name}/{at}" for name, part in parts.items() for at, p in part.named_parameters()}
        places = {name: own[id(parameter)] for name, parameter in trained.items()}
        own_of_moved = {id(p) for name in moved for p in parts[name].parameters()}
        for block in blocks:
            if any(id(p) in own_of_moved for module in block for p in module.parameters()):
                self._shard(list(block), policy)
        for name in moved:
            self._roots.append(self._shard([parts[name]], policy))
            self._fill(parts[name])
        self._units = [unit for name in moved for unit in parts[name].modules() if isinstance(unit, FSDPModule)]
        for unit in self._units:
            unit.set_gradient_divide_factor(1.0)
            unit.set_force_sum_reduction_for_comms(True)
            unit.set_custom_all_gather(_Gathering(self._tally))
            unit.set_custom_reduce_scatter(_Scattering(self._tally))
        self._take_hold(parts, places)
        return self._here

    def _shard(self, modules: list[nn.Module], policy: MixedPrecisionPolicy) -> FSDPModule:
        fully_shard(modules, mesh=self._mesh, reshard_after_forward=self._lets_go, mp_policy=policy)
        return cast(FSDPModule, modules[-1])

    def _fill(self, part: nn.Module) -> None:
        """Reads this process's rows of a part that was opened without values. Raises WeightsError E1485 where another
        process has other weights there."""
        filling = state.left_for_later(part)
        if filling is None:
            return
        sample = filling.sample()
        if self.agree(self.share(sample) != sample):
            raise WeightsError(
                "the processes of this run see different weights under the same name; put the same model on every "
                "machine, and start again",
                code="E1485",
            )
        part._apply(lambda t: torch.empty_like(t, device=self.device) if t.is_meta else t.to(self.device))
        place, group = int(self._mesh[_SHARD].get_local_rank()), int(self._mesh[_SHARD].size())
        rows = {name: _tensor(parameter).to_local() for name, parameter in part.named_parameters()}
        shapes = {name: tuple(parameter.shape) for name, parameter in part.named_parameters()}
        shares = {name: _share(shapes[name], len(own), place, group) for name, own in rows.items() if len(own)}
        with torch.no_grad():
            for name, own in filling.rows({name: slice(one.start, one.stop) for name, one in shares.items()}):
                rows[name].copy_(own)

    def _take_hold(self, parts: Mapping[str, nn.Module], places: Mapping[str, str]) -> None:
        """Plain parameters over the rows that the library holds, in one storage with them. places: by a trained
        parameter's name what its network calls it, part in front."""
        now = {f"{part}/{name}": p for part, module in parts.items() for name, p in module.named_parameters()}
        self._shared = {name: now[at] for name, at in places.items()}
        place, group = int(self._mesh[_SHARD].get_local_rank()), int(self._mesh[_SHARD].size())
        shares = {}
        for name, parameter in self._shared.items():
            rows = _tensor(parameter).to_local()
            self._here[name] = nn.Parameter(rows.detach(), requires_grad=True)
            shares[name] = _share(tuple(parameter.shape), len(rows), place, group)
        self.shares = shares

    @contextmanager
    def micro_batch(self, last: bool) -> Iterator[None]:
        for root in self._roots:
            # whole gradients lie on the device until they are exchanged: where memory counts, that is at once
            root.set_requires_gradient_sync(last or self._lets_go)
        yield
        self._tally.end(last)
        # the plain parameters take over the gradients of this process's rows
        for name, parameter in self._shared.items() if last else ():
            grad, parameter.grad = parameter.grad, None
            has_rows = grad is not None and self._here[name].numel() > 0
            self._here[name].grad = _tensor(grad).to_local() if grad is not None and has_rows else None

    def join_failed_step(self, smallest: Callable[[], object]) -> None:
        """Blocks are gathered and gradients exchanged in the middle of a pass: what the others still wait for comes of
        passes over one sample, in which what they have had already is left out."""
        for root in self._roots:
            root.reset_iter_state()
        self._forget()
        self._tally.repeat_step()
        smallest()
        self._forget()
        self._tally.end()

    def _forget(self) -> None:
        for parameter in (*self._shared.values(), *self._here.values()):
            parameter.grad = None

    def grad_norms(self, trained: Mapping[str, nn.Parameter], scope: base.Scope) -> Tensor:
        squares = base.norms_of(trained, scope).square()
        dist.all_reduce(squares, group=self._mesh[_SHARD].get_group())
        return squares.sqrt()

    def written(self) -> None:
        """See Runtime: what is gathered is let go, and gathered anew when it is needed."""
        for unit in self._units:
            unit.reshard()

    def whole(self, tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        on_first: dict[str, Tensor] = {}
        for name, rows in tensors.items():
            like = _tensor(self._shared[name])
            shared = DTensor.from_local(
                rows.detach().to(self.device), like.device_mesh, like.placements,
                run_check=False, shape=like.shape, stride=like.stride(),
            )  # fmt: skip
            whole = shared.full_tensor()
            if self.is_first:
                on_first[name] = whole.cpu()
        return on_first

    def close(self) -> None:
        """See Processes."""
        self._roots, self._units, self._shared, self._here = [], [], {}, {}
        super().close()


class _Tally:
    """Exchanges of a step so far, and how many of them are left out, because the other processes have had them."""

    def __init__(self) -> None:
        self._made = self._left_out = 0

    def is_due(self) -> bool:
        """Whether the next exchange is to be made."""
        if self._left_out:
            self._left_out -= 1
            return False
        self._made += 1
        return True

    def repeat_step(self) -> None:
        """The step's passes are made once more."""
        self._left_out, self._made = self._made, 0

    def end(self, last: bool = True) -> None:
        """A micro-batch has ended. last: of the step."""
        if last:
            self._left_out = self._made = 0


class _Counted:
    """An exchange of the library's, as it is without us, that is counted."""

    def __init__(self, tally: _Tally) -> None:
        self._tally = tally

    def allocate(self, size: Sequence[int | torch.SymInt], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        """See the library's `Comm`."""
        return torch.empty(*size, dtype=dtype, device=device)


class _Gathering(_Counted, AllGather):
    def __call__(
        self, output_tensor: Tensor, input_tensor: Tensor, group: dist.ProcessGroup, async_op: bool = False
    ) -> dist.Work | None:
        if self._tally.is_due():
            work = dist.all_gather_into_tensor(output_tensor, input_tensor, group=group, async_op=async_op)
            return cast("dist.Work | None", work)
        output_tensor.zero_()
        return None


class _Scattering(_Counted, ReduceScatter):
    def __call__(
        self, output_tensor: Tensor, input_tensor: Tensor, group: dist.ProcessGroup, op: Any, async_op: bool = False
    ) -> dist.Work | None:
        if self._tally.is_due():
            work = dist.reduce_scatter_tensor(output_tensor, input_tensor, group=group, op=op, async_op=async_op)
            return cast("dist.Work | None", work)
        output_tensor.zero_()
        return None


def group_size(settings: ShardSettings, world_size: int) -> int:
    """How many processes share the weights among them. Raises RecipeError E1880 for a number that does not divide the
    processes."""
    group = settings.group or world_size
    if world_size % group:
        fitting = ", ".join(str(n) for n in range(1, world_size + 1) if world_size % n == 0)
        raise RecipeError(
            f"run.shard.group is {group}, which does not divide the {world_size} processes of this run; write one of "
            f"{fitting}, or leave it out to share among all",
            code="E1880",
        )
    return group


def _mesh(device: torch.device, world_size: int, group: int) -> DeviceMesh:
    if group == world_size:
        return init_device_mesh(device.type, (group,), mesh_dim_names=(_SHARD,))
    return init_device_mesh(device.type, (world_size // group, group), mesh_dim_names=("replicate", _SHARD))


def _share(shape: tuple[int, ...], rows: int, place: int, group: int) -> base.Share:
    """The library cuts the first dimension into parts of equal size, of which the last may be short or empty."""
    size = -(-shape[0] // group)
    start = min(place * size, shape[0])
    assert rows == min(size, shape[0] - start), "the library cuts tensors in another way"
    return base.Share(shape, start, start + rows)


def _tensor(parameter: Tensor) -> DTensor:
    assert isinstance(parameter, DTensor)
    return parameter
