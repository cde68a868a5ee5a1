"""The loader's worker processes: started with signals left to the parent, monitored and stopped; a dead worker is
reported."""

from __future__ import annotations

import functools
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from torch.utils.data import DataLoader

from mezzotint.errors import PeerLost

_DECIDED_BY_PARENT = (signal.SIGINT, signal.SIGTERM)
_PARENT_CHECK_SECONDS = 0.2


def make_worker_init() -> Callable[[int], None]:
    """The init function of workers, for a torch DataLoader started by this process."""
    return functools.partial(_init_worker, parent=os.getpid())


class Workers:
    """The processes of one torch DataLoader; empty if it decodes in this process."""

    def __init__(self) -> None:
        self.processes: tuple[Any, ...] = ()

    def start(self, loader: DataLoader[Any]) -> Iterator[Any]:
        """Starts the processes and returns an iterator over their results. Signal handlers do not change."""
        before = set(multiprocessing.active_children())
        in_main = _in_main_thread()
        on_child = signal.getsignal(signal.SIGCHLD) if in_main else None
        masked = signal.pthread_sigmask(signal.SIG_BLOCK, _DECIDED_BY_PARENT)
        try:
            answers = iter(loader)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, masked)
            if in_main and loader.num_workers:
                # torch's handler raises at any point of the training; instead, workers are checked with each result
                signal.signal(signal.SIGCHLD, on_child or signal.SIG_DFL)
        self.processes = tuple(set(multiprocessing.active_children()) - before)
        return answers

    def require_alive(self) -> None:
        """Raises PeerLost E1810 with the exit reason if a worker has died."""
        for worker in self.processes:
            if not worker.is_alive():
                raise PeerLost(_exit_message(worker), code="E1810")

    def find_cause(self, error: Exception) -> Exception:
        """The cause of an error in receiving a result: possibly a worker that died while sending, which is detected a
        little later."""
        deadline = time.monotonic() + (1.0 if self.processes else 0.0)
        while time.monotonic() < deadline:
            try:
                self.require_alive()
            except PeerLost as lost:
                return lost
            time.sleep(0.02)
        return error

    def end(self) -> None:
        """Stops workers that torch has not stopped. Can be called twice."""
        for worker in self.processes:
            worker.join(timeout=1.0)
            if worker.is_alive():
                worker.kill()
                worker.join()
        self.processes = ()


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _init_worker(_number: int, *, parent: int) -> None:
    for number in _DECIDED_BY_PARENT:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _DECIDED_BY_PARENT)
    threading.Thread(target=_exit_with_parent, args=(parent,), daemon=True).start()


def _exit_with_parent(parent: int) -> None:
    """Kills this process soon after its parent was killed: an orphan would keep inherited locks and GPU memory until
    torch notices, up to five seconds later, and block a restart of the run."""
    while os.getppid() == parent:
        time.sleep(_PARENT_CHECK_SECONDS)
    os.kill(os.getpid(), signal.SIGKILL)


def _exit_message(worker: Any) -> str:
    status = worker.exitcode or 0
    how = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
    hints = {
        -signal.SIGBUS: "not enough shared memory (/dev/shm): give the container more, or lower data.prefetch",
        -signal.SIGKILL: "if nobody killed it, the machine ran out of memory: lower data.workers or data.prefetch",
    }
    hint = hints.get(status, "set data.workers=0 to see the error")
    name = f"loader worker {worker.name} (process {worker.pid})"
    return f"{name} {how}; {hint}; the same command resumes from the newest checkpoint"
