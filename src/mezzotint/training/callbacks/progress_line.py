"""Console output of a run: one live line on a terminal, plain lines elsewhere, and everything in run.log.

    step 120/1000  loss 0.1234  2 min 31 s left  12.3 images/s  data wait 3 %  3.44 GB

Output never ends a run: after a closed pipe or a full disk it stops.
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
from mezzotint.settings.counting import format_bytes, format_duration
from mezzotint.stages import StepReport
from mezzotint.training.callbacks._scalars import RunningMean
from mezzotint.training.callbacks.base import Action, Callback, Setup
from mezzotint.training.progress import Progress

_REDRAW_SECONDS = 0.1
_WARM_UP_STEPS = 5
_WINDOW_STEPS = 20
_WAIT_SHARE = 0.1


class ConsoleLog:
    """Prints lines to a stream and a log file; on a terminal it keeps one live line below them.

    plain: lines only; None checks whether the stream is a terminal; in a notebook the line is rewritten in place. log:
    run.log, or None; its lines have a time stamp (UTC). If the stream or the log fails, the other continues.
    """

    def __init__(self, stream: TextIO, log: Path | None, *, plain: bool | None = None) -> None:
        stream = (
            stream.stream if isinstance(stream, VisibleStream) else stream
        )  # the live line writes control sequences
        self._stream = stream
        self._log_path = log
        self._log_id: tuple[int, int] | None = None
        self._mute = False
        self._console: Console | None = None
        self._live: Live | None = None
        self._updates_in_place = plain is None and is_notebook()
        self._num_shown = 0  # number of characters of the current line in a notebook
        if plain is False or (plain is None and _is_terminal(stream)):
            console = _Terminal(file=stream, force_terminal=True, highlight=False, markup=False, emoji=False)
            self._console = None if console.is_dumb_terminal and plain is None else console

    @property
    def is_plain(self) -> bool:
        """Whether there is no live line."""
        return self._console is None and not self._updates_in_place

    def say(self, text: str) -> None:
        """Prints text of one or more lines to the stream, above the live line, and to the log."""
        self.log(text)
        self._to_stream(lambda: self._print(text))

    def show(self, fields: Sequence[str]) -> None:
        """Replaces the live line with as many fields, from the left, as fit. Does nothing when plain."""
        self._to_stream(lambda: self._update_line(fields))

    def log(self, text: str) -> None:
        """Writes text to the log only."""
        if self._log_path is None:
            return
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        try:
            if self._log_id is not None and _file_id(self._log_path) != self._log_id:
                # do not create another file in its place
                raise FileNotFoundError(errno.ENOENT, "it was removed or replaced by another file")
            with durable.open_own(self._log_path, "ab") as file:
                self._log_id = _file_id(self._log_path)
                lines = (f"{stamp} {line}\n" for line in escape_controls(text).splitlines())
                file.write("".join(lines).encode("utf-8", "replace"))
        except OSError as error:
            path, self._log_path = self._log_path, None
            reason = error.strerror or error
            self._to_stream(lambda: self._print(f"{path}: cannot be written ({reason}); the run continues without it"))

    def close(self) -> None:
        """Ends the live line, which keeps its last content."""
        if self._num_shown:
            self._num_shown = 0
            self._to_stream(lambda: self._write("\n"))
        live, self._live = self._live, None
        if live is not None:
            self._to_stream(live.stop)

    def _print(self, text: str) -> None:
        if self._num_shown:
            self._write("\r" + " " * self._num_shown + "\r")
            self._num_shown = 0
        if self._console is not None:
            self._console.print(Text(_encodable(text, self._stream)), soft_wrap=True)
        else:
            self._write(_encodable(text, self._stream) + "\n")

    def _update_line(self, fields: Sequence[str]) -> None:
        if self._updates_in_place:
            line = _encodable("  ".join(fields), self._stream)
            self._write("\r" + line.ljust(self._num_shown))
            self._num_shown = len(line)
        if self._console is None:
            return
        text = Text(_encodable(_fit(fields, self._console.width - 1), self._stream), no_wrap=True, overflow="crop")
        if self._live is None:
            self._live = Live(text, console=self._console, auto_refresh=False)
            self._live.start()  # from now on it also captures what other code prints
            sys.stdout, sys.stderr = (cast(TextIO, VisibleStream(stream)) for stream in (sys.stdout, sys.stderr))
        self._live.update(text, refresh=True)

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()

    def _to_stream(self, write: Callable[[], None]) -> None:
        if self._mute:
            return
        try:
            write()
        except (OSError, ValueError):  # a closed pipe, a closed file
            self._mute = True


class _Terminal(Console):
    def on_broken_pipe(self) -> None:
        raise BrokenPipeError  # rich would exit

    def show_cursor(self, show: bool = True) -> bool:
        return False  # a killed run would leave the terminal without a cursor


class LiveLine(Callback):
    """Shows step, smoothed loss, time left, images per second, share of time spent waiting for data, memory.

    On a terminal the line is updated with the steps. Elsewhere, and in the log, there is a line for the first step, one
    every `every_seconds`, and one for the last. Also prints the time of the first step, and warns once if more than a
    tenth of the time of twenty steps was spent waiting for data. clock: seconds, only for display.
    """

    receives_delayed_reports = True

    def __init__(
        self,
        stream: TextIO,
        log: Path | None,
        *,
        every_seconds: float = 10.0,
        plain: bool | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._console_log = ConsoleLog(stream, log, plain=plain)
        self._every_seconds = every_seconds
        self._clock = clock
        self._running_mean = RunningMean()
        self._recent: deque[StepReport] = deque(maxlen=_WINDOW_STEPS)
        self._steps = 0
        self._printed_at = 0.0
        self._updated_at = 0.0
        self._unprinted: list[str] = []
        self._warned = False

    def on_step(self, report: StepReport | None, progress: Progress) -> Action:
        if report is None:
            return Action.NOTHING
        self._steps += 1
        self._running_mean.take(report.loss)
        if self._steps == 2:
            self._recent.clear()  # the first step is a warm-up and takes longer
        self._recent.append(report)
        if self._steps == 1:
            self._console_log.say(f"the first step took {report.seconds:.1f} s")
        self._warn_of_waiting()
        now, self._unprinted = self._clock(), self._fields(report, progress)
        is_edge = self._steps == 1 or report.step + 1 >= progress.last_step
        if is_edge or now - self._updated_at >= _REDRAW_SECONDS:
            self._updated_at = now
            self._console_log.show(self._unprinted)
        if is_edge or now - self._printed_at >= self._every_seconds:
            self._printed_at = now
            self._print_fields(self._unprinted)
        return Action.NOTHING

    def report(self, text: str, is_due: bool) -> None:
        """Shows progress of the preparation on the live line; prints it as a line, without a live line, and in the log
        if is_due."""
        self._console_log.show([text])
        if is_due:
            self._print_fields([text])

    def say(self, text: str) -> None:
        """Prints a line above the live line, and in the log: for warnings, and before and after the run."""
        self._console_log.say(text)

    def state(self) -> dict[str, Any]:
        return {"smoothed": self._running_mean.state()}

    def load(self, state: Mapping[str, Any]) -> None:
        self._running_mean.load(state.get("smoothed", {}))

    def close(self) -> None:
        """Prints the last state if it was not printed yet, and ends the live line."""
        if self._unprinted:
            self._console_log.show(self._unprinted)
            self._print_fields(self._unprinted)
        self._console_log.close()

    def _print_fields(self, fields: list[str]) -> None:
        self._unprinted = []
        add = self._console_log.say if self._console_log.is_plain else self._console_log.log
        add("  ".join(fields))

    def _fields(self, report: StepReport, progress: Progress) -> list[str]:
        """The parts of the line, most important first: a narrow terminal drops the last ones."""
        seconds = max(sum(r.seconds for r in self._recent), 1e-9)
        done = report.step + 1
        loss = self._running_mean.value
        fields = [f"step {done}/{progress.last_step}", f"loss {'–' if loss is None else format(loss, '.4f')}"]
        if done < progress.last_step:
            fields.append(f"{format_duration(round((progress.last_step - done) * seconds / len(self._recent)))} left")
        fields.append(f"{sum(r.samples for r in self._recent) / seconds:.3g} images/s")
        fields.append(f"data wait {100 * sum(r.wait_seconds for r in self._recent) / seconds:.0f} %")
        if report.memory_bytes:
            fields.append(format_bytes(report.memory_bytes))
        return fields

    def _warn_of_waiting(self) -> None:
        if self._warned or self._steps < _WARM_UP_STEPS + _WINDOW_STEPS:
            return
        share = sum(r.wait_seconds for r in self._recent) / max(sum(r.seconds for r in self._recent), 1e-9)
        if share > _WAIT_SHARE:
            self._warned = True
            self._console_log.say(
                f"{100 * share:.0f} % of the time of the last {_WINDOW_STEPS} steps was spent waiting for data; "
                "raise data.workers, or cache latents with data.cache.latents=true"
            )


def _fit(fields: Sequence[str], width: int) -> str:
    line = fields[0] if fields else ""
    for field in fields[1:]:
        if cell_len(f"{line}  {field}") > width:
            break
        line = f"{line}  {field}"
    return line


def is_notebook() -> bool:
    """Whether this process is a notebook kernel."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return type(shell).__name__ == "ZMQInteractiveShell"


def _is_terminal(stream: TextIO) -> bool:
    try:
        return stream.isatty()
    except (OSError, ValueError):
        return False


def _file_id(path: Path) -> tuple[int, int] | None:
    """Identifies the file that currently has this path; None if there is none."""
    try:
        status = os.stat(path, follow_symlinks=False)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _encodable(text: str, stream: TextIO) -> str:
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return escape_controls(text).encode(encoding, "replace").decode(encoding)


def create_callbacks(setup: Setup) -> Iterator[Callback]:
    """The live line that was created when the preparation of the run started."""
    yield setup.line
