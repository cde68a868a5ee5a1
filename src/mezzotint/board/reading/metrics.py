"""metrics.jsonl as columns, read as it grows: each call reads the lines since the last one. For a long file a sketch of
evenly spaced lines is available before all of it has been read.
"""

from __future__ import annotations

import threading
from array import array
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mezzotint import outside
from mezzotint.board.reading.tails import to_amount, to_count, to_number

Axis = Literal["step", "time", "samples"]

BLOCK = 8_000_000
"""Bytes that are read at once."""

_LONG = 24_000_000
"""Files of more bytes are sketched first."""

_SKETCHED = 1200
"""Lines of a sketch."""

_LOOKED_AT = 8
"""Number of most recently shown runs whose metrics are kept."""

MOST_TAGS = 2000
"""Largest number of curves of a run; further tags are ignored. No run writes so many."""

_LONGEST_LINE = 1_000_000
_NOT_CURVES = {"step", "epoch", "samples_digest", "applied", "overflow", "samples"}


@dataclass(slots=True)
class MetricsTable:
    """Values by tag, each with the index of its line. positions: for each line, the steps, seconds of training and
    samples so far. is_estimated: lines are a sample of the file, and times are extrapolated."""

    positions: dict[Axis, array[float]] = field(
        default_factory=lambda: {"step": array("d"), "time": array("d"), "samples": array("d")}
    )
    rows: dict[str, array[int]] = field(default_factory=dict)
    values: dict[str, array[float]] = field(default_factory=dict)
    last: dict[str, Any] = field(default_factory=dict)
    is_estimated: bool = False

    def add(self, line: Mapping[str, Any]) -> None:
        """Adds a line. Lines without a step are ignored."""
        step = to_count(line.get("step"))
        if step is None:
            return
        steps, times, samples = self.positions["step"], self.positions["time"], self.positions["samples"]
        before = (steps[-1], times[-1], samples[-1]) if steps else (0.0, 0.0, 0.0)
        seconds, count = to_amount(line.get("seconds_since")), to_amount(line.get("samples_since"))
        if self.is_estimated:  # scales sums to the steps since the last line read
            factor = max(0.0, step - before[0]) / max(1.0, to_amount(line.get("steps_since")))
            seconds, count = seconds * factor, count * factor
        row = len(steps)
        steps.append(step)
        times.append(before[1] + seconds)
        samples.append(before[2] + count)
        for tag, value in line.items():
            number = None if tag in _NOT_CURVES else to_number(value)
            if number is not None and (tag in self.rows or len(self.rows) < MOST_TAGS):
                self.rows.setdefault(tag, array("l")).append(row)
                self.values.setdefault(tag, array("f")).append(number)
        if "loss" in line:
            self.last = dict(line)

    def latest(self, tag: str, step: int) -> float | None:
        """The last value of a tag up to a step; None if there is none."""
        x, y = self.curve(tag, "step")
        before = np.flatnonzero(x <= step)
        return float(y[before[-1]]) if len(before) else None

    def curve(self, tag: str, axis: Axis) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Positions and values of a tag; empty for an unknown tag."""
        if tag not in self.rows:
            return np.zeros(0), np.zeros(0)
        rows = np.array(self.rows[tag], np.int64)
        return np.array(self.positions[axis])[rows], np.array(self.values[tag], np.float64)


class RunMetrics:
    """The metrics of one run, thread-safe. A file that was truncated, as a resume does, is read again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._reset()

    def _reset(self) -> None:
        self._table, self._sketch = MetricsTable(), MetricsTable(is_estimated=True)
        self._at, self._file_id, self._size = 0, (0, 0), 0
        self._head = b""

    @property
    def share_read(self) -> float:
        """The share of the file that has been read, 0 to 1."""
        return 1.0 if self._size == 0 else min(1.0, self._at / self._size)

    @property
    def table(self) -> MetricsTable:
        """The values read so far; for a long file, its sketch until all of it has been read."""
        return self._sketch if self._sketch.positions["step"] and self.share_read < 1 else self._table

    def follow(self, *, blocks: int = 1) -> bool:
        """Reads at most `blocks` further blocks; returns whether there is more. If the file was removed or is not a
        regular file, what was read stays."""
        with self._lock:
            try:
                with outside.open_plain(self._path, within=self._path.parent) as file:
                    self._check_file(file)
                    if self._size - self._at > _LONG and not self._sketch.positions["step"]:
                        self._read_sketch(file)
                        return True
                    file.seek(self._at)
                    for _ in range(blocks):
                        if not self._parse_block(file.read(BLOCK)):
                            return False
                    return self._at < self._size
            except OSError:
                self._size = self._at
                return False

    def _check_file(self, file: Any) -> None:
        """Updates the size of the file, and starts again if the file was replaced or truncated."""
        import os

        status = os.fstat(file.fileno())
        head = file.read(64)
        is_other = self._file_id != (status.st_dev, status.st_ino) or status.st_size < self._at
        if is_other or not head.startswith(self._head):
            self._reset()
        self._file_id, self._size = (status.st_dev, status.st_ino), status.st_size
        self._head = self._head or (head if len(head) == 64 else b"")

    def _parse_block(self, block: bytes) -> bool:
        """Adds the complete lines of a block; False at the end of the file, where a line may still be incomplete."""
        end = block.rfind(b"\n") + 1
        if not end:
            if len(block) < BLOCK:
                return False
            end = len(block)  # a line of megabytes was not written by a run
        for line in block[:end].split(b"\n"):
            value = _parse_line(line)
            if value is not None:
                self._table.add(value)
        self._at += end
        return len(block) == BLOCK

    def _read_sketch(self, file: Any) -> None:
        size = self._size
        for offset in np.linspace(0, size, _SKETCHED, endpoint=False, dtype=np.int64):
            file.seek(int(offset))
            block = file.read(8192)
            begin = block.find(b"\n") + 1 if offset else 0
            end = block.find(b"\n", begin)
            value = _parse_line(block[begin:end]) if end > begin else None
            if value is not None:
                self._sketch.add(value)
        file.seek(max(0, size - 8192))
        for line in file.read(8192).split(b"\n")[1:]:
            value = _parse_line(line)
            if value is not None:
                self._sketch.add(value)


def _parse_line(line: bytes) -> dict[str, Any] | None:
    """The object of a line; None for an incomplete or foreign one."""
    if not line or len(line) > _LONGEST_LINE:
        return None
    try:
        value = outside.parse_json(line.decode("utf-8", "replace"))
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


class MetricsCache:
    """The metrics of runs by folder. A long file is read in a thread while its sketch is shown."""

    def __init__(self) -> None:
        self._metrics: OrderedDict[Path, RunMetrics] = OrderedDict()
        self._reading: set[Path] = set()
        self._lock = threading.Lock()

    def metrics(self, path: Path) -> RunMetrics:
        """The metrics of the run in a folder, as far as they have been read."""
        with self._lock:
            metrics = self._metrics.setdefault(path, RunMetrics(path / "metrics.jsonl"))
            self._metrics.move_to_end(path)
            while len(self._metrics) > _LOOKED_AT:
                self._metrics.popitem(last=False)
        if path not in self._reading and metrics.follow():
            self._reading.add(path)
            threading.Thread(target=self._follow_to_end, args=(path, metrics), daemon=True).start()
        return metrics

    def _follow_to_end(self, path: Path, metrics: RunMetrics) -> None:
        try:
            while self._metrics.get(path) is metrics and metrics.follow():
                pass
        finally:
            self._reading.discard(path)
