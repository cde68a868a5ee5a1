"""Before all else: threads of torch's kernels wait asleep, unless the user says otherwise, set before OpenMP is loaded;
and warnings of libraries that mean nothing are not shown, others are."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import warnings
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


def test_threads_wait_asleep_where_nobody_decided_it() -> None:
    environ = {"OMP_NUM_THREADS": "2", "HOME": "/"}
    startup.wait_asleep(environ, is_loaded=False)
    assert environ == {"OMP_NUM_THREADS": "2", "HOME": "/", "OMP_WAIT_POLICY": "passive"}
    assert startup.waiting(environ) == "asleep"
    assert startup.settings(environ) == {"OMP_NUM_THREADS": "2", "OMP_WAIT_POLICY": "passive"}


@pytest.mark.parametrize("own", OF_THE_USER)
def test_what_the_user_says_of_waiting_stays(own: dict[str, str]) -> None:
    environ = dict(own)
    startup.wait_asleep(environ, is_loaded=False)
    assert environ == own
    assert startup.waiting(environ) == "as the environment says"


def test_nothing_is_set_or_claimed_where_torch_is_loaded_already(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("OMP_", "GOMP_", "KMP_"))]:
        monkeypatch.delenv(name)
    assert cli.main(["--version"]) == 0
    assert "OMP_WAIT_POLICY" not in os.environ
    report = environment(Runtime(torch.device("cpu"), Launch(), RunSettings()), Launch())
    assert (report["threads_wait"], report["openmp"]) == ("as OpenMP does by itself", {})


@pytest.mark.parametrize(
    ("own", "waits"),
    [({"OMP_WAIT_POLICY": "passive"}, "asleep"), *((own, "as the environment says") for own in OF_THE_USER)],
)
def test_the_run_folder_says_how_threads_wait(own: dict[str, str], waits: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("OMP_", "GOMP_", "KMP_"))]:
        monkeypatch.delenv(name)
    for name, value in own.items():
        monkeypatch.setenv(name, value)
    report = environment(Runtime(torch.device("cpu"), Launch(), RunSettings()), Launch())
    assert (report["threads_wait"], report["openmp"]) == (waits, own)


@pytest.mark.parametrize(("own", "seen"), [({}, "PASSIVE"), ({"OMP_WAIT_POLICY": "active"}, "ACTIVE")])
def test_openmp_itself_has_heard_it_when_it_is_loaded(own: dict[str, str], seen: str) -> None:
    spec = find_spec("torch")
    assert spec is not None
    assert spec.origin is not None
    library = next((Path(spec.origin).parent / "lib").glob("libgomp*"), None)
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
