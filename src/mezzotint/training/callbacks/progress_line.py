"""What a run says while it goes: one live line on a terminal, plain lines elsewhere, and all of it in run.log.

    step 120/1000  loss 0.1234  2 min 31 s left  12.3 images/s  data wait 3 %  3.44 GB

Nothing here can end a run: a closed pipe, a narrow terminal or a full disk only make it quieter.
"""

from __future__ import annotations

import errno
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO, cast

from rich.cells import cell_len
from rich.console import Console
from rich.live import Live
from rich.text import Text

from mezzotint import durable
from mezzotint.errors import VisibleStream, escape_controls
from mezzotint.settings.counting import duration, size
from mezzotint.stages import StepReport
from mezzotint.training.callbacks._scalars import RunningMean
from mezzotint.training.callbacks.base import Action, Callback, Setup
from mezzotint.training.progress import Progress

_REDRAW_SECONDS = 0.1
_WARM_UP_STEPS = 5
_WINDOW_STEPS = 20
_WAIT_SHARE = 0.1


class Voice:
    """Says lines to a stream and a log file; on a terminal it keeps one changing line below them.

    plain: lines only; None asks the stream whether it is a terminal; in a notebook the line is rewritten in place. log:
    run.log, or None; its lines carry the time (UTC). When the stream or the log is gone, the other goes on.
    """

    def __init__(self, stream: TextIO, log: Path | None, *, plain: bool | None = None) -> None:
        stream = stream.stream if isinstance(stream, VisibleStream) else stream  # the live line steers the terminal
        self._stream = stream
        self._log_path = log
        self._log_at: tuple[int, int] | None = None
        self._mute = False
        self._console: Console | None = None
        self._live: Live | None = None
        self._updates_in_place = plain is None and is_notebook()
        self._shown = 0  # characters of the line that a notebook shows now
        if plain is False or (plain is None and _is_terminal(stream)):
            console = _Terminal(file=stream, force_terminal=True, highlight=False, markup=False, emoji=False)
            self._console = None if console.is_dumb_terminal and plain is None else console

    @property
    def is_plain(self) -> bool:
        """Whether there are lines only, without a live one."""
        return self._console is None and not self._updates_in_place

    def say(self, text: str) -> None:
        """Adds text of one or more lines to the stream, above the live line, and to the log."""
        self.log(text)
        self._to_stream(lambda: self._print(text))

    def show(self, fields: Sequence[str]) -> None:
        """Replaces the live line with as many fields, from the left, as the terminal is wide. Nothing when plain."""
        self._to_stream(lambda: self._draw(fields))

    def log(self, text: str) -> None:
        """Adds text to the log alone."""
        if self._log_path is None:
            return
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        try:
            if self._log_at is not None and _place(self._log_path) != self._log_at:
                raise FileNotFoundError(
                    errno.ENOENT, "it has gone, or another file lies there"
                )  # not ours to make anew
            with durable.open_own(self._log_path, "ab") as file:
                self._log_at = _place(self._log_path)
                lines = (f"{stamp} {line}\n" for line in escape_controls(text).splitlines())
                file.write("".join(lines).encode("utf-8", "replace"))
        except OSError as error:
            path, self._log_path = self._log_path, None
            reason = error.strerror or error
            self._to_stream(lambda: self._print(f"{path}: cannot be written ({reason}); the run goes on without it"))

    def close(self) -> None:
        """Leaves the live line as it stands."""
        if self._shown:
            self._shown = 0
            self._to_stream(lambda: self._write("\n"))
        live, self._live = self._live, None
        if live is not None:
            self._to_stream(live.stop)

    def _print(self, text: str) -> None:
        if self._shown:
            self._write("\r" + " " * self._shown + "\r")
            self._shown = 0
        if self._console is not None:
            self._console.print(Text(_encodable(text, self._stream)), soft_wrap=True)
        else:
            self._write(_encodable(text, self._stream) + "\n")

    def _draw(self, fields: Sequence[str]) -> None:
        if self._updates_in_place:
            line = _encodable("  ".join(fields), self._stream)
            self._write("\r" + line.ljust(self._shown))
            self._shown = len(line)
        if self._console is None:
            return
        text = Text(_encodable(_fitted(fields, self._console.width - 1), self._stream), no_wrap=True, overflow="crop")
        if self._live is None:
            self._live = Live(text, console=self._console, auto_refresh=False)
            self._live.start()  # what others print goes through it from here on
            sys.stdout, sys.stderr = (cast(TextIO, VisibleStream(stream)) for stream in (sys.stdout, sys.stderr))
        self._live.update(text, refresh=True)

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()

    def _to_stream(self, act: Callable[[], None]) -> None:
        if self._mute:
            return
        try:
            act()
        except (OSError, ValueError):  # a closed pipe, a closed file
            self._mute = True


class _Terminal(Console):
    def on_broken_pipe(self) -> None:
        raise BrokenPipeError  # rich would end the program

    def show_cursor(self, show: bool = True) -> bool:
        return False  # a killed run would leave the terminal without one


class LiveLine(Callback):
    """Shows step, smoothed loss, time left, images per second, share of waiting for data, memory.

    On a terminal the line changes with the steps. Elsewhere, and in the log, there is a line for the first step, then
    one every `every_seconds`, and one for the last. The first step's time is announced; so is, once, when more than a
    tenth of twenty steps went by waiting for data. clock: seconds, for showing alone.
    """

    follows = True

    def __init__(
        self,
        stream: TextIO,
        log: Path | None,
        *,
        every_seconds: float = 10.0,
        plain: bool | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._voice = Voice(stream, log, plain=plain)
        self._every_seconds = every_seconds
        self._clock = clock
        self._running_mean = RunningMean()
        self._recent: deque[StepReport] = deque(maxlen=_WINDOW_STEPS)
        self._steps = 0
        self._said_at = 0.0
        self._drawn_at = 0.0
        self._unsaid: list[str] = []
        self._warned = False

    def on_step(self, report: StepReport | None, progress: Progress) -> Action:
        if report is None:
            return Action.NOTHING
        self._steps += 1
        self._running_mean.take(report.loss)
        if self._steps == 2:
            self._recent.clear()  # the first step warms up: it says nothing of the others' time
        self._recent.append(report)
        if self._steps == 1:
            self._voice.say(f"the first step took {report.seconds:.1f} s")
        self._warn_of_waiting()
        now, self._unsaid = self._clock(), self._fields(report, progress)
        is_edge = self._steps == 1 or report.step + 1 >= progress.last_step
        if is_edge or now - self._drawn_at >= _REDRAW_SECONDS:
            self._drawn_at = now
            self._voice.show(self._unsaid)
        if is_edge or now - self._said_at >= self._every_seconds:
            self._said_at = now
            self._say(self._unsaid)
        return Action.NOTHING

    def report(self, text: str, is_due: bool) -> None:
        """Shows progress of what comes before the run on the live line; where there are lines only, and in the log,
        adds it where it is due."""
        self._voice.show([text])
        if is_due:
            self._say([text])

    def say(self, text: str) -> None:
        """Says a line above the live one, and in the log: for warnings, and before and after the run."""
        self._voice.say(text)

    def state(self) -> dict[str, Any]:
        return {"smoothed": self._running_mean.state()}

    def load(self, state: Mapping[str, Any]) -> None:
        self._running_mean.load(state.get("smoothed", {}))

    def close(self) -> None:
        """Says where the run stands, if that is not said yet, and leaves the line."""
        if self._unsaid:
            self._voice.show(self._unsaid)
            self._say(self._unsaid)
        self._voice.close()

    def _say(self, fields: list[str]) -> None:
        self._unsaid = []
        add = self._voice.say if self._voice.is_plain else self._voice.log
        add("  ".join(fields))

    def _fields(self, report: StepReport, progress: Progress) -> list[str]:
        """The line's parts, the most important first: a narrow terminal drops the last ones."""
        seconds = max(sum(r.seconds for r in self._recent), 1e-9)
        done = report.step + 1
        loss = self._running_mean.value
        fields = [f"step {done}/{progress.last_step}", f"loss {'–' if loss is None else format(loss, '.4f')}"]
        if done < progress.last_step:
            fields.append(f"{duration(round((progress.last_step - done) * seconds / len(self._recent)))} left")
        fields.append(f"{sum(r.samples for r in self._recent) / seconds:.3g} images/s")
        fields.append(f"data wait {100 * sum(r.wait_seconds for r in self._recent) / seconds:.0f} %")
        if report.memory_bytes:
            fields.append(size(report.memory_bytes))
        return fields

    def _warn_of_waiting(self) -> None:
        if self._warned or self._steps < _WARM_UP_STEPS + _WINDOW_STEPS:
            return
        share = sum(r.wait_seconds for r in self._recent) / max(sum(r.seconds for r in self._recent), 1e-9)
        if share > _WAIT_SHARE:
            self._warned = True
            self._voice.say(
                f"{100 * share:.0f} % of the last {_WINDOW_STEPS} steps went by waiting for data; "
                "raise data.workers, or cache latents with data.cache.latents=true"
            )


def _fitted(fields: Sequence[str], width: int) -> str:
    line = fields[0] if fields else ""
    for field in fields[1:]:
        if cell_len(f"{line}  {field}") > width:
            break
        line = f"{line}  {field}"
    return line


def is_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return type(shell).__name__ == "ZMQInteractiveShell"


def _is_terminal(stream: TextIO) -> bool:
    try:
        return stream.isatty()
    except (OSError, ValueError):
        return False


def _place(path: Path) -> tuple[int, int] | None:
    """Which file has a name just now."""
    try:
        look = os.stat(path, follow_symlinks=False)
    except OSError:
        return None
    return look.st_dev, look.st_ino


def _encodable(text: str, stream: TextIO) -> str:
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return escape_controls(text).encode(encoding, "replace").decode(encoding)


def opened(setup: Setup) -> Iterator[Callback]:
    """The line that speaks since the run began to be prepared."""
    yield setup.line
