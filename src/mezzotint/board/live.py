"""Live updates of a run: server-sent events that name the parts of the page to reload.

Each connection receives what has changed since its last event, however slowly it reads; there is no queue.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from starlette.concurrency import run_in_threadpool

from mezzotint.board.reading import notes, runs
from mezzotint.tasks import holders

LOOK_SECONDS = 0.5
"""Seconds between two looks at the folder of a run that a page shows."""

_KEEPALIVE_LOOKS = 30
"""Looks without a change after which a comment line is sent, to detect a dead connection."""

Marks = Mapping[str, Any]

_FILES = {
    "metrics": "metrics.jsonl", "events": "history.jsonl", "log": "run.log", "images": "samples",
    "stored": "checkpoints", "exports": "exports", "recipe": "recipe.yaml", "drawn": "samples/grid.png",
    "output": "logs/started.out", "notes": notes.FILE,
}  # fmt: skip


def marks(path: Path) -> Marks:
    """For each part of a run's page, a value that differs once the part has changed."""
    seen: dict[str, Any] = {}
    for part, name in _FILES.items():
        try:
            file_status = os.lstat(path / name)
            seen[part] = (file_status.st_size, file_status.st_mtime_ns)
        except OSError:
            seen[part] = None
    run_status = runs.read_status(path)
    seen["status"] = run_status.state, run_status.waits_for
    seen["gone"] = not path.is_dir()
    return seen


def brief(path: Path) -> Any:
    """A value that differs once something has changed that the list of runs shows. Called for every run, so it reads
    only little."""
    return holders.holder(path), *_times(path, ("metrics.jsonl", "history.jsonl", "samples", notes.FILE))


def stamp_row(path: Path) -> Any:
    """A value that differs once anything has changed that a row of the list of runs shows."""
    return *brief(path), *_times(path, ("run.log", "recipe.yaml", "logs/started.out")), os.lstat(path).st_ino


def _times(path: Path, names: Sequence[str]) -> list[int]:
    """When files were last written, in nanoseconds since 1970; 0 for missing ones."""
    times = []
    for name in names:
        try:
            times.append(os.lstat(path / name).st_mtime_ns)
        except OSError:
            times.append(0)
    return times


async def changes(look: Callable[[], Marks]) -> AsyncIterator[str]:
    """Yields events, each with the parts that have changed since the event before. The first is empty."""
    before: Marks = await run_in_threadpool(look)
    yield _event([])
    silent = 0
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        now = await run_in_threadpool(look)
        news = sorted(part for part in {*before, *now} if before.get(part) != now.get(part))
        before = now
        silent = 0 if news else silent + 1
        if news:
            yield _event(news)
        elif silent % _KEEPALIVE_LOOKS == 0:
            yield ": keep-alive\n\n"


def _event(parts: list[str]) -> str:
    return f"data: {json.dumps({'parts': parts})}\n\n"
