"""Trains the entries of a queue: one `mezzotint train` process on each device, until none waits any more.

A training holds the locks of its entry and of its device, too: while it lives, no other `queue run` starts it again or
uses its device, even after the one that started it was killed.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, Self

from mezzotint import durable, outside
from mezzotint.errors import MezzotintError, RecipeError, Stopped
from mezzotint.run_folder import Lock
from mezzotint.tasks.queue.entries import Queue, QueueEntry, last_line

CPU = "cpu"
LOOK_SECONDS = 0.5
"""Seconds between two looks at the queue."""

_DEVICE = re.compile(r"cpu|[0-9]{1,4}|(GPU|MIG)-[\w/-]+")
_VARIABLE = "CUDA_VISIBLE_DEVICES"
_STOPS, _PASSED_ON = (signal.SIGINT, signal.SIGTERM), (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
_TAIL = 64_000


def parse_devices(text: str) -> list[str]:
    """The devices of `--devices=0,1`. Raises RecipeError E1012 for anything but numbers, ids of GPUs, and cpu."""
    devices = [word.strip() for word in text.split(",")]
    wrong = next((word for word in devices if not _DEVICE.fullmatch(word)), None)
    if wrong is not None or len(set(devices)) < len(devices):
        problem = f"got {wrong!r}" if wrong is not None else f"{text} names one twice"
        raise RecipeError(
            f"--devices takes numbers of GPUs, such as 0,1, or cpu for one training on the CPU; {problem}", code="E1012"
        )
    return devices


def visible_devices(device: str, environ: Mapping[str, str]) -> str:
    """The value of CUDA_VISIBLE_DEVICES for a device. A number counts among the GPUs that this process may use. Raises
    RecipeError E1012 for a number beyond them."""
    if device == CPU:
        return ""
    allowed = [word.strip() for word in environ.get(_VARIABLE, "").split(",") if word.strip()]
    if _VARIABLE not in environ or not device.isdecimal():
        return device
    if int(device) >= len(allowed):
        raise RecipeError(
            f"--devices={device}: {_VARIABLE}={environ[_VARIABLE]!r} allows {len(allowed)} GPUs, numbered from 0",
            code="E1012",
        )
    return allowed[int(device)]


@dataclass(slots=True)
class Training:
    """A training that runs. locks: of its entry and its device."""

    entry: QueueEntry
    process: subprocess.Popen[bytes]
    locks: tuple[Lock, Lock]

    def status(self) -> int | None:
        """Its exit status, as a shell reports it; None while it runs."""
        code = self.process.poll()
        return code if code is None or code >= 0 else 128 - code


@dataclass(slots=True)
class QueueRun:
    """`mezzotint queue run`. devices: see `parse_devices`. options: passed on to every `mezzotint train`. waits:
    whether it waits for new entries. say: prints a line."""

    queue: Queue
    devices: Sequence[str]
    options: Sequence[str] = ()
    waits: bool = False
    say: Callable[[str], None] = print
    stop_signal: int = 0
    _trainings: dict[str, Training] = field(default_factory=dict)
    _reported: dict[str, str] = field(default_factory=dict)
    _stopped: set[str] = field(default_factory=set)
    _unrecorded: set[str] = field(default_factory=set)
    _killed_at: dict[str, int | None] = field(default_factory=dict)
    _before: dict[int, Any] = field(default_factory=dict)

    def run(self) -> list[QueueEntry]:
        """Trains until no entry waits and nothing trains, and returns the entries that have failed or are invalid.
        Raises Stopped when a signal ended it, after its trainings have saved and stopped."""
        with self:
            while True:
                for device, training in list(self._trainings.items()):
                    if (status := training.status()) is not None:
                        del self._trainings[device]
                        self._end(training, status)
                entries = self.queue.entries()
                for entry in entries:
                    self._report(entry)
                self._stop_paused(entries)
                if not self.stop_signal:
                    self._start_next(entries)
                if not self._trainings and (self.stop_signal or not (self.waits or self._has_work(entries))):
                    break
                time.sleep(LOOK_SECONDS)
        if self.stop_signal:
            name = signal.Signals(self.stop_signal).name
            raise Stopped(f"stopped by {name}; start the same command again to resume", signal_number=self.stop_signal)
        return [entry for entry in self.queue.entries() if self._has_failed(entry)]

    def _has_failed(self, entry: QueueEntry) -> bool:
        return entry.state in ("failed", "invalid") or entry.name in self._unrecorded

    def _has_work(self, entries: Sequence[QueueEntry]) -> bool:
        """Whether an entry waits, or a training runs that nobody waits for: its `queue run` was killed."""
        return any(self._can_start(entry) or (entry.state == "running" and not entry.is_claimed) for entry in entries)

    def _can_start(self, entry: QueueEntry) -> bool:
        return entry.state == "waiting" and entry.name not in self._unrecorded

    def _report(self, entry: QueueEntry) -> None:
        """Prints once why an entry cannot be trained."""
        if entry.state == "invalid" and self._reported.get(entry.name) != entry.reason:
            self._reported[entry.name] = entry.reason
            self.say(f"{entry.name}: left out; {entry.path.name} {entry.reason}")

    def _stop_paused(self, entries: Sequence[QueueEntry]) -> None:
        """Asks the trainings of entries that were paused meanwhile to save and stop."""
        paused = {entry.name for entry in entries if entry.state == "running" and entry.reason}
        for training in self._trainings.values():
            if training.entry.name in paused and training.entry.name not in self._stopped:
                self._stopped.add(training.entry.name)
                training.process.send_signal(signal.SIGTERM)

    # --- starting ---

    def _start_next(self, entries: Sequence[QueueEntry]) -> None:
        """Starts the first entries that wait on the devices that are free."""
        for device in self.devices:
            names = [entry.name for entry in entries if self._can_start(entry)]
            if not names or device in self._trainings:
                continue
            device_lock = self.queue.claim_device(device)
            if device_lock is None:
                continue
            training = self._start_first(names, device, device_lock)
            if training is None:
                device_lock.release()
            else:
                self._trainings[device] = training
                if self.stop_signal:  # it came while the process started
                    training.process.send_signal(self.stop_signal)
            entries = [entry for entry in entries if training is None or entry.name != training.entry.name]

    def _start_first(self, names: Sequence[str], device: str, device_lock: Lock) -> Training | None:
        for name in names:
            lock = self.queue.claim(name)
            if lock is None:
                continue
            entry = self.queue.find_own(name)
            if entry is not None and entry.state == "waiting":  # another `queue run` may have trained it meanwhile
                try:
                    return Training(entry, self._popen(entry, device, lock, device_lock), (lock, device_lock))
                except (MezzotintError, OSError) as error:
                    self._fail(entry, last_line(str(error)))
            lock.release()
        return None

    def _popen(self, entry: QueueEntry, device: str, *locks: Lock) -> subprocess.Popen[bytes]:
        line = ["train", str(entry.path), *(["run.resume=auto"] if entry.is_begun else []), *self.options]
        output = self.queue.output_file(entry.name)
        with durable.storage_errors(output):
            output.parent.mkdir(parents=True, exist_ok=True)
            file = durable.open_own(output, "ab")
        with file:
            file.write(f"$ {shlex.join(['mezzotint', *line])}\n".encode("utf-8", "backslashreplace"))
            file.flush()
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "mezzotint", *line],
                stdin=subprocess.DEVNULL, stdout=file, stderr=file, cwd=self.queue.base,
                start_new_session=True,  # a Ctrl-C in the terminal reaches it only once, through this process
                env={**os.environ, _VARIABLE: visible_devices(device, os.environ)},
                pass_fds=[lock.fileno() for lock in locks],
            )  # fmt: skip
        verb = "resumed" if entry.is_begun else "started"
        self.say(f"{entry.name}: {verb} on {device}; output in {output}")
        return process

    # --- ending ---

    def _end(self, training: Training, status: int) -> None:
        """Records the end of a training, and releases its locks."""
        name = training.entry.name
        self._stopped.discard(name)
        self._record_end(name, self.queue.find_own(name), status)
        for lock in training.locks:
            lock.release()

    def _record_end(self, name: str, entry: QueueEntry | None, status: int) -> None:
        if entry is None:
            self.say(f"{name}: ended with status {status}, and is not in the queue any more")
        elif status == 0:
            self._record(entry, "finished")
            self.say(f"{name}: finished")
        elif status - 128 in _STOPS and (self.stop_signal or entry.state == "paused"):
            self.say(f"{name}: saved and stopped{', paused' if entry.state == 'paused' else ''}")
        elif status - 128 in _STOPS:
            self._record(entry, "paused", "its training was stopped by a signal or a request")
            self.say(f"{name}: its training was stopped, so it is paused; mezzotint queue resume {shlex.quote(name)}")
        elif status == 128 + signal.SIGKILL and self._has_advanced(entry):
            self.say(f"{name}: its training was killed; it is resumed from its newest checkpoint")
        else:
            self._fail(entry, self._reason(name, status))

    def _has_advanced(self, entry: QueueEntry) -> bool:
        """Whether a killed training is worth another start: its checkpoints have advanced since it was killed last."""
        newest = max((path.name for path in (entry.run or entry.path).glob("checkpoints/step-*")), default=None)
        step = None if newest is None else int(newest.rpartition("-")[2])
        has_advanced = entry.name not in self._killed_at or self._killed_at[entry.name] != step
        self._killed_at[entry.name] = step
        return has_advanced

    def _reason(self, name: str, status: int) -> str:
        output = self.queue.output_file(name)
        try:
            text = outside.read_tail(output, limit=_TAIL, within=self.queue.folder).decode("utf-8", "replace")
        except OSError:
            text = ""
        reason = last_line(text.rpartition("\n$ ")[2]) if status <= 128 else f"killed by signal {status - 128}"
        return f"{reason} (status {status})"

    def _fail(self, entry: QueueEntry, reason: str) -> None:
        self.say(f"{entry.name}: failed; {reason}")
        self._record(entry, "failed", reason)

    def _record(self, entry: QueueEntry, state: Any, reason: str = "") -> None:
        """Writes a state. What cannot be written is printed, and remembered while this process lives."""
        try:
            self.queue.record(entry, state, reason)
        except MezzotintError as error:
            self._unrecorded.add(entry.name)
            self.say(f"{entry.name}: its state could not be written; {error}")

    # --- signals ---

    def __enter__(self) -> Self:
        for number in (*_PASSED_ON, signal.SIGHUP):
            self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        """Passes a signal on to every training; SIGHUP, of a closed terminal, is ignored, as trainings do."""
        if number not in _PASSED_ON:
            return
        if number in _STOPS:
            self.stop_signal = self.stop_signal or number
        for training in self._trainings.values():
            training.process.send_signal(number)
