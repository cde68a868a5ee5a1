"""Rows in turn: each trains in a thread of its own, of which one at a time goes on, for a block of steps. Its clocks
stand still meanwhile, so that a machine that slows down does so for all rows alike."""

from __future__ import annotations

import resource
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import torch

from mezzotint.runtimes.base import graphs_compiled

_METERS: Mapping[str, Callable[[], float]] = MappingProxyType(
    {"wall": time.monotonic, "cpu": time.process_time, "graphs": graphs_compiled}
)


class Turn:
    """What a row has of a machine that it shares with others. memory: the most bytes that it took since `reset`, those
    of other rows left out."""

    def __init__(self, device: torch.device, rests: dict[int, int] | None = None) -> None:
        self.device = device
        self.memory = 0
        self._rests: dict[int, int] = {} if rests is None else rests
        self._begin = 0
        self._paused = dict.fromkeys(_METERS, 0.0)
        self._mine, self._theirs = threading.Semaphore(0), threading.Semaphore(0)
        self._is_given_up = False
        self._has_others = rests is not None
        self.is_done = False

    def read(self, meter: str) -> float:
        """Seconds of the clock ("wall") or of the processor ("cpu"), or graphs compiled, while it was this row's
        turn."""
        return _METERS[meter]() - self._paused[meter]

    def pass_on(self) -> None:
        """Waits until all other rows have had their turn."""
        self.note_memory()
        if not self._has_others:
            return
        self._rests[id(self)] = used_memory(self.device) - self._begin - self._others()
        before = {name: meter() for name, meter in _METERS.items()}
        self._theirs.release()
        self._mine.acquire()
        for name, meter in _METERS.items():
            self._paused[name] += meter() - before[name]
        if self._is_given_up:
            raise _GivenUp
        reset_peak(self.device)

    def reset(self) -> None:
        """What it took before does not count."""
        self.memory = 0
        reset_peak(self.device)

    def note_memory(self) -> None:
        """Takes the peak since the turn began, or `reset`, into `memory`."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        self.memory = max(self.memory, peak_memory(self.device) - self._others())

    def _others(self) -> int:
        return sum(rest for other, rest in self._rests.items() if other != id(self))

    def start(self, work: Callable[[Turn], None], failed: list[BaseException]) -> threading.Thread:
        """A thread that does the work in this row's turns. failed: takes what it raises."""

        def run() -> None:
            self._mine.acquire()
            try:
                if not self._is_given_up:
                    work(self)
            except _GivenUp:
                pass
            except BaseException as error:
                failed.append(error)
            finally:
                self.is_done = True
                self._theirs.release()

        thread = threading.Thread(target=run, name="bench")
        thread.start()
        return thread

    def let(self, *, give_up: bool = False) -> None:
        """Lets the row go on until it passes on, or is done."""
        self._is_given_up = give_up
        self._mine.release()
        self._theirs.acquire()


class _GivenUp(Exception):
    """Another row has failed."""


def in_turn(works: Sequence[Callable[[Turn], None]], device: torch.device) -> None:
    """Does all works, which pass on at the same places. One alone runs as it is. Raises what one of them raises, once
    the others have ended."""
    if len(works) == 1:
        works[0](Turn(device))
        return
    rests: dict[int, int] = {}
    failed: list[BaseException] = []
    begin = used_memory(device)
    turns = [Turn(device, rests) for _ in works]
    threads = []
    for turn, work in zip(turns, works, strict=True):
        turn._begin = begin
        threads.append(turn.start(work, failed))
    while waiting := [turn for turn in turns if not turn.is_done]:
        for turn in waiting:
            turn.let(give_up=bool(failed))
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


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
