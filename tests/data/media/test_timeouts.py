"""Time limits for decoding one file."""

from __future__ import annotations

import threading

import pytest

from mezzotint.data.media import timeouts
from mezzotint.errors import DatasetError
from support.messages import refused


def test_work_within_the_time_limit_returns_its_result(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (
        timeouts.run_with_timeout(None, "a.png", lambda: threading.current_thread().name)
        == threading.current_thread().name
    )
    assert timeouts.run_with_timeout(60.0, "a.png", lambda: threading.current_thread().name) == "decode"

    def broken() -> int:
        raise DatasetError("a.png: truncated", code="E1206")

    with refused("E1206", "truncated"):
        timeouts.run_with_timeout(60.0, "a.png", broken)


def test_work_over_the_time_limit_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeouts, "GRACE", 0.01)
    event = threading.Event()
    with refused("E1233", r"a\.png: not decoded within 0\.02 s; .*data\.decode_timeout"):
        timeouts.run_with_timeout(0.02, "a.png", event.wait)
    event.set()


def test_work_that_makes_progress_is_waited_for() -> None:
    sign, going = timeouts.Sign(), threading.Event()

    def frames() -> int:
        for _ in range(6):
            going.wait(0.05)
            sign()
        return 6

    assert timeouts.run_with_timeout(0.2, "a.mp4", frames, sign) == 6
