"""Named points where a test injects a fault."""

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

from mezzotint import probes

SOURCE = Path(probes.__file__).parent


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    probes.arm("")
    yield
    probes.arm("")


def test_nothing_happens_unless_armed() -> None:
    for point in probes.POINTS:
        probes.reach(point)


def test_a_fault_happens_at_its_count_and_only_then() -> None:
    probes.arm("step.begin@3:raise")
    probes.reach("step.begin")
    probes.reach("step.end")
    probes.reach("step.begin")
    with pytest.raises(RuntimeError, match=r"injected at step\.begin"):
        probes.reach("step.begin")
    probes.reach("step.begin")


def test_several_faults_count_for_themselves() -> None:
    probes.arm("step.begin@1:sleep=0,step.begin@2:enospc,step.end:raise")
    probes.reach("step.begin")
    with pytest.raises(OSError) as caught:
        probes.reach("step.begin")
    assert caught.value.errno == errno.ENOSPC
    with pytest.raises(RuntimeError):
        probes.reach("step.end")


def test_arming_again_forgets_what_was_armed() -> None:
    probes.arm("step.begin@1:raise")
    probes.arm("step.end@1:raise")
    probes.reach("step.begin")


def test_sleep_takes_its_seconds() -> None:
    probes.arm("data.decode@1:sleep=0.05")
    start = time.perf_counter()
    probes.reach("data.decode")
    assert time.perf_counter() - start >= 0.05


@pytest.mark.parametrize(
    ("action", "number"),
    [("kill", signal.SIGKILL), ("term", signal.SIGTERM), ("int", signal.SIGINT), ("usr1", signal.SIGUSR1)],
)
def test_signals_reach_this_process(action: str, number: signal.Signals) -> None:
    code = (
        "import signal; from mezzotint import probes; signal.signal(signal.SIGINT, signal.SIG_DFL)\n"
        f"probes.arm('step.end@2:{action}')\nprobes.reach('step.end')\nprint('once', flush=True)\n"
        "probes.reach('step.end')\nprint('never')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (-number, "once\n")


@pytest.mark.parametrize("text", ["nowhere@1:kill", "step.begin@1:explode", "step.begin@1", "step.begin@x:kill"])
def test_what_cannot_be_armed_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        probes.arm(text)


def test_an_unknown_point_is_a_bug() -> None:
    probes.arm("step.end@1:raise")
    with pytest.raises(AssertionError):
        probes.reach("no.such.point")


def test_every_point_is_reached_in_the_source_and_every_reach_names_a_point() -> None:
    reached = set()
    for path in SOURCE.rglob("*.py"):
        reached |= set(re.findall(r'\breach\(\s*"([^"]+)"', path.read_text(encoding="utf-8")))
    assert reached == set(probes.POINTS)
