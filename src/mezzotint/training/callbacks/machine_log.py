"""Curves of the machine in metrics.jsonl and TensorBoard: processors, memory, and the device. They change nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping

from mezzotint.runtimes.shared import machine_load
from mezzotint.runtimes.shared.machine_load import MachineLoad
from mezzotint.stages import StepReport
from mezzotint.training.callbacks._evaluating import NumberSink
from mezzotint.training.callbacks.base import Action, Callback, Setup
from mezzotint.training.progress import Progress

SECONDS = 10.0
"""Between two readings, at the end of a step."""


class MachineLog(Callback):
    """Reads the machine every `SECONDS`, in the first process. sink: gets the numbers. read_load, read_memory: as in
    `machine_load`; read_device: numbers of the device by name. clock: seconds."""

    receives_delayed_reports = True

    def __init__(
        self, sink: NumberSink, read_load: Callable[[], MachineLoad], read_memory: Callable[[], tuple[int, int]],
        read_device: Callable[[], Mapping[str, float]], clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._sink, self._clock = sink, clock
        self._read_load, self._read_memory, self._read_device = read_load, read_memory, read_device
        self._since: tuple[float, MachineLoad] | None = None

    def on_step(self, report: StepReport | None, progress: Progress) -> Action:
        """Passes the numbers since the last reading to the sink. Raises StorageError if they cannot be written."""
        now = self._clock()
        if report is None:
            return Action.NOTHING
        if self._since is None:
            self._since = now, self._read_load()
        elif now - self._since[0] >= SECONDS:
            before, load = self._since[1], self._read_load()
            used = load - before
            own, available = self._read_memory()
            numbers = {
                "machine/processors": used.own_cpu_seconds / (now - self._since[0]),
                "machine/memory_bytes": float(own),
                "machine/available_bytes": float(available),
                **{f"device/{name}": float(value) for name, value in self._read_device().items()},
            }
            if total := used.busy_cpu_seconds + used.idle_cpu_seconds:
                numbers["machine/busy"] = used.busy_cpu_seconds / total
            self._since = now, load
            self._sink(report.step + 1, numbers)
        return Action.NOTHING


def create_callbacks(setup: Setup) -> Iterator[Callback]:
    """Always: every process has the same callbacks; it reads the machine in the first."""
    device = setup.runtime.device
    yield MachineLog(
        setup.numbers,
        lambda: machine_load.read_load(device),
        machine_load.read_memory,
        lambda: machine_load.read_device(device),
    )
