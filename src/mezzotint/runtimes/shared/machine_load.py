"""What this process and its machine have used so far: processor time, swap, device memory. Reading it takes a fraction
of a millisecond. The difference between two readings shows what a period was spent on."""

from __future__ import annotations

import multiprocessing
import os
import resource
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch


@dataclass(frozen=True, slots=True)
class MachineLoad:
    """Counters since some start; what this machine does not show is 0. A difference of two has the same fields.

    own_cpu_seconds: processor time of this process, its threads and workers. busy_cpu_seconds, idle_cpu_seconds: of all
    processors of the machine, by any process or by none. swapped_bytes: read back from swap, for any process.
    page_faults: of this process that waited for a disk. alloc_retries: how often the device had no memory left and
    torch freed its cache to allocate.
    """

    own_cpu_seconds: float = 0.0
    busy_cpu_seconds: float = 0.0
    idle_cpu_seconds: float = 0.0
    swapped_bytes: int = 0
    page_faults: int = 0
    alloc_retries: int = 0

    def __sub__(self, before: MachineLoad) -> MachineLoad:
        """What was used between two readings."""
        return MachineLoad(*(getattr(self, name) - getattr(before, name) for name in self.__slots__))


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """Memory of a device in bytes. others: of other processes, as far as it can be told: what neither is free nor
    belongs to this process's allocator; some hundred MB of it are the context of this process."""

    total: int
    free: int
    others: int


def read_load(device: torch.device) -> MachineLoad:
    """The counters now. Only Linux shows those of the machine."""
    own, ended = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    ticks = os.sysconf("SC_CLK_TCK")
    workers = [child.pid for child in multiprocessing.active_children() if child.pid is not None]
    busy, idle = _cpu_ticks()
    retries = torch.cuda.memory_stats(device).get("num_alloc_retries", 0) if device.type == "cuda" else 0
    return MachineLoad(
        own_cpu_seconds=own.ru_utime + own.ru_stime + ended.ru_utime + ended.ru_stime + sum(_ticks_of(workers)) / ticks,
        busy_cpu_seconds=busy / ticks,
        idle_cpu_seconds=idle / ticks,
        swapped_bytes=_pages_swapped_in() * resource.getpagesize(),
        page_faults=own.ru_majflt,
        alloc_retries=retries,
    )


def read_device_memory(device: torch.device) -> DeviceMemory | None:
    """The memory of a GPU; None for a CPU, or if the driver does not report it."""
    if device.type != "cuda":
        return None
    try:
        free, total = torch.cuda.mem_get_info(device)
    except RuntimeError:
        return None
    return DeviceMemory(total, free, max(0, total - free - torch.cuda.memory_reserved(device)))


def _cpu_ticks() -> tuple[int, int]:
    """Busy and idle time of all processors. Linux: user, nice, system, idle, iowait, irq, softirq, steal."""
    with suppress(OSError, ValueError, IndexError):
        fields = Path("/proc/stat").read_text("ascii").splitlines()[0].split()[1:9]
        user, nice, system, idle, waiting, *interrupts = map(int, fields)
        return user + nice + system + sum(interrupts), idle + waiting
    return 0, 0


def _ticks_of(pids: list[int]) -> Iterator[int]:
    for pid in pids:
        with suppress(OSError, ValueError, IndexError):
            fields = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
            yield int(fields[11]) + int(fields[12])  # utime, stime


def _pages_swapped_in() -> int:
    with suppress(OSError, ValueError, IndexError):
        lines = Path("/proc/vmstat").read_text("ascii").splitlines()
        return sum(int(line.split()[1]) for line in lines if line.startswith("pswpin "))
    return 0
