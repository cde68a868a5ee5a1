"""Signals set flags, and what was there before is put back."""

from __future__ import annotations

import os
import signal

import pytest

from mezzotint.errors import Stopped
from mezzotint.training.interrupts import Interrupts
from mezzotint.training.peers import PeerSignals


def test_each_signal_asks_for_what_it_means_and_saving_is_asked_for_once() -> None:
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


def test_before_the_run_a_stop_is_raised_where_it_comes() -> None:
    with Interrupts(), pytest.raises(Stopped, match="SIGTERM before training") as stopped:
        os.kill(os.getpid(), signal.SIGTERM)
    assert stopped.value.signal_number == signal.SIGTERM


def test_a_second_interrupt_leaves_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[int] = []
    monkeypatch.setattr(os, "_exit", left.append)
    with Interrupts() as interrupts:
        interrupts.running = True
        os.kill(os.getpid(), signal.SIGINT)
        assert left == []
        os.kill(os.getpid(), signal.SIGINT)
    assert left == [130]
