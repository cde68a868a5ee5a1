"""Checkpoints written by a thread while training goes on: the tensors as they are at one moment, the thread that writes
them, and what becomes of it. At most one is under way.

The bytes on disk are those of a checkpoint written at once, and so is the transaction (`state.Transaction`).
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from mezzotint import durable, fault_injection
from mezzotint.runtimes.base import Runtime, free_memory
from mezzotint.settings.sections.run import RunSettings
from mezzotint.training.checkpoints import state
from mezzotint.training.checkpoints.state import PIECE, Transaction, Verified, pieces_of
from mezzotint.training.update import Update

_BLOCK = 1 << 28
ROOM = 1.25
"""How much more memory than a copy takes has to be free for it."""

BEST = "best"
"""The second name of the checkpoint whose held-out loss is lowest (`run.save.best`)."""

Result = TypeVar("Result")


def is_behind(run: RunSettings) -> bool:
    """Whether training goes on while checkpoints are written. Another program's optimizer file is made of the weights
    that the checkpoint has, when that is complete."""
    return run.save.asynchronous and run.export.optimizer_file is None


class PinnedCopies:
    """Page-locked memory for copies of a device's tensors: made once, and kept for the next save."""

    def __init__(self) -> None:
        self._blocks: list[Tensor] = []
        self._reserving: Future[None] | None = None
        self._stream: torch.cuda.Stream | None = None

    def reserve(self, nbytes: int) -> None:
        """Lets a thread make so much of it, which takes a while, before the first save."""
        self._reserving = in_thread(lambda: self._blocks.extend(_pinned(_BLOCK) for _ in range(nbytes // _BLOCK + 1)))

    def is_to_be_had(self) -> bool:
        """Whether what was reserved is there, which is waited for."""
        return self._reserving is None or self._reserving.exception() is None

    @property
    def nbytes(self) -> int:
        """The bytes that are there already."""
        return sum(block.nbytes for block in self._blocks)

    def take(self, tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], torch.cuda.Event | None]:
        """Sends the tensors off as they are at this place of the device's queue, on a stream of its own, so that what
        is queued later does not wait. Returns their copies, and what tells that they have arrived."""
        copies = self._places(tensors)
        device = next(iter(tensors.values())).device
        if device.type != "cuda":
            for name, tensor in tensors.items():
                copies[name].copy_(tensor)
            return copies, None
        self._stream = self._stream or torch.cuda.Stream(device)
        self._stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(self._stream):
            for name, tensor in tensors.items():
                copies[name].copy_(tensor, non_blocking=True)
            arrived = torch.cuda.Event()
            arrived.record(self._stream)
        return copies, arrived

    def _places(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """A place for each tensor, in the order of its own memory, so that it travels as it lies. torch makes
        page-locked memory in powers of two, hence few large blocks."""
        places: dict[str, Tensor] = {}
        block, used = 0, 0
        for name, tensor in tensors.items():
            size = -(-tensor.nbytes // 64) * 64
            while block < len(self._blocks) and used + size > len(self._blocks[block]):
                block, used = block + 1, 0
            if block == len(self._blocks):
                self._blocks.append(_pinned(max(size, _BLOCK)))
            view = self._blocks[block][used : used + tensor.nbytes].view(tensor.dtype)
            places[name] = view.as_strided(tensor.shape, torch.empty_like(tensor, device="meta").stride())
            used += size
        return places


def _pinned(nbytes: int) -> Tensor:
    return torch.empty(nbytes, dtype=torch.uint8, pin_memory=torch.cuda.is_available())


def in_thread(work: Callable[[], Result]) -> Future[Result]:
    """Does the work in a thread of its own, which ends with it."""
    threads = ThreadPoolExecutor(max_workers=1, thread_name_prefix="save")
    future = threads.submit(work)
    threads.shutdown(wait=False)
    return future


class Snapshot:
    """Tensors as they are now, for one thread that reads each of them once, in their order, while their owner goes on.

    Those on the CPU are read where they lie; `hold`, which the owner calls before they change, copies what has not been
    read by then. Those on a device are sent to page-locked memory at once. apart: takes that second way wherever they
    lie (tests).
    """

    def __init__(self, tensors: Mapping[str, Tensor], pinned: PinnedCopies, *, apart: bool = False) -> None:
        elsewhere = {name: tensor for name, tensor in tensors.items() if apart or tensor.device.type == "cuda"}
        self._sent, self._arrived = pinned.take(elsewhere) if elsewhere else ({}, None)
        self._unread = {name: tensor for name, tensor in tensors.items() if name not in elsewhere}
        self._copies: dict[str, Tensor] = {}
        self._bounce = np.empty(PIECE, np.uint8)
        self._lock = threading.Lock()
        self._is_held = False

    def pieces(self, name: str) -> Iterator[Tensor]:
        """The bytes of a tensor as they were, uint8 on the CPU, PIECE at a time; each piece is good until the next."""
        if name in self._sent:
            if self._arrived is not None:
                self._arrived.synchronize()
            yield from pieces_of(self._sent[name])
            return
        tensor = self._unread[name]
        for start in range(0, tensor.nbytes, PIECE):
            with self._lock:  # what is read where it lies must not change meanwhile
                if not tensor.is_contiguous() and name not in self._copies:
                    self._copies[name] = _flat(tensor)
                copy = self._copies.get(name)
                if copy is None:
                    piece = _flat(tensor)[start : start + PIECE].numpy()
                    np.copyto(self._bounce[: len(piece)], piece)
            yield torch.from_numpy(self._bounce[: len(piece)]) if copy is None else copy[start : start + PIECE]
        with self._lock:
            del self._unread[name]
            self._copies.pop(name, None)

    def hold(self) -> None:
        """Returns when the tensors may change. The last ones are copied first, which the thread comes to last."""
        if self._is_held:
            return
        with self._lock:
            unread = [*self._unread.items()]
        for name, tensor in reversed(unread):
            if name in self._unread and name not in self._copies:
                copy = _flat(tensor).clone() if tensor.is_contiguous() else _flat(tensor)
                with self._lock:
                    if name in self._unread:
                        self._copies[name] = copy
        if self._arrived is not None:  # the device waits, the host does not
            torch.cuda.current_stream().wait_event(self._arrived)
        self._is_held = True
        fault_injection.reach("checkpoint.held")


def _flat(tensor: Tensor) -> Tensor:
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def best_of(folder: Path, losses: Mapping[int, float], verified: Verified) -> Path | None:
    """The checkpoint whose loss is lowest, of those that are there and verify; of equal ones the earliest. losses: by
    step; others have none."""
    steps = {state.step_of(path): path for path in state.listed(folder)}
    judged = sorted((losses[step], step) for step in steps if step in losses)
    return next((steps[step] for _, step in judged if verified.reason_against(steps[step]) is None), None)


def name_best(folder: Path, path: Path | None) -> None:
    """Gives a checkpoint the second name `best`, a link beside it; None takes the link away. Raises OSError, also where
    something else has that name."""
    link = folder / BEST
    if link.exists() and not link.is_symlink():
        raise FileExistsError(errno.EEXIST, "is there and is no link of ours", str(link))
    if path is None:
        link.unlink(missing_ok=True)
    elif not link.is_symlink() or link.readlink() != Path(path.name):
        aside = durable.aside_of(link)
        aside.symlink_to(path.name)
        aside.replace(link)
        durable.sync_folder(folder)  # before what it led to goes
        fault_injection.reach("checkpoint.best")


def named_best(folder: Path) -> Path | None:
    """The checkpoint that has the second name, which may be one of before where it could not be given."""
    link = folder / BEST
    return folder / link.readlink() if link.is_symlink() else None


class Saves:
    """The checkpoints of a run's folder as this process writes them.

    warn: says what failed and ends nothing. Where `is_of_all`, all processes call `begin` and `end` together; otherwise
    the first alone.
    """

    def __init__(self, folder: Path, runtime: Runtime, settings: RunSettings, warn: Callable[[str], None]) -> None:
        self.verified = Verified()
        self._folder, self._runtime, self._warn = folder, runtime, warn
        self._is_behind, self._keep, self._keeps_best = is_behind(settings), settings.save.keep, settings.save.best
        self._parts = settings.save.sharded and runtime.world_size > 1
        self._losses: Mapping[int, float] = {}
        self._pinned = PinnedCopies()
        self._said: list[str] = []
        self._has_warned_of_room = False
        self._transaction: Transaction | None = None
        self._snapshot: Snapshot | None = None
        self._work: Future[str] | None = None

    @cached_property
    def is_of_all(self) -> bool:
        """Whether every process writes its part: of weights that they share, or, with `run.save.sharded`, of what all
        hold, where all see the run folder. All ask together, the first time."""
        if self._runtime.shares or not self._parts:
            return bool(self._runtime.shares)
        is_seen = not self._runtime.agree(not self._folder.parent.is_dir())
        if not is_seen:
            self._warn(
                f"other processes do not see {self._folder.parent}: the first writes checkpoints alone, as with "
                "run.save.sharded=false; to go on from them, all have to see it"
            )
        return is_seen

    def reserve(self, update: Update) -> None:
        """Makes ready for copies of what the update keeps on a GPU."""
        if not self._is_behind or update.device.type != "cuda":
            return
        ema = update.ema
        on_host = sum(t.nbytes for t in ema.weights.values()) if ema is not None and ema.device.type == "cpu" else 0
        size = update.checkpoint_bytes() - on_host
        if self.is_of_all and not self._runtime.shares:
            size //= self._runtime.world_size
        if (self._runtime.is_first or self.is_of_all) and self._has_room(size):
            self._pinned.reserve(size)

    @property
    def is_writing(self) -> bool:
        """Whether this process still writes its part of the checkpoint under way."""
        return self._work is not None and not self._work.done()

    def begin(
        self, *, step: int, tensors: Mapping[str, Tensor], values: Mapping[str, Any], recipe_digest: str, at_once: bool,
        losses: Mapping[int, float] = MappingProxyType({}),
    ) -> None:  # fmt: skip
        """Begins a checkpoint of the tensors as they are now; with at_once, where training waits or memory is short it
        is complete on return. losses: held-out, by step, which say what checkpoint is best. Raises as
        `Transaction.complete`, also of the one that was under way."""
        self.end()
        self._losses = dict(losses)
        shared = self._runtime if self.is_of_all else None
        transaction = Transaction(
            self._folder, step=step, tensors=tensors, values=values, recipe_digest=recipe_digest, runtime=shared
        )  # fmt: skip
        mine = transaction.tensors
        waits = at_once or not self._is_behind or self._is_short_of_memory(mine)
        snapshot = None if waits else self._snapshot_of(mine)
        if snapshot is None:
            outcome = transaction.write(lambda name: pieces_of(mine[name]))
            if not waits and self._runtime.shares:  # the others complete it later
                self._transaction, self._work = transaction, in_thread(lambda: outcome)
                return
            self._complete(transaction, outcome)
            self._say()
            return
        self._transaction, self._snapshot = transaction, snapshot
        self._work = in_thread(lambda: self._write(transaction, snapshot))

    def _snapshot_of(self, tensors: Mapping[str, Tensor]) -> Snapshot | None:
        """None where the copy finds no memory after all: then it is written piece by piece, and training waits."""
        try:
            return Snapshot(tensors, self._pinned)
        except (RuntimeError, MemoryError) as error:
            if not isinstance(error, MemoryError) and "memory" not in str(error):
                raise
            self._warn(
                f"a copy for the checkpoint found no memory ({str(error).splitlines()[0]}): it is written piece by "
                "piece, and training waits"
            )
            return None

    def hold(self) -> None:
        """The tensors are about to change."""
        if self._snapshot is not None:
            self._snapshot.hold()

    def end(self) -> None:
        """Waits for the checkpoint under way, if any, and completes it. Raises as `Transaction.complete`."""
        if self._work is None:
            return
        work, self._work = self._work, None
        transaction, self._transaction, self._snapshot = self._transaction, None, None
        outcome = work.result()
        if self.is_of_all:
            assert transaction is not None
            self._complete(transaction, outcome)
        self._say()

    def give_up(self) -> None:
        """The run has failed: what is under way is written to its end where that needs no other process."""
        if self._work is not None:
            wait([self._work])
            failure, self._work = self._work.exception(), None
            if failure is not None:
                self._warn(f"the checkpoint that was being written is not complete: {failure}")

    def _write(self, transaction: Transaction, snapshot: Snapshot) -> str:
        """The thread's work. What all processes write they complete together, between two steps."""
        outcome = transaction.write(snapshot.pieces)
        if not self.is_of_all:
            self._complete(transaction, outcome)
        return outcome

    def _complete(self, transaction: Transaction, outcome: str) -> None:
        path = transaction.complete(outcome)
        if not self._runtime.is_first:
            return
        self.verified.add(path)
        best = self.choose_best(self._losses)
        try:
            state.prune(self._folder, self._keep, self.verified, spared=(best, named_best(self._folder)))
        except OSError as error:  # what is written stays written
            self._said.append(f"an old checkpoint could not be removed ({error}); training goes on")

    def choose_best(self, losses: Mapping[int, float]) -> Path | None:
        """With `run.save.best`: the best of the checkpoints that are there, which has that name now."""
        if not self._keeps_best:
            return None
        best = best_of(self._folder, losses, self.verified)
        try:
            name_best(self._folder, best)
        except OSError as error:
            self._said.append(f"{BEST} could not be made a link to the best checkpoint ({error}); it is kept")
        return best

    def _say(self) -> None:
        for sentence in self._said:
            self._warn(sentence)
        self._said = []

    def _is_short_of_memory(self, tensors: Mapping[str, Tensor]) -> bool:
        """Whether a copy of the tensors does not fit into the host's memory beside what lies there, on any process."""
        pinned = sum(tensor.nbytes for tensor in tensors.values() if tensor.device.type == "cuda")
        needed = sum(tensor.nbytes for tensor in tensors.values()) - min(pinned, self._pinned.nbytes)
        reason = (
            "" if self._pinned.is_to_be_had() else "page-locked memory for a copy of the checkpoint is not to be had"
        )
        if not self._has_room(needed):
            reason = f"{free_memory() or 0:,} bytes of memory are free and a copy for the checkpoint takes {needed:,}"
        is_short = bool(self._runtime.agree(bool(reason)) if self.is_of_all else reason)
        if is_short and not self._has_warned_of_room:
            self._has_warned_of_room = True
            self._warn(
                f"{reason or 'another process has no room for a copy of its part of the checkpoint'}: training waits "
                "while it is written, as with run.save.asynchronous=false"
            )
        return is_short

    def _has_room(self, nbytes: int) -> bool:
        """Whether so much is free, of each process on this machine that writes a part."""
        free = free_memory()
        return free is None or free >= ROOM * nbytes * (self._runtime.local_size if self.is_of_all else 1)
