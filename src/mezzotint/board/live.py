"""What is new in a run, sent as it comes: server-sent events that name the parts of the page to be asked for again.

Each connection is told what has changed since it was last told, however long it took to listen; nothing is kept for a
slow one.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

from starlette.concurrency import run_in_threadpool

from mezzotint.board.reading import holders, runs

LOOK_SECONDS = 0.5
"""How often a run's folder is looked at for a page that shows it."""

_STILL_THERE = 30
"""Looks without news after which a line is sent all the same, so that a dead connection is noticed."""

Marks = Mapping[str, Any]

_FILES = {
    "metrics": "metrics.jsonl", "events": "history.jsonl", "log": "run.log", "pictures": "samples",
    "stored": "checkpoints", "exports": "exports", "recipe": "recipe.yaml", "drawn": "samples/grid.png",
    "output": "logs/started.out",
}  # fmt: skip


def marks(path: Path) -> Marks:
    """By part of a run's page, what is another value when it has changed."""
    seen: dict[str, Any] = {}
    for part, name in _FILES.items():
        try:
            status = os.lstat(path / name)
            seen[part] = (status.st_size, status.st_mtime_ns)
        except OSError:
            seen[part] = None
    standing = runs.standing(path)
    seen["standing"] = standing.state, standing.waits_for
    seen["gone"] = not path.is_dir()
    return seen


def brief(path: Path) -> Any:
    """Another value when something has changed that the list of runs shows; looked at for every run, and so little."""
    stamps = []
    for name in ("metrics.jsonl", "history.jsonl", "samples"):
        try:
            stamps.append(os.lstat(path / name).st_mtime_ns)
        except OSError:
            stamps.append(0)
    return holders.holder(path), *stamps


async def changes(look: Callable[[], Marks]) -> AsyncIterator[str]:
    """Events as they are sent: which parts have changed since the last one. The first says which there are."""
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
        elif silent % _STILL_THERE == 0:
            yield ": still there\n\n"


def _event(parts: list[str]) -> str:
    return f"data: {json.dumps({'parts': parts})}\n\n"
