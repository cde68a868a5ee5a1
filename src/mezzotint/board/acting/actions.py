"""What can be done from the page, each by a file or a command that does the same without it: a running run is asked for
something by a file in its folder; what is started is a process of its own, which outlives the page.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mezzotint import durable, outside
from mezzotint.board.reading import runs, tails
from mezzotint.errors import CheckpointError, MezzotintError, RecipeError
from mezzotint.run_folder import RunFolder

ASKED = {
    "draw": ("Draw now", "draws its previews at this step's end"),
    "save": ("Save now", "writes a checkpoint at this step's end"),
    "stop": ("Stop after this step", "saves at this step's end and ends; going on later ends with the same bits"),
}
"""What a running run can be asked for, by the name of the file."""

_WATCHED_SECONDS = 1.0
"""So long is a started process watched for a refusal."""


@dataclass(frozen=True, slots=True)
class Offered:
    """An action. name: for the request; word: on its button; about: what it does; command: what does the same."""

    name: str
    word: str
    about: str
    command: str


def offered(path: Path) -> list[Offered]:
    """What can be done with a run as it stands."""
    state = runs.standing(path).state
    if state == "running":
        place = path / "requests"
        touch = f"mkdir -p {shlex.quote(str(place))} && touch {shlex.quote(str(place))}"
        return [Offered(name, word, about, f"{touch}/{name}") for name, (word, about) in ASKED.items()]
    recipe = path / "recipe.yaml"
    if state in ("stopped", "killed") and os.path.isfile(recipe) and not outside.leads_out(recipe, path):
        return [
            Offered("go", "Go on", "goes on from the newest checkpoint, in a process of its own", runs.going_on(path))
        ]
    return []


def act(path: Path, name: str, started: Started) -> str:
    """Does one of the actions of a run, and says what was done. Raises CheckpointError: E1946 for one that the run is
    not offered now, E1160 for a run whose folders are links that lead out of it; StorageError; as `Started.start`."""
    if name not in {one.name for one in offered(path)}:
        raise CheckpointError(f"{path.name}: cannot {name} as it stands; look at its state", code="E1946")
    RunFolder(path).refuse_links()
    if name == "go":
        with durable.storage_errors(path):
            (path / "logs").mkdir(exist_ok=True)
        return started.start(["train", str(path / "recipe.yaml")], path / "logs" / "started.out")
    folder = RunFolder(path).requests
    with durable.storage_errors(folder):
        folder.mkdir(exist_ok=True)
        durable.write_file(folder / name, "asked for by the page\n")
    return f"asked: {ASKED[name][1]} ({folder / name})"


@dataclass(slots=True)
class Started:
    """Processes that were started from the page. They belong to themselves: the end of the page is not theirs."""

    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def start(self, line: Sequence[str], out: Path, folder: Path | None = None) -> str:
        """Starts a line of ours, its output going to a file, and says so. folder: where it is typed. Raises
        RecipeError E1947 with its last words where it ends at once with an error."""
        self._reap()
        with durable.storage_errors(out):
            file = durable.open_own(out, "ab")
        with file:
            process: subprocess.Popen[bytes] = subprocess.Popen(
                [sys.executable, "-P", "-m", "mezzotint", *line],
                stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True, close_fds=True,
                cwd=folder,
            )  # fmt: skip
        with self._lock:
            self.processes.append(process)
        until = time.monotonic() + _WATCHED_SECONDS
        while time.monotonic() < until and process.poll() is None:
            time.sleep(0.05)
        if process.poll():
            words = tails.tail(out, limit=2000).strip()
            raise RecipeError(f"it ended at once: {words}", code="E1947")
        return f"process {process.pid}: {shlex.join(['mezzotint', *line])}; what it says is in {out}"

    def _reap(self) -> None:
        with self._lock:
            self.processes = [one for one in self.processes if one.poll() is None]


def sentence(error: MezzotintError) -> dict[str, Any]:
    """An error as the page shows it."""
    return {"error": str(error), "code": error.code}
