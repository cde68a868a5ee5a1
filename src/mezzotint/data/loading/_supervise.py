"""The loader's worker processes: started so that signals are the parent's business, watched, ended, and named when one
is gone."""

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


def beginning() -> Callable[[int], None]:
    """What a worker does first, for a library loader that is started by this process."""
    return functools.partial(_begin, parent=os.getpid())


class Workers:
    """The processes behind one library loader; none where it decodes in this process."""

    def __init__(self) -> None:
        self.processes: tuple[Any, ...] = ()

    def start(self, loader: DataLoader[Any]) -> Iterator[Any]:
        """Starts the processes and returns their answers. The handlers of signals stay as they were."""
        before = set(multiprocessing.active_children())
        in_main = _in_main_thread()
        on_child = signal.getsignal(signal.SIGCHLD) if in_main else None
        masked = signal.pthread_sigmask(signal.SIG_BLOCK, _DECIDED_BY_PARENT)
        try:
            answers = iter(loader)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, masked)
            if in_main and loader.num_workers:
                # the library's handler raises wherever the training happens to be; we look when we take an answer
                signal.signal(signal.SIGCHLD, on_child or signal.SIG_DFL)
        self.processes = tuple(set(multiprocessing.active_children()) - before)
        return answers

    def require_alive(self) -> None:
        """Raises PeerLost E1810, which says how it ended, where a worker has."""
        for worker in self.processes:
            if not worker.is_alive():
                raise PeerLost(_how_it_ended(worker), code="E1810")

    def explained(self, error: Exception) -> Exception:
        """What an error in taking an answer is due to: perhaps a worker that died in the middle of a message, whose end
        is seen a little later."""
        deadline = time.monotonic() + (1.0 if self.processes else 0.0)
        while time.monotonic() < deadline:
            try:
                self.require_alive()
            except PeerLost as lost:
                return lost
            time.sleep(0.02)
        return error

    def end(self) -> None:
        """Ends what the library has not ended. Can be called twice."""
        for worker in self.processes:
            worker.join(timeout=1.0)
            if worker.is_alive():
                worker.kill()
                worker.join()
        self.processes = ()


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _begin(_number: int, *, parent: int) -> None:
    for number in _DECIDED_BY_PARENT:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _DECIDED_BY_PARENT)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    """Ends this process soon after its parent is killed, so that the run can be started again: an orphan would keep
    inherited locks and GPU memory until the library notices, up to five seconds later."""
    while os.getppid() == parent:
        time.sleep(_PARENT_CHECK_SECONDS)
    os.kill(os.getpid(), signal.SIGKILL)


def _how_it_ended(worker: Any) -> str:
    status = worker.exitcode or 0
    how = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
    hints = {
        -signal.SIGBUS: "there is too little shared memory (/dev/shm): give the container more, or lower data.prefetch",
        -signal.SIGKILL: "if nobody killed it, the machine ran out of memory: lower data.workers or data.prefetch",
    }
    hint = hints.get(status, "set data.workers=0 to see what happens in it")
    who = f"loader worker {worker.name} (process {worker.pid})"
    return f"{who} {how}; {hint}; the same command goes on from the newest checkpoint"
