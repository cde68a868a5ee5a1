"""The most memory that a measured row takes, on a GPU or of the process."""

from __future__ import annotations

import resource
from pathlib import Path

import torch


class PeakMemory:
    """Watches a device's memory from `reset` on. What earlier rows left behind does not count."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._before = used_memory(device)

    def reset(self) -> None:
        """The peak so far does not count."""
        reset_peak(self._device)

    def read(self) -> int:
        """Bytes: the peak since `reset`. On a CPU the whole process counts, on a GPU only what was allocated since this
        was made."""
        if self._device.type != "cuda":
            return peak_memory(self._device)
        torch.cuda.synchronize(self._device)
        return peak_memory(self._device) - self._before


def reset_peak(device: torch.device) -> None:
    """The peak of memory begins anew, where the system has one that can."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return
    try:
        Path("/proc/self/clear_refs").write_text("5", "ascii")
    except OSError:
        return


def peak_memory(device: torch.device) -> int:
    """Bytes. Where the system keeps no peak that can be reset, that of the process's whole life."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return _of_status("VmHWM:") or 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def used_memory(device: torch.device) -> int:
    """Bytes now; 0 where the system does not tell."""
    return torch.cuda.memory_allocated(device) if device.type == "cuda" else _of_status("VmRSS:")


def _of_status(name: str) -> int:
    try:
        lines = Path("/proc/self/status").read_text("ascii", "replace").splitlines()
    except OSError:
        return 0
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith(name)), 0)
