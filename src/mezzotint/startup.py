"""What the command line does before anything else: how the threads of torch's kernels wait, and which warnings of
libraries are not shown. Who imports Mezzotint keeps what Python and the environment say.

OpenMP's threads spin for a while before they sleep. On a quiet machine that saves waking them, half of a small model's
step; on one that does other things they spin for a thread that is not running, and a step takes many times as long. So
here they spin where the machine is free and sleep where it is not (decision 99), unless the environment says otherwise.
The library (libgomp in torch's own builds, Intel's in conda's) reads the environment when it is loaded, so this comes
before torch. Processes that are started from here inherit it.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import threading
import time
import warnings
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from functools import partial
from typing import Literal

POLICY = "OMP_WAIT_POLICY"
_SPINS = "GOMP_SPINCOUNT"
_DECIDES = (POLICY, _SPINS, "KMP_BLOCKTIME", "KMP_LIBRARY")
_OF_OPENMP = ("OMP_", "GOMP_", "KMP_")

_ASLEEP = {POLICY: "passive"}
_BY_LOAD = {POLICY: "passive", _SPINS: "30000"}
"""To libgomp the policy is how to wait while it has more threads than processors, and the count how long to spin while
it has not: 30,000 times is 0.5 to 2 ms. From 10,000 on steps are as fast as with any number. Intel's library reads the
policy alone."""

_DELAYS = "/proc/self/schedstat"
"""Of the main thread, by Linux: nanoseconds on a processor, nanoseconds of waiting for one, and turns."""

_LOOK_SECONDS = 0.25
_CROWDED = 0.15
"""Share of the time that the main thread waits for a processor. Measured on two of them: up to 0.04 alone, 0.25 and
more beside another training."""

_OWN = 0.85
"""Who has so much of all processors is in nobody's way but their own, while a checkpoint is hashed, say."""

_FREE = 0.05
_FREE_SECONDS = 1.0
"""For so long the share must be below `_FREE` before threads spin again."""

Waiting = Literal["asleep", "asleep beside others", "as the environment says", "as OpenMP does by itself"]


def let_threads_wait(environment: MutableMapping[str, str], *, is_loaded: bool) -> None:
    """Settles how threads wait where nobody has decided it. is_loaded: whether torch is there already, and with it an
    OpenMP that has read the environment; nothing is changed then."""
    if is_loaded:
        return
    if not any(name in environment for name in _DECIDES):
        environment.update(_BY_LOAD if _delay() is not None else _ASLEEP)
    if waiting(environment) == "asleep beside others" and environment.get("OMP_NUM_THREADS") != "1":
        threading.Thread(target=_watch, name="waiting", daemon=True).start()


def waiting(environment: Mapping[str, str]) -> Waiting:
    """How threads wait in a process with such an environment."""
    if {name: environment[name] for name in _DECIDES if name in environment} == _BY_LOAD:
        return "asleep beside others"
    if environment.get(POLICY, "").strip().lower() == "passive":
        return "asleep"
    return "as the environment says" if any(name in environment for name in _DECIDES) else "as OpenMP does by itself"


def _delay() -> float | None:
    """Seconds that the main thread has waited for a processor; None where the system does not count them."""
    try:
        with open(_DELAYS, encoding="ascii") as file:
            ran, waited, _ = file.read().split()
    except (OSError, ValueError):
        return None
    return int(waited) / 1e9 if int(ran) else None


def _processors() -> int:
    return len(os.sched_getaffinity(0))  # Linux alone, as `_DELAYS` is


class _Load:
    """Whether the machine does other things than this process."""

    def __init__(self) -> None:
        self._is_crowded = False
        self._seconds_free = 0.0

    def see(self, share: float, seconds: float) -> bool:
        """share: of these seconds, what the main thread has waited for a processor that another program had."""
        if share > (_FREE if self._is_crowded else _CROWDED):
            self._is_crowded, self._seconds_free = True, 0.0
        else:
            self._seconds_free += seconds
            self._is_crowded &= self._seconds_free < _FREE_SECONDS
        return self._is_crowded


def _watch() -> None:
    load, awake = _Load(), None
    moment, worked, before = time.monotonic(), time.process_time(), _delay()
    while before is not None:
        time.sleep(_LOOK_SECONDS)
        now, working, after = time.monotonic(), time.process_time(), _delay()
        if after is None:
            return
        seconds = now - moment
        is_own = working - worked > _OWN * seconds * _processors()
        is_crowded = load.see(0.0 if is_own else (after - before) / seconds, seconds)
        moment, worked, before = now, working, after
        if is_crowded and awake is None:
            awake = _fall_asleep()
        elif not is_crowded and awake is not None:
            awake.set()
            awake = None


def _fall_asleep() -> threading.Event | None:
    """Gives libgomp more threads than there are processors: from then on none of them spins, as its source says of
    `gomp_throttled_spin_count_var`. The event takes them away. None where no libgomp is loaded."""
    import ctypes  # some milliseconds, which --help does without

    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as file:
        maps = file.read()
    threads = getattr(sys.modules.get("torch"), "get_num_threads", lambda: 1)()
    team = max(2, _processors() - threads + 2)  # with torch's own threads one more than processors
    awake = threading.Event()
    with contextlib.suppress(OSError, AttributeError, RuntimeError):  # another library of that name, no further thread
        teams = []
        for library in map(ctypes.CDLL, sorted(set(re.findall(r"/\S*/libgomp\S*", maps)))):
            nothing = ctypes.cast(library.omp_get_num_threads, ctypes.c_void_p)  # a function that anyone may call
            teams.append(partial(library.GOMP_parallel, nothing, None, ctypes.c_uint(team), ctypes.c_uint(0)))
        if teams:
            threading.Thread(target=_hold, args=(teams, awake), name="asleep", daemon=True).start()
            return awake
    return None


def _hold(teams: Sequence[Callable[[], object]], awake: threading.Event) -> None:
    """Begins a team of threads in each library. libgomp ends them with the thread that began them: once awake is
    set."""
    for begin in teams:
        begin()
    awake.wait()


def settings(environment: Mapping[str, str]) -> dict[str, str]:
    """What the environment says to OpenMP: all of OMP_*, GOMP_* and KMP_*, in order of their names."""
    return {name: environment[name] for name in sorted(environment) if name.startswith(_OF_OPENMP)}


MEAN_NOTHING = (
    # how many workers there are changes no draw, and check says when they are more than the processors
    (r"This DataLoader will create \d+ worker processes in total", r"torch\.utils\.data\.dataloader$"),
    # a TIFF's own tags are read for nothing but its orientation and profile
    (r"Metadata Warning, tag \d+ had too many entries", r"PIL\.TiffImagePlugin$"),
)
"""Warnings that mean nothing here, by (the message's beginning, the module) as regular expressions."""


QUIET_LOGGERS = ("torchao", "torch.utils._pytree", "diffusers.quantizers.torchao")
"""Loggers that report at every import, where torchao is installed, which of its optional kernels the machine lacks."""


def quiet_libraries() -> None:
    """From now on these loggers report errors only."""
    import logging  # --help does without it

    for name in QUIET_LOGGERS:
        logging.getLogger(name).setLevel(logging.ERROR)


def leave_out_warnings() -> None:
    """From now on these warnings are not shown. What Python was told (-W, PYTHONWARNINGS) comes first."""
    for message, module in MEAN_NOTHING:
        warnings.filterwarnings("ignore", message=message, category=UserWarning, module=module, append=True)
