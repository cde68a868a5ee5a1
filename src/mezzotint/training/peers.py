"""What the processes of a run tell each other: signals that travel with the gradients of a step.

A process adds its signals to the sums that the runtime exchanges anyway, so that agreeing costs no exchange of its own.
Every process reads the same signals after the same step and acts on them together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntFlag

import torch
from torch import Tensor

from mezzotint.runtimes.base import Runtime


class PeerSignals(IntFlag):
    """What one process tells the others. A callback that is due every few minutes has a bit of its own, `timer(n)`."""

    SAVE = 1
    STOP = 2
    SAVING = 4
    """This process still writes its part of a checkpoint."""
    OUT_OF_MEMORY = 8
    """Memory ran out in this step, which all processes repeat."""
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
    """Signals summed over all processes, on their way to the host. They set out as soon as the gradients are summed, so
    that reading them waits for that exchange and not for the update behind it.

    counts: (n,) float32 on the device; number i is above 0 where any process has raised bit i."""

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
    """Signals as numbers that can be summed, (num_bits,) float32."""
    bits = torch.tensor([float(signals >> bit & 1) for bit in range(num_bits)])
    return bits.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else bits


@dataclass(slots=True)
class Peers:
    """The exchange of signals. poll: what this process has to tell now, given the keys of the step's corrupt samples.
    num_timers: callbacks, each of which may have a timer."""

    runtime: Runtime
    poll: Callable[[Sequence[str]], PeerSignals]
    num_timers: int
    _local: PeerSignals = NONE
    _future: FlagFuture | None = None

    def attach(self, sums: Tensor, corrupt: Sequence[str], extra: PeerSignals = NONE) -> None:
        """Gives the sums of a step, (n,) float32, and this process's signals to the exchange of its gradients. Called
        once a step, in its last micro-batch."""
        self._local |= extra
        if self.runtime.world_size > 1:
            self._local |= self.poll(corrupt)
            sums = torch.cat([sums, as_counts(self._local, self._num_bits, sums.device)])
        self.runtime.attach_to_allreduce(sums)

    def take_sums(self) -> Tensor:
        """The sums of the step over all processes, (n,). The signals that came with them set out for the host."""
        summed = self.runtime.allreduced()
        if self.runtime.world_size == 1:
            return summed
        self._future = FlagFuture(summed[-self._num_bits :])
        return summed[: -self._num_bits]

    @property
    def is_out_of_memory(self) -> bool:
        """Whether memory ran out in this step, on any process."""
        return PeerSignals.OUT_OF_MEMORY in self._received

    def exchange(self, corrupt: Sequence[str]) -> PeerSignals:
        """What any process told with this step. corrupt: keys of the step's corrupt samples here."""
        if self.runtime.world_size == 1:
            self._local |= self.poll(corrupt)
        signals, self._local, self._future = self._received, NONE, None
        return signals

    def repeat(self) -> None:
        """The step is repeated: what was asked for is asked for again."""
        self._local, self._future = self._received & ~_OF_ONE_ATTEMPT, None

    @property
    def _received(self) -> PeerSignals:
        return self._local | (self._future.result() if self._future is not None else NONE)

    @property
    def _num_bits(self) -> int:
        return PeerSignals.timer(self.num_timers).bit_length() - 1
