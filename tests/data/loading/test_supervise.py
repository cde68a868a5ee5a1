"""Worker processes of the loader: killed, interrupted, orphaned."""

from __future__ import annotations

import contextlib
import fcntl
import multiprocessing
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from mezzotint.data.catalogue.catalogue import Catalogue
from mezzotint.data.loading import _supervise
from mezzotint.errors import PeerLost
from support.loader_samples import data, rows_of
from support.loading import open_loader
from support.messages import refused


@pytest.mark.faults
def test_killed_worker_is_reported(catalogue: Catalogue, folder: Path) -> None:
    settings = data(folder, workers=2, prefetch=1)
    before = signal.getsignal(signal.SIGCHLD)
    loader = open_loader(
        catalogue, rows_of(catalogue), settings, accumulation=1, seed=1, start_step=0, last_step=10_000
    )  # fmt: skip
    batches = iter(loader)
    next(batches)
    assert signal.getsignal(signal.SIGCHLD) == before  # torch's handler would interrupt the training
    victim = loader.processes[0]
    os.kill(victim.pid, signal.SIGKILL)
    victim.join()
    with refused("E1810", rf"process {victim.pid}\) was killed by SIGKILL") as caught:
        for _ in batches:
            pass
    assert caught.value.exit_status == 6
    workers = loader.processes
    loader.close()
    assert not any(worker.is_alive() for worker in workers)


def test_error_while_receiving_is_explained_by_a_killed_worker() -> None:
    workers = _supervise.Workers()
    error = RuntimeError("connection reset")
    assert workers.find_cause(error) is error
    worker = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
    worker.start()
    workers.processes = (worker,)
    os.kill(worker.pid or 0, signal.SIGKILL)  # not joined: its end is detected a little later
    lost = workers.find_cause(error)
    assert isinstance(lost, PeerLost)
    assert f"process {worker.pid}) was killed by SIGKILL" in str(lost)


@pytest.mark.faults
def test_workers_ignore_interrupts(catalogue: Catalogue, folder: Path) -> None:
    with open_loader(
        catalogue, rows_of(catalogue), data(folder, workers=2), accumulation=1, seed=1, start_step=0, last_step=20
    ) as loader:  # fmt: skip
        batches = iter(loader)
        next(batches)
        for worker in loader.processes:
            os.kill(worker.pid, signal.SIGINT)
            os.kill(worker.pid, signal.SIGTERM)
        assert len(list(batches)) == 19
        workers = loader.processes
    assert len(workers) == 2
    assert not any(worker.is_alive() for worker in workers)


def _hold_a_lock_and_load(catalogue: Catalogue, folder: Path, lock: Path, ready: Any) -> None:
    torch.set_num_threads(1)
    torch.utils.data._utils.worker.MP_STATUS_CHECK_INTERVAL = 600  # torch's own check, every five seconds
    with open(lock, "wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        settings = data(folder, workers=2)
        loader = open_loader(
            catalogue, rows_of(catalogue), settings, accumulation=1, seed=1, start_step=0, last_step=9999
        )
        next(iter(loader))
        ready.put([worker.pid for worker in loader.processes])
        time.sleep(60)


@pytest.mark.faults
def test_workers_of_a_killed_run_exit_and_release_its_lock(catalogue: Catalogue, folder: Path, tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    ready = context.SimpleQueue()
    run = context.Process(target=_hold_a_lock_and_load, args=(catalogue, folder, tmp_path / "lock", ready))
    run.start()
    workers = ready.get()
    with open(tmp_path / "lock", "rb") as file:
        with pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert run.pid is not None
        os.kill(run.pid, signal.SIGKILL)
        run.join()
        start = time.monotonic()
        while time.monotonic() - start < 300:  # far below torch's own check
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            time.sleep(0.01)
        else:
            pytest.fail("the workers of a killed run keep its lock")
    assert len(workers) == 2


def _load_in_a_thread(*arguments: Any) -> None:
    thread = threading.Thread(target=_hold_a_lock_and_load, args=arguments)
    thread.start()
    thread.join()


@pytest.mark.faults
def test_workers_started_in_a_thread_exit_with_a_killed_run(catalogue: Catalogue, folder: Path, tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    ready = context.SimpleQueue()
    run = context.Process(target=_load_in_a_thread, args=(catalogue, folder, tmp_path / "lock", ready))
    run.start()
    workers = ready.get()
    assert len(workers) == 2
    assert run.pid is not None
    os.kill(run.pid, signal.SIGKILL)
    run.join()
    deadline = time.monotonic() + 60  # far below torch's own check
    while any(_is_alive(worker) for worker in workers):
        assert time.monotonic() < deadline, "the workers of a killed run are still running"
        time.sleep(0.01)


def _is_alive(pid: int) -> bool:
    try:  # an orphan that has ended may stay as a zombie
        return Path(f"/proc/{pid}/stat").read_text("ascii", "replace").rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_closing_early_stops_the_workers_and_can_be_repeated(catalogue: Catalogue, folder: Path) -> None:
    loader = open_loader(
        catalogue, rows_of(catalogue), data(folder, workers=2), accumulation=1, seed=1, start_step=0, last_step=99
    )  # fmt: skip
    next(iter(loader))
    workers = loader.processes
    loader.close()
    loader.close()
    assert not any(worker.is_alive() for worker in workers)
