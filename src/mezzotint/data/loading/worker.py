"""What a loader worker does: from a request (rows, visits, bucket) to a piece of a batch. Of clips, `_clip_worker.py`.

A piece holds uint8 pixels, a quarter of float32's bytes on their way between processes, or rows of the cache in their
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
from mezzotint.data.cache.entries import LatentCache, TextCache
from mezzotint.data.media import decoding
from mezzotint.data.media.colour import Conversion
from mezzotint.data.schedule import captions, plan
from mezzotint.errors import DatasetError, MezzotintError
from mezzotint.recipe.sections.data import DataSettings
from mezzotint.shapes import Size
from mezzotint.stages import Batch, Placement, TextEmbedding

if TYPE_CHECKING:
    from mezzotint.data.catalogue.catalogue import Catalogue


@dataclass(frozen=True, slots=True)
class Request:
    """One micro-batch of one rank, as numbers. count: samples of the step on all ranks. bucket: number in the bucket
    table. rows: of the catalogue, (B,). visits, factor, positions: (B,), see `Epoch` and `Batch`. is_company: see
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
    is_company: bool = False


@dataclass(frozen=True, slots=True)
class Piece:
    """The answer to a request, on the CPU. pixels: (B, 3, H, W) or (B, 3, F, H, W) uint8. latents: (B, C or 2C, …) in
    the stored type. geometry: (B, 6) int64: original size, crop, target size, row first. stills, dropped: see
    `Batch`."""

    request: Request
    keys: tuple[str, ...]
    captions: tuple[str, ...]
    positions: Tensor
    posterior_keys: Tensor
    geometry: Tensor
    weight: Tensor
    pixels: Tensor | None = None
    latents: Tensor | None = None
    is_moments: bool = False
    text: TextEmbedding | None = None
    stills: Piece | None = None
    dropped: Tensor | None = None

    def pin_memory(self) -> Self:
        """The same in page-locked memory, from which copies to the device wait for nothing. The library's pinning
        thread calls it."""
        text = self.text
        if text is not None:
            text = TextEmbedding(text.states.pin_memory(), _pinned(text.mask), _pinned(text.pooled))
        return replace(
            self,
            positions=self.positions.pin_memory(),
            posterior_keys=self.posterior_keys.pin_memory(),
            geometry=self.geometry.pin_memory(),
            weight=self.weight.pin_memory(),
            pixels=_pinned(self.pixels),
            latents=_pinned(self.latents),
            text=text,
            stills=self.stills.pin_memory() if self.stills is not None else None,
            dropped=_pinned(self.dropped),
        )


class Pieces(Dataset[Any]):
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
        latents: LatentCache | None,
        text: TextCache | None,
        is_training: bool = True,
    ) -> None:
        self._catalogue = catalogue
        self._settings = settings
        self._seed = seed
        self._latents = latents
        self._text = text
        self._is_training = is_training
        self._table = buckets.table(settings)

    def __getitem__(self, request: Request) -> Piece | MezzotintError:
        try:
            return self._piece(request)
        except MezzotintError as error:
            return error

    def _piece(self, request: Request) -> Piece:
        seed, epoch = plan.epoch_address(self._settings, self._seed, request.epoch)
        hashes = self._catalogue.key_hash[request.rows]
        visits = [
            Visit(row, key_hash, seed, epoch, visit)
            for row, key_hash, visit in zip(
                request.rows.tolist(), hashes.tolist(), request.visits.tolist(), strict=True
            )
        ]
        return self.of_visits(request, visits, self._table[request.bucket])

    def of_visits(self, request: Request, visits: Sequence[Visit], bucket: Size) -> Piece:
        """The piece of some visits, which need not be those of the request. Raises DatasetError, CacheError."""
        keys = tuple(self._catalogue.key(visit.row) for visit in visits)
        chosen = tuple(self._caption(visit) for visit in visits)
        variants = [self._variant(visit) for visit in visits]
        placed = [self._placement(visit, bucket, variant) for visit, variant in zip(visits, variants, strict=True)]
        piece = Piece(
            request,
            keys,
            chosen,
            torch.from_numpy(request.positions),
            self._posterior_keys(visits),
            self._geometry(request.rows, placed),
            torch.from_numpy(self._weight(request)),
            pixels=self._pixels(visits, placed, bucket) if self._latents is None else None,
            latents=self._rows(visits, placed, variants, bucket, keys) if self._latents is not None else None,
            is_moments=self._latents is not None and self._latents.content == "moments",
            text=self._embedded([visit.row for visit in visits], chosen),
            dropped=self._dropped(visits),
        )
        return replace(piece, stills=self._stills(piece, visits, placed))

    def _stills(self, piece: Piece, visits: Sequence[Visit], placed: Sequence[Placement]) -> Piece | None:
        """The pictures beside the samples of a piece; beside pictures there are none."""
        return None

    def _embedded(self, rows: Sequence[int], chosen: Sequence[str]) -> TextEmbedding | None:
        if self._text is None:
            return None
        own, drops = self._catalogue.own, self._text.drops
        # of a dropped caption it is the empty caption's embedding, and not the file's
        marks = [own.embedding_of(row) if one or not drops else "" for row, one in zip(rows, chosen, strict=True)]
        return self._text.read(chosen, marks)

    def _dropout(self, visit: Visit) -> float:
        own = self._catalogue.own.caption_dropout_of(visit.row) if self._is_training else None
        return self._settings.captions.dropout if own is None else own

    def _dropped(self, visits: Sequence[Visit]) -> Tensor | None:
        if self._settings.captions.dropped == "empty":
            return None
        found = [
            captions.is_dropped(
                seed=visit.seed,
                epoch=visit.epoch,
                key_hash=visit.key_hash,
                visit=visit.visit,
                dropout=self._dropout(visit),
            )
            for visit in visits
        ]
        return torch.tensor(found, dtype=torch.bool)

    def _caption(self, visit: Visit) -> str:
        settings = self._settings.captions
        chosen = captions.choose(
            self._catalogue.captions(visit.row),
            seed=visit.seed,
            epoch=visit.epoch,
            key_hash=visit.key_hash,
            visit=visit.visit,
            dropout=self._dropout(visit),
        )
        own = self._catalogue.own
        if not self._is_training:
            return captions.unchanged(chosen, captions.Changes.of(settings))
        changes = captions.Changes.of(settings, shuffles_own=bool(own.shuffle_tags[visit.row]))
        return self._changed(chosen, visit, changes) if chosen and changes.are_any else chosen

    def _changed(self, caption: str, visit: Visit, changes: captions.Changes) -> str:
        """A caption as it is drawn for this visit, or, where text is cached, one of the variants that are kept."""
        address = draws.key(visit.seed, "tags", visit.epoch, visit.key_hash, visit.visit)
        if self._text is not None:
            kept = self._settings.cache.shuffles
            address = captions.kept_address(visit.key_hash, draws.below(address, kept))
        return captions.changed(caption, self._catalogue.own.tags_of(visit.row), changes, address=address)

    def _weight(self, request: Request) -> NDArray[np.float32]:
        if not self._is_training:
            return request.factor
        return np.asarray(self._catalogue.weight[request.rows] * request.factor, dtype=np.float32)

    def _variant(self, visit: Visit) -> int:
        if self._latents is None:
            return -1
        return self._latents.variant(visit.key_hash, seed=visit.seed, epoch=visit.epoch, visit=visit.visit)

    def _placement(self, visit: Visit, bucket: Size, variant: int) -> Placement:
        if self._latents is not None:
            return self._latents.placement(self._catalogue, visit.row, variant, bucket)
        return plan.placement(
            self._catalogue, visit.row, bucket, self._settings, seed=visit.seed, epoch=visit.epoch, visit=visit.visit
        )

    def _pixels(self, visits: Sequence[Visit], placed: Sequence[Placement], bucket: Size) -> Tensor:
        pixels = torch.empty((len(visits), 3, bucket.height, bucket.width), dtype=torch.uint8)
        for i, (visit, placement) in enumerate(zip(visits, placed, strict=True)):
            fault_injection.reach("data.decode")
            pixels[i] = torch.from_numpy(read_picture(self._catalogue, visit.row, placement, self._settings))
        return pixels

    def _rows(
        self,
        visits: Sequence[Visit],
        placed: Sequence[Placement],
        variants: Sequence[int],
        bucket: Size,
        keys: Sequence[str],
    ) -> Tensor:
        assert self._latents is not None
        wanted = [
            self._latents.address(self._catalogue, visit.row, placement, variant)
            for visit, placement, variant in zip(visits, placed, variants, strict=True)
        ]
        return self._latents.read(wanted, bucket, keys, is_still=self.is_still)

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
        for row, line, placement in zip(rows.tolist(), numbers, placed, strict=True):
            line[2:4] = placement.crop_top_left
            line[4:6] = placement.bucket.height, placement.bucket.width
            told = self._catalogue.own.sizes_of(row)
            if told is not None:
                line[:] = told
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


def to_batch(piece: Piece, device: torch.device) -> Batch:
    """A piece on the device: pixels as float32 in [−1, 1], latents and embeddings as float32."""
    numbers = piece.geometry.to(device, non_blocking=True)
    latents = None if piece.latents is None else _float(piece.latents, device)
    text = piece.text
    if text is not None:
        mask = None if text.mask is None else text.mask.to(device, non_blocking=True)
        pooled = None if text.pooled is None else _float(text.pooled, device)
        text = TextEmbedding(_float(text.states, device), mask, pooled)
    return Batch(
        keys=piece.keys,
        captions=piece.captions,
        positions=torch.from_numpy(piece.request.positions),  # on the host, where addresses are made
        posterior_keys=piece.posterior_keys.to(device, non_blocking=True),
        original_size=numbers[:, 0:2],
        crop_top_left=numbers[:, 2:4],
        target_size=numbers[:, 4:6],
        weight=piece.weight.to(device, non_blocking=True),
        pixels=None if piece.pixels is None else to_pixels(piece.pixels, device),
        moments=latents if piece.is_moments else None,
        latents=None if piece.is_moments else latents,
        text=text,
        is_company=piece.request.is_company,
        stills=None if piece.stills is None else to_batch(piece.stills, device),
        dropped=None if piece.dropped is None else piece.dropped.to(device, non_blocking=True),
    )


def to_pixels(picture: Tensor, device: torch.device) -> Tensor:
    """uint8 (B, 3, H, W) or (B, 3, F, H, W) → float32 in [−1, 1] on the device; the bytes travel, the device
    computes."""
    return picture.to(device, non_blocking=True).float().div_(127.5).sub_(1.0)


def _pinned(numbers: Tensor | None) -> Tensor | None:
    return None if numbers is None else numbers.pin_memory()


def _float(numbers: Tensor, device: torch.device) -> Tensor:
    return numbers.to(device, non_blocking=True).float()
