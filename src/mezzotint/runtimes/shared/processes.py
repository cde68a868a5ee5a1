"""Many processes over `torch.distributed`: what every runtime of several processes shares. NCCL between GPUs, gloo
between CPUs and for what the host decides."""

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

_NAMED = 8
"""So many processes are named where one does not answer."""
_PATIENCE = datetime.timedelta(days=30)


_LAST_BREATH = 2.0
"""Seconds that a process may take to end whose connections are closed already."""


def _processes(ranks: list[int]) -> str:
    named = [str(rank) for rank in ranks[:_NAMED]] + (["others"] if len(ranks) > _NAMED else [])
    several = f"processes {', '.join(named[:-1])} and {named[-1]}" if len(named) > 1 else f"process {named[0]}"
    return f"{several} of this run"


def _address() -> str:
    """Of this process: its machine, its space of process numbers, its number."""
    try:
        space = os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        space = 0
    return f"{os.uname().nodename} {space} {os.getpid()}"


def _has_ended(pid: int) -> bool:
    """Whether a process of this machine is gone, or has only its parent to wait for."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except FileNotFoundError:
        return Path("/proc/self/stat").exists()
    except (OSError, IndexError):
        return False


def _bytes_of(text: str) -> Tensor:
    return torch.from_numpy(np.frombuffer(text.encode(), np.uint8).copy())


def _text_of(data: Tensor) -> str:
    return data.numpy().tobytes().decode()


def _store_of_attempt(attempt: int, timeout: datetime.timedelta) -> Any:
    """Where processes meet that torchrun has started again: its store outlives them, with the addresses of those that
    are gone, so that each attempt has names of its own."""
    store, _, _ = next(dist.rendezvous("env://", timeout=timeout))  # type: ignore[attr-defined]
    return dist.distributed_c10d.PrefixStore(f"attempt {attempt}", store)


@contextmanager
def _meeting(rank: int) -> Iterator[None]:
    """Raises RecipeError E1712 where the port that the first process listens on is another program's, PeerLost E1804
    where another process ends before all have met, or does not come."""
    try:
        yield
    except RuntimeError as error:
        if "EADDRINUSE" not in str(error):
            of_store = isinstance(error, (dist.DistNetworkError, dist.DistStoreError))
            if of_store or any(word in str(error) for word in base.ABOUT_PEERS):
                raise PeerLost(
                    f"process {rank} has not met the others of this run ({str(error).splitlines()[0][:200]}): one has "
                    "ended, or cannot reach the address of the first; start the same command again",
                    code="E1804",
                ) from error
            raise
        port = re.search(r"port: (\d+)", str(error))
        raise RecipeError(
            f"the processes of this run meet at {f'port {port[1]}' if port else 'a port'} of the first one's machine, "
            "and another program listens there; give another one: torchrun --master-port=PORT, or MASTER_PORT",
            code="E1712",
        ) from error


class Processes(base.Runtime):
    """The group of all processes of a run, and what they tell each other."""

    def __init__(self, device: torch.device, launch: base.Launch, settings: RunSettings) -> None:
        self.device = device
        self.rank = launch.rank
        self.world_size = launch.world_size
        self.local_size = launch.local_size
        if not dist.is_initialized():
            backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
            timeout, is_placed = datetime.timedelta(seconds=settings.timeout_seconds), launch.meeting or launch.attempt
            with _meeting(launch.rank):
                dist.init_process_group(
                    backend,
                    init_method=launch.meeting or None,
                    timeout=timeout,
                    rank=launch.rank if is_placed else -1,
                    world_size=launch.world_size if is_placed else -1,
                    store=_store_of_attempt(launch.attempt, timeout) if launch.attempt else None,
                )

        self._store = dist.distributed_c10d.PrefixStore("where", dist.distributed_c10d._get_default_store())
        with _meeting(launch.rank):
            self._store.set(f"address {self.rank}", _address())

    def set_phase(self, phase: str) -> None:
        with suppress(RuntimeError):  # who keeps the store may be gone
            self._store.set(str(self.rank), phase)

    def peer_phases(self) -> str:
        with suppress(RuntimeError):
            places = self._places()
            odd = [rank for rank in places if places[rank] != places.get(self.rank)]
            named = [f"process {rank} was last {places[rank]}" for rank in (odd or [*places])[:_NAMED]]
            return "; ".join([*named, f"this one {places[self.rank]}"] if self.rank in places else named)
        return ""

    def lost(self) -> str:
        with suppress(RuntimeError):
            self._store.set(f"follows {self.rank}", "")  # it ends because another one did, which is the one to name
            end = time.monotonic() + _LAST_BREATH
            while not (gone := self._gone()) and time.monotonic() < end:
                time.sleep(0.05)
            if gone:
                first = [rank for rank in gone if not self._store.check([f"follows {rank}"])] or gone
                return f"{_processes(first)}, which {'has' if len(first) == 1 else 'have'} ended"
            places = self._places()
            odd = [rank for rank in places if places[rank] != places.get(self.rank)]
            if not odd:
                return "another process of this run"
            return f"{_processes(odd)}, which {'does' if len(odd) == 1 else 'do'} not answer"
        return f"{_processes([0])}, at which they meet"

    def _gone(self) -> list[int]:
        """Those that have ended, of this machine."""
        others = [rank for rank in range(self.world_size) if rank != self.rank]
        addresses = {rank: self._store.get(f"address {rank}").decode() for rank in others
                     if self._store.check([f"address {rank}"])}  # fmt: skip
        here = _address().rpartition(" ")[0]
        return [rank for rank, address in addresses.items()
                if address.startswith(f"{here} ") and _has_ended(int(address.rpartition(" ")[2]))]  # fmt: skip

    def _places(self) -> dict[int, str]:
        there = [rank for rank in range(self.world_size) if self._store.check([str(rank)])]
        return {rank: self._store.get(str(rank)).decode() for rank in there}

    def allreduced(self) -> Tensor:
        return self.total(self._attached)

    def total(self, values: Tensor) -> Tensor:
        summed = values.detach().clone()
        dist.all_reduce(summed)
        return summed

    def agree(self, flags: int) -> int:
        mine = torch.tensor([flags], dtype=torch.int32)
        dist.all_reduce(mine, op=dist.ReduceOp.BOR)
        return int(mine[0])

    def barrier(self) -> None:
        dist.all_reduce(torch.zeros(1, dtype=torch.int32), group=self._patient)

    @cached_property
    def _patient(self) -> dist.ProcessGroup:
        # indexing, saving or drawing in one process may take hours; a process that dies is noticed all the same.
        # Made at its first use, which all processes come to together
        group: dist.ProcessGroup = dist.new_group(backend="gloo", timeout=_PATIENCE)
        return group

    def share(self, text: str) -> str:
        data = _bytes_of(text)
        length = torch.tensor([len(data)], dtype=torch.int64)
        dist.broadcast(length, src=0, group=self._patient)
        data = data if self.is_first else torch.empty(int(length[0]), dtype=torch.uint8)
        dist.broadcast(data, src=0, group=self._patient)
        return _text_of(data)

    def gather(self, text: str) -> tuple[str, ...]:
        data = _bytes_of(text)
        lengths = [torch.zeros(1, dtype=torch.int64) for _ in range(self.world_size)]
        dist.all_gather(lengths, torch.tensor([len(data)]), group=self._patient)
        sizes = torch.cat(lengths).tolist()
        padded = torch.zeros(max(sizes), dtype=torch.uint8)
        padded[: len(data)] = data
        parts = [torch.empty_like(padded) for _ in sizes]
        dist.all_gather(parts, padded, group=self._patient)
        return tuple(_text_of(part[:size]) for part, size in zip(parts, sizes, strict=True))

    def close(self) -> None:
        """Leaves the group. With gloo, destroying it right after a backward pass can abort the process, so it is left
        to the process's end."""
        gc.collect()
        if self.device.type == "cuda" and dist.is_initialized():
            dist.destroy_process_group()
