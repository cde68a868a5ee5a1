"""Which process holds a lock of ours, such as that of a run folder, and which lock it waits for, from /proc; no lock is
taken to find out."""

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

_LOCK = re.compile(r"^(\d+):( ->)? \w+ +\w+ +\w+ (\d+) ([0-9a-f]+):([0-9a-f]+):(\d+) ", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Holder:
    """who: `nobody`, a process on this machine (`here`) or on another (`elsewhere`). waits_for: description of the lock
    of another process that it waits for; "" if it does not wait."""

    who: Literal["nobody", "here", "elsewhere"]
    waits_for: str = ""


def holder(run: Path) -> Holder:
    """Who holds a run's lock. See `holder_of`."""
    return holder_of(run / "lock")


def holder_of(lock: Path) -> Holder:
    """Who holds a lock file (`run_folder.Lock`). The lock itself is never tested: a process that takes it at that
    moment would be refused. A process with the holder's PID that started later is a different one."""
    try:
        who = outside.read_json(lock, limit=4096, within=lock.parent)
        pid, host = _to_pid(who["pid"]), str(who["host"])
        since = timegm(time.strptime(str(who["since"]), "%Y-%m-%dT%H:%M:%SZ"))
    except (OSError, ValueError, KeyError, TypeError):
        return Holder("nobody")
    if not pid:
        return Holder("nobody")
    if host != socket.gethostname():
        return Holder("elsewhere")
    return Holder("here", _describe_wait(pid)) if _start_time(pid) <= since + 2 else Holder("nobody")


def _to_pid(value: object) -> int:
    """A process id from an untrusted file; 0 for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**31 else 0


def _describe_wait(pid: int) -> str:
    """The lock that a process waits for: `process 12, which holds /a/lock`; "" if it waits for none, or without
    /proc/locks."""
    try:
        rows = _LOCK.findall(outside.read_text(Path("/proc/locks")))
    except (OSError, ValueError):
        return ""
    waits = next((row for row in rows if row[1] and row[2] == str(pid)), None)
    if waits is None:
        return ""
    who = next((row[2] for row in rows if not row[1] and row[0] == waits[0]), "0")
    name = _find_open_file(pid, int(waits[5]))
    return (f"process {who}" if who != "0" else "another process") + (f", which holds {name}" if name else "")


def _find_open_file(pid: int, inode: int) -> str:
    """The path of a process's open file by its inode; "" if it cannot be read."""
    with suppress(OSError):
        for entry in os.scandir(f"/proc/{pid}/fd"):
            with suppress(OSError):
                if os.stat(entry.path).st_ino == inode:
                    return os.readlink(entry.path)
    return ""


def _start_time(pid: int) -> float:
    """The start time of a process, in seconds since 1970; infinity if it has ended."""
    try:
        fields = outside.read_text(Path(f"/proc/{pid}/stat"), errors="replace").rpartition(")")[2].split()
        boot = re.search(r"^btime (\d+)", outside.read_text(Path("/proc/stat")), re.MULTILINE)
    except OSError:
        return _start_time_from_signal(pid)
    if boot is None or fields[0] == "Z":
        return float("inf")
    return int(boot[1]) + int(fields[19]) / os.sysconf("SC_CLK_TCK")


def _start_time_from_signal(pid: int) -> float:
    """Without a start time in /proc: 0 for an existing process, else infinity."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return 0.0
    except (OSError, OverflowError):
        return float("inf")
    return 0.0
