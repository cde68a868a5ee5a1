"""What the page keeps of runs that are looked at: their numbers, of the few that were looked at last."""

from __future__ import annotations

import threading
from collections import OrderedDict
from pathlib import Path

from mezzotint.board.reading.metrics import RunMetrics

_MOST = 8


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
            while len(self._metrics) > _MOST:
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
