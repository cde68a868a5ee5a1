"""Signals between the processes of a run, sent with the gradients of a step.

A process appends its signals to the sums that the runtime reduces anyway, so they need no communication of their own.
Every process reads the same signals after the same step, and all act on them together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntFlag

import torch
from torch import Tensor

from mezzotint.runtimes.base import Runtime


class PeerSignals(IntFlag):
    """Signals of one process to the others. Each callback with an interval in minutes has its own bit, `timer(n)`."""

    SAVE = 1
    STOP = 2
    SAVING = 4
    """This process is still writing its part of a checkpoint."""
    OUT_OF_MEMORY = 8
    """Memory ran out in this step; all processes repeat it."""
    PREVIEW = 16
    CORRUPT_SAMPLES = 32
    FOLDER_LOST = 64
    FIRST_TIMER = 128

    @classmethod
    def timer(cls, number: int) -> PeerSignals:
        """The bit of the callback with this number."""
        return cls(cls.FIRST_TIMER << number)


NONE = PeerSignals(0)
_OF_ONE_ATTEMPT = PeerSignals.SAVING | PeerSignals.CORRUPT_SAMPLES | PeerSignals.OUT_OF_MEMORY


class FlagFuture:
    """Signals summed over all processes, being copied to the host. The copy is queued as soon as the gradients are
    reduced, so reading it waits for the reduction and not for the update after it.

    counts: (n,) float32 on the device; number i is above 0 if any process has set bit i."""

    def __init__(self, counts: Tensor) -> None:
        self._counts, self._arrived = counts, None
        if counts.device.type == "cuda":
            self._counts = counts.to("cpu", non_blocking=True)
            self._arrived = torch.cuda.Event()
            self._arrived.record()

    def result(self) -> PeerSignals:
        """Waits, and returns the signals of all processes."""
        if self._arrived is not None:
            self._arrived.synchronize()
        return PeerSignals(sum(1 << bit for bit, count in enumerate(self._counts.tolist()) if count))


def as_counts(signals: int, num_bits: int, device: torch.device) -> Tensor:
    """Signals as numbers to be summed, (num_bits,) float32."""
    bits = torch.tensor([float(signals >> bit & 1) for bit in range(num_bits)])
    return bits.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else bits


@dataclass(slots=True)
class Peers:
    """The exchange of signals. poll: returns this process's current signals, given the keys of the step's corrupt
    samples. num_timers: number of callbacks, each of which may have a timer."""

    runtime: Runtime
    poll: Callable[[Sequence[str]], PeerSignals]
    num_timers: int
    _local: PeerSignals = NONE
    _future: FlagFuture | None = None

    def attach(self, sums: Tensor, corrupt: Sequence[str], extra: PeerSignals = NONE) -> None:
        """Attaches the sums of a step, (n,) float32, and this process's signals to the reduction of its gradients.
        Called once per step, in its last micro-batch."""
        self._local |= extra
        if self.runtime.world_size > 1:
            self._local |= self.poll(corrupt)
            sums = torch.cat([sums, as_counts(self._local, self._num_bits, sums.device)])
        self.runtime.attach_to_allreduce(sums)

    def take_sums(self) -> Tensor:
        """The sums of the step over all processes, (n,). Starts copying the signals to the host."""
        summed = self.runtime.read_allreduced()
        if self.runtime.world_size == 1:
            return summed
        self._future = FlagFuture(summed[-self._num_bits :])
        return summed[: -self._num_bits]

    @property
    def is_out_of_memory(self) -> bool:
        """Whether memory ran out in this step, on any process."""
        return PeerSignals.OUT_OF_MEMORY in self._all_signals

    def exchange(self, corrupt: Sequence[str]) -> PeerSignals:
        """The signals of all processes for this step. corrupt: keys of the step's corrupt samples in this process."""
        if self.runtime.world_size == 1:
            self._local |= self.poll(corrupt)
        signals, self._local, self._future = self._all_signals, NONE, None
        return signals

    def repeat(self) -> None:
        """Called when the step is repeated: keeps the requests for the next attempt."""
        self._local, self._future = self._all_signals & ~_OF_ONE_ATTEMPT, None

    @property
    def _all_signals(self) -> PeerSignals:
        return self._local | (self._future.result() if self._future is not None else NONE)

    @property
    def _num_bits(self) -> int:
        return PeerSignals.timer(self.num_timers).bit_length() - 1
