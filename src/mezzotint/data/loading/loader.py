"""From the plan to batches: a rank's share of each optimizer step, decoded ahead of the training by workers.

The main process splits the plan into requests, one for each micro-batch; a worker answers with a `HostBatch` of uint8
pixels (or of cached numbers); the main process moves it to the device and converts it to float32. Every random draw is
addressed by (seed, epoch, sample, visit), so results do not depend on rank, worker, split or earlier requests.
"""

from __future__ import annotations

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
from mezzotint.data.cache.entries import Caches
from mezzotint.data.loading import _supervise
from mezzotint.data.loading._clip_worker import worker_of
from mezzotint.data.loading.worker import BatchRequest, HostBatch, to_batch
from mezzotint.data.schedule import condition_shapes
from mezzotint.data.schedule.plan import Timeline
from mezzotint.data.schedule.preserved import PreservedCaptions
from mezzotint.errors import MezzotintError
from mezzotint.settings.sections.data import DataSettings
from mezzotint.stages import Batch, Epoch, StepBatches

if TYPE_CHECKING:
    from mezzotint.data.catalogue.catalogue import Catalogue


@dataclass(frozen=True, slots=True)
class _OnDevice:
    """The batches of a step. Each is moved to the device when it is used, and not kept: device memory does not grow
    with the number of micro-batches."""

    batches: Sequence[HostBatch]
    device: torch.device

    def __iter__(self) -> Iterator[Batch]:
        for batch in self.batches:
            yield to_batch(batch, self.device)


@dataclass(frozen=True, slots=True)
class RankShare:
    """The part of each batch that a process trains. micro_batch: maximum number of samples of a Batch, None for the
    full share. pad_empty_ranks: if the share is empty, use the batch's first sample with weight 0 as padding
    (`Batch.is_filler`)."""

    rank: int = 0
    world_size: int = 1
    micro_batch: int | None = None
    pad_empty_ranks: bool = False

    def cuts(self, length: int) -> list[tuple[int, int]]:
        """The micro-batches of a batch of `length` samples as (start, stop). Every process has as many as the one with
        the largest share: gradients are reduced in the last."""
        start, stop = length * self.rank // self.world_size, length * (self.rank + 1) // self.world_size
        largest = max(-(-length // self.world_size), 1)
        size = self.micro_batch or largest
        return [(min(start + i, stop), min(start + i + size, stop)) for i in range(0, largest, size)]


class Loader:
    """Iterates over the `StepBatches` of this rank, one for each of `steps` of the run.

    rows: trained rows of the catalogue. timeline: their schedule. caches: filled by `tasks.cache.fill`; without them,
    images are decoded and captions are left to the text encoder. preserved: gives batches their `preserved_captions`.
    Cached latents are read in this process, without
    workers. Iterate once; `close()` (or `with`) stops the workers.

    Raises, while iterating, DatasetError for an image that cannot be read any more, CacheError E1303 for a cache entry
    that is missing or damaged, PeerLost E1810 if a worker has died.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        rows: NDArray[np.int32],
        settings: DataSettings,
        timeline: Timeline,
        steps: range,
        *,
        share: RankShare | None = None,
        device: torch.device | None = None,
        caches: Caches | None = None,
        preserved: PreservedCaptions | None = None,
    ) -> None:
        caches = caches or Caches()
        self.timeline = timeline
        self._rows = np.asarray(rows, dtype=np.int32)
        self._steps = steps
        self._share = share or RankShare()
        # cache rows are copied from a memory map: sending them between processes takes several times longer
        self._num_workers = 0 if caches.latents is not None else settings.workers
        self._prefetch = settings.prefetch
        self._has_classes = settings.has_class_images
        self._device = device or torch.device("cpu")
        self._worker = worker_of(catalogue, settings, seed=timeline.seed, caches=caches, preserved=preserved)
        self._answers: Iterator[HostBatch | MezzotintError] | None = None
        self._workers = _supervise.Workers()

    @property
    def processes(self) -> tuple[Any, ...]:
        return self._workers.processes

    def __iter__(self) -> Iterator[StepBatches]:
        """Yields one item per step. The waiting time includes only waiting for the workers' results."""
        self.start()
        for _ in self._steps:
            batches: list[HostBatch] = []
            began = time.perf_counter()
            while not (batches and batches[-1].request.is_last):
                batches.append(self._next())
            waited = time.perf_counter() - began
            last = batches[-1].request
            sizes = tuple(0 if batch.request.is_filler else len(batch.keys) for batch in batches)
            ends = self.timeline.locate(last.step + 1)[0] > last.epoch
            on_device = _OnDevice(batches, self._device)
            broken = tuple(key for batch in batches for key in batch.broken)
            yield StepBatches(
                last.step, last.epoch, last.count, on_device, waited, sizes, ends, self._has_classes, broken
            )

    def start(self) -> None:
        """Starts the workers, in the thread whose end stops them; otherwise iterating does it."""
        if self._answers is None:
            workers = self._num_workers
            loader: DataLoader[Any] = DataLoader(
                self._worker,
                sampler=self.requests(),
                batch_size=None,
                num_workers=workers,
                prefetch_factor=self._prefetch if workers else None,
                pin_memory=self._device.type == "cuda",
                worker_init_fn=_supervise.make_worker_init() if workers else None,
                generator=torch.Generator(),  # torch draws a seed for its workers: not from the global generator
            )
            self._answers = self._workers.start(loader)

    def close(self) -> None:
        """Stops the workers."""
        self._answers = None  # torch's iterator stops its workers when it is freed
        self._workers.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def requests(self) -> Iterator[BatchRequest]:
        """This rank's requests to the workers, one for each micro-batch, in order."""
        for step in self._steps:
            number, step_in_epoch = self.timeline.locate(step)
            epoch = self.timeline.epoch(number)
            first, end = np.searchsorted(epoch.step_of, [step_in_epoch, step_in_epoch + 1]).tolist()
            cuts = [(b, *cut) for b in range(first, end) for cut in self._share.cuts(_length(epoch, b))]
            base, count = int(epoch.starts[first]), int(epoch.starts[end] - epoch.starts[first])
            for i, (b, start, stop) in enumerate(cuts):
                is_filler = self._share.pad_empty_ranks and start == stop
                start, stop = (0, 1) if is_filler else (start, stop)
                span = slice(int(epoch.starts[b]) + start, int(epoch.starts[b]) + stop)
                yield BatchRequest(
                    step=step,
                    epoch=number,
                    count=count,
                    is_last=i == len(cuts) - 1,
                    bucket=int(epoch.bucket[b]),
                    rows=self._rows[epoch.order[span]],
                    visits=epoch.visit[span],
                    factor=epoch.factor[span] * np.float32(not is_filler),
                    is_filler=is_filler,
                    positions=np.arange(span.start - base, span.stop - base, dtype=np.int64),
                )

    def _next(self) -> HostBatch:
        assert self._answers is not None, "the loader is closed"
        self._workers.require_alive()
        try:
            answer = next(self._answers)
        except (RuntimeError, OSError, EOFError) as error:
            raise self._workers.find_cause(error) from error
        if isinstance(answer, MezzotintError):
            raise answer
        return answer


def held_out_batches(
    catalogue: Catalogue,
    rows: NDArray[np.int32],
    settings: DataSettings,
    *,
    seed: int,
    device: torch.device | None = None,
    caches: Caches | None = None,
) -> tuple[Batch, ...]:
    """The held-out rows as batches of at most `data.batch_size`, by bucket; always the same.

    Without caption and tag dropout and tag shuffling; wildcards give their first alternative, and all samples have the
    same weight. Random captions, crops and flips are those of the first visit in epoch 0. With several base sizes an
    image is measured in each of them. positions: indexes in `rows`, or in all images in their sizes. Raises as the
    loader.
    """
    rows = np.asarray(rows, dtype=np.int32)
    worker = worker_of(catalogue, settings, seed=seed, caches=caches or Caches(), is_training=False)
    placed, batches = catalogue.buckets_of(rows, settings), []
    shapes = condition_shapes.shapes_of(
        catalogue, rows[placed.sample], placed.bucket, buckets.table(settings), settings
    )
    kind = placed.bucket if shapes is None else placed.bucket + shapes.astype(np.int32) * (1 << 16)
    for first in np.unique(kind, return_index=True)[1].tolist():
        bucket, entries = int(placed.bucket[first]), np.flatnonzero(kind == kind[first])
        for of_batch in (entries[i : i + settings.batch_size] for i in range(0, len(entries), settings.batch_size)):
            visits, ones = placed.choice[of_batch].astype(np.int32), np.ones(len(of_batch), dtype=np.float32)
            chosen = rows[placed.sample[of_batch]]
            request = BatchRequest(0, 0, len(placed.sample), False, bucket, chosen, visits, ones, of_batch)
            answer = worker[request]
            if isinstance(answer, MezzotintError):
                raise answer
            batches.append(to_batch(answer, device or torch.device("cpu")))
    return tuple(batches)


def _length(epoch: Epoch, batch: int) -> int:
    return int(epoch.starts[batch + 1] - epoch.starts[batch])
