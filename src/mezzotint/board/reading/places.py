"""Which folders the page may look into, and what is named below them. A name from the address leads to a file below
one of these folders or to nothing: links that lead out of them are not followed.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

_DEPTH = 5
"""So many folders below a named one may a run lie."""

_MOST_FOLDERS = 20_000
"""So many folders are looked at for runs; what lies behind them is told as not looked at."""

_ESCAPED = re.compile(r"\\udc([89a-f][0-9a-f])")
_KEPT_SECONDS = 2.0
_SKIPPED = {"node_modules", "__pycache__", "site-packages", "checkpoints", "exports", "samples", "logs"}


class OutOfPlace(Exception):
    """A name leads to nothing below the folders of the page."""


@dataclass(slots=True)
class Places:
    """The folders that were named, each once. A run is called `NUMBER/PATH`, by the folder it lies in and its path
    below it; `NUMBER` alone is the folder itself."""

    folders: tuple[Path, ...]
    extra: tuple[Path, ...] = ()
    """Folders whose files are shown and which have no runs: those of data sets."""
    is_cut: bool = False
    _runs: list[str] = field(default_factory=list)
    _looked_at: float = float("-inf")
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def of(cls, named: Sequence[Path]) -> Places:
        """The folders by their real paths, as they were named; those that lie in another one are left out."""
        real = list(dict.fromkeys(Path(os.path.realpath(path)) for path in named))
        return cls(tuple(path for path in real if not any(other in path.parents for other in real)))

    def runs(self) -> list[str]:
        """The names of all runs, looked for again when some seconds have passed."""
        with self._lock:
            if time.monotonic() - self._looked_at > _KEPT_SECONDS:
                self._runs, self.is_cut = [], False
                left = _MOST_FOLDERS
                for number, folder in enumerate(self.folders):
                    for path in _run_folders(folder, left):
                        if path is None:
                            self.is_cut = True
                            break
                        below = path.relative_to(folder).as_posix()
                        self._runs.append(f"{number}" if below == "." else f"{number}/{_sendable(below)}")
                self._looked_at = time.monotonic()
            return list(self._runs)

    def run(self, name: str) -> Path:
        """The folder of a run. Raises OutOfPlace for a name that is no run's."""
        path = self.path(name)
        if not _is_run(path):
            raise OutOfPlace(name)
        return path

    def path(self, name: str) -> Path:
        """The file or folder that a name stands for, by its real path. Raises OutOfPlace where nothing lies, and where
        what lies there is not below a folder of the page."""
        number, _, below = name.partition("/")
        if not re.fullmatch("[0-9]{1,4}", number) or int(number) >= len(self.folders):
            raise OutOfPlace(name)
        return inside(self.folders[int(number)], _ESCAPED.sub(lambda sign: chr(0xDC00 + int(sign[1], 16)), below))

    def name_of(self, path: Path) -> str | None:
        """The name of a path below a folder of the page, None for any other."""
        real = Path(os.path.realpath(path))
        for number, folder in enumerate(self.folders):
            if real.is_relative_to(folder):
                below = real.relative_to(folder).as_posix()
                return f"{number}" if below == "." else f"{number}/{_sendable(below)}"
        return None

    def label(self, name: str) -> str:
        """A name for readers: the path below its folder, or the whole path where the page has several folders."""
        number, _, below = name.partition("/")
        if not (number.isascii() and number.isdecimal()) or len(number) > 6 or int(number) >= len(self.folders):
            return name
        folder = self.folders[int(number)]
        return below or folder.name if len(self.folders) == 1 else str(folder / below)


def inside(folder: Path, below: str) -> Path:
    """The real path of what lies below a folder under a name. Raises OutOfPlace for what lies elsewhere, whatever the
    name has in it, and for what is not there."""
    try:
        real = Path(os.path.realpath(folder / below, strict=True))
    except (OSError, ValueError):  # nothing is there, or no file can have such a name
        raise OutOfPlace(below) from None
    if not real.is_relative_to(os.path.realpath(folder)):
        raise OutOfPlace(below)
    return real


def _sendable(name: str) -> str:
    """A name as an address can have it: bytes that are no UTF-8 as `\\udc80` to `\\udcff`."""
    return name.encode("utf-8", "backslashreplace").decode("utf-8")


def _is_run(path: Path) -> bool:
    """Whether a path is the folder of a run, or of one that the page has started and that has written nothing yet."""
    history, recipe, checkpoints = (path / name for name in ("history.jsonl", "recipe.yaml", "checkpoints"))
    if os.path.isfile(history) or (os.path.isfile(recipe) and os.path.isdir(checkpoints)):
        return True
    return os.path.isfile(path / "logs" / "started.out")


def _run_folders(top: Path, most: int) -> Iterator[Path | None]:
    """The run folders at and below a folder, None at the end where there were too many to look at. Links are not
    followed, and no run lies in another's folder."""
    waiting = [(top, 0)]
    seen = 0
    while waiting:
        path, depth = waiting.pop()
        seen += 1
        if seen > most:
            yield None
            return
        if _is_run(path):
            yield path
            continue
        if depth == _DEPTH:
            continue
        try:
            with os.scandir(path) as entries:
                waiting += [
                    (Path(entry.path), depth + 1)
                    for entry in entries
                    if entry.is_dir(follow_symlinks=False) and not entry.name.startswith(".")
                    and entry.name not in _SKIPPED
                ]  # fmt: skip
        except OSError:
            continue  # a folder that may not be read has no runs for this reader
