"""The command `queue`: adds recipes to a folder, lists and orders them, and trains them one after the other."""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mezzotint.errors import RecipeError, did_you_mean, escape_line
from mezzotint.settings.counting import format_count
from mezzotint.tasks.queue import adding, running
from mezzotint.tasks.queue.entries import FOLDER, Queue, QueueEntry
from mezzotint.tasks.reading import arguments as recipe_arguments
from mezzotint.tasks.reading import command_line
from mezzotint.tasks.reading.command_line import CommandLine
from mezzotint.tasks.reading.commands import ALLOW, AS, MANY, REPLACE

_FAILED = RecipeError.exit_status


@dataclass(frozen=True, slots=True)
class QueueAction:
    """An action of the command. form: its arguments. names: the least and the largest number of them. options: that it
    takes besides --queue."""

    run: Callable[[Queue, CommandLine], int]
    form: str
    names: tuple[int, int]
    options: tuple[str, ...] = ()


def run(arguments: Sequence[str]) -> int:
    """`mezzotint queue ACTION …`. Returns 0, and 2 after `run` with failed or invalid entries. Raises RecipeError E1012
    for a wrong command line, and as the methods of `Queue`, `adding.add` and `QueueRun.run`."""
    line = command_line.parse(arguments, "queue")
    name, *names = line.plain or ("",)
    if name not in ACTIONS:
        hint = did_you_mean(name, ACTIONS, f"the actions are {', '.join(ACTIONS)}")
        raise line.usage_error(f"there is no action {name!r}; {hint}" if name else f"give an action; {hint}")
    action = ACTIONS[name]
    wrong = next((option.name for option, _ in line.options if option.name not in (*action.options, "--queue")), None)
    if wrong is not None:
        raise line.usage_error(f"{name} does not take {wrong}; write mezzotint queue {name} {action.form}".rstrip())
    least, most = action.names
    if not least <= len(names) <= most:
        raise line.usage_error(f"write mezzotint queue {name} {action.form}".rstrip() + f"; got {len(names)} names")
    return action.run(Queue(line.get_path("--queue") or FOLDER), line)


def _add(queue: Queue, line: CommandLine) -> int:
    words = line.to_arguments(leaving=["--queue"])
    words.remove("add")
    reading = recipe_arguments.parse(words, "train")
    entry = adding.add(queue, reading, words, Path.cwd())
    for note in reading.notes:
        print(f"note: {escape_line(note)}", file=sys.stderr)
    waiting = sum(one.state == "waiting" for one in queue.entries())
    print(f"{entry.name} is added as {entry.path}, and trains into {entry.run}")
    print(f"{format_count(waiting, 'recipe')} waiting; train with: mezzotint queue run")
    return 0


def _list(queue: Queue, line: CommandLine) -> int:
    entries = queue.entries()
    if "--json" in line:
        print(json.dumps([as_json(entry) for entry in entries], indent=1, ensure_ascii=False))
        return 0
    if not entries:
        print(f"{queue.folder} is empty; add a recipe with: mezzotint queue add RECIPE [key=value …]")
    rows = [(str(place), entry.name, entry.state, _step(entry), entry.reason) for place, entry in enumerate(entries, 1)]
    widths = [max(len(row[column]) for row in rows) for column in range(4)] if rows else []
    for row in rows:
        cells = (f"{escape_line(cell):<{width}}" for cell, width in zip(row, widths, strict=False))
        print("  ".join((*cells, escape_line(row[4]))).rstrip())
    return 0


def as_json(entry: QueueEntry) -> dict[str, Any]:
    """An entry as JSON, for programs and the page."""
    return {
        "name": entry.name, "state": entry.state, "reason": entry.reason, "step": entry.step, "steps": entry.steps,
        "recipe": str(entry.path), "run": None if entry.run is None else str(entry.run),
    }  # fmt: skip


def _step(entry: QueueEntry) -> str:
    if entry.steps is None:
        return ""
    return f"step {entry.step or 0:,} of {entry.steps:,}"


def _change(name: str, queue: Queue, line: CommandLine) -> int:
    """The actions that are methods of `Queue` of the same name."""
    print(escape_line(getattr(queue, name)(*line.plain[1:])))
    return 0


def _run(queue: Queue, line: CommandLine) -> int:
    options = [f"{ALLOW.name}={package}" for package in line.packages]
    options += [REPLACE.name] if REPLACE.name in line else []
    named = line.get("--devices")
    devices = running.parse_devices(named) if named is not None else _all_devices()
    for device in devices:
        running.visible_devices(device, os.environ)
    waits = "--wait" in line
    failed = running.QueueRun(queue, devices, options, waits, functools.partial(print, flush=True)).run()
    print(f"nothing is waiting; {_describe(queue, failed)}")
    return _FAILED if failed else 0


def _all_devices() -> list[str]:
    """The GPUs of this machine; the CPU where it has none."""
    import torch

    return [str(number) for number in range(torch.cuda.device_count())] or [running.CPU]


def _describe(queue: Queue, failed: Sequence[QueueEntry]) -> str:
    if not failed:
        return f"{sum(entry.state == 'finished' for entry in queue.entries())} finished, none failed"
    names = ", ".join(escape_line(entry.name) for entry in failed)
    return f"failed: {names}; see `mezzotint queue list`, and `mezzotint queue resume NAME` to try again"


ACTIONS = {
    "add": QueueAction(_add, "RECIPE [key=value …]", (0, MANY), (AS.name, ALLOW.name)),
    "list": QueueAction(_list, "[--json]", (0, 0), ("--json",)),
    "run": QueueAction(_run, "[--devices=0,1] [--wait]", (0, 0), ("--devices", "--wait", ALLOW.name, REPLACE.name)),
    "pause": QueueAction(functools.partial(_change, "pause"), "NAME", (1, 1)),
    "resume": QueueAction(functools.partial(_change, "resume"), "NAME", (1, 1)),
    "move": QueueAction(functools.partial(_change, "move"), "NAME first|last|NUMBER", (2, 2)),
    "remove": QueueAction(functools.partial(_change, "remove"), "NAME", (1, 1)),
}
