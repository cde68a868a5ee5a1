"""Actions of the page, each by a file or a command that does the same without the page: a file in the folder of a
running run requests something from it; a run that is started is a separate process, which outlives the page.
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

REQUESTS = {
    "draw": ("Preview now", "Generates the previews after this step"),
    "save": ("Save now", "Writes a checkpoint after this step"),
    "stop": ("Stop", "Saves after this step and stops; resuming gives identical results"),
}
"""Requests to a running run, by file name: the button's text and the effect."""

EARLY_EXIT_SECONDS = 1.0
"""Seconds that `start` waits for a process that fails immediately."""

_PROMPT = "$ "
"""Prefix of a command in its output file."""

_STOPPED = (128 + signal.SIGINT, 128 + signal.SIGTERM)
"""Exit statuses of a run that was stopped by a signal."""


@dataclass(frozen=True, slots=True)
class RunAction:
    """An action. name: for the request; word: text of its button; about: what it does; command: the equivalent
    command."""

    name: str
    word: str
    about: str
    command: str


def list_actions(path: Path) -> list[RunAction]:
    """The actions that a run's current state allows."""
    state = runs.read_status(path).state
    if state == "running":
        requests = path / "requests"
        touch = f"mkdir -p {shlex.quote(str(requests))} && touch {shlex.quote(str(requests))}"
        return [RunAction(name, word, about, f"{touch}/{name}") for name, (word, about) in REQUESTS.items()]
    recipe = path / "recipe.yaml"
    if state in ("stopped", "killed") and os.path.isfile(recipe) and not outside.leads_out(recipe, path):
        return [
            RunAction(
                "go",
                "Resume",
                "Continues from the newest checkpoint, in a separate process",
                runs.resume_command(path),
            )
        ]
    return []


def act(path: Path, name: str, started: StartedProcesses) -> str:
    """Performs an action on a run and returns a sentence about it. Raises CheckpointError: E1946 if the run's state
    does not allow the action, E1160 if its folders are links that lead out of it; StorageError; as
    `StartedProcesses.start`."""
    if name not in {one.name for one in list_actions(path)}:
        state = runs.read_status(path).state
        raise CheckpointError(f"{path.name} is {state}; {name!r} is not possible now", code="E1946")
    RunFolder(path).refuse_links()
    if name == "go":
        return started.start(["train", str(path / "recipe.yaml")], path)
    folder = RunFolder(path).requests
    with durable.storage_errors(folder):
        folder.mkdir(exist_ok=True)
        durable.write_file(folder / name, "requested by the page\n")
    return f"{REQUESTS[name][1]} (requested by {folder / name})"


@dataclass(slots=True)
class StartedProcesses:
    """Processes that the page has started, by run folder. Each runs in its own session and outlives the page."""

    _processes: dict[Path, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self, line: Sequence[str], run: Path, folder: Path | None = None, *, out: Path | None = None) -> str:
        """Starts a command for a run with its output in a file, by default `logs/started.out` of the run's folder, and
        returns a sentence about it. folder: the working directory. Raises RecipeError E1947 with the output of a
        process that fails immediately, CheckpointError E1160 for a run whose folders are links that lead out of it."""
        RunFolder(run).refuse_links()
        out, command = out or output_of(run), shlex.join(["mezzotint", *line])
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
        threading.Thread(target=process.wait, daemon=True).start()  # reaps the child when it ends
        until = time.monotonic() + EARLY_EXIT_SECONDS
        while time.monotonic() < until and process.poll() is None:
            time.sleep(0.05)
        if process.poll():
            output = last_output(run, out)
            if new:
                out.unlink(missing_ok=True)
                durable.drop_empty(new)
            raise RecipeError(f"the process failed immediately: {output}", code="E1947")
        return f"Started: {command}. Output: {out}"

    def is_running(self, run: Path) -> bool:
        """Whether a process that the page has started for a run is still running."""
        process = self._processes.get(run)
        return process is not None and process.poll() is None

    def has_failed(self, run: Path) -> bool:
        """Whether the last process that the page has started for a run ended with an error; a stop by a signal is not
        one."""
        process = self._processes.get(run)
        return process is not None and process.poll() not in (None, 0, *_STOPPED)


def output_of(run: Path) -> Path:
    """The output file of the processes that the page starts for a run."""
    return run / "logs" / "started.out"


def last_output(run: Path, out: Path | None = None) -> str:
    """The output of the last process that was started for a run. out: its file, by default `output_of`."""
    text = tails.tail(out or output_of(run), within=run)
    return text.rpartition(f"\n{_PROMPT}")[2].removeprefix(_PROMPT).partition("\n")[2].strip()


def error_json(error: MezzotintError) -> dict[str, Any]:
    """An error as JSON for the page."""
    return {"error": str(error), "code": error.code}
