"""Named points where a test may inject a fault. In a normal run `reach` costs one lookup in an empty dictionary.

A fault is given as `MEZZOTINT_FAULT=point@count:action` (several separated by commas): the `count`-th time that the
point is reached, the action happens. Actions: `kill` (SIGKILL to this process), `stop` (SIGSTOP), `term`, `int`,
`usr1`, `raise` (an unexpected exception), `enospc` (the disk is full), `sleep=SECONDS`. Only the entry points read the
environment; they call `arm`.
"""

from __future__ import annotations

import errno
import os
import signal
import time
from dataclasses import dataclass

POINTS: dict[str, str] = {
    "checkpoint.begin": "before the partial folder of a checkpoint is created",
    "checkpoint.held": "after tensors that a checkpoint in progress still needs are copied, before the update",
    "checkpoint.file": "after each file of a checkpoint is written and synced",
    "checkpoint.manifest": "after the manifest is written, before the folder is renamed",
    "checkpoint.renamed": "after the folder has its final name, before old ones are pruned",
    "checkpoint.best": "after the best checkpoint has its second name, before old ones are pruned",
    "checkpoint.prune": "while an old checkpoint is being removed",
    "cache.append": "after rows are written to a shard, before its index contains them",
    "cache.commit": "after an index entry is written",
    "cache.encode": "before a batch is encoded for the cache",
    "data.fetch": "before a read from object storage, again for each retry",
    "data.decode": "before an image is decoded",
    "edit.recorded": "after an edit of captions is recorded, before it is the one to be applied",
    "edit.begin": "after an edit, an undo or a redo is the one to be applied, before the first file changes",
    "edit.file": "after each file of an edit has its new content",
    "edit.end": "after all files of an edit have their new content, before that is recorded",
    "class.image": "after a class image is generated and written, before the next",
    "step.begin": "before the batches of a step are taken",
    "step.backward": "after the last backward pass, before the update",
    "step.end": "after the update, before callbacks",
    "export.begin": "before an export folder is written",
    "export.renamed": "after an export has its final name",
    "publish.file": "after each file of a finished model is copied to another folder, before the next",
    "preview.begin": "before previews are generated",
    "roll-back.recorded": "after the history records a roll-back, before it happens",
}
"""Every point with its position. `reach` with another name is an error, and a test asserts that each point is
exercised."""


_SIGNALS = {
    "kill": signal.SIGKILL,
    "stop": signal.SIGSTOP,
    "term": signal.SIGTERM,
    "int": signal.SIGINT,
    "usr1": signal.SIGUSR1,
}


@dataclass(slots=True)
class _Fault:
    countdown: int
    action: str


_armed: dict[str, list[_Fault]] = {}


def arm(text: str) -> None:
    """Arms the faults of `point@count:action,…`. An empty text disarms everything. Raises ValueError for an unknown
    point or action."""
    _armed.clear()
    for part in filter(None, text.split(",")):
        location, _, action = part.partition(":")
        point, _, count = location.partition("@")
        if point not in POINTS:
            raise ValueError(f"there is no point {point!r}; known: {', '.join(POINTS)}")
        if action.partition("=")[0] not in (*_SIGNALS, "raise", "enospc", "sleep"):
            raise ValueError(f"there is no fault {action!r}")
        _armed.setdefault(point, []).append(_Fault(int(count or 1), action))


def reach(point: str) -> None:
    """Marks that execution is at a named point; injects the fault that a test has armed for it, if any."""
    if not _armed:
        return
    assert point in POINTS, point
    armed = _armed.get(point, [])
    for fault in armed:
        fault.countdown -= 1
    for fault in armed:
        if fault.countdown == 0:
            _act(fault.action, point)


def _act(action: str, point: str) -> None:
    name, _, value = action.partition("=")
    match name:
        case "raise":
            raise RuntimeError(f"a fault was injected at {point}")
        case "enospc":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), point)
        case "sleep":
            time.sleep(float(value or 1))
        case _:
            os.kill(os.getpid(), _SIGNALS[name])
