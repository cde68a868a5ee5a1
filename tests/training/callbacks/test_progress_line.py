"""The progress line: its text, its width, and that it never ends a run."""

from __future__ import annotations

import io
import os
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from mezzotint import durable
from mezzotint.errors import VisibleStream
from mezzotint.stages import StepReport
from mezzotint.training.callbacks.progress_line import ConsoleLog, LiveLine
from mezzotint.training.progress import Progress


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Screen(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def report(step: int, **changes: object) -> StepReport:
    built = StepReport(
        step=step, epoch=0, loss=0.25, norm=1.0, rates={}, samples=8, seconds=2.0, wait_seconds=0.02, applied=True,
        overflow=False, keys=(), timesteps=(), losses=(),
    )  # fmt: skip
    return replace(built, **changes)  # type: ignore[arg-type]


def follow(live: LiveLine, clock: Clock, steps: range, last_step: int, **changes: object) -> None:
    for step in steps:
        live.on_step(report(step, **changes), Progress(step=step + 1, last_step=last_step))
        clock.now += 2.0


def test_plain_lines_are_printed_without_a_terminal(tmp_path: Path) -> None:
    stream, clock = io.StringIO(), Clock()
    live = LiveLine(stream, tmp_path / "run.log", clock=clock)
    follow(live, clock, range(13), last_step=13)
    live.close()
    lines = stream.getvalue().splitlines()
    assert lines[0] == "the first step took 2.0 s"
    assert [line.split("  ")[0] for line in lines[1:]] == ["step 1/13", "step 6/13", "step 11/13", "step 13/13"]
    assert lines[2] == "step 6/13  loss 0.2500  14 s left  4 images/s  data wait 1 %"
    assert "left" not in lines[-1]
    assert "\x1b" not in stream.getvalue()
    logged = (tmp_path / "run.log").read_text().splitlines()
    assert [re.sub(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ ", "", line) for line in logged] == lines


def test_time_left_ignores_the_slow_first_step(tmp_path: Path) -> None:
    stream, clock = io.StringIO(), Clock()
    live = LiveLine(stream, None, clock=clock, every_seconds=0.0)
    live.on_step(report(0, seconds=120.0), Progress(step=1, last_step=11))
    live.on_step(report(1), Progress(step=2, last_step=11))
    assert "18 s left" in stream.getvalue().splitlines()[-1]


def test_stopped_run_prints_its_step(tmp_path: Path) -> None:
    stream, clock = io.StringIO(), Clock()
    live = LiveLine(stream, None, clock=clock)
    follow(live, clock, range(3), last_step=100)
    live.close()
    live.close()
    assert [line.split("  ")[0] for line in stream.getvalue().splitlines()[1:]] == ["step 1/100", "step 3/100"]


def test_waiting_for_data_is_warned_about_once_after_warmup() -> None:
    stream, clock = io.StringIO(), Clock()
    live = LiveLine(stream, None, clock=clock)
    follow(live, clock, range(24), last_step=100, wait_seconds=0.5)
    assert "data.workers" not in stream.getvalue()
    follow(live, clock, range(24, 90), last_step=100, wait_seconds=0.5)
    assert (
        stream.getvalue().count("25 % of the time of the last 20 steps was spent waiting for data; raise data.workers")
        == 1
    )


def test_little_waiting_causes_no_warning() -> None:
    stream, clock = io.StringIO(), Clock()
    follow(LiveLine(stream, None, clock=clock), clock, range(60), last_step=100, wait_seconds=0.1)
    assert "data.workers" not in stream.getvalue()


@pytest.mark.parametrize("columns", [20, 40, 80])
def test_live_line_fits_the_terminal(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm")
    screen, clock = Screen(), Clock()
    live = LiveLine(screen, None, clock=clock)
    follow(live, clock, range(5), last_step=1000, memory_bytes=2**31)
    live.close()
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.getvalue())
    lines = [line for line in re.split(r"[\r\n]+", text) if line.startswith("step")]
    assert lines[-1].startswith("step 5/1000")
    assert max(map(len, lines)) < columns
    assert ("2.15 GB" in text) == (columns == 80)


def test_message_is_printed_in_full_above_the_live_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TERM", "xterm")
    screen, clock = Screen(), Clock()
    live = LiveLine(screen, None, clock=clock)
    follow(live, clock, range(2), last_step=9)
    live.say("warning: " + "a long path/" * 10 + " [red]not markup[/red]")
    assert "a long path/" * 10 + " [red]not markup[/red]" in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.getvalue())
    assert "\x1b[?25l" not in screen.getvalue()  # the cursor is never hidden


def test_only_the_live_line_controls_the_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    screen, clock = Screen(), Clock()
    monkeypatch.setattr(sys, "stdout", VisibleStream(screen))
    live = LiveLine(sys.stdout, tmp_path / "run.log", clock=clock)
    follow(live, clock, range(3), last_step=9)
    live.say("warning: a\x1b[31mb\x9b7m")
    print("printed \x1b[31m\x9b7m beside it")
    live.close()
    assert "\x1b[2K" in screen.getvalue()
    assert "warning: a\\x1b[31mb\\u009b7m" in screen.getvalue()
    assert "printed \\x1b[31m\\u009b7m" in screen.getvalue()
    assert "\x1b[31m" not in screen.getvalue()
    assert "\x9b" not in screen.getvalue()
    assert "\x1b" not in (tmp_path / "run.log").read_text()


def test_log_of_a_terminal_run_has_plain_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    clock = Clock()
    live = LiveLine(Screen(), tmp_path / "run.log", clock=clock)
    follow(live, clock, range(7), last_step=7)
    live.close()
    assert re.findall(r"step \d+/7", (tmp_path / "run.log").read_text()) == ["step 1/7", "step 6/7", "step 7/7"]


@pytest.mark.parametrize("plain", [True, False])
def test_closed_pipe_does_not_affect_log_and_run(plain: bool, tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    clock = Clock()
    stream = os.fdopen(writing, "w", buffering=1)
    live = LiveLine(stream, tmp_path / "run.log", plain=plain, clock=clock)
    follow(live, clock, range(8), last_step=8)
    live.say("still here")
    live.close()
    assert "still here" in (tmp_path / "run.log").read_text()
    assert "step 8/8" in (tmp_path / "run.log").read_text()


def test_closed_stream_is_no_error() -> None:
    stream, clock = io.StringIO(), Clock()
    stream.close()
    live = LiveLine(stream, None, clock=clock)
    follow(live, clock, range(2), last_step=2)
    live.close()


def test_unwritable_log_is_reported_once_and_output_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durable, "open_own", lambda *_, **__: open("/dev/full", "ab", buffering=0))  # noqa: SIM115
    stream = io.StringIO()
    voice = ConsoleLog(stream, tmp_path / "run.log")
    voice.say("one")
    voice.say("two")
    assert stream.getvalue().count("cannot be written (No space left on device)") == 1
    assert stream.getvalue().splitlines()[-1] == "two"


def test_ascii_stream_gets_question_marks() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    ConsoleLog(stream, None).say("512×512 – 3 %")
    assert raw.getvalue() == b"512?512 ? 3 %\n"


def test_smoothed_loss_of_progress_line_continues_after_resume() -> None:
    clock = Clock()
    first, whole = (LiveLine(io.StringIO(), None, clock=clock) for _ in range(2))
    stream = io.StringIO()
    rest = LiveLine(stream, None, clock=clock)
    for step, loss in enumerate((1.0, 0.5)):
        whole.on_step(report(step, loss=loss), Progress(step=step + 1, last_step=9))
        if step == 0:
            first.on_step(report(step, loss=loss), Progress(step=step + 1, last_step=9))
    rest.load(first.state())
    rest.on_step(report(1, loss=0.5), Progress(step=2, last_step=9))
    assert rest.state() == whole.state()
    assert "loss 0.7475" in stream.getvalue()
