"""Named points at which tests inject faults."""

from __future__ import annotations

import errno
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mezzotint import fault_injection

SOURCE = Path(fault_injection.__file__).parent


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    fault_injection.arm("")
    yield
    fault_injection.arm("")


def test_unarmed_points_do_nothing() -> None:
    for point in fault_injection.POINTS:
        fault_injection.reach(point)


def test_fault_happens_only_at_its_count() -> None:
    fault_injection.arm("step.begin@3:raise")
    fault_injection.reach("step.begin")
    fault_injection.reach("step.end")
    fault_injection.reach("step.begin")
    with pytest.raises(RuntimeError, match=r"injected at step\.begin"):
        fault_injection.reach("step.begin")
    fault_injection.reach("step.begin")


def test_several_faults_count_separately() -> None:
    fault_injection.arm("step.begin@1:sleep=0,step.begin@2:enospc,step.end:raise")
    fault_injection.reach("step.begin")
    with pytest.raises(OSError) as caught:
        fault_injection.reach("step.begin")
    assert caught.value.errno == errno.ENOSPC
    with pytest.raises(RuntimeError):
        fault_injection.reach("step.end")


def test_arming_replaces_armed_faults() -> None:
    fault_injection.arm("step.begin@1:raise")
    fault_injection.arm("step.end@1:raise")
    fault_injection.reach("step.begin")


def test_sleep_fault_takes_its_seconds() -> None:
    fault_injection.arm("data.decode@1:sleep=0.05")
    start = time.perf_counter()
    fault_injection.reach("data.decode")
    assert time.perf_counter() - start >= 0.05


@pytest.mark.parametrize(
    ("action", "number"),
    [("kill", signal.SIGKILL), ("term", signal.SIGTERM), ("int", signal.SIGINT), ("usr1", signal.SIGUSR1)],
)
def test_signal_faults_reach_the_process(action: str, number: signal.Signals) -> None:
    code = (
        "import signal; from mezzotint import fault_injection; signal.signal(signal.SIGINT, signal.SIG_DFL)\n"
        f"fault_injection.arm('step.end@2:{action}')\nfault_injection.reach('step.end')\nprint('once', flush=True)\n"
        "fault_injection.reach('step.end')\nprint('never')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (-number, "once\n")


@pytest.mark.parametrize("text", ["nowhere@1:kill", "step.begin@1:explode", "step.begin@1", "step.begin@x:kill"])
def test_invalid_fault_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        fault_injection.arm(text)


def test_unknown_point_is_an_assertion_error() -> None:
    fault_injection.arm("step.end@1:raise")
    with pytest.raises(AssertionError):
        fault_injection.reach("no.such.point")


def test_points_are_exactly_those_reached_in_the_source() -> None:
    reached = set()
    for path in SOURCE.rglob("*.py"):
        reached |= set(re.findall(r'\breach\(\s*"([^"]+)"', path.read_text(encoding="utf-8")))
    assert reached == set(fault_injection.POINTS)
