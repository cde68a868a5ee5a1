"""Before all else: threads of torch's kernels spin where the machine is free and sleep where it is not, unless the user
says otherwise, set before OpenMP is loaded; and warnings of libraries that mean nothing are not shown, others are."""

from __future__ import annotations

import io
import itertools
import json
import logging
import os
import statistics
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader

from mezzotint import cli, startup
from mezzotint.recipe.sections.run import RunSettings
from mezzotint.runtimes.base import Launch
from mezzotint.runtimes.single import Runtime
from mezzotint.tasks.train.run_files import environment

OF_THE_USER = ({"OMP_WAIT_POLICY": "active"}, {"GOMP_SPINCOUNT": "infinity"}, {"KMP_BLOCKTIME": "200"})
BY_LOAD = {"GOMP_SPINCOUNT": "30000", "OMP_WAIT_POLICY": "passive"}


def test_threads_wait_by_what_else_runs_where_nobody_decided_it(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = threading.Event()
    monkeypatch.setattr(startup, "_watch", watched.set)
    monkeypatch.setattr(startup, "_delay", lambda: 0.0)
    environ = {"OMP_NUM_THREADS": "2", "HOME": "/"}
    for _ in range(2):  # the second time as a process that another of ours has started
        startup.let_threads_wait(environ, is_loaded=False)
        assert environ == {"OMP_NUM_THREADS": "2", "HOME": "/", **BY_LOAD}
        assert startup.waiting(environ) == "asleep beside others"
        assert startup.settings(environ) == {"OMP_NUM_THREADS": "2", **BY_LOAD}
        assert watched.wait(10)
        watched.clear()
    startup.let_threads_wait({"OMP_NUM_THREADS": "1"}, is_loaded=False)
    assert not watched.wait(0.1), "a thread alone waits for none"


def test_threads_wait_asleep_where_nothing_says_whether_others_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(startup, "_DELAYS", "/proc/none")
    environ: dict[str, str] = {}
    startup.let_threads_wait(environ, is_loaded=False)
    assert environ == {"OMP_WAIT_POLICY": "passive"}
    assert startup.waiting(environ) == "asleep"


def test_a_machine_counts_as_crowded_at_once_and_as_free_after_a_while() -> None:
    load = startup._Load()
    shares = [0.04, 0.1, 0.3, 0.1, 0.02, 0.02, 0.06, *[0.0] * 4, 0.1, 0.16]
    assert [load.see(share, 0.25) for share in shares] == [False, False, *[True] * 8, False, False, True]


COUNTS = """
import ctypes, os, sys, time
from mezzotint import startup

def reaches(count):
    end = time.monotonic() + 20
    while len(os.listdir("/proc/self/task")) != count:
        assert time.monotonic() < end, os.listdir("/proc/self/task")
        time.sleep(0.01)

assert startup._fall_asleep() is None, "there is no libgomp yet"
for library in sys.argv[1:]:
    ctypes.CDLL(library)
    awake = startup._fall_asleep()
    reaches(2 + len(os.sched_getaffinity(0)))  # the main thread, the one that begins the team, and the team's others
    awake.set()
    reaches(1)
"""


def test_a_team_of_more_threads_than_processors_comes_and_goes() -> None:
    """By which libgomp lets none spin; seen by threads and not by seconds. Where torch brings no libgomp, nothing is
    begun."""
    subprocess.run([sys.executable, "-c", COUNTS, *map(str, libraries()[:1])], check=True)


def test_numbers_stay_while_threads_sleep() -> None:
    matrix = torch.randn(300, 300, generator=torch.Generator().manual_seed(0))
    numbers = matrix @ matrix
    awake = startup._fall_asleep()
    assert torch.equal(matrix @ matrix, numbers)
    if awake is not None:
        awake.set()


@pytest.mark.parametrize("own", [0.5, 1.0])
def test_who_waits_for_the_processors_of_others_sleeps_until_they_are_free(
    own: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """own: the share of all processors that this process has itself."""
    delays = iter([0.0, 0.0, 0.5, *[0.5] * 20, None])
    clock, worked = itertools.count(0.0, 0.25), itertools.count(0.0, 0.25 * startup._processors())
    slept: list[threading.Event] = []
    monkeypatch.setattr(startup, "_delay", lambda: next(delays))
    monkeypatch.setattr(time, "sleep", lambda _: None)
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(time, "process_time", lambda: own * next(worked))

    def fall_asleep() -> threading.Event:
        slept.append(threading.Event())
        return slept[-1]

    monkeypatch.setattr(startup, "_fall_asleep", fall_asleep)
    startup._watch()
    assert [event.is_set() for event in slept] == ([True] if own < 1 else [])


@pytest.mark.parametrize("own", OF_THE_USER)
def test_what_the_user_says_of_waiting_stays(own: dict[str, str]) -> None:
    environ = dict(own)
    startup.let_threads_wait(environ, is_loaded=False)
    assert environ == own
    assert startup.waiting(environ) == "as the environment says"


def test_nothing_is_set_or_claimed_where_torch_is_loaded_already(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("OMP_", "GOMP_", "KMP_"))]:
        monkeypatch.delenv(name)
    assert cli.main(["--version"]) == 0
    assert "OMP_WAIT_POLICY" not in os.environ
    report = environment(Runtime(torch.device("cpu"), Launch(), RunSettings()), Launch())
    assert (report["threads_wait"], report["openmp"]) == ("as OpenMP does by itself", {})


WAITS = [
    ({"OMP_WAIT_POLICY": "passive"}, "asleep"), (BY_LOAD, "asleep beside others"),
    *((own, "as the environment says") for own in OF_THE_USER),
]  # fmt: skip


@pytest.mark.parametrize(("own", "waits"), WAITS)
def test_the_run_folder_says_how_threads_wait(own: dict[str, str], waits: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("OMP_", "GOMP_", "KMP_"))]:
        monkeypatch.delenv(name)
    for name, value in own.items():
        monkeypatch.setenv(name, value)
    report = environment(Runtime(torch.device("cpu"), Launch(), RunSettings()), Launch())
    assert (report["threads_wait"], report["openmp"]) == (waits, own)


def libraries() -> list[Path]:
    spec = find_spec("torch")
    assert spec is not None
    assert spec.origin is not None
    return sorted((Path(spec.origin).parent / "lib").glob("libgomp*"))


@pytest.mark.parametrize(("own", "seen"), [({}, "PASSIVE"), ({"OMP_WAIT_POLICY": "active"}, "ACTIVE")])
def test_openmp_itself_has_heard_it_when_it_is_loaded(own: dict[str, str], seen: str) -> None:
    library = next(iter(libraries()), None)
    if library is None:
        pytest.skip("this torch brings no libgomp")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_", "KMP_"))}
    code = (
        "import ctypes, runpy, sys\nsys.argv = ['mezzotint', '--version']\n"
        "try:\n    runpy.run_module('mezzotint', run_name='__main__')\n"
        "except SystemExit as end:\n    assert not end.code\n"
        f"assert 'torch' not in sys.modules\nctypes.CDLL({str(library)!r})"
    )
    environ = clean | {"OMP_DISPLAY_ENV": "true"} | own
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environ)
    assert f"OMP_WAIT_POLICY = '{seen}'" in done.stderr


def many_workers() -> None:
    DataLoader(range(4), num_workers=4096)  # type: ignore[arg-type]  # made, not asked: no process starts


def odd_tiff() -> None:
    file = io.BytesIO()
    Image.new("RGB", (4, 4)).save(file, "TIFF", tiffinfo={33723: (1, 2, 3)})
    Image.open(file).getexif()


def shown(raises: object, *, quietly: bool, action: str = "") -> list[str]:
    """The warnings that a call leaves for the reader, as Python starts. action: what Python is to do of warnings."""
    assert callable(raises)
    with warnings.catch_warnings(record=True) as caught:
        warnings.resetwarnings()
        if action:
            warnings.filterwarnings(action, category=UserWarning)  # type: ignore[arg-type]
        if quietly:
            cli.main(["ls", "formats"])
        raises()
    return [str(one.message) for one in caught if issubclass(one.category, UserWarning)]


@pytest.mark.parametrize("raises", [many_workers, odd_tiff])
def test_what_means_nothing_is_not_shown_unless_python_is_told(raises: object) -> None:
    assert shown(raises, quietly=False), "the library does not warn any more: its entry can go"
    assert shown(raises, quietly=True) == []
    assert shown(raises, quietly=True, action="always")


def test_other_warnings_and_other_modules_are_shown() -> None:
    def others() -> None:
        warnings.warn_explicit("This DataLoader will create 9 worker processes in total", UserWarning, "x.py", 1, "x")
        warnings.warn_explicit("This DataLoader is slow", UserWarning, "x.py", 2, "torch.utils.data.dataloader")

    assert len(shown(others, quietly=True)) == 2
    assert all(message and module.endswith("$") for message, module in startup.MEAN_NOTHING)


def test_loggers_about_optional_kernels_report_errors_only(caplog: pytest.LogCaptureFixture) -> None:
    assert cli.main(["ls", "formats"]) == 0
    for name in startup.QUIET_LOGGERS:
        logging.getLogger(name).warning("a kernel is missing")
        logging.getLogger(name).error("an error of %s", name)
    assert caplog.messages == [f"an error of {name}" for name in startup.QUIET_LOGGERS]


def steps_at_once(folder: Path, environments: Sequence[dict[str, str]]) -> list[float]:
    """Median seconds of a step of mini for each of some runs that train beside each other."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_", "KMP_"))}
    shapes = Path(startup.__file__).parent / "assets" / "data" / "shapes"
    command = [sys.executable, "-m", "mezzotint", "train", "mini", f"data.path={shapes}", "run.steps=50"]
    runs = []
    for number, own in enumerate(environments):
        where = folder / str(number)
        where.mkdir(parents=True)
        runs.append((where, subprocess.Popen(command, cwd=where, env=clean | own, stdout=subprocess.DEVNULL)))
    seconds = []
    for where, process in runs:
        assert process.wait() == 0
        (metrics,) = where.rglob("metrics.jsonl")
        rows = [json.loads(line) for line in metrics.read_text().splitlines()]
        paces = [row["seconds_since"] / row["steps_since"] for row in rows if row.get("steps_since")]
        seconds.append(statistics.median(paces[1:]))
    return seconds


@pytest.mark.timing
def test_a_quiet_step_costs_no_more_and_one_beside_another_training_at_most_two_and_a_half(tmp_path: Path) -> None:
    by_itself = {"GOMP_SPINCOUNT": "300000"}  # what libgomp takes where nothing is said
    quiet, spinning = [], []
    for turn in range(3):
        quiet += steps_at_once(tmp_path / f"own-{turn}", [{}])
        spinning += steps_at_once(tmp_path / f"spinning-{turn}", [by_itself])
    beside = steps_at_once(tmp_path / "beside", [{}, {}])
    print(f"quiet {quiet}, spinning always {spinning}, beside another {beside}")
    assert statistics.median(quiet) <= 1.1 * statistics.median(spinning)
    assert max(beside) <= 2.5 * statistics.median(quiet)
