"""Processes over `torch.distributed`: the base of every runtime with several processes. NCCL between GPUs, gloo between
CPUs and for decisions on the host."""

from __future__ import annotations

import datetime
import gc
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from mezzotint.errors import PeerLost, RecipeError
from mezzotint.runtimes import base
from mezzotint.settings.sections.run import RunSettings

_MAX_NAMED = 8
"""Maximum number of processes named in a message."""
_LONG_TIMEOUT = datetime.timedelta(days=30)


_EXIT_SECONDS = 2.0
"""Time for a process to end after its connections are closed, in seconds."""


def _name_processes(ranks: list[int]) -> str:
    named = [str(rank) for rank in ranks[:_MAX_NAMED]] + (["others"] if len(ranks) > _MAX_NAMED else [])
    several = f"processes {', '.join(named[:-1])} and {named[-1]}" if len(named) > 1 else f"process {named[0]}"
    return f"{several} of this run"


def _address() -> str:
    """The address of this process: machine, PID namespace, PID."""
    try:
        space = os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        space = 0
    return f"{os.uname().nodename} {space} {os.getpid()}"


def _has_ended(pid: int) -> bool:
    """Whether a process of this machine has ended or is a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except FileNotFoundError:
        return Path("/proc/self/stat").exists()
    except (OSError, IndexError):
        return False


def _encode(text: str) -> Tensor:
    return torch.from_numpy(np.frombuffer(text.encode(), np.uint8).copy())


def _decode(data: Tensor) -> str:
    return data.numpy().tobytes().decode()


def _store_of_attempt(attempt: int, timeout: datetime.timedelta) -> Any:
    """The store for processes that torchrun has restarted: it outlives them and contains addresses of ended processes,
    so each attempt uses its own prefix."""
    store, _, _ = next(dist.rendezvous("env://", timeout=timeout))  # type: ignore[attr-defined]
    return dist.distributed_c10d.PrefixStore(f"attempt {attempt}", store)


@contextmanager
def _rendezvous_errors(rank: int) -> Iterator[None]:
    """Context that raises RecipeError E1712 if rank 0's port is used by another program, PeerLost E1804 if another
    process ends before the rendezvous, or does not join it."""
    try:
        yield
    except RuntimeError as error:
        if "EADDRINUSE" not in str(error):
            of_store = isinstance(error, (dist.DistNetworkError, dist.DistStoreError))
            if of_store or any(word in str(error) for word in base.ABOUT_PEERS):
                raise PeerLost(
                    f"process {rank} could not join the others of this run ({str(error).splitlines()[0][:200]}): one "
                    "has ended, or cannot reach the address of rank 0; start the same command again",
                    code="E1804",
                ) from error
            raise
        port = re.search(r"port: (\d+)", str(error))
        raise RecipeError(
            f"the processes of this run use {f'port {port[1]}' if port else 'a port'} of rank 0's machine, which "
            "another program is using; choose another port: torchrun --master-port=PORT, or MASTER_PORT",
            code="E1712",
        ) from error


class Processes(base.Runtime):
    """The group of all processes of a run, and their communication."""

    def __init__(self, device: torch.device, launch: base.Launch, settings: RunSettings) -> None:
        self.device = device
        self.rank = launch.rank
        self.world_size = launch.world_size
        self.local_size = launch.local_size
        if not dist.is_initialized():
            backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
            timeout, is_placed = (
                datetime.timedelta(seconds=settings.timeout_seconds),
                launch.rendezvous or launch.attempt,
            )
            with _rendezvous_errors(launch.rank):
                dist.init_process_group(
                    backend,
                    init_method=launch.rendezvous or None,
                    timeout=timeout,
                    rank=launch.rank if is_placed else -1,
                    world_size=launch.world_size if is_placed else -1,
                    store=_store_of_attempt(launch.attempt, timeout) if launch.attempt else None,
                )

        self._store = dist.distributed_c10d.PrefixStore("where", dist.distributed_c10d._get_default_store())
        with _rendezvous_errors(launch.rank):
            self._store.set(f"address {self.rank}", _address())

    def set_phase(self, phase: str) -> None:
        with suppress(RuntimeError):  # the process with the store may have ended
            self._store.set(str(self.rank), phase)

    def peer_phases(self) -> str:
        with suppress(RuntimeError):
            phases = self._phases()
            differing = [rank for rank in phases if phases[rank] != phases.get(self.rank)]
            named = [f"process {rank} was last {phases[rank]}" for rank in (differing or [*phases])[:_MAX_NAMED]]
            return "; ".join([*named, f"this one {phases[self.rank]}"] if self.rank in phases else named)
        return ""

    def describe_lost_peer(self) -> str:
        with suppress(RuntimeError):
            # this process ends because another one did; only that one is reported
            self._store.set(f"follows {self.rank}", "")
            end = time.monotonic() + _EXIT_SECONDS
            while not (ended := self._ended_ranks()) and time.monotonic() < end:
                time.sleep(0.05)
            if ended:
                first = [rank for rank in ended if not self._store.check([f"follows {rank}"])] or ended
                return f"{_name_processes(first)}, which {'has' if len(first) == 1 else 'have'} ended"
            phases = self._phases()
            differing = [rank for rank in phases if phases[rank] != phases.get(self.rank)]
            if not differing:
                return "another process of this run"
            return f"{_name_processes(differing)}, which {'does' if len(differing) == 1 else 'do'} not answer"
        return f"{_name_processes([0])}, which hosts the rendezvous"

    def _ended_ranks(self) -> list[int]:
        """Ranks on this machine that have ended."""
        others = [rank for rank in range(self.world_size) if rank != self.rank]
        addresses = {rank: self._store.get(f"address {rank}").decode() for rank in others
                     if self._store.check([f"address {rank}"])}  # fmt: skip
        this_machine = _address().rpartition(" ")[0]
        return [rank for rank, address in addresses.items()
                if address.startswith(f"{this_machine} ") and _has_ended(int(address.rpartition(" ")[2]))]  # fmt: skip

    def _phases(self) -> dict[int, str]:
        reported = [rank for rank in range(self.world_size) if self._store.check([str(rank)])]
        return {rank: self._store.get(str(rank)).decode() for rank in reported}

    def read_allreduced(self) -> Tensor:
        return self.sum_over_processes(self._attached)

    def sum_over_processes(self, values: Tensor) -> Tensor:
        summed = values.detach().clone()
        dist.all_reduce(summed)
        return summed

    def agree(self, flags: int) -> int:
        combined = torch.tensor([flags], dtype=torch.int32)
        dist.all_reduce(combined, op=dist.ReduceOp.BOR)
        return int(combined[0])

    def barrier(self) -> None:
        dist.all_reduce(torch.zeros(1, dtype=torch.int32), group=self._long_group)

    @cached_property
    def _long_group(self) -> dist.ProcessGroup:
        # indexing, saving or sampling in one process may take hours; a process that dies is still noticed. Created on
        # the first use, which is collective
        group: dist.ProcessGroup = dist.new_group(backend="gloo", timeout=_LONG_TIMEOUT)
        return group

    def share(self, text: str) -> str:
        data = _encode(text)
        length = torch.tensor([len(data)], dtype=torch.int64)
        dist.broadcast(length, src=0, group=self._long_group)
        data = data if self.is_first else torch.empty(int(length[0]), dtype=torch.uint8)
        dist.broadcast(data, src=0, group=self._long_group)
        return _decode(data)

    def gather(self, text: str) -> tuple[str, ...]:
        data = _encode(text)
        lengths = [torch.zeros(1, dtype=torch.int64) for _ in range(self.world_size)]
        dist.all_gather(lengths, torch.tensor([len(data)]), group=self._long_group)
        sizes = torch.cat(lengths).tolist()
        padded = torch.zeros(max(sizes), dtype=torch.uint8)
        padded[: len(data)] = data
        parts = [torch.empty_like(padded) for _ in sizes]
        dist.all_gather(parts, padded, group=self._long_group)
        return tuple(_decode(part[:size]) for part, size in zip(parts, sizes, strict=True))

    def close(self) -> None:
        """Leaves the group. With gloo, destroying it right after a backward pass can abort the process, so it is kept
        until the process ends."""
        gc.collect()
        if self.device.type == "cuda" and dist.is_initialized():
            dist.destroy_process_group()
