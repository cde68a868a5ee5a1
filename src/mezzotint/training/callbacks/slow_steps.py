"""Reports when a run has become slow, and why, as far as this process can see it. It changes nothing.

    warning: the last 20 steps, up to step 1240, took 2.41 s each, 3.1 times the median of this run (0.78 s): waiting
    for data takes 1.6 s of a step; raise data.workers, or cache latents with data.cache.latents=true

A step is compared with the run's other steps of about the same size, because buckets, resolutions and clip lengths
differ in time. A resumed run starts to measure anew: it may be on another machine.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from mezzotint.runtimes.shared import machine_load
from mezzotint.runtimes.shared.machine_load import DeviceMemory, MachineLoad
from mezzotint.settings.counting import format_bytes, format_count, format_duration
from mezzotint.stages import StepReport
from mezzotint.training.callbacks.base import Action, Callback, Setup
from mezzotint.training.progress import Progress

FACTOR = 2.0
"""A step is slow above this multiple of the median."""

IN_A_ROW = 20
"""Slow steps in a row that are reported; as many others in a row end the episode."""

LEAST = 20
"""Steps of a size before the next of that size is judged."""

MOST = 20
"""Episodes that one attempt at a run reports."""

EVENT = "slow-steps"
"""The name in the run's history."""

_SHARE = 0.5
"""Share of the additional time, or of the steps, that is a cause."""

_SWAPPED_BYTES, _FAULTS_PER_STEP = 16 << 20, 10
_CPU_SHARE, _IDLE_SHARE = 0.25, 0.2
"""Other processes slow a run down if they use more than the first share of the processors and less than the second is
idle."""
_FREE_SHARE, _OTHERS_BYTES = 0.01, 2 << 30


@dataclass(slots=True)
class RunningMedian:
    """The median of all values so far, to 2 %. Values are counted by their logarithm, in steps of 2 %, so memory does
    not grow with their number."""

    count: int = 0
    _counts: Counter[int] = field(default_factory=Counter)

    def add(self, value: float) -> None:
        """Adds a value above 0; smaller ones count as 1e-9."""
        self._counts[round(math.log(max(value, 1e-9)) * 50)] += 1
        self.count += 1

    @property
    def value(self) -> float:
        """The median. Raises ValueError without a value."""
        below = 0
        for step in sorted(self._counts):
            below += self._counts[step]
            if 2 * below >= self.count:
                return math.exp(step / 50)
        raise ValueError("there is no value")


@dataclass(slots=True)
class Usual:
    """Medians of steps of one size: seconds, and of them waiting for data."""

    seconds: RunningMedian = field(default_factory=RunningMedian)
    waiting: RunningMedian = field(default_factory=RunningMedian)

    def add(self, report: StepReport) -> None:
        """Adds a step."""
        self.seconds.add(report.seconds)
        self.waiting.add(report.wait_seconds)


@dataclass(slots=True)
class SlowPeriod:
    """Sums over consecutive slow steps. before: the machine's load at its first step. saving: steps during which a
    checkpoint was being written."""

    before: MachineLoad
    steps: int = 0
    seconds: float = 0.0
    usual_seconds: float = 0.0
    waiting: float = 0.0
    usual_waiting: float = 0.0
    saving: int = 0

    def add(self, report: StepReport, usual: Usual, *, is_saving: bool) -> None:
        """Adds a step."""
        self.steps += 1
        self.seconds += report.seconds
        self.usual_seconds += usual.seconds.value
        self.waiting += report.wait_seconds
        self.usual_waiting += usual.waiting.value
        self.saving += is_saving


class SlowSteps(Callback):
    """Warns of `IN_A_ROW` consecutive steps that each took more than `FACTOR` times the median of their size, once for
    each such episode, and reports when it is over. record: adds the episode to the history. is_saving: whether a
    checkpoint is being written. caches_latents: whether the run trains from cached latents. processes: of the run."""

    receives_delayed_reports = True

    def __init__(
        self, *, warn: Callable[[str], None], say: Callable[[str], None], record: Callable[..., None],
        is_saving: Callable[[], bool], read_load: Callable[[], MachineLoad],
        read_device_memory: Callable[[], DeviceMemory | None] = lambda: None, caches_latents: bool = False,
        processes: int = 1,
    ) -> None:  # fmt: skip
        self._warn, self._say, self._record = warn, say, record
        self._is_saving, self._read_load, self._read_device_memory = is_saving, read_load, read_device_memory
        self._caches_latents, self._processes = caches_latents, processes
        self._usual: dict[int, Usual] = {}
        self._period: SlowPeriod | None = None
        self._is_reported = False
        self._slow_steps = self._normal_steps = self._episodes = 0

    def on_step(self, report: StepReport | None, progress: Progress) -> Action:
        """Compares a step with the median. Raises StorageError if the history cannot be written."""
        if report is None or (self._episodes >= MOST and not self._is_reported):
            return Action.NOTHING
        # sizes by quarters of powers of two: attention's time, which grows fastest, then differs by less than half
        usual = self._usual.setdefault(round(4 * math.log2(max(1, report.num_elements))), Usual())
        if usual.seconds.count < LEAST:
            usual.add(report)
            return Action.NOTHING
        is_slow = report.seconds > FACTOR * usual.seconds.value
        if not self._is_reported:  # the steps of an episode would make it usual
            usual.add(report)
        if is_slow:
            self._take_slow(report, usual)
        else:
            self._take_normal(report)
        return Action.NOTHING

    def _take_slow(self, report: StepReport, usual: Usual) -> None:
        self._normal_steps = 0
        self._slow_steps += 1
        if self._is_reported:
            return
        self._period = self._period or SlowPeriod(self._read_load())
        self._period.add(report, usual, is_saving=self._is_saving())
        if self._period.steps == IN_A_ROW:
            self._is_reported = True
            self._episodes += 1
            self._report(self._period, report.step + 1)

    def _take_normal(self, report: StepReport) -> None:
        self._period = None
        self._normal_steps += 1
        if not self._is_reported:
            self._slow_steps = 0
        elif self._normal_steps == IN_A_ROW:
            count = format_count(self._slow_steps, "slow step")
            self._say(f"step {report.step + 1:,}: steps are as fast as usual again, after {count}")
            self._is_reported, self._slow_steps = False, 0

    def _report(self, period: SlowPeriod, step: int) -> None:
        seconds, usual = period.seconds / period.steps, float(f"{period.usual_seconds / period.steps:.2g}")
        causes = list(self._causes(period)) or [
            "no cause seen" + (" in the first process; another one may be slow" if self._processes > 1 else "")
        ]
        last = "; further slow steps are not reported" if self._episodes == MOST else ""
        self._warn(
            f"the last {period.steps} steps, up to step {step:,}, took {format_duration(seconds)} each, "
            f"{seconds / usual:.1f} times the median of this run ({format_duration(usual)}): {'; '.join(causes)}{last}"
        )
        self._record(EVENT, step=step, seconds=seconds, usual_seconds=usual, cause="; ".join(causes))

    def _causes(self, period: SlowPeriod) -> Iterator[str]:
        """What the additional time was spent on, each with its evidence."""
        more = period.seconds - period.usual_seconds
        if period.waiting - period.usual_waiting >= _SHARE * more:
            remedy = (
                "is the disk of data.cache.path slow?"
                if self._caches_latents
                else "raise data.workers, or cache latents with data.cache.latents=true"
            )
            yield f"waiting for data takes {format_duration(period.waiting / period.steps)} of a step; {remedy}"
        if period.saving >= _SHARE * period.steps:
            yield "a checkpoint is being written in the background (run.save.every, run.save.asynchronous)"
        load = self._read_load() - period.before
        if load.swapped_bytes >= _SWAPPED_BYTES and load.page_faults >= _FAULTS_PER_STEP * period.steps:
            yield (
                f"the machine is swapping: {format_bytes(load.swapped_bytes)} were read back from swap; free host "
                "memory, or lower data.workers and data.prefetch"
            )
        yield from self._device_causes(load)
        # other processes of the run count as this one: their share cannot be told apart
        others = load.busy_cpu_seconds - self._processes * load.own_cpu_seconds
        capacity = load.busy_cpu_seconds + load.idle_cpu_seconds
        if others > _CPU_SHARE * capacity and load.idle_cpu_seconds < _IDLE_SHARE * capacity:
            yield f"other processes use {100 * others / capacity:.0f} % of the processors, and none is idle"

    def _device_causes(self, load: MachineLoad) -> Iterator[str]:
        memory = self._read_device_memory()
        if load.alloc_retries:
            times = format_count(load.alloc_retries, "time")
            yield f"device memory is full: torch freed its cache {times} to allocate; lower run.micro_batch"
        elif memory is not None and memory.free < _FREE_SHARE * memory.total:
            yield f"device memory is nearly full: {format_bytes(memory.free)} of {format_bytes(memory.total)} are free"
        if memory is not None and memory.others > _OTHERS_BYTES:
            yield f"another process may use the device: {format_bytes(memory.others)} of its memory are not of this run"


def create_callbacks(setup: Setup) -> Iterator[Callback]:
    """Always: it measures in the first process."""
    device = setup.runtime.device
    yield SlowSteps(
        warn=setup.warn,
        say=setup.say,
        record=setup.folder.record,
        is_saving=setup.is_saving,
        read_load=lambda: machine_load.read_load(device),
        read_device_memory=lambda: machine_load.read_device_memory(device),
        caches_latents=bool(setup.recipe["data"]["cache"]["latents"]),
        processes=setup.runtime.world_size,
    )
