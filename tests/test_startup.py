"""Start of a command: OpenMP threads spin briefly by default, set before OpenMP is loaded; some warnings of libraries
are hidden."""

from __future__ import annotations

import io
import json
import logging
import os
import statistics
import subprocess
import sys
import warnings
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader

from mezzotint import cli, startup
from mezzotint.runtimes.base import Launch
from mezzotint.runtimes.single import Runtime
from mezzotint.settings.sections.run import RunSettings
from mezzotint.tasks.train.run_files import environment

USER_SETTINGS = ({"OMP_WAIT_POLICY": "active"}, {"GOMP_SPINCOUNT": "infinity"}, {"KMP_BLOCKTIME": "200"})


def test_threads_spin_briefly_by_default() -> None:
    environ = {"OMP_NUM_THREADS": "2", "HOME": "/"}
    startup.limit_spinning(environ, is_torch_loaded=False)
    assert environ == {"OMP_NUM_THREADS": "2", "HOME": "/", **startup.SPIN}
    assert startup.openmp_settings(environ) == {"OMP_NUM_THREADS": "2", **startup.SPIN}


@pytest.mark.parametrize("user", USER_SETTINGS)
def test_user_settings_of_openmp_are_kept(user: dict[str, str]) -> None:
    environ = dict(user)
    startup.limit_spinning(environ, is_torch_loaded=False)
    assert environ == user


def test_nothing_is_set_when_torch_is_loaded_already(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("OMP_", "GOMP_", "KMP_"))]:
        monkeypatch.delenv(name)
    assert cli.main(["--version"]) == 0
    report = environment(Runtime(torch.device("cpu"), Launch(), RunSettings()), Launch())
    assert report["openmp"] == {}


@pytest.mark.parametrize("user", [startup.SPIN, *USER_SETTINGS])
def test_run_folder_records_the_openmp_settings(user: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("OMP_", "GOMP_", "KMP_"))]:
        monkeypatch.delenv(name)
    for name, value in user.items():
        monkeypatch.setenv(name, value)
    report = environment(Runtime(torch.device("cpu"), Launch(), RunSettings()), Launch())
    assert report["openmp"] == user


def libraries() -> list[Path]:
    spec = find_spec("torch")
    assert spec is not None
    assert spec.origin is not None
    return sorted((Path(spec.origin).parent / "lib").glob("libgomp*"))


@pytest.mark.parametrize(("user", "seen"), [({}, "PASSIVE"), ({"OMP_WAIT_POLICY": "active"}, "ACTIVE")])
def test_openmp_uses_the_settings_when_it_is_loaded(user: dict[str, str], seen: str) -> None:
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
    environ = clean | {"OMP_DISPLAY_ENV": "true"} | user
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environ)
    assert f"OMP_WAIT_POLICY = '{seen}'" in done.stderr


def many_workers() -> None:
    DataLoader(range(4), num_workers=4096)  # type: ignore[arg-type]  # not iterated: no process starts


def tiff_with_custom_tag() -> None:
    file = io.BytesIO()
    Image.new("RGB", (4, 4)).save(file, "TIFF", tiffinfo={33723: (1, 2, 3)})
    Image.open(file).getexif()


def rotary_positions() -> None:
    from diffusers.models.embeddings import FluxPosEmbed

    FluxPosEmbed(10000, [2, 2, 4])


def list_shown_warnings(raises: object, *, quietly: bool, action: str = "") -> list[str]:
    """Warnings that a call shows, with the filters of a new process. action: a filter for all warnings."""
    assert callable(raises)
    with warnings.catch_warnings(record=True) as caught:
        warnings.resetwarnings()
        if action:
            warnings.filterwarnings(action)  # type: ignore[arg-type]
        if quietly:
            cli.main(["ls", "formats"])
        raises()
    return [str(one.message) for one in caught if issubclass(one.category, UserWarning | FutureWarning)]


@pytest.mark.parametrize("raises", [many_workers, tiff_with_custom_tag, rotary_positions])
def test_ignored_warnings_are_hidden_unless_python_is_set_to_show(raises: object) -> None:
    assert list_shown_warnings(raises, quietly=False), "the library no longer warns: delete its entry"
    assert list_shown_warnings(raises, quietly=True) == []
    assert list_shown_warnings(raises, quietly=True, action="always")


def test_other_warnings_are_shown() -> None:
    def others() -> None:
        warnings.warn_explicit("This DataLoader will create 9 worker processes in total", UserWarning, "x.py", 1, "x")
        warnings.warn_explicit("This DataLoader is slow", UserWarning, "x.py", 2, "torch.utils.data.dataloader")

    assert len(list_shown_warnings(others, quietly=True)) == 2
    assert all(message and module.endswith("$") for message, module in startup.IGNORED_WARNINGS)


def test_loggers_about_optional_kernels_report_errors_only() -> None:
    assert cli.main(["ls", "formats"]) == 0
    for name in startup.QUIET_LOGGERS:
        assert logging.getLogger(name).level == logging.ERROR


def time_parallel_runs(folder: Path, environments: Sequence[dict[str, str]]) -> list[float]:
    """Median seconds of a step of mini, for each of several runs that train at the same time."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_", "KMP_"))}
    shapes = Path(startup.__file__).parent / "assets" / "data" / "shapes"
    command = [sys.executable, "-m", "mezzotint", "train", "mini", f"data.path={shapes}", "run.steps=50"]
    runs = []
    for number, variables in enumerate(environments):
        where = folder / str(number)
        where.mkdir(parents=True)
        runs.append((where, subprocess.Popen(command, cwd=where, env=clean | variables, stdout=subprocess.DEVNULL)))
    seconds = []
    for where, process in runs:
        assert process.wait() == 0
        (metrics,) = where.rglob("metrics.jsonl")
        rows = [json.loads(line) for line in metrics.read_text().splitlines()]
        paces = [row["seconds_since"] / row["steps_since"] for row in rows if row.get("steps_since")]
        seconds.append(statistics.median(paces[1:]))
    return seconds


@pytest.mark.timing
def test_two_trainings_at_once_slow_a_step_at_most_threefold(tmp_path: Path) -> None:
    quiet = [seconds for turn in range(3) for seconds in time_parallel_runs(tmp_path / f"quiet-{turn}", [{}])]
    parallel = time_parallel_runs(tmp_path / "parallel", [{}, {}])
    print(f"quiet {quiet}, parallel {parallel}")
    assert max(parallel) <= 3 * statistics.median(quiet)
