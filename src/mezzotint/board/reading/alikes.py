"""Which pictures of a data set look alike: looked for in a thread, first among a part, then among all."""

from __future__ import annotations

import io
import threading
from dataclasses import dataclass, field
from typing import Any

from PIL import Image

from mezzotint.board.reading.data_sets import DataSet
from mezzotint.board.reading.tails import shown
from mezzotint.data.catalogue import likeness, thumbnails
from mezzotint.data.catalogue.likeness import Looks
from mezzotint.errors import MezzotintError

FIRST = 20_000
"""Samples that are looked at before anybody asks for all: a minute or a few."""

MOST_SHOWN = 200
"""Pairs, the nearest first."""

_SIDE = 96


@dataclass(slots=True)
class AlikeSearch:
    """The search of one data set. looked_at: rows that have been, from the first on. pairs: among the first `among`;
    None before any. They are brought up to date as often as the rows have doubled, and at the end."""

    data: DataSet
    looks: Looks
    looked_at: int = 0
    pairs: list[tuple[int, int, float]] | None = None
    among: int = 0
    _goal: int = 0
    _is_going: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def of(cls, data: DataSet) -> AlikeSearch:
        """A search that has not begun. Raises DatasetError E1970 without the library that it needs."""
        likeness.require_library()
        return cls(data, Looks.empty(len(data.catalogue)))

    def begin(self, *, among_all: bool = False) -> None:
        """Begins to look at the first rows, or at all, unless that was begun already."""
        goal = self.count if among_all else min(FIRST, self.count)
        with self._lock:
            self._goal = max(self._goal, goal)
            if not self._is_going and (self.looked_at < self._goal or self.pairs is None):
                self._is_going = True
                threading.Thread(target=self._look, daemon=True).start()

    @property
    def count(self) -> int:
        """Rows that there are."""
        return len(self.data.catalogue)

    def as_json(self) -> dict[str, Any]:
        """For the page. ready: whether there are pairs to be seen; going: whether more rows are being looked at."""
        catalogue = self.data.catalogue
        pairs = [
            {"rows": [a, b], "keys": [shown(catalogue.key(a)), shown(catalogue.key(b))], "apart": apart}
            for a, b, apart in self.pairs or ()
        ]
        return {
            "ready": self.pairs is not None, "going": self.among < self._goal, "done": self.looked_at,
            "total": self._goal, "among": self.among, "all": self.count, "pairs": pairs, "most": MOST_SHOWN,
        }  # fmt: skip

    def nearest(self, path: Any) -> list[dict[str, Any]] | None:
        """The rows that look most like the picture of a file; None for what is no picture."""
        own = thumbnails.shades_at(path)
        if own is None:
            return None
        rows = likeness.nearest(self.looks.shades[: self.among], own)
        return [{"row": row, "key": shown(self.data.catalogue.key(row)), "apart": round(d, 2)} for row, d in rows]

    def _look(self) -> None:
        while True:
            while self.looked_at < self._goal:
                self._look_at(self.looked_at)
                self.looked_at += 1
                if self.looked_at == max(FIRST, 2 * self.among):
                    self._pair()
            self._pair()
            with self._lock:
                if self.looked_at >= self._goal:
                    self._is_going = False
                    return

    def _look_at(self, row: int) -> None:
        """Notes a row, by its small copy where one is kept. What cannot be read looks like nothing."""
        catalogue, settings = self.data.catalogue, self.data.settings
        content = thumbnails.kept(catalogue, row)
        try:
            if content is None:  # of a million pictures no copies are made on the way
                self.looks.put(row, likeness.image_of(catalogue, row, settings, _SIDE))
                return
            with Image.open(io.BytesIO(content)) as image:
                self.looks.put(row, image.convert("RGB"))
        except (MezzotintError, OSError):
            return

    def _pair(self) -> None:
        if self.among == self.looked_at and self.pairs is not None:
            return
        self.pairs = likeness.near_pairs(self.looks.first(self.looked_at), MOST_SHOWN)
        self.among = self.looked_at
