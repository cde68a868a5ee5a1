"""The folders that the page may read, and the names of runs and files in them. A name from a request leads to a file in
one of these folders or to an error: links that lead out of them are not followed.
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
"""Depth to which folders are searched for runs."""

_MOST_FOLDERS = 20_000
"""Folders that are searched for runs at most; the page shows a note if there are more."""

_ESCAPED = re.compile(r"\\udc([89a-f][0-9a-f])")
_KEPT_SECONDS = 2.0
TRASH = "trash"
"""The folder for deleted runs in each folder of the page. Runs in a folder of this name are not listed, unless the
folder is itself a run."""

_SKIPPED = {"node_modules", "__pycache__", "site-packages", "checkpoints", "exports", "samples", "logs"}


class OutsideFolders(Exception):
    """A name does not lead to anything in the folders of the page."""


@dataclass(slots=True)
class RootFolders:
    """The folders of the command line, each once. The name of a run is `NUMBER/PATH`, the index of its folder and its
    path in it; `NUMBER` is the folder itself. is_cut: whether not all folders were searched."""

    folders: tuple[Path, ...]
    extra: tuple[Path, ...] = ()
    """Folders of data sets, whose files are shown and which have no runs."""
    is_cut: bool = False
    _runs: list[str] = field(default_factory=list)
    _looked_at: float = float("-inf")
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def of(cls, named: Sequence[Path]) -> RootFolders:
        """The real paths of the folders, in their order, without folders inside another one."""
        real = list(dict.fromkeys(Path(os.path.realpath(path)) for path in named))
        return cls(tuple(path for path in real if not any(other in path.parents for other in real)))

    def runs(self) -> list[str]:
        """The names of all runs, cached for `_KEPT_SECONDS`."""
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
                        self._runs.append(f"{number}" if below == "." else f"{number}/{_quote_bytes(below)}")
                self._looked_at = time.monotonic()
            return list(self._runs)

    def forget(self) -> None:
        """Searches again when the runs are asked for: some were moved."""
        with self._lock:
            self._looked_at = float("-inf")

    def trashed(self) -> list[str]:
        """The names of the runs in the trash, which are not among `runs`."""
        paths = []
        for folder in self.folders:
            trash = folder / TRASH
            if trash.is_dir() and not trash.is_symlink() and not is_run(trash):
                paths += [path for path in _run_folders(trash, _MOST_FOLDERS) if path is not None]
        return sorted(name for name in map(self.name_of, paths) if name is not None)

    def root_of(self, path: Path) -> Path:
        """The folder of the page that contains a run."""
        return next(folder for folder in self.folders if path.is_relative_to(folder))

    def is_trashed(self, path: Path) -> bool:
        """Whether a run is in the trash."""
        trash = self.root_of(path) / TRASH
        return path != trash and path.is_relative_to(trash) and not is_run(trash)

    def run(self, name: str) -> Path:
        """The folder of a run. Raises OutsideFolders for any other name."""
        path = self.path(name)
        if not is_run(path):
            raise OutsideFolders(name)
        return path

    def path(self, name: str) -> Path:
        """The real path of the file or folder with a name. Raises OutsideFolders if it does not exist or is outside of
        the folders of the page."""
        number, _, below = name.partition("/")
        if not re.fullmatch("[0-9]{1,4}", number) or int(number) >= len(self.folders):
            raise OutsideFolders(name)
        return inside(self.folders[int(number)], _ESCAPED.sub(lambda sign: chr(0xDC00 + int(sign[1], 16)), below))

    def name_of(self, path: Path) -> str | None:
        """The name of a path in a folder of the page; None for any other path."""
        real = Path(os.path.realpath(path))
        for number, folder in enumerate(self.folders):
            if real.is_relative_to(folder):
                below = real.relative_to(folder).as_posix()
                return f"{number}" if below == "." else f"{number}/{_quote_bytes(below)}"
        return None

    def label(self, name: str) -> str:
        """A name for display: the path in its folder, or the whole path if the page has several folders."""
        number, _, below = name.partition("/")
        if not (number.isascii() and number.isdecimal()) or len(number) > 6 or int(number) >= len(self.folders):
            return name
        folder = self.folders[int(number)]
        return below or folder.name if len(self.folders) == 1 else str(folder / below)


def inside(folder: Path, below: str) -> Path:
    """The real path of `below` in a folder. Raises OutsideFolders if it does not exist or leads out of the folder."""
    try:
        real = Path(os.path.realpath(folder / below, strict=True))
    except (OSError, ValueError):  # it does not exist, or is not a possible file name
        raise OutsideFolders(below) from None
    if not real.is_relative_to(os.path.realpath(folder)):
        raise OutsideFolders(below)
    return real


def _quote_bytes(name: str) -> str:
    """A name for a URL: bytes that are not UTF-8 as `\\udc80` to `\\udcff`."""
    return name.encode("utf-8", "backslashreplace").decode("utf-8")


def is_run(path: Path) -> bool:
    """Whether a path is the folder of a run, or of one that the page has started and that has not written anything
    yet."""
    history, recipe, checkpoints = (path / name for name in ("history.jsonl", "recipe.yaml", "checkpoints"))
    if os.path.isfile(history) or (os.path.isfile(recipe) and os.path.isdir(checkpoints)):
        return True
    return os.path.isfile(path / "logs" / "started.out")


def _run_folders(top: Path, most: int) -> Iterator[Path | None]:
    """Yields the run folders at and below `top`, and None at the end if there were more than `most` folders. Links and
    the folders of runs are not searched."""
    pending = [(top, 0)]
    num_searched = 0
    while pending:
        path, depth = pending.pop()
        num_searched += 1
        if num_searched > most:
            yield None
            return
        if is_run(path):
            yield path
            continue
        if depth == _DEPTH or (path.name == TRASH and depth):
            continue
        try:
            with os.scandir(path) as entries:
                pending += [
                    (Path(entry.path), depth + 1)
                    for entry in entries
                    if entry.is_dir(follow_symlinks=False) and not entry.name.startswith(".")
                    and entry.name not in _SKIPPED
                ]  # fmt: skip
        except OSError:
            continue  # an unreadable folder counts as empty


def find_nested_run(run: Path) -> Path | None:
    """A run in a folder of another run, in which the page does not list it; None if there is none."""
    try:
        with os.scandir(run) as entries:
            folders = [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return None
    searched = (folder for folder in folders if folder.name not in _SKIPPED)
    return next((path for folder in searched for path in _run_folders(folder, _MOST_FOLDERS) if path is not None), None)
