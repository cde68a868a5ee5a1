"""Reports of slow steps: when, how often, with which cause; the machine is simulated, except in the last two tests."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch

import mezzotint as mz
from mezzotint import fault_injection
from mezzotint.board.reading import runs
from mezzotint.runtimes.shared.machine_load import DeviceMemory, MachineLoad, read_load
from mezzotint.stages import StepReport
from mezzotint.training.callbacks.slow_steps import MOST, RunningMedian, SlowSteps
from mezzotint.training.progress import Progress

PROGRESS = Progress(step=1, last_step=10**6)
GB = 10**9


class Watched:
    """The callback in a machine whose load the test sets, and what it reported."""

    def __init__(self, **changes: Any) -> None:
        self.warnings: list[str] = []
        self.said: list[str] = []
        self.events: list[dict[str, Any]] = []
        self.load, self.per_step, self.is_saving = MachineLoad(), MachineLoad(), False
        self.readings = self.step = 0
        options: dict[str, Any] = {
            "warn": self.warnings.append,
            "say": self.said.append,
            "record": lambda event, **facts: self.events.append({"event": event, **facts}),
            "is_saving": lambda: self.is_saving,
            "read_load": self._read_load,
        }
        self.callback = SlowSteps(**options | changes)

    def _read_load(self) -> MachineLoad:
        self.readings += 1
        return self.load

    def take(self, seconds: Iterable[float], *, wait: float = 0.0, num_elements: int = 1000) -> Watched:
        """Passes the reports of steps that take this long; the load grows by `per_step` at each."""
        for second in seconds:
            of_step = (getattr(self.load, name) + getattr(self.per_step, name) for name in MachineLoad.__slots__)
            self.load = MachineLoad(*of_step)
            report = StepReport(step=self.step, seconds=second, wait_seconds=wait, num_elements=num_elements)
            self.callback.on_step(report, PROGRESS)
            self.step += 1
        return self


def test_twenty_slow_steps_in_a_row_are_reported_once_and_their_end_too() -> None:
    watched = Watched().take([0.5] * 30).take([1.3] * 19)
    assert watched.warnings == []
    watched.take([1.3] * 200)
    [warning], [event] = watched.warnings, watched.events
    assert warning.startswith(
        "the last 20 steps, up to step 50, took 1.3 s each, 2.6 times the median of this run (0.5 s): no cause seen"
    )
    assert (event["event"], event["step"]) == ("slow-steps", 50)
    assert event["cause"] == "no cause seen"
    watched.take([0.5] * 19)
    assert watched.said == []
    watched.take([0.5] * 50)
    assert watched.said == ["step 269: steps are as fast as usual again, after 219 slow steps"]
    watched.take([1.3] * 20)
    assert len(watched.warnings) == len(watched.events) == 2


@pytest.mark.parametrize(
    "seconds",
    [
        [0.5] * 30 + ([1.3] * 19 + [0.5]) * 10,  # never twenty in a row
        [0.5] * 30 + [0.98] * 200,  # less than twice as slow
        [5.0] * 3 + [0.5] * 500,  # the first steps are a warm-up
        [0.5] * 19 + [1.3] * 300,  # too few steps to know what is usual
        [0.5 * 1.01**i for i in range(19)],
    ],
)
def test_other_steps_are_not_reported(seconds: list[float]) -> None:
    assert Watched().take(seconds).warnings == []


def test_steps_of_large_buckets_are_compared_with_their_like() -> None:
    watched = Watched()
    for _ in range(30):
        watched.take([0.5], num_elements=64**2).take([3.0], num_elements=160**2)
    watched.take([3.0] * 100, num_elements=160**2).take([3.1] * 30, num_elements=160 * 158)
    assert watched.warnings == []
    watched.take([3.0] * 20, num_elements=64 * 63)  # the small ones take as long as the large ones
    assert "up to step 210, took 3 s each, 6.0 times" in watched.warnings[0]


def test_number_of_reports_is_limited() -> None:
    watched = Watched().take([0.5] * 2000)
    for _ in range(MOST + 5):
        watched.take([1.3] * 20).take([0.5] * 20)
    assert len(watched.warnings) == MOST
    assert ["further" in warning for warning in watched.warnings] == [False] * (MOST - 1) + [True]
    assert len(watched.said) == MOST


SWAPPING = MachineLoad(swapped_bytes=10 << 20, page_faults=100)
CROWDED = MachineLoad(own_cpu_seconds=1.0, busy_cpu_seconds=3.9, idle_cpu_seconds=0.1)
FULL = DeviceMemory(80 * GB, 80 * GB // 200, GB // 2)
SHARED = DeviceMemory(80 * GB, 20 * GB, 30 * GB)


def no_change(_: Watched) -> None:
    pass


def start_save(watched: Watched) -> None:
    watched.is_saving = True


def put_load(load: MachineLoad) -> Callable[[Watched], None]:
    def put(watched: Watched) -> None:
        watched.per_step = load

    return put


@pytest.mark.parametrize(
    ("changes", "prepare", "wait", "cause"),
    [
        ({}, no_change, 0.9, "waiting for data takes 0.9 s of a step; raise data.workers, or cache latents"),
        ({"caches_latents": True}, no_change, 0.9, "0.9 s of a step; is the disk of data.cache.path slow?"),
        ({}, no_change, 0.3, "no cause seen"),
        ({}, start_save, 0.0, "a checkpoint is being written"),
        ({}, put_load(SWAPPING), 0.0, "the machine is swapping: 199 MB were read back"),
        ({}, put_load(MachineLoad(swapped_bytes=10 << 20)), 0.0, "no cause seen"),  # of another process
        ({}, put_load(MachineLoad(page_faults=100)), 0.0, "no cause seen"),  # from memory-mapped files
        ({}, put_load(CROWDED), 0.0, "other processes use 72 % of the processors"),
        ({"processes": 4}, put_load(CROWDED), 0.0, "no cause seen in the first process"),  # it may be the run's own
        ({}, put_load(MachineLoad(1.0, 2.0, 2.0)), 0.0, "no cause seen"),  # half of the processors are idle
        ({}, put_load(MachineLoad(alloc_retries=2)), 0.0, "torch freed its cache 38 times"),
        ({"read_device_memory": lambda: FULL}, no_change, 0.0, "device memory is nearly full: 400 MB of 80 GB"),
        ({"read_device_memory": lambda: SHARED}, no_change, 0.0, "another process may use the device: 30 GB"),
    ],
)
def test_causes_are_named_by_their_evidence(
    changes: dict[str, Any], prepare: Callable[[Watched], None], wait: float, cause: str
) -> None:
    watched = Watched(**changes).take([0.5] * 30, wait=0.1)
    prepare(watched)
    watched.take([1.3] * 25, wait=wait)
    assert cause in watched.warnings[0]
    assert ";" in cause or watched.warnings[0].count("no cause") == cause.count("no cause")


def test_several_causes_are_all_named() -> None:
    watched = Watched().take([0.5] * 30)
    start_save(watched)
    watched.per_step = CROWDED
    cause = watched.take([1.3] * 20, wait=0.9).events[0]["cause"]
    assert [words in cause for words in ("waiting for data", "checkpoint", "other processes")] == [True] * 3


def test_running_median_is_exact_to_two_percent_with_bounded_memory() -> None:
    median, values = RunningMedian(), [0.2 + 0.001 * (i * 7919 % 1009) for i in range(5001)]
    for value in [0.0, *values]:
        median.add(value)
    assert median.value == pytest.approx(statistics.median(values), rel=0.02)
    assert len(median._counts) < 110


def test_steps_at_the_usual_speed_cost_microseconds_and_read_nothing_of_the_machine() -> None:
    watched = Watched()
    reports = [StepReport(step=i, seconds=0.5 + 0.0005 * (i % 400), num_elements=1000) for i in range(2000)]
    start = time.process_time()
    for report in reports:
        watched.callback.on_step(report, PROGRESS)
    assert (time.process_time() - start) / len(reports) < 1e-3  # about 20 microseconds
    assert watched.readings == 0


def test_load_of_this_machine_counts_this_process() -> None:
    before, start = read_load(torch.device("cpu")), time.process_time()
    while time.process_time() - start < 0.05:
        pass
    used = read_load(torch.device("cpu")) - before
    assert used.own_cpu_seconds >= 0.05
    assert used.busy_cpu_seconds == 0 or used.busy_cpu_seconds >= 0.03  # 0 where /proc/stat shows nothing
    assert used.alloc_retries == 0


@pytest.mark.slow
def test_run_whose_images_become_slow_to_read_reports_it_and_trains_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["data.resolution=32", "data.buckets.step=32", "data.batch_size=1", "optim.accumulation=1", "run.steps=44"]
    words += ["run.tensorboard=false", "run.preview.every=null", "run.save.every=null", "optim.ema.rule=none"]
    try:
        fault_injection.arm(",".join(f"data.decode@{image}:sleep=1.5" for image in range(23, 45)))
        run = mz.train(mz.recipe("tiny_cpu", *words))
    finally:
        fault_injection.arm("")
    log = (run.path / "run.log").read_text()
    assert log.count("times the median of this run") == 1, log
    report = [line for line in (run.path / "logs" / "report.txt").read_text().splitlines() if "slow steps" in line]
    [mark] = [mark for mark in runs.marks(runs.history(run.path), run.path) if mark["kind"] == "slow"]
    for text in (*report, mark["text"]):
        assert f"up to step {mark['step']}: waiting for data takes" in text
    assert len(report) == 1
    assert len(run.history["loss"]) == 44
