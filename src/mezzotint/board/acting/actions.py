"""What can be done from the page, each by a file or a command that does the same without it: a running run is asked for
something by a file in its folder; what is started is a process of its own, which outlives the page.
"""

from __future__ import annotations

import os
import shlex
import signal
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
    "draw": ("Preview now", "Generates the previews after this step"),
    "save": ("Save now", "Writes a checkpoint after this step"),
    "stop": ("Stop", "Saves after this step and stops; resuming gives identical results"),
}
"""What a running run can be asked for, by the name of the file."""

_WATCHED_SECONDS = 1.0
"""How long `start` waits for a process that is refused at once."""

_PROMPT = "$ "
"""What the line of a command begins with in the file of its output."""

_STOPPED = (128 + signal.SIGINT, 128 + signal.SIGTERM)
"""Exit statuses of a run that was asked to stop."""


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
            Offered(
                "go", "Resume", "Continues from the newest checkpoint, in a process of its own", runs.going_on(path)
            )
        ]
    return []


def act(path: Path, name: str, started: Started) -> str:
    """Does one of the actions of a run, and says what was done. Raises CheckpointError: E1946 for one that the run is
    not offered now, E1160 for a run whose folders are links that lead out of it; StorageError; as `Started.start`."""
    if name not in {one.name for one in offered(path)}:
        state = runs.standing(path).state
        raise CheckpointError(f"{path.name} is {state}: {name!r} is not possible now", code="E1946")
    RunFolder(path).refuse_links()
    if name == "go":
        return started.start(["train", str(path / "recipe.yaml")], path)
    folder = RunFolder(path).requests
    with durable.storage_errors(folder):
        folder.mkdir(exist_ok=True)
        durable.write_file(folder / name, "asked for by the page\n")
    return f"{ASKED[name][1]} (requested by {folder / name})"


@dataclass(slots=True)
class Started:
    """Processes that the page has started, by run folder. Each runs in a session of its own and outlives the page."""

    _processes: dict[Path, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self, line: Sequence[str], run: Path, folder: Path | None = None) -> str:
        """Starts a command for a run, its output going to `logs/started.out` in the run's folder, and returns a
        sentence that says so. folder: the working directory. Raises RecipeError E1947 with the output of a process that
        ends at once with an error, CheckpointError E1160 for a run whose folders are links that lead out of it."""
        RunFolder(run).refuse_links()
        out, command = output_of(run), shlex.join(["mezzotint", *line])
        new = [path for path in (run, out.parent) if not path.exists()]
        with durable.storage_errors(out):
            out.parent.mkdir(parents=True, exist_ok=True)
            file = durable.open_own(out, "ab")
        with file:
            file.write(f"{_PROMPT}{command}\n".encode())
            file.flush()
            process: subprocess.Popen[bytes] = subprocess.Popen(
                [sys.executable, "-P", "-m", "mezzotint", *line],
                stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True, close_fds=True,
                cwd=folder,
            )  # fmt: skip
        self._processes[run] = process
        threading.Thread(target=process.wait, daemon=True).start()  # so that no finished child stays as a zombie
        until = time.monotonic() + _WATCHED_SECONDS
        while time.monotonic() < until and process.poll() is None:
            time.sleep(0.05)
        if process.poll():
            output = last_output(run)
            if new:
                out.unlink(missing_ok=True)
                durable.drop_empty(new)
            raise RecipeError(f"the process ended at once: {output}", code="E1947")
        return f"Started: {command}. Output: {out}"

    def is_running(self, run: Path) -> bool:
        """Whether a process that the page has started for a run is still running."""
        process = self._processes.get(run)
        return process is not None and process.poll() is None

    def has_failed(self, run: Path) -> bool:
        """Whether the last process that the page has started for a run ended with an error. A stop is none."""
        process = self._processes.get(run)
        return process is not None and process.poll() not in (None, 0, *_STOPPED)


def output_of(run: Path) -> Path:
    """The file with the output of what the page has started for a run."""
    return run / "logs" / "started.out"


def last_output(run: Path) -> str:
    """What the process printed that was started last for a run."""
    text = tails.tail(output_of(run), within=run)
    return text.rpartition(f"\n{_PROMPT}")[2].removeprefix(_PROMPT).partition("\n")[2].strip()


def sentence(error: MezzotintError) -> dict[str, Any]:
    """An error as the page shows it."""
    return {"error": str(error), "code": error.code}
