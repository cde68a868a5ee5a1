"""Who looks on while a hostile file is read: at the time, the memory, the files that are touched and the programs that
are started. Nothing of this asks the code that is judged."""

from __future__ import annotations

import hashlib
import os
import resource
import signal
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

WAITS = 20
"""Seconds of the wall after which a reader is taken to wait for ever."""

_STARTS = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "socket.connect")
_CHANGES = (
    "os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.truncate", "os.chmod", "os.chown",
    "os.utime",
)  # fmt: skip
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class Hangs(BaseException):
    """Raised out of a reader that takes too long. No reader catches it."""


class _Watch:
    """The one audit hook of this process, which cannot be taken away again: it looks only while it is told to."""

    def __init__(self) -> None:
        self.allowed: tuple[str, ...] = ()
        self.may_start = False
        self.seen: list[str] | None = None
        sys.addaudithook(self)

    def __call__(self, event: str, details: tuple[Any, ...]) -> None:
        if self.seen is None:
            return
        if event.startswith(_STARTS):
            if not self.may_start:
                self.seen.append(f"{event} {details[:1]}")
        elif event == "open":
            flags = details[2] if isinstance(details[2], int) else 0
            if flags & _WRITING and isinstance(details[0], (str, bytes)):
                self._look(event, details[0])
        elif event in _CHANGES:
            for path in details[:2]:
                if isinstance(path, (str, bytes, os.PathLike)):
                    self._look(event, os.fspath(path))

    def _look(self, event: str, path: str | bytes) -> None:
        text = os.path.realpath(os.fsdecode(path))
        if not text.startswith(self.allowed) and "__pycache__" not in text and not text.startswith("/dev/"):
            assert self.seen is not None
            self.seen.append(f"{event} {text}")


_watch: _Watch | None = None


@contextmanager
def looking_on(*allowed: Path, may_start: bool = False) -> Iterator[list[str]]:
    """Within, whatever writes outside of some folders, starts a program or opens a connection is noted. may_start:
    programs may be started."""
    global _watch
    _watch = _watch or _Watch()
    seen: list[str] = []
    _watch.allowed, _watch.may_start, _watch.seen = tuple(os.path.realpath(one) for one in allowed), may_start, seen
    try:
        yield seen
    finally:
        _watch.seen = None


@contextmanager
def limited(*, seconds: float, megabytes: int) -> Iterator[None]:
    """Within, this process gets so much more memory and no more, and has so many seconds of computing. Raises Hangs
    after them, or after `WAITS` seconds of the wall."""
    before = resource.getrlimit(resource.RLIMIT_DATA)
    bound = _held() + (megabytes << 20)
    alarm = signal.signal(signal.SIGALRM, _stop)
    timer = signal.setitimer(signal.ITIMER_REAL, WAITS)  # pytest's own, for the whole test
    resource.setrlimit(resource.RLIMIT_DATA, (bound, before[1]))
    begun = time.process_time()
    try:
        yield
    finally:
        took = time.process_time() - begun
        resource.setrlimit(resource.RLIMIT_DATA, before)
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, alarm)
        signal.setitimer(signal.ITIMER_REAL, *timer)
    if took > seconds:
        raise Hangs(f"it took {took:.1f} seconds of computing, more than {seconds}")


def _stop(*_: object) -> NoReturn:
    raise Hangs(f"it has not come back after {WAITS} seconds")


def _held() -> int:
    """Bytes of memory that this process has for data."""
    with open("/proc/self/status", encoding="ascii", errors="replace") as file:
        (line,) = (line for line in file if line.startswith("VmData"))
    return int(line.split()[1]) << 10


def tree(root: Path) -> dict[str, str]:
    """What lies below a folder: kind, size, content of each file, target of each link."""
    facts = {}
    for folder, folders, files in os.walk(os.fsencode(root)):
        for name in folders + files:
            path = os.path.join(folder, name)
            look = os.lstat(path)
            content = ""
            if stat.S_ISLNK(look.st_mode):
                content = os.fsdecode(os.readlink(path))
            elif stat.S_ISREG(look.st_mode) and look.st_size < 1 << 22:
                with open(path, "rb") as file:
                    content = hashlib.sha256(file.read()).hexdigest()
            facts[os.fsdecode(path)] = f"{look.st_mode} {look.st_size if stat.S_ISREG(look.st_mode) else 0} {content}"
    return facts


def is_plain(text: str) -> bool:
    """Whether a terminal can be shown a text: it has nothing that would steer it."""
    return all(c.isprintable() or c in "\n\t" for c in text)
