"""The interface between a runtime and the trainer. The launcher's environment is read in `shared/launch.py`, without
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
"""The environment variables with torch's settings for its GPU memory allocator, older and newer name."""

ABOUT_PEERS = ("Connection closed", "Connection reset", "Timed out", "peer", "NCCL", "Broken pipe", "gloo")
"""Parts of torch's error messages when another process has ended."""


@dataclass(frozen=True, slots=True)
class Share:
    """This process's shard of a tensor: the rows `start` to `stop` of its first dimension. shape: of the full tensor. A
    shard may be empty."""

    shape: tuple[int, ...]
    start: int
    stop: int

    def of(self, whole: Tensor) -> Tensor:
        """This process's rows of the full tensor."""
        return whole[self.start : self.stop]


class Runtime:
    """Base class of runtimes; itself the behaviour of a single process, which exchanges zero. Parameter names do not
    depend on the runtime. Gradients are summed, never averaged: the trainer divides by samples."""

    world_size: int = 1
    local_size: int = 1
    """Number of processes on this machine."""
    rank: int = 0
    shares: Mapping[str, Share] = MappingProxyType({})
    """This process's shard of each trained parameter, if parameters are sharded; otherwise empty."""
    holds_masters: bool = False
    """Whether the runtime keeps fp32 master weights, for any dtype of the forward pass."""
    may_repeat: bool = True
    """Whether a step that ran out of memory can be abandoned and repeated, on all processes."""
    has_values: bool = True
    """Whether tensors have values; False when memory is only estimated with fake tensors."""
    is_writer: bool = True
    """With sharded weights: whether this process's rows go into checkpoints, and not those of a replica."""
    _attached: Tensor

    def __init__(self, device: torch.device, launch: Launch, settings: RunSettings) -> None:
        self.device = device

    @property
    def is_first(self) -> bool:
        """Whether this process writes files and prints."""
        return self.rank == 0

    def prepare(
        self,
        parts: Mapping[str, nn.Module],
        trained: Mapping[str, nn.Parameter],
        blocks: Sequence[tuple[nn.Module, ...]] = (),
        weights: torch.dtype = torch.float32,
    ) -> Mapping[str, nn.Parameter]:
        """Moves the parts to the device and prepares the gradient exchange. All processes start from rank 0's trained
        weights.

        blocks: units whose weights are gathered together. weights: the dtype of trained weights in the forward pass, if
        the runtime casts them. Returns what the optimizer updates, by the same names: the parameters, or this process's
        shards of them.
        """
        for part in parts.values():
            part.to(self.device)
        return trained

    def micro_batch(self, last: bool) -> AbstractContextManager[None]:
        """Context for forward and backward of a micro-batch. After the last one every gradient is the sum over all
        processes."""
        return nullcontext()

    def join_failed_step(self, smallest: Callable[[], object]) -> None:
        """After this process ran out of memory in a micro-batch: takes part in the remaining exchanges of this step,
        which the others wait for; the gradients are discarded. smallest: runs the step's passes from the start, each
        with one sample."""

    def repeat_step(self) -> None:
        """Called on all processes before the last step is repeated."""

    def grad_norms(self, trained: Mapping[str, nn.Parameter], scope: Scope) -> Tensor:
        """2-norms of the gradients, float32: (1,) for "all", (parts,) for "part" in order of appearance, (tensors,)
        for "tensor".

        Stays on the device. A parameter without gradient counts as zero.
        """
        return norms_of(trained, scope)

    def refresh_copies(self) -> None:
        """Called after the trained weights were changed in place: copies in the runtime are stale."""

    def gather_shards(self, tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Full tensors by parameter name, gathered from the shards. Called on all processes; only rank 0 gets the
        result, on the CPU, others an empty one. Without sharding: the tensors unchanged."""
        return tensors

    def attach_to_allreduce(self, values: Tensor) -> None:
        """Attaches values, (n,) float32 on the device, to the all-reduce of a step's gradients. Called in the step's
        last micro-batch, after the backward pass, or before `join_failed_step`."""
        self._attached = values

    def read_allreduced(self) -> Tensor:
        """The sums of the values attached by all processes, (n,) on the device, without synchronizing."""
        return self._attached

    def sum_over_processes(self, values: Tensor) -> Tensor:
        """The elementwise sum over all processes, on the device, without synchronizing."""
        return values

    def agree(self, flags: int) -> int:
        """The bitwise or of flags (below 2³¹) over all processes. Used for signals and wall-clock decisions, on the
        host, without waiting for a device."""
        return flags

    def barrier(self) -> None:
        """Waits for all processes, without a time limit; ends if one of them dies."""

    def share(self, text: str) -> str:
        """Rank 0's text, on every process."""
        return text

    def gather(self, text: str) -> tuple[str, ...]:
        """The texts of all processes, by rank, on every process."""
        return (text,)

    def set_phase(self, phase: str) -> None:
        """Publishes what this process is doing; others report it when a process stops responding."""

    def peer_phases(self) -> str:
        """The last known phase of every process; "" for a single process."""
        return ""

    def describe_lost_peer(self) -> str:
        """The process that stopped responding, and why, as far as known; part of a message."""
        return "another process of this run"

    def close(self) -> None:
        """Leaves the process group, if there is one."""


def open_runtime(settings: RunSettings, launch: Launch) -> Runtime:
    """The runtime for a recipe and a launch, with device, threads and determinism set. Raises RecipeError if they do
    not fit together."""
    if settings.runtime == "single" and launch.world_size > 1:
        raise RecipeError(
            f"run.runtime is single, but {launch.launcher} started {launch.world_size} processes; "
            "set run.runtime=ddp or start one",
            code="E1801",
        )
    if settings.runtime in ("ddp", "fsdp") and launch.launcher == "none":
        raise RecipeError(
            f"run.runtime is {settings.runtime}, but no launcher started this process; start it with torchrun "
            "(`torchrun --nproc-per-node N -m mezzotint train …`), or set run.runtime=auto",
            code="E1805",
        )
    name = settings.runtime if settings.runtime != "auto" else ("ddp" if launch.world_size > 1 else "single")
    if settings.threads is not None:
        torch.set_num_threads(settings.threads)
    is_low_precision = settings.precision != "fp32"
    # only torch's new names: once they are set, reading the old ones raises
    product = "tf32" if is_on(settings.tf32, is_low_precision) else "ieee"
    torch.backends.cuda.matmul.fp32_precision = product
    torch.backends.cudnn.conv.fp32_precision = product  # type: ignore[attr-defined]
    torch.backends.cudnn.benchmark = (
        is_on(settings.kernels.cudnn_benchmark, is_low_precision) and not settings.deterministic
    )
    # our draws do not use these generators; libraries that do at least repeat on every start
    random.seed(settings.seed)
    torch.manual_seed(settings.seed & 0xFFFFFFFF)
    if settings.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
    runtime: Runtime = registry.find("runtimes", name).Runtime(device_for(settings, launch), launch, settings)
    return runtime


def device_for(settings: RunSettings, launch: Launch) -> torch.device:
    """The device of this process. Raises RecipeError E1802 if a GPU is requested and there is none."""
    available = torch.cuda.is_available()
    if settings.device == "cuda" and not available:
        raise RecipeError("run.device is cuda, but torch finds no GPU; set run.device=auto or cpu", code="E1802")
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
    """Free memory of this machine in bytes, also limited by the container of the process; None if unknown."""
    free = []
    with suppress(OSError, ValueError, IndexError):
        lines = Path("/proc/meminfo").read_text("ascii").splitlines()
        free += [1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")]
    with suppress(OSError, ValueError, IndexError, KeyError):  # without a limit memory.max contains "max"
        group = Path("/sys/fs/cgroup")
        limit = int((group / "memory.max").read_text("ascii"))
        used = dict(line.split() for line in (group / "memory.stat").read_text("ascii").splitlines())
        free.append(max(0, limit - int((group / "memory.current").read_text("ascii")) + int(used["inactive_file"])))
    return min(free, default=None)


def bytes_of(text: str) -> int:
    """Parses `run.memory_limit`: `59GB` is 59 · 10⁹, `48GiB` 48 · 2³⁰."""
    number = text.rstrip("GMiB ")
    unit = {"GB": 10**9, "GiB": 1 << 30, "MB": 10**6, "MiB": 1 << 20}[text[len(number) :].strip()]
    return int(float(number) * unit)


def norms_of(trained: Mapping[str, nn.Parameter], scope: Scope) -> Tensor:
    """Norms of full, unsharded gradients, in few kernels. See `Runtime.grad_norms`."""
    grads = {name: p.grad for name, p in trained.items() if p.grad is not None}
    norms = torch._foreach_norm(list(grads.values()), 2, dtype=torch.float32) if grads else ()
    # no index list is copied to the device, which would synchronize
    zero = torch.zeros((), device=next(iter(trained.values())).device)
    by_name = dict(zip(grads, norms, strict=True))
    if scope == "tensor":
        return torch.stack([by_name.get(name, zero) for name in trained])
    groups: dict[str, list[Tensor]] = {}
    for name in trained:
        group = groups.setdefault(name.split("/")[0] if scope == "part" else "", [])
        group += [by_name[name]] if name in by_name else []
    return torch.stack([torch.linalg.vector_norm(torch.stack(norms)) if norms else zero for norms in groups.values()])


def recompute_blocks(blocks: Iterable[tuple[nn.Module, ...]], settings: RecomputeSettings) -> int:
    """Enables activation checkpointing for each block except the exempt ones; returns their number."""
    chosen = blocks_to_recompute(list(blocks), settings)
    for block in chosen:
        for module in block:
            module.forward = _checkpointed_forward(module.forward)
    return len(chosen)


def blocks_to_recompute(
    blocks: Sequence[tuple[nn.Module, ...]], settings: RecomputeSettings
) -> Sequence[tuple[nn.Module, ...]]:
    """All blocks except the first and last ones that `run.gradient_checkpointing` exempts."""
    return blocks[settings.skip_first : max(len(blocks) - settings.skip_last, 0)]


def _checkpointed_forward(forward: Callable[..., Any]) -> Callable[..., Any]:
    def run(*inputs: Any, **named: Any) -> Any:
        if not torch.is_grad_enabled():
            return forward(*inputs, **named)
        return checkpoint(forward, *inputs, use_reentrant=False, preserve_rng_state=False, **named)

    return run


def set_memory_format(networks: Iterable[nn.Module], run: RunSettings, device: torch.device) -> None:
    """Converts convolution weights to the memory format of `run.kernels.channels_last`, in place; activations follow
    the weights."""
    is_faster = device.type == "cuda" and run.precision != "fp32" and run.compile and run.runtime != "fsdp"
    if is_on(run.kernels.channels_last, is_faster):
        for network in networks:
            nn.Module._apply(network, lambda t: t.to(memory_format=torch.channels_last) if t.ndim == 4 else t)


def compile_blocks(blocks: Iterable[tuple[nn.Module, ...]], settings: RunSettings) -> int:
    """Compiles each block's forward separately if `run.compile` is set, which starts much faster than compiling the
    model; returns the number of modules."""
    if not settings.compile:
        return 0
    if settings.deterministic:
        from torch._inductor import config as inductor

        inductor.deterministic = True  # no kernel is selected by timing
    # blocks of a class share one code object; torch compiles 8 versions of it and runs the rest uncompiled
    torch._dynamo.config.recompile_limit = torch._dynamo.config.accumulated_recompile_limit = 1 << 16
    modules = [module for block in blocks for module in block]
    for module in modules:
        module.compile(dynamic=False, mode="reduce-overhead" if settings.kernels.cuda_graphs else None)
    return len(modules)


def raise_compile_error(error: RuntimeError) -> None:
    """Raises RecipeError E1094 for an error of torch's compiler, with its message; ignores other errors."""
    if type(error).__module__.startswith(("torch._dynamo", "torch._inductor")):
        reason = next(filter(None, map(str.strip, str(error).splitlines())), type(error).__name__)
        raise RecipeError(
            f"run.compile: torch could not compile a block ({reason[:300]}); set run.compile=false, or "
            "run.precision=bf16 instead of fp16 on a CPU",
            code="E1094",
        ) from error
