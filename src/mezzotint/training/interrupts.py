"""Signals: a handler only sets a flag; the loop reads it between two steps, and all processes agree before they act.

SIGTERM and SIGINT save after the current step and stop; SIGUSR1 saves and continues; SIGHUP (a closed terminal) is
ignored. A second SIGINT within five seconds exits at once; the next start removes partially written files. Handlers can
only be set in a process's main thread; in other threads the existing handlers stay.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from types import FrameType, TracebackType
from typing import Any, Self

from mezzotint.errors import Stopped
from mezzotint.training.peers import NONE, PeerSignals

_WATCHED = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP)


class Interrupts:
    """Context manager that handles the process's signals, in the main thread only, and restores the previous handlers.
    Until `running` is set a stop raises Stopped at any point of the program: the next start removes partially written
    files. owns_process: whether a second SIGINT ends the process; otherwise, as in a notebook, it raises
    KeyboardInterrupt."""

    def __init__(self, *, owns_process: bool = True) -> None:
        self._owns_process = owns_process
        self.running = False
        self.stop_signal = 0
        self._once = NONE
        self._first_interrupt = float("-inf")
        self._before: dict[int, Any] = {}

    def requests(self) -> PeerSignals:
        """SAVE once for each SIGUSR1, STOP after the first SIGTERM or SIGINT, and everything passed to `ask`."""
        signals = self._once | (PeerSignals.STOP if self.stop_signal else NONE)
        self._once = NONE
        return signals

    def ask(self, signals: PeerSignals) -> None:
        """Requests SAVE or PREVIEW once, or STOP as SIGTERM does."""
        if signals == PeerSignals.STOP:
            self.stop_signal = self.stop_signal or signal.SIGTERM
        else:
            self._once |= signals

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in _WATCHED:
                self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            # None: the previous handler was not set from Python and cannot be restored
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGHUP:
            return
        if number == signal.SIGUSR1:
            self._once |= PeerSignals.SAVE
            return
        now = time.monotonic()
        if number == signal.SIGINT and now - self._first_interrupt < 5.0:
            if not self._owns_process:
                raise KeyboardInterrupt
            os._exit(128 + signal.SIGINT)
        if number == signal.SIGINT:
            self._first_interrupt = now
        self.stop_signal = self.stop_signal or number
        if not self.running:
            raise Stopped(f"stopped by {signal.Signals(number).name} before training began", signal_number=number)
