"""What a runtime offers the trainer. What the launch says about processes is read in `shared/launch.py`, without
torch."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from mezzotint import registry
from mezzotint.errors import RecipeError
from mezzotint.runtimes.shared.launch import Launch as Launch
from mezzotint.settings.sections.run import RecomputeSettings, RunSettings, is_on

Scope = Literal["all", "part", "tensor"]

_ALLOCATOR = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
"""Where torch reads how it is to deal out a GPU's memory, by its older name and its newer one."""

ABOUT_PEERS = ("Connection closed", "Connection reset", "Timed out", "peer", "NCCL", "Broken pipe", "gloo")
"""What torch says where another process is gone."""


@dataclass(frozen=True, slots=True)
class Share:
    """What this process holds of a tensor that several processes share: the rows `start` to `stop` of its first
    dimension. shape: of the whole. A share may be empty."""

    shape: tuple[int, ...]
    start: int
    stop: int

    def of(self, whole: Tensor) -> Tensor:
        """This process's rows of the whole tensor."""
        return whole[self.start : self.stop]


class Runtime:
    """Where a run computes, and here one process alone, which has nothing to exchange. Parameter names do not depend on
    it. Gradients are summed, never averaged: the trainer divides by samples."""

    world_size: int = 1
    local_size: int = 1
    """How many of them are on this machine."""
    rank: int = 0
    shares: Mapping[str, Share] = MappingProxyType({})
    """What this process holds of each trained parameter, where no process holds all of it; empty elsewhere."""
    holds_masters: bool = False
    """Whether trained weights stay float32 in the runtime's own keeping, whatever type the forward pass takes."""
    may_repeat: bool = True
    """Whether a step in which memory ran out can be given up and made again, on all processes."""
    has_values: bool = True
    """Whether tensors have values; where memory is only counted they have none."""
    is_writer: bool = True
    """Where weights are shared: whether this process's rows go into checkpoints; others hold the same."""
    _attached: Tensor

    def __init__(self, device: torch.device, launch: Launch, settings: RunSettings) -> None:
        self.device = device

    @property
    def is_first(self) -> bool:
        """Whether this process writes files and speaks."""
        return self.rank == 0

    def prepare(
        self,
        parts: Mapping[str, nn.Module],
        trained: Mapping[str, nn.Parameter],
        blocks: Sequence[tuple[nn.Module, ...]] = (),
        weights: torch.dtype = torch.float32,
    ) -> Mapping[str, nn.Parameter]:
        """Moves the parts to the device and makes ready to exchange gradients. All processes start from rank 0's
        trained weights.

        blocks: units whose weights may be gathered together. weights: the type in which the forward pass wants trained
        weights, where the runtime sees to it. Returns what the update moves, by the same names: the parameters, or
        this process's shares of them.
        """
        for part in parts.values():
            part.to(self.device)
        return trained

    def micro_batch(self, last: bool) -> AbstractContextManager[None]:
        """Surrounds forward and backward of a micro-batch. When the last one ends, every gradient is the sum over all
        processes."""
        return nullcontext()

    def join_failed_step(self, smallest: Callable[[], object]) -> None:
        """After memory ran out in a micro-batch of this process: takes part in the exchanges that the others wait for
        in this step, whose gradients mean nothing. smallest: runs the step's passes from the start, each with one
        sample."""

    def repeat_step(self) -> None:
        """Called on all processes before the step that was taken last is taken again."""

    def grad_norms(self, trained: Mapping[str, nn.Parameter], scope: Scope) -> Tensor:
        """2-norms of the gradients, float32: (1,) for "all", (parts,) for "part" in order of appearance, (tensors,)
        for "tensor".

        Stays on the device. A parameter without gradient counts as zero.
        """
        return norms_of(trained, scope)

    def written(self) -> None:
        """The trained weights were written in place: copies that the runtime holds of them are out of date."""

    def whole(self, tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Tensors by parameter name, each the whole of what the processes share; all call it together, and only the
        first gets an answer that is not empty, on the CPU. Where nothing is shared: as they are."""
        return tensors

    def attach_to_allreduce(self, values: Tensor) -> None:
        """Numbers, (n,) float32 on the device, that are summed over all processes together with a step's gradients.
        Called in its last micro-batch, after the backward pass, or before `join_failed_step`."""
        self._attached = values

    def allreduced(self) -> Tensor:
        """The sums of what all processes attached, (n,) on the device, without waiting for them on the host."""
        return self._attached

    def total(self, values: Tensor) -> Tensor:
        """The elementwise sum over all processes, on the device, without waiting for it on the host."""
        return values

    def agree(self, flags: int) -> int:
        """The bitwise or of small flags (below 2³¹) over all processes. Signals and wall-clock decisions go through
        it, on the host, so that no device has to be waited for."""
        return flags

    def barrier(self) -> None:
        """Waits until every process is here, however long what they do alone takes; one that dies ends the wait."""

    def share(self, text: str) -> str:
        """Rank 0's text, on every process."""
        return text

    def gather(self, text: str) -> tuple[str, ...]:
        """What every process says, by rank, on every process."""
        return (text,)

    def set_phase(self, phase: str) -> None:
        """Notes what this process does, for the others, which report it when one no longer answers."""

    def peer_phases(self) -> str:
        """What every process did last, as far as it can be found out; "" where there is one process."""
        return ""

    def lost(self) -> str:
        """Which process of the run does not answer any more, and why, as far as it can be learnt: for a sentence."""
        return "another process of this run"

    def close(self) -> None:
        """Leaves the group, if there is one."""


def open_runtime(settings: RunSettings, launch: Launch) -> Runtime:
    """The runtime a recipe and a launch ask for, with device, threads and determinism set. Raises RecipeError when
    they do not fit."""
    if settings.runtime == "single" and launch.world_size > 1:
        raise RecipeError(
            f"run.runtime is single, but {launch.launcher} started {launch.world_size} processes; "
            "set run.runtime=ddp or start one",
            code="E1801",
        )
    if settings.runtime in ("ddp", "fsdp") and launch.launcher == "none":
        raise RecipeError(
            f"run.runtime is {settings.runtime}, but no launcher started this process; start it with torchrun "
            "(`torchrun --nproc-per-node N -m mezzotint train …`), or write run.runtime=auto",
            code="E1805",
        )
    name = settings.runtime if settings.runtime != "auto" else ("ddp" if launch.world_size > 1 else "single")
    if settings.threads is not None:
        torch.set_num_threads(settings.threads)
    is_small = settings.precision != "fp32"
    # by torch's new names alone: once they are set, reading the old ones raises
    product = "tf32" if is_on(settings.tf32, is_small) else "ieee"
    torch.backends.cuda.matmul.fp32_precision = product
    torch.backends.cudnn.conv.fp32_precision = product  # type: ignore[attr-defined]
    torch.backends.cudnn.benchmark = is_on(settings.kernels.cudnn_benchmark, is_small) and not settings.deterministic
    # no draw of ours comes from these; a library that uses one anyway at least does the same on every start
    random.seed(settings.seed)
    torch.manual_seed(settings.seed & 0xFFFFFFFF)
    if settings.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
    runtime: Runtime = registry.find("runtimes", name).Runtime(device_for(settings, launch), launch, settings)
    return runtime


def device_for(settings: RunSettings, launch: Launch) -> torch.device:
    """The device of this process. Raises RecipeError E1802 when a GPU is asked for and none is there."""
    available = torch.cuda.is_available()
    if settings.device == "cuda" and not available:
        raise RecipeError("run.device is cuda, but torch sees no GPU here; set run.device=auto or cpu", code="E1802")
    if settings.device == "cpu" or not available:
        return torch.device("cpu")
    if settings.kernels.allocator == "expandable" and not any(name in os.environ for name in _ALLOCATOR):
        os.environ.update(dict.fromkeys(_ALLOCATOR, "expandable_segments:True"))  # read with the first allocation
    device = torch.device("cuda", launch.local_rank)
    torch.cuda.set_device(device)
    if settings.memory_limit is not None:
        total = torch.cuda.get_device_properties(device).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, bytes_of(settings.memory_limit) / total), device)
    return device


def free_memory() -> int | None:
    """Bytes of this machine's memory that may be taken, by its own account and by that of the container that the
    process is in; None where nobody tells."""
    free = []
    with suppress(OSError, ValueError, IndexError):
        lines = Path("/proc/meminfo").read_text("ascii").splitlines()
        free += [1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")]
    with suppress(OSError, ValueError, IndexError, KeyError):  # of a machine without limits, the first line says max
        group = Path("/sys/fs/cgroup")
        limit = int((group / "memory.max").read_text("ascii"))
        used = dict(line.split() for line in (group / "memory.stat").read_text("ascii").splitlines())
        free.append(max(0, limit - int((group / "memory.current").read_text("ascii")) + int(used["inactive_file"])))
    return min(free, default=None)


def bytes_of(text: str) -> int:
    """What `run.memory_limit` says: `59GB` is 59 · 10⁹, `48GiB` 48 · 2³⁰."""
    number = text.rstrip("GMiB ")
    unit = {"GB": 10**9, "GiB": 1 << 30, "MB": 10**6, "MiB": 1 << 20}[text[len(number) :].strip()]
    return int(float(number) * unit)


def norms_of(trained: Mapping[str, nn.Parameter], scope: Scope) -> Tensor:
    """Norms over whole, unsharded gradients, in few passes. See `Runtime.grad_norms`."""
    grads = {name: p.grad for name, p in trained.items() if p.grad is not None}
    norms = torch._foreach_norm(list(grads.values()), 2, dtype=torch.float32) if grads else ()
    # no list of places goes to the device: it would make the host wait
    nothing = torch.zeros((), device=next(iter(trained.values())).device)
    by_name = dict(zip(grads, norms, strict=True))
    if scope == "tensor":
        return torch.stack([by_name.get(name, nothing) for name in trained])
    groups: dict[str, list[Tensor]] = {}
    for name in trained:
        group = groups.setdefault(name.split("/")[0] if scope == "part" else "", [])
        group += [by_name[name]] if name in by_name else []
    return torch.stack([torch.linalg.vector_norm(torch.stack(one)) if one else nothing for one in groups.values()])


def recompute_blocks(blocks: Iterable[tuple[nn.Module, ...]], settings: RecomputeSettings) -> int:
    """Makes each block but the exempt ones compute its activations again in the backward pass; returns how many do."""
    chosen = not_exempt(list(blocks), settings)
    for block in chosen:
        for module in block:
            module.forward = _recomputed(module.forward)
    return len(chosen)


def not_exempt(blocks: Sequence[tuple[nn.Module, ...]], settings: RecomputeSettings) -> Sequence[tuple[nn.Module, ...]]:
    """All blocks but the first and the last that `run.gradient_checkpointing` exempts."""
    return blocks[settings.skip_first : max(len(blocks) - settings.skip_last, 0)]


def _recomputed(forward: Callable[..., Any]) -> Callable[..., Any]:
    def run(*inputs: Any, **named: Any) -> Any:
        if not torch.is_grad_enabled():
            return forward(*inputs, **named)
        return checkpoint(forward, *inputs, use_reentrant=False, preserve_rng_state=False, **named)

    return run


def lay_out(networks: Iterable[nn.Module], run: RunSettings, device: torch.device) -> None:
    """Puts convolutions' weights in the order that `run.kernels.channels_last` asks for, in place; the results of a
    convolution follow its weights."""
    likes_it = device.type == "cuda" and run.precision != "fp32" and run.compile and run.runtime != "fsdp"
    if is_on(run.kernels.channels_last, likes_it):
        for network in networks:
            nn.Module._apply(network, lambda t: t.to(memory_format=torch.channels_last) if t.ndim == 4 else t)


def compile_blocks(blocks: Iterable[tuple[nn.Module, ...]], settings: RunSettings) -> int:
    """Compiles each block's forward on its own where `run.compile` says so, which starts far sooner than compiling the
    whole; returns how many."""
    if not settings.compile:
        return 0
    if settings.deterministic:
        from torch._inductor import config as inductor

        inductor.deterministic = True  # no kernel is chosen by its time
    # all blocks of a class share one code object, of which torch compiles 8 versions and then runs the rest uncompiled
    torch._dynamo.config.recompile_limit = torch._dynamo.config.accumulated_recompile_limit = 1 << 16
    modules = [module for block in blocks for module in block]
    for module in modules:
        module.compile(dynamic=False, mode="reduce-overhead" if settings.kernels.cuda_graphs else None)
    return len(modules)


def refuse_uncompiled(error: RuntimeError) -> None:
    """Raises RecipeError E1094 for what torch's compiler has failed with, in its words; lets other errors be."""
    if type(error).__module__.startswith(("torch._dynamo", "torch._inductor")):
        words = next(filter(None, map(str.strip, str(error).splitlines())), type(error).__name__)
        raise RecipeError(
            f"run.compile: torch could not compile a block here ({words[:300]}); write run.compile=false, or "
            "run.precision=bf16 where this is fp16 on a CPU",
            code="E1094",
        ) from error
