"""metrics.jsonl as columns, read as it grows: each call takes what has come since the last one. Of a long file that has
not been read yet a sketch is there at once: lines of evenly spaced places.
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
"""Bytes that are read at a time."""

_LONG = 24_000_000
"""A file of more bytes is sketched first."""

_SKETCHED = 1200
"""Lines of a sketch."""

_LOOKED_AT = 8
"""Of so many runs that were looked at last the numbers are kept."""

_MOST_TAGS = 2000
"""Curves of a run. Values beyond these first ones are left out: no run writes so many."""

_LONGEST_LINE = 1_000_000
_NOT_CURVES = {"step", "epoch", "samples_digest", "applied", "overflow", "samples"}


@dataclass(slots=True)
class MetricsTable:
    """Numbers by tag, each with the place of its line. places: of each line the steps done, seconds of training and
    samples so far."""

    places: dict[Axis, array[float]] = field(
        default_factory=lambda: {"step": array("d"), "time": array("d"), "samples": array("d")}
    )
    rows: dict[str, array[int]] = field(default_factory=dict)
    values: dict[str, array[float]] = field(default_factory=dict)
    last: dict[str, Any] = field(default_factory=dict)
    is_estimated: bool = False

    def add(self, line: Mapping[str, Any]) -> None:
        """Takes a line. Lines without a step are nobody's."""
        step = to_count(line.get("step"))
        if step is None:
            return
        steps, times, samples = self.places["step"], self.places["time"], self.places["samples"]
        before = (steps[-1], times[-1], samples[-1]) if steps else (0.0, 0.0, 0.0)
        took, came = to_amount(line.get("seconds_since")), to_amount(line.get("samples_since"))
        if self.is_estimated:  # what a line tells of the steps since the one before, spread over those since the last
            factor = max(0.0, step - before[0]) / max(1.0, to_amount(line.get("steps_since")))
            took, came = took * factor, came * factor
        row = len(steps)
        steps.append(step)
        times.append(before[1] + took)
        samples.append(before[2] + came)
        for tag, value in line.items():
            number = None if tag in _NOT_CURVES else to_number(value)
            if number is not None and (tag in self.rows or len(self.rows) < _MOST_TAGS):
                self.rows.setdefault(tag, array("l")).append(row)
                self.values.setdefault(tag, array("f")).append(number)
        if "loss" in line:
            self.last = dict(line)

    def curve(self, tag: str, axis: Axis) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The places and values of a tag; empty for one that no line has."""
        if tag not in self.rows:
            return np.zeros(0), np.zeros(0)
        rows = np.array(self.rows[tag], np.int64)
        return np.array(self.places[axis])[rows], np.array(self.values[tag], np.float64)


class RunMetrics:
    """The numbers of one run. Several threads may call it; a file that was cut back, as a resume does, is read anew."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._begin()

    def _begin(self) -> None:
        self._table, self._sketch = MetricsTable(), MetricsTable(is_estimated=True)
        self._at, self._file_id, self._size = 0, (0, 0), 0
        self._head = b""

    @property
    def share_read(self) -> float:
        """How much of the file has been read, 0 to 1."""
        return 1.0 if self._size == 0 else min(1.0, self._at / self._size)

    @property
    def table(self) -> MetricsTable:
        """What is known: the sketch of a long file until all of it has been read."""
        return self._sketch if self._sketch.places["step"] and self.share_read < 1 else self._table

    def follow(self, *, blocks: int = 1) -> bool:
        """Reads on, at most so many blocks; returns whether there is more. A file that is gone, or no plain one, is
        read as far as it was."""
        with self._lock:
            try:
                with outside.open_plain(self._path, within=self._path.parent) as file:
                    self._look_anew(file)
                    if self._size - self._at > _LONG and not self._sketch.places["step"]:
                        self._draw_sketch(file)
                        return True
                    file.seek(self._at)
                    for _ in range(blocks):
                        if not self._take(file.read(BLOCK)):
                            return False
                    return self._at < self._size
            except OSError:
                self._size = self._at
                return False

    def _look_anew(self, file: Any) -> None:
        """Notes how long the file is now, and begins again where it is another one or was cut back."""
        import os

        status = os.fstat(file.fileno())
        head = file.read(64)
        is_other = self._file_id != (status.st_dev, status.st_ino) or status.st_size < self._at
        if is_other or not head.startswith(self._head):
            self._begin()
        self._file_id, self._size = (status.st_dev, status.st_ino), status.st_size
        self._head = self._head or (head if len(head) == 64 else b"")

    def _take(self, block: bytes) -> bool:
        """Takes the whole lines of a block; False at the end of the file, where a line is still being written."""
        end = block.rfind(b"\n") + 1
        if not end:
            if len(block) < BLOCK:
                return False
            end = len(block)  # a line of megabytes is none of ours
        for line in block[:end].split(b"\n"):
            value = _parsed(line)
            if value is not None:
                self._table.add(value)
        self._at += end
        return len(block) == BLOCK

    def _draw_sketch(self, file: Any) -> None:
        size = self._size
        for place in np.linspace(0, size, _SKETCHED, endpoint=False, dtype=np.int64):
            file.seek(int(place))
            block = file.read(8192)
            begin = block.find(b"\n") + 1 if place else 0
            end = block.find(b"\n", begin)
            value = _parsed(block[begin:end]) if end > begin else None
            if value is not None:
                self._sketch.add(value)
        file.seek(max(0, size - 8192))
        for line in file.read(8192).split(b"\n")[1:]:
            value = _parsed(line)
            if value is not None:
                self._sketch.add(value)


def _parsed(line: bytes) -> dict[str, Any] | None:
    """The object of a line; None for a torn one, or none of ours."""
    if not line or len(line) > _LONGEST_LINE:
        return None
    try:
        value = outside.parse_json(line.decode("utf-8", "replace"))
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


class Shelf:
    """The numbers of runs by folder. A long file is read on in a thread of its own, while its sketch is shown."""

    def __init__(self) -> None:
        self._metrics: OrderedDict[Path, RunMetrics] = OrderedDict()
        self._reading: set[Path] = set()
        self._lock = threading.Lock()

    def metrics(self, path: Path) -> RunMetrics:
        """The numbers of the run in a folder, as far as they have come."""
        with self._lock:
            metrics = self._metrics.setdefault(path, RunMetrics(path / "metrics.jsonl"))
            self._metrics.move_to_end(path)
            while len(self._metrics) > _LOOKED_AT:
                self._metrics.popitem(last=False)
        if path not in self._reading and metrics.follow():
            self._reading.add(path)
            threading.Thread(target=self._read_on, args=(path, metrics), daemon=True).start()
        return metrics

    def _read_on(self, path: Path, metrics: RunMetrics) -> None:
        try:
            while self._metrics.get(path) is metrics and metrics.follow():
                pass
        finally:
            self._reading.discard(path)
