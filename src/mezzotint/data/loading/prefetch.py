"""Prefetching of batches, between the loader, which has data in host memory, and the trainer.

A thread iterates over the loader's steps and moves one micro-batch after the other to the device, in order, while the
trainer computes; on a GPU with a separate stream. It holds at most `ahead` batches in addition to the one in use. An
exception in the thread is raised in place of the batch.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import fields, replace
from queue import Queue

import torch
from torch import Tensor

from mezzotint.stages import Batch, StepBatches, TextEmbedding

_WAIT = 0.05  # seconds between checks whether the run has ended

_AHEAD = 2  # batches: one waits, one is being moved


def steps_ahead(setting: int | None, device: torch.device, *, is_cached: bool) -> int:
    """The number of batches to prefetch. is_cached: whether latents are read from a cache, in this process; images are
    decoded ahead by workers."""
    if setting is not None:
        return setting
    return _AHEAD if device.type != "cpu" or is_cached else 0


class Prefetched:
    """The steps of a loader with prefetched batches. Iterate once; `close()` stops the thread, and can be called twice.

    source: yields the steps; iterated in the thread. begin: called before that, in the caller's thread. ahead: number
    of batches, at least 1. device: of the batches.
    """

    def __init__(
        self, source: Iterable[StepBatches], *, ahead: int, device: torch.device,
        begin: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        assert ahead > 0, ahead
        self._source = source
        self._begin = begin
        self._device = device
        self._room = threading.Semaphore(ahead)
        self._ready: Queue[StepBatches | tuple[Batch, torch.cuda.Event | None] | BaseException | None] = Queue()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def __iter__(self) -> Iterator[StepBatches]:
        """Yields the steps like the loader; the waiting time is that in which no batch was ready."""
        self._begin()
        self._thread = threading.Thread(target=self._work, name="prefetch", daemon=True)
        self._thread.start()
        while True:
            began = time.perf_counter()
            step = self._next()
            if step is None:
                return
            assert isinstance(step, StepBatches), step
            waited = time.perf_counter() - began
            batches = _OfStep(self, step.batches, len(step.sizes))
            yield replace(step, batches=batches, wait_seconds=waited)
            batches.discard()

    def close(self) -> None:
        """Stops the thread, which finishes its current batch."""
        self._ended.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=10.0)
            self._thread = None

    def take(self) -> Batch:
        """The next batch, usable by work that the caller queues from now on. Frees a slot for another one."""
        item = self._next()
        assert isinstance(item, tuple), item
        self._room.release()
        batch, ready = item
        if ready is not None:
            stream = torch.cuda.current_stream(self._device)
            stream.wait_event(ready)
            for tensor in _tensors(batch):
                tensor.record_stream(stream)  # its memory is not reused before the step is done
        return batch

    def _next(self) -> StepBatches | tuple[Batch, torch.cuda.Event | None] | None:
        item = self._ready.get()
        if isinstance(item, BaseException):
            raise item
        return item

    def _work(self) -> None:
        try:
            stream = torch.cuda.Stream(self._device) if self._device.type == "cuda" else None
            for step in self._source:
                self._ready.put(step)
                batches = iter(step.batches)
                for _ in step.sizes:
                    while not self._room.acquire(timeout=_WAIT):
                        if self._ended.is_set():
                            return
                    if self._ended.is_set():
                        return
                    self._ready.put(self._move_next(batches, stream))
            self._ready.put(None)
        except BaseException as error:  # passed to the trainer, which raises it
            self._ready.put(error)

    @staticmethod
    def _move_next(batches: Iterator[Batch], stream: torch.cuda.Stream | None) -> tuple[Batch, torch.cuda.Event | None]:
        with torch.cuda.stream(stream) if stream is not None else nullcontext():
            batch = next(batches)
            event = None
            if stream is not None:
                event = torch.cuda.Event()
                event.record(stream)
        return batch, event


class _OfStep:
    """The batches of a step: prefetched for the first iteration, taken from the loader's step for later ones."""

    def __init__(self, ahead: Prefetched, source: Iterable[Batch], count: int) -> None:
        self._ahead, self._source, self._left = ahead, source, count
        self._is_first = True

    def __iter__(self) -> Iterator[Batch]:
        if self._is_first:
            self._is_first = False
            while self._left:
                self._left -= 1
                yield self._ahead.take()
        else:
            self.discard()
            yield from self._source

    def discard(self) -> None:
        """Discards prefetched batches that were not used."""
        self._is_first = False
        for _ in range(self._left):
            self._ahead.take()
        self._left = 0


def _tensors(value: object) -> Iterator[Tensor]:
    """The tensors of a batch that are on a GPU."""
    if isinstance(value, Tensor) and value.is_cuda:
        yield value
    elif isinstance(value, Batch | TextEmbedding):
        for field in fields(value):
            yield from _tensors(getattr(value, field.name))
