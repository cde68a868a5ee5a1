"""Signals set flags; previous handlers are restored."""

from __future__ import annotations

import os
import signal

import pytest

from mezzotint.errors import Stopped
from mezzotint.training.interrupts import Interrupts
from mezzotint.training.peers import PeerSignals


def test_each_signal_makes_its_request_and_save_is_requested_once() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with Interrupts() as interrupts:
        interrupts.running = True
        for number in (signal.SIGHUP, signal.SIGUSR1):
            os.kill(os.getpid(), number)
        assert [interrupts.requests(), interrupts.requests()] == [PeerSignals.SAVE, 0]
        for number in (signal.SIGTERM, signal.SIGINT):
            os.kill(os.getpid(), number)
        assert [interrupts.requests(), interrupts.requests()] == [PeerSignals.STOP, PeerSignals.STOP]
        assert interrupts.stop_signal == signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) == before


def test_interrupt_before_the_run_is_raised_immediately() -> None:
    with Interrupts(), pytest.raises(Stopped, match="SIGTERM before training") as stopped:
        os.kill(os.getpid(), signal.SIGTERM)
    assert stopped.value.signal_number == signal.SIGTERM


def test_second_interrupt_exits_immediately(monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[int] = []
    monkeypatch.setattr(os, "_exit", left.append)
    with Interrupts() as interrupts:
        interrupts.running = True
        os.kill(os.getpid(), signal.SIGINT)
        assert left == []
        os.kill(os.getpid(), signal.SIGINT)
    assert left == [130]
