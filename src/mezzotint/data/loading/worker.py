"""What a loader worker does: from a request (rows, visits, bucket) to a batch on the host. Of clips, `_clip_worker.py`.

It holds uint8 pixels, a quarter of float32's bytes on their way between processes, or rows of the cache in their
stored type. `to_batch` makes a `Batch` of it on the device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from mezzotint import draws, fault_injection
from mezzotint.data.buckets import buckets
from mezzotint.data.cache.entries import Caches
from mezzotint.data.media import decoding
from mezzotint.data.media.colour import Conversion
from mezzotint.data.schedule import captions, placement, plan
from mezzotint.errors import DatasetError, MezzotintError
from mezzotint.recipe.sections.data import DataSettings
from mezzotint.shapes import Size
from mezzotint.stages import Batch, Placement, TextEmbedding

if TYPE_CHECKING:
    from mezzotint.data.catalogue.catalogue import Catalogue


@dataclass(frozen=True, slots=True)
class Request:
    """One micro-batch of one rank, as numbers. count: samples of the step on all ranks. bucket: number in the bucket
    table. rows: of the catalogue, (B,). visits, factor, positions: (B,), see `Epoch` and `Batch`. is_filler: see
    `Batch`."""

    step: int
    epoch: int
    count: int
    is_last: bool
    bucket: int
    rows: NDArray[np.int32]
    visits: NDArray[np.int32]
    factor: NDArray[np.float32]
    positions: NDArray[np.int64]
    is_filler: bool = False


@dataclass(frozen=True, slots=True)
class HostBatch:
    """The answer to a request, on the CPU. pixels: (B, 3, H, W) or (B, 3, F, H, W) uint8. latents: (B, C or 2C, …) in
    the stored type. geometry: (B, 6) int64: original size, crop, target size, row first. stills, dropped: see
    `Batch`."""

    request: Request
    keys: tuple[str, ...]
    captions: tuple[str, ...]
    posterior_keys: Tensor
    geometry: Tensor
    weight: Tensor
    pixels: Tensor | None = None
    latents: Tensor | None = None
    is_moments: bool = False
    text: TextEmbedding | None = None
    stills: HostBatch | None = None
    dropped: Tensor | None = None

    def pin_memory(self) -> Self:
        """The same in page-locked memory, from which copies to the device wait for nothing. The library's pinning
        thread calls it."""
        text = self.text
        if text is not None:
            text = TextEmbedding(text.states.pin_memory(), _pinned(text.mask), _pinned(text.pooled))
        return replace(
            self,
            posterior_keys=self.posterior_keys.pin_memory(),
            geometry=self.geometry.pin_memory(),
            weight=self.weight.pin_memory(),
            pixels=_pinned(self.pixels),
            latents=_pinned(self.latents),
            text=text,
            stills=self.stills.pin_memory() if self.stills is not None else None,
            dropped=_pinned(self.dropped),
        )


class BatchWorker(Dataset[Any]):
    """Answers requests, in a worker or in the main process. Errors of the reader's world are returned, not raised, so
    that they arrive in the main process as they are."""

    is_still: ClassVar[bool] = False
    """Whether these are pictures beside clips."""

    def __init__(
        self,
        catalogue: Catalogue,
        settings: DataSettings,
        *,
        seed: int,
        caches: Caches,
        is_training: bool = True,
    ) -> None:
        self._catalogue = catalogue
        self._settings = settings
        self._seed = seed
        self._latents = caches.latents
        self._text = caches.text
        self._is_training = is_training
        self._table = buckets.table(settings)

    def __getitem__(self, request: Request) -> HostBatch | MezzotintError:
        try:
            return self._batch(request)
        except MezzotintError as error:
            return error

    def _batch(self, request: Request) -> HostBatch:
        seed, epoch = plan.epoch_address(self._settings, self._seed, request.epoch)
        hashes = self._catalogue.key_hash[request.rows]
        visits = [
            Visit(row, key_hash, seed, epoch, visit)
            for row, key_hash, visit in zip(
                request.rows.tolist(), hashes.tolist(), request.visits.tolist(), strict=True
            )
        ]
        return self.of_visits(request, visits, self._table[request.bucket])

    def of_visits(self, request: Request, visits: Sequence[Visit], bucket: Size) -> HostBatch:
        """The batch of some visits, which need not be those of the request. Raises DatasetError, CacheError."""
        keys = tuple(self._catalogue.key(visit.row) for visit in visits)
        chosen = tuple(self._caption(visit) for visit in visits)
        views = [self._view(visit) for visit in visits]
        placed = [self._placement(visit, bucket, view) for visit, view in zip(visits, views, strict=True)]
        batch = HostBatch(
            request,
            keys,
            chosen,
            self._posterior_keys(visits),
            self._geometry(request.rows, placed),
            torch.from_numpy(self._weight(request)),
            pixels=self._pixels(visits, placed, bucket) if self._latents is None else None,
            latents=self._rows(visits, placed, views, bucket, keys) if self._latents is not None else None,
            is_moments=self._latents is not None and self._latents.content == "moments",
            text=self._embedded([visit.row for visit in visits], chosen),
            dropped=self._dropped(visits),
        )
        return replace(batch, stills=self._stills(batch, visits, placed))

    def _stills(self, batch: HostBatch, visits: Sequence[Visit], placed: Sequence[Placement]) -> HostBatch | None:
        """The pictures beside the samples of a batch; beside pictures there are none."""
        return None

    def _embedded(self, rows: Sequence[int], chosen: Sequence[str]) -> TextEmbedding | None:
        if self._text is None:
            return None
        overrides, drops = self._catalogue.overrides, self._text.drops
        # of a dropped caption it is the empty caption's embedding, and not the file's
        marks = [overrides.embedding_of(row) if one or not drops else "" for row, one in zip(rows, chosen, strict=True)]
        return self._text.read(chosen, marks)

    def _dropout(self, visit: Visit) -> float:
        own = self._catalogue.overrides.caption_dropout_of(visit.row) if self._is_training else None
        return self._settings.captions.dropout if own is None else own

    def _dropped(self, visits: Sequence[Visit]) -> Tensor | None:
        if self._settings.captions.dropped == "empty":
            return None
        is_dropped = [
            captions.is_dropped(
                seed=visit.seed,
                epoch=visit.epoch,
                key_hash=visit.key_hash,
                visit=visit.visit,
                dropout=self._dropout(visit),
            )
            for visit in visits
        ]
        return torch.tensor(is_dropped, dtype=torch.bool)

    def _caption(self, visit: Visit) -> str:
        chosen = captions.choose(
            self._catalogue.captions(visit.row),
            seed=visit.seed,
            epoch=visit.epoch,
            key_hash=visit.key_hash,
            visit=visit.visit,
            dropout=self._dropout(visit),
        )
        if not self._is_training:
            return captions.unchanged(chosen, captions.Changes.of(self._settings.captions))
        drawn = captions.DrawnCaptions.of(self._catalogue, visit.row, self._settings)
        is_cached = self._text is not None
        return drawn.at_visit(chosen, seed=visit.seed, epoch=visit.epoch, visit=visit.visit, is_cached=is_cached)

    def _weight(self, request: Request) -> NDArray[np.float32]:
        if not self._is_training:
            return request.factor
        return np.asarray(self._catalogue.weight[request.rows] * request.factor, dtype=np.float32)

    def _view(self, visit: Visit) -> int:
        if self._latents is None:
            return -1
        return self._latents.cached_view(visit.key_hash, seed=visit.seed, epoch=visit.epoch, visit=visit.visit)

    def _placement(self, visit: Visit, bucket: Size, view: int) -> Placement:
        if self._latents is not None:
            return self._latents.placement(self._catalogue, visit.row, view, bucket)
        return placement.at_visit(
            self._catalogue, visit.row, bucket, self._settings, seed=visit.seed, epoch=visit.epoch, visit=visit.visit
        )

    def _pixels(self, visits: Sequence[Visit], placed: Sequence[Placement], bucket: Size) -> Tensor:
        pixels = torch.empty((len(visits), 3, bucket.height, bucket.width), dtype=torch.uint8)
        for i, (visit, place) in enumerate(zip(visits, placed, strict=True)):
            fault_injection.reach("data.decode")
            pixels[i] = torch.from_numpy(read_picture(self._catalogue, visit.row, place, self._settings))
        return pixels

    def _rows(
        self,
        visits: Sequence[Visit],
        placed: Sequence[Placement],
        views: Sequence[int],
        bucket: Size,
        keys: Sequence[str],
    ) -> Tensor:
        assert self._latents is not None
        addresses = [
            self._latents.address(self._catalogue, visit.row, place, view)
            for visit, place, view in zip(visits, placed, views, strict=True)
        ]
        return self._latents.read(addresses, bucket, keys, is_still=self.is_still)

    def _posterior_keys(self, visits: Sequence[Visit]) -> Tensor:
        addresses = [draws.key(v.seed, "posterior", v.epoch, v.key_hash, v.visit) for v in visits]
        return torch.from_numpy(np.array(addresses, dtype=np.uint64).view(np.int64))

    def _geometry(self, rows: NDArray[np.int32], placed: Sequence[Placement]) -> Tensor:
        numbers = np.zeros((len(rows), 6), dtype=np.int64)
        numbers[:, 0] = self._catalogue.height[rows]
        numbers[:, 1] = self._catalogue.width[rows]
        if self._settings.original_size == "stored":
            sideways = (self._catalogue.conversions[rows] & np.uint16(Conversion.SIDEWAYS)) != 0
            numbers[sideways, :2] = numbers[sideways, 1::-1]
        for row, line, place in zip(rows.tolist(), numbers, placed, strict=True):
            line[2:4] = place.crop_top_left
            line[4:6] = place.bucket.height, place.bucket.width
            sizes = self._catalogue.overrides.sizes_of(row)
            if sizes is not None:
                line[:] = sizes
        return torch.from_numpy(numbers)


@dataclass(frozen=True, slots=True)
class Visit:
    """One visit to a row. seed, epoch: the address of the epoch's draws."""

    row: int
    key_hash: int
    seed: int
    epoch: int
    visit: int


def read_picture(catalogue: Catalogue, row: int, placed: Placement, settings: DataSettings) -> NDArray[np.uint8]:
    """The placed picture of a row, (3, H, W). Raises DatasetError naming file and sample when it cannot be read any
    more."""
    path = catalogue.path(row)
    try:
        return decoding.picture(
            path,
            placed,
            resize=settings.resize,
            antialias=settings.antialias,
            background=settings.background,
            max_pixels=settings.max_pixels,
        )
    except (DatasetError, OSError) as error:
        reason = error.message if isinstance(error, DatasetError) else f"{path}: {error.strerror or error}"
        raise DatasetError(
            f"sample {catalogue.key(row)!r} could be read when the data set was indexed and cannot be now: {reason}; "
            "restore the file, or start again, which leaves it out and says so",
            code="E1250",
        ) from error


def to_batch(batch: HostBatch, device: torch.device) -> Batch:
    """A batch on the device: pixels as float32 in [−1, 1], latents and embeddings as float32."""
    numbers = batch.geometry.to(device, non_blocking=True)
    latents = None if batch.latents is None else _float(batch.latents, device)
    text = batch.text
    if text is not None:
        mask = None if text.mask is None else text.mask.to(device, non_blocking=True)
        pooled = None if text.pooled is None else _float(text.pooled, device)
        text = TextEmbedding(_float(text.states, device), mask, pooled)
    return Batch(
        keys=batch.keys,
        captions=batch.captions,
        positions=torch.from_numpy(batch.request.positions),  # on the host, where addresses are made
        posterior_keys=batch.posterior_keys.to(device, non_blocking=True),
        original_size=numbers[:, 0:2],
        crop_top_left=numbers[:, 2:4],
        target_size=numbers[:, 4:6],
        weight=batch.weight.to(device, non_blocking=True),
        pixels=None if batch.pixels is None else to_pixels(batch.pixels, device),
        moments=latents if batch.is_moments else None,
        latents=None if batch.is_moments else latents,
        text=text,
        is_filler=batch.request.is_filler,
        stills=None if batch.stills is None else to_batch(batch.stills, device),
        dropped=None if batch.dropped is None else batch.dropped.to(device, non_blocking=True),
    )


def to_pixels(picture: Tensor, device: torch.device) -> Tensor:
    """uint8 (B, 3, H, W) or (B, 3, F, H, W) → float32 in [−1, 1] on the device; the bytes travel, the device
    computes."""
    return picture.to(device, non_blocking=True).float().div_(127.5).sub_(1.0)


def _pinned(numbers: Tensor | None) -> Tensor | None:
    return None if numbers is None else numbers.pin_memory()


def _float(numbers: Tensor, device: torch.device) -> Tensor:
    return numbers.to(device, non_blocking=True).float()
