"""The page Queue: the recipes in the queue folder, and what `mezzotint queue` does with them."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from mezzotint.board.answers import JsonAnswer, read_body
from mezzotint.board.pages import Pages, stream
from mezzotint.board.reading.root_folders import OutsideFolders
from mezzotint.errors import RecipeError
from mezzotint.tasks.queue import running
from mezzotint.tasks.queue.entries import QueueEntry

_OUTPUT = "queue-run.txt"
"""What a `queue run` that the page started printed, in the queue's folder."""

_ACTIONS = {
    "waiting": ("pause", "move", "remove"),
    "running": ("pause", "move"),
    "paused": ("resume", "move", "remove"),
    "failed": ("resume", "move", "remove"),
    "finished": ("remove",),
    "invalid": ("remove",),
}


@dataclass(frozen=True, slots=True)
class QueueRow:
    """A row of the page. run: the name of its run on the page, "" for none. actions: that its state allows. output:
    the file with what its trainings printed, "" for none."""

    entry: QueueEntry
    run: str
    actions: tuple[str, ...]
    output: str


@dataclass(eq=False)
class QueuePages:
    """Handlers of the page Queue."""

    pages: Pages

    def queue(self, request: Request) -> Response:
        """The entries, or only their rows."""
        name = "_queue.html" if "part" in request.query_params else "queue.html"
        queue = self.pages.queue
        return self.pages.html(
            name, rows=[self._row(entry) for entry in queue.entries()], folder=queue.folder, busy=queue.busy_devices(),
            is_running=self.pages.started.is_running(queue.folder), command=shlex.join(self._line("run")),
            current_page="queue",
        )  # fmt: skip

    def _row(self, entry: QueueEntry) -> QueueRow:
        name = None if entry.run is None else self.pages.roots.name_of(entry.run)
        try:
            run = name if name is not None and self.pages.roots.run(name) else ""
        except OutsideFolders:
            run = ""
        output = self.pages.queue.output_file(entry.name)
        return QueueRow(entry, run, _ACTIONS[entry.state], str(output) if output.is_file() else "")

    def _line(self, *words: str) -> list[str]:
        return ["mezzotint", "queue", *words, f"--queue={self.pages.queue.folder}"]

    async def events(self, request: Request) -> Response:
        """Server-sent events of the queue."""
        return stream(self._marks)

    def _marks(self) -> dict[str, Any]:
        """By entry, a value that differs once its row has changed, and one for the order."""
        entries = self.pages.queue.entries()
        seen: dict[str, Any] = {entry.name: (entry.state, entry.reason, entry.step) for entry in entries}
        return {
            "entries": list(seen.items()), "busy": self.pages.queue.busy_devices(),
            "started": self.pages.started.is_running(self.pages.queue.folder),
        }  # fmt: skip

    async def act(self, request: Request) -> Response:
        """Changes an entry: {action, name, place}. Returns {message, command}."""
        value = await read_body(request)
        action, name, place = (str(value.get(key, "")) for key in ("action", "name", "place"))
        queue = self.pages.queue
        changes = {"pause": queue.pause, "resume": queue.resume, "remove": queue.remove}
        if action == "move":
            message = await run_in_threadpool(queue.move, name, place)
        elif action in changes:
            message = await run_in_threadpool(changes[action], name)
        else:
            raise RecipeError(f"the queue has no action {action!r}", code="E1960")
        words = [action, name, *([place] if action == "move" else [])]
        return JsonAnswer({"message": message, "command": shlex.join(self._line(*words))})

    async def run(self, request: Request) -> Response:
        """Starts `mezzotint queue run` in a separate process: {devices}. Returns {message}."""
        value = await read_body(request)
        return JsonAnswer({"message": await run_in_threadpool(self._run, str(value.get("devices", "")).strip())})

    def _run(self, devices: str) -> str:
        queue = self.pages.queue
        options = [f"--devices={','.join(running.parse_devices(devices))}"] if devices else []
        line: list[str] = [*self._line("run")[1:], *options]
        out: Path = queue.folder / _OUTPUT
        return self.pages.started.start(line, queue.folder, queue.base, out=out)
