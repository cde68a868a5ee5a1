"""Checkpoints written by a thread while training continues: a snapshot of the tensors, the thread that writes it, and
its outcome. At most one is in progress.

The bytes on disk and the transaction (`state.Transaction`) are the same as those of a synchronous checkpoint.
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
"""Free memory required for a copy, as a multiple of its size."""

BEST = "best"
"""Name of the link to the checkpoint with the lowest held-out loss (`run.save.best`)."""

Result = TypeVar("Result")


def is_asynchronous(run: RunSettings) -> bool:
    """Whether training continues while checkpoints are written. Not if another program's optimizer file is written,
    which needs the weights of the complete checkpoint."""
    return run.save.asynchronous and run.export.optimizer_file is None


class PinnedCopies:
    """Page-locked memory for copies of a device's tensors; allocated once, and reused for later saves."""

    def __init__(self) -> None:
        self._blocks: list[Tensor] = []
        self._reserving: Future[None] | None = None
        self._stream: torch.cuda.Stream | None = None

    def reserve(self, nbytes: int) -> None:
        """Allocates this much in a thread, before the first save, because it takes long."""
        count = nbytes // _BLOCK + 1
        self._reserving = in_thread(lambda: self._blocks.extend(_allocate_pinned(_BLOCK) for _ in range(count)))

    def is_available(self) -> bool:
        """Waits for the reservation and returns whether it succeeded."""
        return self._reserving is None or self._reserving.exception() is None

    @property
    def nbytes(self) -> int:
        """The bytes allocated so far."""
        return sum(block.nbytes for block in self._blocks)

    def take(self, tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], torch.cuda.Event | None]:
        """Starts copying the tensors as they are at this point of the device's queue, on a separate stream; later work
        does not wait. Returns the copies and an event that signals their completion."""
        copies = self._allocate(tensors)
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

    def _allocate(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Memory for each tensor with the tensor's strides, so it is copied without reordering. torch allocates
        page-locked memory in powers of two, hence few large blocks."""
        copies: dict[str, Tensor] = {}
        block, used = 0, 0
        for name, tensor in tensors.items():
            size = -(-tensor.nbytes // 64) * 64
            while block < len(self._blocks) and used + size > len(self._blocks[block]):
                block, used = block + 1, 0
            if block == len(self._blocks):
                self._blocks.append(_allocate_pinned(max(size, _BLOCK)))
            view = self._blocks[block][used : used + tensor.nbytes].view(tensor.dtype)
            copies[name] = view.as_strided(tensor.shape, torch.empty_like(tensor, device="meta").stride())
            used += size
        return copies


def _allocate_pinned(nbytes: int) -> Tensor:
    return torch.empty(nbytes, dtype=torch.uint8, pin_memory=torch.cuda.is_available())


def in_thread(work: Callable[[], Result]) -> Future[Result]:
    """Runs the work in a new thread, which ends with it."""
    threads = ThreadPoolExecutor(max_workers=1, thread_name_prefix="save")
    future = threads.submit(work)
    threads.shutdown(wait=False)
    return future


class Snapshot:
    """Snapshot of tensors for one thread that reads each of them once, in order, while training continues.

    Tensors on the CPU are read in place; `hold`, which must be called before they change, copies those that have not
    been read yet. Tensors on a GPU are copied to page-locked memory at once. copies_all: uses the second way on any
    device (tests).
    """

    def __init__(self, tensors: Mapping[str, Tensor], pinned: PinnedCopies, *, copies_all: bool = False) -> None:
        on_device = {name: tensor for name, tensor in tensors.items() if copies_all or tensor.device.type == "cuda"}
        self._sent, self._arrived = pinned.take(on_device) if on_device else ({}, None)
        self._unread = {name: tensor for name, tensor in tensors.items() if name not in on_device}
        self._copies: dict[str, Tensor] = {}
        self._bounce = np.empty(PIECE, np.uint8)
        self._lock = threading.Lock()
        self._is_held = False

    def pieces(self, name: str) -> Iterator[Tensor]:
        """Yields the bytes of a tensor, uint8 on the CPU, PIECE at a time; each piece is valid until the next."""
        if name in self._sent:
            if self._arrived is not None:
                self._arrived.synchronize()
            yield from pieces_of(self._sent[name])
            return
        tensor = self._unread[name]
        for start in range(0, tensor.nbytes, PIECE):
            with self._lock:  # a tensor that is read in place must not change meanwhile
                if not tensor.is_contiguous() and name not in self._copies:
                    self._copies[name] = _view_as_bytes(tensor)
                copy = self._copies.get(name)
                if copy is None:
                    piece = _view_as_bytes(tensor)[start : start + PIECE].numpy()
                    np.copyto(self._bounce[: len(piece)], piece)
            yield torch.from_numpy(self._bounce[: len(piece)]) if copy is None else copy[start : start + PIECE]
        with self._lock:
            del self._unread[name]
            self._copies.pop(name, None)

    def hold(self) -> None:
        """Returns when the tensors may change. Copies the last ones first, because the thread reads them last."""
        if self._is_held:
            return
        with self._lock:
            unread = [*self._unread.items()]
        for name, tensor in reversed(unread):
            if name in self._unread and name not in self._copies:
                copy = _view_as_bytes(tensor).clone() if tensor.is_contiguous() else _view_as_bytes(tensor)
                with self._lock:
                    if name in self._unread:
                        self._copies[name] = copy
        if self._arrived is not None:  # the device waits, the host does not
            torch.cuda.current_stream().wait_event(self._arrived)
        self._is_held = True
        fault_injection.reach("checkpoint.held")


def _view_as_bytes(tensor: Tensor) -> Tensor:
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def best_of(folder: Path, losses: Mapping[int, float], verified: Verified) -> Path | None:
    """The valid checkpoint with the lowest loss; of equal ones the earliest. losses: by step; checkpoints of other
    steps are ignored."""
    steps = {state.step_of(path): path for path in state.list_checkpoints(folder)}
    judged = sorted((losses[step], step) for step in steps if step in losses)
    return next((steps[step] for _, step in judged if verified.reason_against(steps[step]) is None), None)


def name_best(folder: Path, path: Path | None) -> None:
    """Makes `best` a link to a checkpoint; None removes the link. Raises OSError, also if something else has that
    name."""
    link = folder / BEST
    if link.exists() and not link.is_symlink():
        raise FileExistsError(errno.EEXIST, "exists and is not a link", str(link))
    if path is None:
        link.unlink(missing_ok=True)
    elif not link.is_symlink() or link.readlink() != Path(path.name):
        temporary = durable.temporary_path(link)
        temporary.symlink_to(path.name)
        temporary.replace(link)
        durable.sync_folder(folder)  # before the previous target is removed
        fault_injection.reach("checkpoint.best")


def read_best_link(folder: Path) -> Path | None:
    """The checkpoint to which `best` links; an earlier one if the link could not be replaced."""
    link = folder / BEST
    return folder / link.readlink() if link.is_symlink() else None


class Saves:
    """Writes the checkpoints of a run's folder in this process.

    warn: called for failures that do not end the run. If `is_of_all`, all processes call `begin` and `end` together;
    otherwise only the first.
    """

    def __init__(self, folder: Path, runtime: Runtime, settings: RunSettings, warn: Callable[[str], None]) -> None:
        self.verified = Verified()
        self._folder, self._runtime, self._warn = folder, runtime, warn
        self._is_async, self._keep, self._keeps_best = is_asynchronous(settings), settings.save.keep, settings.save.best
        self._parts = settings.save.sharded and runtime.world_size > 1
        self._losses: Mapping[int, float] = {}
        self._pinned = PinnedCopies()
        self._warnings: list[str] = []
        self._has_warned_of_room = False
        self._transaction: Transaction | None = None
        self._snapshot: Snapshot | None = None
        self._work: Future[str] | None = None

    @cached_property
    def is_of_all(self) -> bool:
        """Whether every process writes its part: of sharded weights, or, with `run.save.sharded`, of replicated ones if
        all processes see the run folder. The first access must be on all processes together."""
        if self._runtime.shares or not self._parts:
            return bool(self._runtime.shares)
        is_visible = not self._runtime.agree(not self._folder.parent.is_dir())
        if not is_visible:
            self._warn(
                f"other processes do not see {self._folder.parent}: only the first process writes checkpoints, as with "
                "run.save.sharded=false; to resume from them, all processes must see the folder"
            )
        return is_visible

    def reserve(self, update: Update) -> None:
        """Reserves memory for copies of the update's tensors on a GPU."""
        if not self._is_async or update.device.type != "cuda":
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
        """Whether this process is still writing its part of the checkpoint in progress."""
        return self._work is not None and not self._work.done()

    def begin(
        self, *, step: int, tensors: Mapping[str, Tensor], values: Mapping[str, Any], recipe_digest: str, at_once: bool,
        losses: Mapping[int, float] = MappingProxyType({}),
    ) -> None:  # fmt: skip
        """Starts a checkpoint of the current tensors. It is complete on return if at_once, if saving is synchronous, or
        if memory is short. losses: held-out losses by step, which decide the best checkpoint. Raises as
        `Transaction.complete`, also for the previous checkpoint."""
        self.end()
        self._losses = dict(losses)
        shared = self._runtime if self.is_of_all else None
        transaction = Transaction(
            self._folder, step=step, tensors=tensors, values=values, recipe_digest=recipe_digest, runtime=shared
        )  # fmt: skip
        pending = transaction.tensors
        is_synchronous = at_once or not self._is_async or self._is_short_of_memory(pending)
        snapshot = None if is_synchronous else self._take_snapshot(pending)
        if snapshot is None:
            outcome = transaction.write(lambda name: pieces_of(pending[name]))
            if not is_synchronous and self._runtime.shares:  # the others complete it later
                self._transaction, self._work = transaction, in_thread(lambda: outcome)
                return
            self._complete(transaction, outcome)
            self._emit_warnings()
            return
        self._transaction, self._snapshot = transaction, snapshot
        self._work = in_thread(lambda: self._write(transaction, snapshot))

    def _take_snapshot(self, tensors: Mapping[str, Tensor]) -> Snapshot | None:
        """None if there is no memory for the copy; training then waits while it is written."""
        try:
            return Snapshot(tensors, self._pinned)
        except (RuntimeError, MemoryError) as error:
            if not isinstance(error, MemoryError) and "memory" not in str(error):
                raise
            self._warn(
                f"not enough memory to copy the checkpoint ({str(error).splitlines()[0]}): it is written piece by "
                "piece, and training waits"
            )
            return None

    def hold(self) -> None:
        """Called before the tensors change."""
        if self._snapshot is not None:
            self._snapshot.hold()

    def end(self) -> None:
        """Waits for the checkpoint in progress, if any, and completes it. Raises as `Transaction.complete`."""
        if self._work is None:
            return
        work, self._work = self._work, None
        transaction, self._transaction, self._snapshot = self._transaction, None, None
        outcome = work.result()
        if self.is_of_all:
            assert transaction is not None
            self._complete(transaction, outcome)
        self._emit_warnings()

    def give_up(self) -> None:
        """Called when the run has failed: completes the checkpoint in progress if that needs no other process."""
        if self._work is not None:
            wait([self._work])
            failure, self._work = self._work.exception(), None
            if failure is not None:
                self._warn(f"the checkpoint in progress is not complete: {failure}")

    def _write(self, transaction: Transaction, snapshot: Snapshot) -> str:
        """Runs in the thread. A checkpoint of all processes is completed by all together, between two steps."""
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
            state.prune(self._folder, self._keep, self.verified, protected=(best, read_best_link(self._folder)))
        except OSError as error:  # the new checkpoint is complete nevertheless
            self._warnings.append(f"an old checkpoint could not be removed ({error}); training continues")

    def choose_best(self, losses: Mapping[int, float]) -> Path | None:
        """With `run.save.best`: links `best` to the best checkpoint and returns that."""
        if not self._keeps_best:
            return None
        best = best_of(self._folder, losses, self.verified)
        try:
            name_best(self._folder, best)
        except OSError as error:
            self._warnings.append(f"the link {BEST} to the best checkpoint could not be created ({error}); it is kept")
        return best

    def _emit_warnings(self) -> None:
        for sentence in self._warnings:
            self._warn(sentence)
        self._warnings = []

    def _is_short_of_memory(self, tensors: Mapping[str, Tensor]) -> bool:
        """Whether a copy of the tensors does not fit into free host memory, on any process."""
        pinned = sum(tensor.nbytes for tensor in tensors.values() if tensor.device.type == "cuda")
        needed = sum(tensor.nbytes for tensor in tensors.values()) - min(pinned, self._pinned.nbytes)
        reason = (
            "" if self._pinned.is_available() else "page-locked memory for a copy of the checkpoint is not available"
        )
        if not self._has_room(needed):
            reason = f"{free_memory() or 0:,} bytes of memory are free, but a copy of the checkpoint takes {needed:,}"
        is_short = bool(self._runtime.agree(bool(reason)) if self.is_of_all else reason)
        if is_short and not self._has_warned_of_room:
            self._has_warned_of_room = True
            self._warn(
                f"{reason or 'another process has no memory to copy its part of the checkpoint'}: training waits "
                "while it is written, as with run.save.asynchronous=false"
            )
        return is_short

    def _has_room(self, nbytes: int) -> bool:
        """Whether this much memory is free, for each process on this machine that writes a part."""
        free = free_memory()
        return free is None or free >= ROOM * nbytes * (self._runtime.local_size if self.is_of_all else 1)
