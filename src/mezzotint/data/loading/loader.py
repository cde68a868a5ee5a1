"""From the plan to batches: what a rank holds of each optimizer step, decoded ahead of the training by workers.

The main process cuts the plan into small requests, one for each micro-batch; a worker answers with a `Piece` of uint8
pixels (or of cached numbers); the main process moves it to the device and makes float32 of it. Every draw is addressed
by (seed, epoch, sample, visit), so the answer depends on no rank, worker, split or earlier request.
"""

from __future__ import annotations

import ctypes
import functools
import multiprocessing
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader

from mezzotint.data.buckets import buckets
from mezzotint.data.cache.entries import LatentCache, TextCache
from mezzotint.data.loading._clip_worker import pieces_of
from mezzotint.data.loading.worker import Piece, Request, to_batch
from mezzotint.data.schedule import plan
from mezzotint.data.schedule.plan import plan_columns
from mezzotint.errors import MezzotintError, PeerLost
from mezzotint.recipe.sections.data import DataSettings
from mezzotint.stages import Batch, Epoch, StepBatches

if TYPE_CHECKING:
    from mezzotint.data.catalogue.catalogue import Catalogue

__all__ = ["Loader", "held_out", "plan_columns"]

_DECIDED_BY_PARENT = (signal.SIGINT, signal.SIGTERM)
_PR_SET_PDEATHSIG = 1  # linux/prctl.h; follows the thread that started the worker


@dataclass(frozen=True, slots=True)
class _OnDevice:
    """The pieces of a step, each moved to the device when it is taken and not kept there: what a step holds at once
    does not grow with its micro-batches."""

    pieces: Sequence[Piece]
    device: torch.device

    def __iter__(self) -> Iterator[Batch]:
        for piece in self.pieces:
            yield to_batch(piece, self.device)


class Loader:
    """Iterates the `StepBatches` of this rank, from step `start_step` up to and without `last_step`.

    start_step: steps already done (0 for a new run); the first item has `step == start_step`. last_step: the run's
    length in steps. rows: rows of the catalogue that are trained. micro_batch: the most samples of one Batch, None for
    the rank's whole share. latents, text: caches that `tasks.cache.fill` has filled, or None to decode pictures and
    leave captions to the text encoder; cached latents are read in this process, without workers. keeps_company: where
    this rank's share of a batch is empty, it gets the batch's first sample with weight 0 (`Batch.is_company`). Iterate
    once; `close()` (or `with`) ends the workers.

    Raises, while iterating, DatasetError for a picture that cannot be read any more, CacheError E1303 for a cache entry
    that is missing or damaged, PeerLost E1810 when a worker is gone.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        rows: NDArray[np.int32],
        settings: DataSettings,
        *,
        accumulation: int,
        seed: int,
        start_step: int,
        last_step: int,
        rank: int = 0,
        world_size: int = 1,
        micro_batch: int | None = None,
        device: torch.device | None = None,
        latents: LatentCache | None = None,
        text: TextCache | None = None,
        keeps_company: bool = False,
    ) -> None:
        self._keeps_company = keeps_company
        self.timeline = plan.Timeline(plan_columns(catalogue, rows, settings), settings, accumulation, seed)
        self._rows = np.asarray(rows, dtype=np.int32)
        self._steps = range(start_step, last_step)
        self._rank, self._world_size, self._micro_batch = rank, world_size, micro_batch
        self._settings = settings
        # rows of the cache are copied from a memory map: sending them between processes takes several times longer
        self._num_workers = 0 if latents is not None else settings.workers
        self._device = device or torch.device("cpu")
        self._pieces = pieces_of(catalogue, settings, seed=seed, latents=latents, text=text)
        self._answers: Iterator[Piece | MezzotintError] | None = None
        self._workers: tuple[Any, ...] = ()

    def __iter__(self) -> Iterator[StepBatches]:
        """Yields one item per step. seconds waited are measured around the workers' answers alone."""
        self.start()
        for _ in self._steps:
            pieces: list[Piece] = []
            began = time.perf_counter()
            while not (pieces and pieces[-1].request.is_last):
                pieces.append(self._next_piece())
            waited = time.perf_counter() - began
            asked = pieces[-1].request
            sizes = tuple(0 if piece.request.is_company else len(piece.keys) for piece in pieces)
            ends = self.timeline.locate(asked.step + 1)[0] > asked.epoch
            yield StepBatches(
                asked.step, asked.epoch, asked.count, _OnDevice(pieces, self._device), waited, sizes, ends
            )

    def start(self) -> None:
        """Starts the workers, in the thread that they shall end with; iterating does it otherwise."""
        if self._answers is None:
            self._start()

    def close(self) -> None:
        """Ends the workers. Can be called twice."""
        self._answers = None  # the library's iterator stops its workers when it is let go
        for worker in self._workers:
            worker.join(timeout=1.0)
            if worker.is_alive():
                worker.kill()
                worker.join()
        self._workers = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def requests(self) -> Iterator[Request]:
        """This rank's requests, one for each micro-batch, in order: all that the loader asks of its workers."""
        for step in self._steps:
            number, step_in_epoch = self.timeline.locate(step)
            epoch = self.timeline.epoch(number)
            first, end = np.searchsorted(epoch.step_of, [step_in_epoch, step_in_epoch + 1]).tolist()
            cuts = [(b, *cut) for b in range(first, end) for cut in self._cuts(_length(epoch, b))]
            base, count = int(epoch.starts[first]), int(epoch.starts[end] - epoch.starts[first])
            for i, (b, start, stop) in enumerate(cuts):
                alone = self._keeps_company and start == stop
                start, stop = (0, 1) if alone else (start, stop)
                here = slice(int(epoch.starts[b]) + start, int(epoch.starts[b]) + stop)
                yield Request(
                    step=step,
                    epoch=number,
                    count=count,
                    is_last=i == len(cuts) - 1,
                    bucket=int(epoch.bucket[b]),
                    rows=self._rows[epoch.order[here]],
                    visits=epoch.visit[here],
                    factor=epoch.factor[here] * np.float32(not alone),
                    is_company=alone,
                    positions=np.arange(here.start - base, here.stop - base, dtype=np.int64),
                )

    def _cuts(self, n: int) -> list[tuple[int, int]]:
        # every rank makes as many pieces as the one with the largest share: gradients are exchanged at the last
        start, stop = n * self._rank // self._world_size, n * (self._rank + 1) // self._world_size
        largest = -(-n // self._world_size)
        size = self._micro_batch or max(largest, 1)
        return [(min(start + i, stop), min(start + i + size, stop)) for i in range(0, max(largest, 1), size)]

    def _start(self) -> None:
        workers = self._num_workers
        in_main = threading.current_thread() is threading.main_thread()
        loader: DataLoader[Any] = DataLoader(
            self._pieces,
            sampler=self.requests(),
            batch_size=None,
            num_workers=workers,
            prefetch_factor=self._settings.prefetch if workers else None,
            pin_memory=self._device.type == "cuda",
            worker_init_fn=functools.partial(_begin_worker, follows=in_main) if workers else None,
            generator=torch.Generator(),  # the library draws a number for its workers: not from the global stream
        )
        before = set(multiprocessing.active_children())
        on_child = signal.getsignal(signal.SIGCHLD) if in_main else None
        masked = signal.pthread_sigmask(signal.SIG_BLOCK, _DECIDED_BY_PARENT)
        try:
            self._answers = iter(loader)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, masked)
            if in_main and workers:
                # the library's handler raises wherever the training happens to be; we look when we take an answer
                signal.signal(signal.SIGCHLD, on_child or signal.SIG_DFL)
        self._workers = tuple(set(multiprocessing.active_children()) - before)

    def _next_piece(self) -> Piece:
        assert self._answers is not None, "the loader is closed"
        self._require_workers()
        try:
            answer = next(self._answers)
        except (RuntimeError, OSError, EOFError) as error:
            raise self._explained(error) from error
        if isinstance(answer, MezzotintError):
            raise answer
        return answer

    def _require_workers(self) -> None:
        for worker in self._workers:
            if not worker.is_alive():
                raise PeerLost(_obituary(worker), code="E1810")

    def _explained(self, error: Exception) -> Exception:
        # what failed may be a message that a dying worker did not finish: its end is seen a little later
        deadline = time.monotonic() + (1.0 if self._workers else 0.0)
        while time.monotonic() < deadline:
            try:
                self._require_workers()
            except PeerLost as lost:
                return lost
            time.sleep(0.02)
        return error


def held_out(
    catalogue: Catalogue,
    rows: NDArray[np.int32],
    settings: DataSettings,
    *,
    seed: int,
    device: torch.device | None = None,
    latents: LatentCache | None = None,
    text: TextCache | None = None,
) -> tuple[Batch, ...]:
    """The held-out rows as batches of at most `data.batch_size`, by bucket: always the same ones.

    No caption and no tag is dropped, no tags are shuffled, wildcards say their first, and all samples weigh the same.
    Where captions, crops or flips are drawn, they are those of the first visit in epoch 0. positions: places in `rows`.
    Raises as the loader does.
    """
    rows = np.asarray(rows, dtype=np.int32)
    as_written = {"dropout": 0.0, "shuffle_tags": False, "tag_dropout": 0.0}
    settings = settings.model_copy(update={"captions": settings.captions.model_copy(update=as_written)})
    pieces = pieces_of(catalogue, settings, seed=seed, latents=latents, text=text, is_training=False)
    of_bucket = buckets.of_rows(catalogue, rows, settings)
    found = []
    for bucket in np.unique(of_bucket).tolist():
        places = np.flatnonzero(of_bucket == bucket)
        for some in (places[i : i + settings.batch_size] for i in range(0, len(places), settings.batch_size)):
            nothing, ones = np.zeros(len(some), dtype=np.int32), np.ones(len(some), dtype=np.float32)
            request = Request(0, 0, len(rows), False, bucket, rows[some], nothing, ones, some)
            piece = pieces[request]
            if isinstance(piece, MezzotintError):
                raise piece
            found.append(to_batch(piece, device or torch.device("cpu")))
    return tuple(found)


def _length(epoch: Epoch, batch: int) -> int:
    return int(epoch.starts[batch + 1] - epoch.starts[batch])


def _begin_worker(_number: int, *, follows: bool) -> None:
    for number in _DECIDED_BY_PARENT:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _DECIDED_BY_PARENT)
    if follows and sys.platform == "linux":
        # a killed run can be started again at once: no orphan holds on to the locks that a fork inherits
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _obituary(worker: Any) -> str:
    status = worker.exitcode or 0
    how = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
    hints = {
        -signal.SIGBUS: "there is too little shared memory (/dev/shm): give the container more, or lower data.prefetch",
        -signal.SIGKILL: "if nobody killed it, the machine ran out of memory: lower data.workers or data.prefetch",
    }
    hint = hints.get(status, "set data.workers=0 to see what happens in it")
    who = f"loader worker {worker.name} (process {worker.pid})"
    return f"{who} {how}; {hint}; the same command goes on from the newest checkpoint"
