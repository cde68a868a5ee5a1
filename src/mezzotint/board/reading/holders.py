"""Who holds a run's folder, and what that process waits for, by what the system says of it; nothing is locked to
look."""

from __future__ import annotations

import os
import re
import socket
import time
from calendar import timegm
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from mezzotint import outside
from mezzotint.board.reading.tails import to_count

_LOCK = re.compile(r"^(\d+):( ->)? \w+ +\w+ +\w+ (\d+) ([0-9a-f]+):([0-9a-f]+):(\d+) ", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Holder:
    """who: `nobody`, a process `here`, or one `elsewhere`. waits_for: in words, a lock that another process has; "" for
    none."""

    who: Literal["nobody", "here", "elsewhere"]
    waits_for: str = ""


def holder(path: Path) -> Holder:
    """Who holds a run's lock. The lock itself is never touched, not even to look: a run that starts at that moment
    would be refused. A process that has the holder's number and began later is another one."""
    try:
        who = outside.read_json(path / "lock", limit=4096, within=path)
        pid, host = to_count(who["pid"]), str(who["host"])
        since = timegm(time.strptime(str(who["since"]), "%Y-%m-%dT%H:%M:%SZ"))
    except (OSError, ValueError, KeyError, TypeError):
        return Holder("nobody")
    if not pid:
        return Holder("nobody")
    if host != socket.gethostname():
        return Holder("elsewhere")
    return Holder("here", _wait(pid)) if _began(pid) <= since + 2 else Holder("nobody")


def _wait(pid: int) -> str:
    """What a process waits for: `process 12, which holds /a/lock`; "" where it waits for no lock, or where the system
    has no list of them."""
    try:
        rows = _LOCK.findall(outside.read_text(Path("/proc/locks")))
    except (OSError, ValueError):
        return ""
    waits = next((row for row in rows if row[1] and row[2] == str(pid)), None)
    if waits is None:
        return ""
    who = next((row[2] for row in rows if not row[1] and row[0] == waits[0]), "0")
    name = _file_of(pid, int(waits[5]))
    return (f"process {who}" if who != "0" else "another process") + (f", which holds {name}" if name else "")


def _file_of(pid: int, inode: int) -> str:
    """The name of a file that a process has open, by its number; "" where that is not to be seen."""
    with suppress(OSError):
        for entry in os.scandir(f"/proc/{pid}/fd"):
            with suppress(OSError):
                if os.stat(entry.path).st_ino == inode:
                    return os.readlink(entry.path)
    return ""


def _began(pid: int) -> float:
    """When a process began, in seconds since 1970; infinite for one that is gone or has ended."""
    try:
        fields = outside.read_text(Path(f"/proc/{pid}/stat"), errors="replace").rpartition(")")[2].split()
        boot = re.search(r"^btime (\d+)", outside.read_text(Path("/proc/stat")), re.MULTILINE)
    except OSError:
        return _alive(pid)
    if boot is None or fields[0] == "Z":
        return float("inf")
    return int(boot[1]) + int(fields[19]) / os.sysconf("SC_CLK_TCK")


def _alive(pid: int) -> float:
    """Where the system does not say when a process began: 0 for one that is there."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return 0.0
    except (OSError, OverflowError):
        return float("inf")
    return 0.0
