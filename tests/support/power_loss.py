"""A file system that loses what was not synced: replays the calls of `io_calls` and cuts them off after each.

A file keeps the content of its last sync, a folder the names of its last sync; what came later may be there, in part or
not at all. That is less than most file systems promise, and what the standard does.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from support.io_calls import Call

_SECTOR = 512


@dataclass(eq=False)
class File:
    """live: the content that everybody reads. synced: of the last sync. since: writes behind it, in order: where, what;
    what is None is cut off there."""

    live: bytes = b""
    synced: bytes = b""
    since: list[tuple[int, bytes | None]] = field(default_factory=list)

    def write(self, at: int, data: bytes | None) -> None:
        self.since.append((at, data))
        self.live = _written(self.live, at, data)

    def sync(self) -> None:
        self.synced, self.since = self.live, []


@dataclass(eq=False)
class Link:
    to: str


@dataclass(eq=False)
class Folder:
    """live, synced: by name. since: changes behind the last sync, each of which is there as a whole or not."""

    live: dict[str, Node] = field(default_factory=dict)
    synced: dict[str, Node] = field(default_factory=dict)
    since: list[dict[str, Node | None]] = field(default_factory=list)

    def change(self, change: dict[str, Node | None]) -> None:
        self.since.append(change)
        _changed(self.live, change)

    def sync(self) -> None:
        self.synced, self.since = dict(self.live), []


Node = File | Folder | Link


def _written(content: bytes, at: int, data: bytes | None) -> bytes:
    if data is None:
        return content[:at].ljust(at, b"\0")
    return content[:at].ljust(at, b"\0") + data + content[at + len(data) :]


def _changed(names: dict[str, Node], change: dict[str, Node | None]) -> None:
    for name, node in change.items():
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node


def taken(root: Path) -> Folder:
    """A folder as it lies there, durable."""
    folder = Folder()
    for path in root.iterdir():
        if path.is_symlink():
            folder.live[path.name] = Link(os.readlink(path))
        elif path.is_dir():
            folder.live[path.name] = taken(path)
        else:
            content = path.read_bytes()
            folder.live[path.name] = File(content, content)
    folder.sync()
    return folder


class Disk:
    """A folder's content as calls change it. root: the folder that the calls' paths begin with."""

    def __init__(self, root: Path, before: Folder) -> None:
        self.root, self.top = root, before

    def do(self, call: Call) -> None:
        """Does a call again."""
        if call.path.endswith(" (deleted)") or call.name.endswith(" in vain"):
            return
        folder, name = self._place(call.path if call.name != "symlink" else call.other)
        if call.name == "write":
            self._file(folder, name).write(call.at, call.data)
        elif call.name == "ftruncate":
            self._file(folder, name).write(call.at, None)
        elif call.name == "fsync":
            self._node(call.path).sync()
        elif call.name == "create":
            if name not in folder.live:
                folder.change({name: File()})
            elif call.at == 0:
                self._file(folder, name).write(0, None)
        elif call.name == "mkdir":
            folder.change({name: Folder()})
        elif call.name in ("rmdir", "unlink"):
            folder.change({name: None})
        elif call.name == "symlink":
            folder.change({name: Link(call.path)})
        elif call.name == "link":
            there, other = self._place(call.other)
            there.change({other: folder.live[name]})
        elif call.name == "replace":
            there, other = self._place(call.other)
            node = folder.live[name]
            if there is folder:
                folder.change({name: None, other: node})
            else:
                there.change({other: node})
                folder.change({name: None})
        elif call.name == "exchange":
            _, other = self._place(call.other)
            folder.change({name: folder.live[other], other: folder.live[name]})

    def _place(self, path: str) -> tuple[Folder, str]:
        parts = Path(path).relative_to(self.root).parts
        folder = self.top
        for part in parts[:-1]:
            inner = folder.live[part]
            assert isinstance(inner, Folder), path
            folder = inner
        return folder, parts[-1] if parts else ""

    def _node(self, path: str) -> File | Folder:
        folder, name = self._place(path)
        node = folder.live[name] if name else folder
        assert not isinstance(node, Link)
        return node

    def _file(self, folder: Folder, name: str) -> File:
        file = folder.live[name]
        assert isinstance(file, File), name
        return file


@dataclass(frozen=True)
class Loss:
    """What of the unsynced is left. names: of changes of a folder, which; content: of a file, the bytes that it has."""

    what: str
    names: Callable[[Folder], dict[str, Node]]
    content: Callable[[File], bytes]


def _some_names(rng: np.random.Generator, in_order: bool) -> Callable[[Folder], dict[str, Node]]:
    def names(folder: Folder) -> dict[str, Node]:
        left = dict(folder.synced)
        last = int(rng.integers(len(folder.since) + 1))
        for number, change in enumerate(folder.since):
            if number < last if in_order else rng.random() < 0.5:
                _changed(left, change)
        return left

    return names


def _some_sectors(rng: np.random.Generator) -> Callable[[File], bytes]:
    def content(file: File) -> bytes:
        left = file.synced
        for at, data in file.since:
            if data is None:
                left = _written(left, at, None) if rng.random() < 0.5 else left
                continue
            for start in range(0, len(data), _SECTOR):
                if rng.random() < 0.5:
                    left = _written(left, at + start, data[start : start + _SECTOR])
        return left

    return content


def losses(seed: int, number: int) -> Iterator[Loss]:
    """The ways in which what was not synced is lost. number: of those that are drawn."""
    yield Loss("everything", lambda folder: folder.synced, lambda file: file.synced)
    yield Loss("all content", lambda folder: folder.live, lambda file: file.synced)
    yield Loss("content but its length", lambda folder: folder.live, lambda f: f.synced.ljust(len(f.live), b"\0"))
    yield Loss("all names", lambda folder: folder.synced, lambda file: file.live)
    yield Loss("nothing", lambda folder: folder.live, lambda file: file.live)
    for one in range(number):
        rng = np.random.Generator(np.random.Philox(key=seed * 1000 + one))
        yield Loss(f"some of it, {seed}-{one}", _some_names(rng, in_order=one % 2 == 0), _some_sectors(rng))


def lay(folder: Folder, place: Path, loss: Loss) -> None:
    """Writes what is left of a folder."""
    place.mkdir()
    for name, node in loss.names(folder).items():
        if isinstance(node, Folder):
            lay(node, place / name, loss)
        elif isinstance(node, Link):
            (place / name).symlink_to(node.to)
        else:
            (place / name).write_bytes(loss.content(node))


def after_power_loss(
    root: Path, before: Folder, calls: Sequence[Call], places: Path, *, drawn: int = 2, prefixes: Sequence[int] = ()
) -> Iterator[tuple[int, str, Path]]:
    """After each call, and for each way of loss: how many calls were made, what was lost, and a folder as a start finds
    it. prefixes: those alone. Each folder is new, and nobody takes it away but the caller."""
    disk = Disk(Path(os.path.realpath(root)), before)
    for number in range(len(calls) + 1):
        if number:
            disk.do(calls[number - 1])
        if prefixes and number not in prefixes:
            continue
        for way, loss in enumerate(losses(number, drawn)):
            place = places / f"{number}-{way}"
            lay(disk.top, place, loss)
            yield number, loss.what, place
