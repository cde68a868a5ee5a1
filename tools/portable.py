"""`make portable`: the tests that compare numbers, as other processors would work them out.

torch, oneDNN and MKL choose their code by the instructions that a processor has, and each can be told to do with fewer.
So this machine stands in for others, one setting after another, with one thread and with two. A setting that asks for
what the processor lacks is left out, by name. Ends with 1 if a test fails anywhere.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
QUICK = ("tests/parity", "tests/diffusion", "tests/families", "tests/compat")
"""Where settings have made a difference so far: what `--quick` runs."""
SLOW = (
    "tests/adapters", "tests/compat", "tests/diffusion", "tests/families", "tests/parity", "tests/sampling",
    "tests/training", "tests/weights/test_layer_streaming.py", "tests/runtimes/shared/test_offload.py",
)  # fmt: skip
"""Whose slow tests compare with numbers of other programs, or of other ways to one result. They run where all run."""
SWITCHES = ("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "MKL_ENABLE_INSTRUCTIONS", "MKL_CBWR")
"""torch's own kernels; its convolutions; its matrix products on Intel, and on others."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A processor to be. needs: the flag of /proc/cpuinfo without which it cannot be had."""

    name: str
    switches: Mapping[str, str] = field(default_factory=dict)
    threads: int = 1
    needs: str = ""


PLAIN = dict(zip(SWITCHES, ("default", "SSE41", "SSE4_2", "COMPATIBLE"), strict=True))
AVX2 = dict(zip(SWITCHES, ("avx2", "AVX2", "AVX2", "AVX2"), strict=True))
AVX512 = dict(zip(SWITCHES, ("avx512", "AVX512_CORE", "AVX512", "AVX512"), strict=True))
SETTINGS = (
    Setting("own"),
    Setting("own-two-threads", threads=2),
    Setting("plain", PLAIN, needs="sse4_2"),
    Setting("plain-two-threads", PLAIN, threads=2, needs="sse4_2"),
    # without AMX: torch packs attention in bf16 for it as oneDNN allows, in kernels that `default` has not
    Setting("aten-default", {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_FP16"}),
    Setting("mkl-avx2", {"MKL_ENABLE_INSTRUCTIONS": "AVX2"}, needs="avx2"),
    Setting("avx2", AVX2, needs="avx2"),
    Setting("avx2-two-threads", AVX2, threads=2, needs="avx2"),
    Setting("avx512", AVX512, needs="avx512f"),
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What pytest said under a setting. failed: with what could not be set up; status: how it ended."""

    passed: int
    failed: int
    seconds: float
    status: int


def flags(cpuinfo: str) -> frozenset[str]:
    """The instructions that a processor has, of the text of /proc/cpuinfo."""
    match = re.search(r"^flags\s*:(.*)$", cpuinfo, re.MULTILINE)
    return frozenset(match[1].split()) if match else frozenset()


def possible(setting: Setting, there: frozenset[str]) -> bool:
    """Whether a processor with these flags can do as a setting says."""
    return not setting.needs or setting.needs in there


def counted(output: str, *, seconds: float, status: int) -> Outcome:
    """The last line of pytest, `1 failed, 20 passed in 3.1s`, in numbers."""
    line = next((line for line in reversed(output.splitlines()) if re.search(r"\d+ \w+.* in [\d.]+s", line)), "")
    number = {word: int(count) for count, word in re.findall(r"(\d+) (passed|failed|error)", line)}
    return Outcome(number.get("passed", 0), number.get("failed", 0) + number.get("error", 0), seconds, status)


def environment(setting: Setting, base: Mapping[str, str]) -> dict[str, str]:
    """What the tests are started with: the setting's switches and no others."""
    kept = {name: value for name, value in base.items() if name not in SWITCHES}
    threads = str(setting.threads)
    own = {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, "MEZZOTINT_TEST_THREADS": threads}
    return kept | own | dict(setting.switches)


def run(setting: Setting, paths: Sequence[str], *, workers: int) -> Outcome:
    """The tests that compare numbers under a setting; what fails is printed. paths: all of them where there are none,
    and then slow ones as well."""
    outcome = _run(setting, "not slow", paths, workers)
    if paths:
        return outcome
    slow = _run(setting, "slow and not exhaustive", SLOW, workers)
    passed, failed = outcome.passed + slow.passed, outcome.failed + slow.failed
    return Outcome(passed, failed, outcome.seconds + slow.seconds, outcome.status or slow.status)


def _run(setting: Setting, which: str, paths: Sequence[str], workers: int) -> Outcome:
    marks = f"numbers and {which} and not gpu and not timing"
    command = [sys.executable, "-m", "pytest", "-m", marks, "--tb=line", *paths]
    if workers > 1:
        command += ["-n", str(workers), "--dist", "loadfile"]
    begun = time.monotonic()
    done = subprocess.run(
        command, cwd=ROOT, env=environment(setting, os.environ), capture_output=True, text=True, check=False
    )
    outcome = counted(done.stdout, seconds=time.monotonic() - begun, status=done.returncode)
    if outcome.status:
        print(done.stdout[-8000:], done.stderr[-2000:], sep="\n", flush=True)
    return outcome


def main(words: Sequence[str] | None = None) -> int:
    """The exit status: 1 if a test failed under any setting, or nothing was run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=[s.name for s in SETTINGS], action="append", help="this setting alone")
    parser.add_argument("--quick", action="store_true", help="only where settings have made a difference so far")
    parser.add_argument("--workers", type=int, default=2, help="processes of pytest; 2")
    parser.add_argument("paths", nargs="*", help="tests; all of them")
    options = parser.parse_args(words)
    try:
        there = flags(Path("/proc/cpuinfo").read_text(encoding="utf-8"))
    except OSError:
        there = frozenset()  # not Linux: only what needs no particular instructions
    paths = [*options.paths, *(QUICK if options.quick else ())]
    print(f"{'setting':<20} {'passed':>7} {'failed':>7} {'seconds':>8}", flush=True)
    outcomes = []
    for setting in SETTINGS:
        if options.only and setting.name not in options.only:
            continue
        if not possible(setting, there):
            print(f"{setting.name:<20} left out: the processor has no {setting.needs}", flush=True)
            continue
        outcome = run(setting, paths, workers=options.workers)
        outcomes.append(outcome)
        print(f"{setting.name:<20} {outcome.passed:>7} {outcome.failed:>7} {outcome.seconds:>8.0f}", flush=True)
    return int(not outcomes or any(o.status for o in outcomes))


if __name__ == "__main__":
    sys.exit(main())
