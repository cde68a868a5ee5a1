"""What this process and its machine have used so far: processor time, swap, device memory. Reading it takes a fraction
of a millisecond. The difference between two readings shows what a period was spent on."""

from __future__ import annotations

import multiprocessing
import resource
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

import psutil
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
    """The counters now. What belongs to the machine, and not to this process, is shown by Linux only."""
    own = psutil.Process().cpu_times()
    of_machine = psutil.cpu_times()
    idle = of_machine.idle + getattr(of_machine, "iowait", 0.0)
    retries = torch.cuda.memory_stats(device).get("num_alloc_retries", 0) if device.type == "cuda" else 0
    return MachineLoad(
        own_cpu_seconds=own.user + own.system + own.children_user + own.children_system + sum(_seconds_of_workers()),
        busy_cpu_seconds=sum(of_machine[:8]) - idle,  # without guests, which count as user
        idle_cpu_seconds=idle,
        swapped_bytes=psutil.swap_memory().sin,
        page_faults=resource.getrusage(resource.RUSAGE_SELF).ru_majflt,
        alloc_retries=retries,
    )


def read_memory() -> tuple[int, int]:
    """Bytes in memory of this process and its workers (pages that they share count once for each), and bytes of the
    machine that are available to any process."""
    processes = [psutil.Process(), *_workers()]
    return sum(_resident(process) for process in processes), psutil.virtual_memory().available


def read_device_memory(device: torch.device) -> DeviceMemory | None:
    """The memory of a GPU; None for a CPU, or if the driver does not report it."""
    if device.type != "cuda":
        return None
    try:
        free, total = torch.cuda.mem_get_info(device)
    except RuntimeError:
        return None
    return DeviceMemory(total, free, max(0, total - free - torch.cuda.memory_reserved(device)))


def read_device(device: torch.device) -> dict[str, float]:
    """What the driver reports of a GPU, for all of its processes: `utilization` and `memory` in percent, `temperature`
    in degrees Celsius, `power` in watts; only what it reports. Without the package nvidia-ml-py only `memory`."""
    memory = read_device_memory(device)
    values = {} if memory is None else {"memory": 100 * (1 - memory.free / memory.total)}
    if device.type == "cuda":
        for name, read, scale in (
            ("utilization", torch.cuda.utilization, 1.0),
            ("temperature", torch.cuda.temperature, 1.0),
            ("power", torch.cuda.power_draw, 1e-3),
        ):
            with suppress(Exception):  # the package is missing, or raises an error class of its own
                values[name] = read(device) * scale
    return values


def _workers() -> list[psutil.Process]:
    processes = []
    for child in multiprocessing.active_children():
        with suppress(psutil.Error):
            processes.append(psutil.Process(child.pid))
    return processes


def _seconds_of_workers() -> Iterator[float]:
    for worker in _workers():
        with suppress(psutil.Error):
            times = worker.cpu_times()
            yield times.user + times.system


def _resident(process: psutil.Process) -> int:
    with suppress(psutil.Error):
        return int(process.memory_info().rss)
    return 0
