"""A queue: a folder of recipes, in an order, each with the run folder that it trains into.

    NAME.yaml       a recipe, which may be edited: it waits again when it is changed
    order.txt       the names in their order, one a line; other recipes come last
    state/          NAME.json of a paused, failed or finished entry
    output/         NAME.txt, what the trainings of an entry printed
    locks/          held by `queue run`, and by the trainings that it started
    removed/        recipes that were removed

Whether an entry runs, how far it is, and whether it has finished or diverged is read from its run folder.
"""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from mezzotint import durable, outside
from mezzotint.errors import CheckpointError, MezzotintError, RecipeError, did_you_mean, escape_line
from mezzotint.run_folder import Lock, RunFolder
from mezzotint.settings.base import with_values
from mezzotint.settings.reading.read import digest_of, read
from mezzotint.tasks.holders import holder, holder_of
from mezzotint.tasks.reading.continuing import folder_of

State = Literal["waiting", "running", "paused", "finished", "failed", "invalid"]

FOLDER = Path("queue")
"""The default folder, in the current folder."""

NAME = re.compile(r"\w[\w .-]*")
"""Names of entries."""

LONGEST = 200
"""The longest name, in bytes; file systems allow 255."""

_ORDER, _FOLDERS = "order.txt", ("state", "output", "locks", "removed")
_EVENTS = ("started", "stopped", "finished", "diverged")
"""Events of a run's history that change its state."""

_CHANGE_SECONDS = 10.0
"""Seconds that a change waits for another one."""

_TAIL = 64_000


@dataclass(frozen=True, slots=True)
class EntryRecord:
    """The file of an entry in `state/`. recipe: the digest of the recipe that it is about."""

    state: Literal["paused", "failed", "finished"]
    reason: str = ""
    recipe: str = ""


@dataclass(frozen=True, slots=True)
class QueueEntry:
    """An entry. run: its run folder. digest: of its recipe; both None if the recipe cannot be read. reason: why it is
    paused, failed or invalid. is_begun: whether its run has started before. is_claimed: whether a `queue run` that is
    alive holds it. step, steps: done and planned, where the run has recorded them."""

    name: str
    path: Path
    state: State
    run: Path | None = None
    digest: str | None = None
    reason: str = ""
    is_begun: bool = False
    is_claimed: bool = False
    step: int | None = None
    steps: int | None = None


@dataclass(frozen=True, slots=True)
class _Read:
    """What the recipe of an entry says. digests: of the recipe, and of it with `run.resume=auto`."""

    run: Path | None
    digests: tuple[str, ...] = ()
    problem: str = ""


@dataclass(slots=True)
class Queue:
    """The queue in a folder, which may not exist yet. Trainings start in the folder that contains it.

    Raises RecipeError E1962 where a file or a link is in the place of one of its folders."""

    folder: Path
    _cache: dict[str, tuple[tuple[int, ...], _Read]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.folder = Path(os.path.abspath(self.folder.expanduser()))
        for path in (self.folder, *(self.folder / name for name in _FOLDERS)):
            if os.path.lexists(path) and (not path.is_dir() or (path != self.folder and path.is_symlink())):
                kind = "a link" if path.is_symlink() else "not a folder"
                raise RecipeError(f"{path}: is {kind}, and a queue needs a folder there; remove it", code="E1962")

    @property
    def base(self) -> Path:
        """The folder that relative paths of its recipes start from."""
        return self.folder.parent

    def state_file(self, name: str) -> Path:
        """The file of an entry in `state/`."""
        return self.folder / "state" / f"{name}.json"

    def output_file(self, name: str) -> Path:
        """What the trainings of an entry printed."""
        return self.folder / "output" / f"{name}.txt"

    # --- reading ---

    def entries(self) -> list[QueueEntry]:
        """All entries in their order. Raises nothing for what is in them: a damaged one is `invalid`."""
        return [self._entry(path) for path in self._paths()]

    def entry(self, name: str) -> QueueEntry:
        """The entry with a name. Raises RecipeError E1960 with the nearest one."""
        entries = {entry.name: entry for entry in self.entries()}
        if name not in entries:
            hint = did_you_mean(name, entries, "see `mezzotint queue list`")
            raise RecipeError(f"{self.folder}: has no entry {name!r}; {hint}", code="E1960")
        return entries[name]

    def find_own(self, name: str) -> QueueEntry | None:
        """The entry with a name, of which this process holds the lock, as if nobody held it; None if it was removed."""
        return next((self._entry(path, is_own=True) for path in self._paths() if path.stem == name), None)

    def _paths(self) -> list[Path]:
        try:
            with os.scandir(self.folder) as entries:
                paths = [Path(entry.path) for entry in entries if entry.name.endswith(".yaml") and entry.name[0] != "."]
        except OSError:
            return []
        order = {name: place for place, name in enumerate(dict.fromkeys(self._order()))}
        return sorted(paths, key=lambda path: (order.get(path.stem, len(order)), path.name))

    def _order(self) -> list[str]:
        """The names in order.txt; empty if it cannot be read."""
        try:
            return outside.read_text(self.folder / _ORDER, errors="replace", within=self.folder).splitlines()
        except OSError:
            return []

    def _entry(self, path: Path, *, is_own: bool = False) -> QueueEntry:
        name = path.stem
        recipe = self._read(path)
        if recipe.run is None:
            return QueueEntry(name, path, "invalid", reason=recipe.problem)
        recorded, last = self._recorded(name), last_events(recipe.run)
        is_claimed = not is_own and holder_of(self._lock_path(name)).who != "nobody"
        is_held = is_claimed or holder(recipe.run).who != "nobody"
        started = last.get("started", {})
        is_ours = started.get("recipe") in recipe.digests  # and not of an earlier recipe in the same folder
        entry = QueueEntry(
            name, path, "waiting", recipe.run, recipe.digests[0], is_begun=is_ours, is_claimed=is_claimed,
            step=_last_step(recipe.run) if started else None, steps=_to_count(started.get("steps")),
        )  # fmt: skip
        if is_held:
            is_pausing = recorded is not None and recorded.state == "paused"
            return replace(entry, state="running", reason="it saves, stops, and is paused then" if is_pausing else "")
        if is_ours and next(reversed(last)) == "finished":
            return replace(entry, state="finished")
        if recorded is not None and (recorded.state == "paused" or recorded.recipe == recipe.digests[0]):
            return replace(entry, state=recorded.state, reason=recorded.reason)
        return entry

    def _read(self, path: Path) -> _Read:
        """The recipe of an entry, from the cache while its file is unchanged."""
        try:
            status = os.lstat(path)
        except OSError as error:
            return _Read(None, problem=f"cannot be read ({error.strerror})")
        stamp = (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        if path.name not in self._cache or self._cache[path.name][0] != stamp:
            self._cache[path.name] = stamp, self._read_recipe(path)
        return self._cache[path.name][1]

    def _read_recipe(self, path: Path) -> _Read:
        if not NAME.fullmatch(path.stem) or len(os.fsencode(path.stem)) > LONGEST:
            return _Read(
                None, problem="its name is not that of an entry; rename it with letters, digits, '.', '-', '_'"
            )
        if path.is_symlink():
            return _Read(None, problem="is a link; put the recipe itself into the queue")
        try:
            reading = read(path)
            run = folder_of(reading, reading.recipe, self.base)
            if "{stamp}" in (reading.recipe.run.folder or Path(reading.recipe.run.name)).name:
                return _Read(None, problem="its run folder has a {stamp}; write the folder of one run into run.folder")
        except MezzotintError as error:
            return _Read(None, problem=last_line(str(error)))
        except (OSError, ValueError, RuntimeError) as error:
            return _Read(None, problem=f"cannot be read ({error})")
        resumed = digest_of(with_values(reading.recipe, {"run.resume": "auto"}))
        return _Read(Path(os.path.realpath(run)), (reading.digest, resumed))

    def _recorded(self, name: str) -> EntryRecord | None:
        """The file of an entry in `state/`; None without one, and for one that is damaged."""
        try:
            values = outside.read_json(self.state_file(name), within=self.folder)
            recorded = EntryRecord(**{key: str(values[key]) for key in ("state", "reason", "recipe")})  # type: ignore[arg-type]
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return recorded if recorded.state in ("paused", "failed", "finished") else None

    # --- locks ---

    def _lock_path(self, name: str) -> Path:
        return self.folder / "locks" / f"{name}.entry"

    def claim(self, name: str) -> Lock | None:
        """The lock of an entry; None while another process holds it."""
        return self._try_lock(self._lock_path(name))

    def claim_device(self, device: str) -> Lock | None:
        """The lock of a device of this machine; None while another process holds it."""
        return self._try_lock(self.folder / "locks" / f"{socket.gethostname()}.{device}.device")

    def busy_devices(self) -> list[str]:
        """The devices of this machine that train an entry."""
        host = socket.gethostname()
        locks = sorted((self.folder / "locks").glob("*.device"))
        held = [path.stem for path in locks if holder_of(path).who == "here"]
        return [name.removeprefix(f"{host}.") for name in held]

    def _try_lock(self, path: Path) -> Lock | None:
        with durable.storage_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        try:
            return Lock(path)
        except CheckpointError as error:
            if error.code != "E1504":
                raise
            return None

    @contextmanager
    def changing(self) -> Iterator[None]:
        """While the block runs, no other process changes the queue. Raises RecipeError E1960 if another one does not
        end its change."""
        until = time.monotonic() + _CHANGE_SECONDS
        while (lock := self._try_lock(self.folder / "locks" / "changes")) is None:
            if time.monotonic() > until:
                raise RecipeError(f"{self.folder}: another process is changing the queue; try again", code="E1960")
            time.sleep(0.05)
        try:
            yield
        finally:
            lock.release()

    # --- changing ---

    def record(self, entry: QueueEntry, state: Literal["paused", "failed", "finished"], reason: str = "") -> None:
        """Writes the state of an entry. Raises StorageError."""
        path = self.state_file(entry.name)
        with durable.storage_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        durable.write_json(path, {"state": state, "reason": reason, "recipe": entry.digest or ""})

    def write(self, name: str, text: str) -> Path:
        """Writes a new entry at the end of the order, within `changing`. Raises RecipeError E1961 if the name is
        taken, StorageError."""
        path, names = self.folder / f"{name}.yaml", [one.stem for one in self._paths()]
        durable.write_new(path, text, code="E1961", remedy="remove that entry first")
        self._write_order([*names, name])
        return path

    def pause(self, name: str) -> str:
        """Keeps an entry from being started; one that runs saves and stops. Returns a sentence about it. Raises
        RecipeError E1960 for an entry that neither waits nor runs."""
        with self.changing():
            entry = self._require(name, ("waiting", "running"), "paused")
            self.record(entry, "paused")
            if entry.state == "waiting":
                return f"{name} is paused"
            if not entry.is_claimed and entry.run is not None:  # no `queue run` stops it
                folder = RunFolder(entry.run)
                folder.refuse_links()
                with durable.storage_errors(folder.requests):
                    folder.requests.mkdir(exist_ok=True)
                durable.write_file(folder.requests / "stop", "requested by the queue\n")
            return f"{name} is paused: its training saves after this step and stops"

    def resume(self, name: str) -> str:
        """Lets a paused or failed entry wait again. Returns a sentence about it. Raises RecipeError E1960 for any
        other."""
        with self.changing():
            self._require(name, ("paused", "failed"), "resumed")
            with durable.storage_errors(self.state_file(name)):
                self.state_file(name).unlink(missing_ok=True)
            return f"{name} waits again"

    def move(self, name: str, place: str) -> str:
        """Moves an entry to a place: `first`, `last`, or a number from 1. Returns a sentence about it. Raises
        RecipeError E1960."""
        with self.changing():
            self.entry(name)
            names = [path.stem for path in self._paths() if path.stem != name]
            index = {"first": 0, "last": len(names)}.get(place)
            if index is None:
                if not re.fullmatch(r"[1-9][0-9]{0,8}", place):
                    raise RecipeError(
                        f"the place of an entry is first, last or a number from 1, got {place!r}", code="E1960"
                    )
                index = min(int(place) - 1, len(names))
            names.insert(index, name)
            self._write_order(names)
            return f"{name} is number {index + 1} of {len(names)}"

    def remove(self, name: str) -> str:
        """Moves the recipe of an entry to `removed/`; its run folder stays. Returns a sentence about it. Raises
        RecipeError E1960 for one that runs, StorageError."""
        with self.changing():
            entry = self._require(name, ("waiting", "paused", "finished", "failed", "invalid"), "removed")
            target = self.folder / "removed" / entry.path.name
            with durable.storage_errors(target):
                target.parent.mkdir(exist_ok=True)
                target = durable.free_folder(target)
                os.rename(entry.path, target)
                durable.sync_folder(self.folder)
                self.state_file(name).unlink(missing_ok=True)
            return f"{name} is removed from the queue; its recipe is {target}" + (
                f", and {entry.run} stays" if entry.run is not None and entry.run.exists() else ""
            )

    def _require(self, name: str, states: tuple[State, ...], action: str) -> QueueEntry:
        entry = self.entry(name)
        if entry.state not in states:
            hint = "pause it first" if entry.state == "running" else "see `mezzotint queue list`"
            raise RecipeError(f"{name} is {entry.state} and cannot be {action}; {hint}", code="E1960")
        return entry

    def _write_order(self, names: list[str]) -> None:
        durable.write_file(self.folder / _ORDER, "".join(f"{name}\n" for name in names if NAME.fullmatch(name)))


def last_events(run: Path) -> dict[str, Mapping[str, Any]]:
    """The last event of each kind that changes a run's state, the newest one last; empty if the history cannot be
    read."""
    last: dict[str, Mapping[str, Any]] = {}
    try:
        for event in outside.read_lines(run / "history.jsonl", within=run):
            if event.get("event") in _EVENTS:
                last.pop(event["event"], None)
                last[event["event"]] = event
    except OSError:
        return {}
    return last


def last_line(text: str) -> str:
    """The line of an output that gives the reason of a failure: the last one with an error code, else the last one."""
    lines = [escape_line(line.strip()) for line in text.splitlines() if line.strip()]
    return next((line for line in reversed(lines) if line.startswith("error[")), lines[-1] if lines else "")


def _last_step(run: Path) -> int | None:
    """The last step in a run's metrics; None if they cannot be read."""
    try:
        lines = outside.read_tail(run / "metrics.jsonl", limit=_TAIL, within=run).splitlines()
    except OSError:
        return None
    for line in reversed(lines):
        with suppress(ValueError, AttributeError):
            step = _to_count(outside.parse_json(line.decode("utf-8", "replace")).get("step"))
            if step is not None:
                return step
    return None


def _to_count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53 else None
