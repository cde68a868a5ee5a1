"""Loader worker: from a request (rows, visits, bucket) to a batch on the host. For clips see `_clip_worker.py`.

At each visit a file is read and placed in its bucket: `read_image`, `read_frames`. A batch contains uint8 pixels, a
quarter of the bytes of float32 to send between processes, or rows of the cache in their stored dtype. `to_batch`
converts it to a `Batch` on the device.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from mezzotint import fault_injection
from mezzotint.data.buckets import buckets
from mezzotint.data.cache.entries import Caches, has_mask
from mezzotint.data.loading.reading import BROKEN, is_broken, read_image, read_mask, read_whole
from mezzotint.data.media.colour import Conversion
from mezzotint.data.schedule import captions, condition_dropout, inpaint_masks, placement, plan
from mezzotint.data.schedule.plan import Visit
from mezzotint.data.schedule.preserved import PreservedCaptions
from mezzotint.errors import CacheError, DatasetError, MezzotintError
from mezzotint.settings.sections.data import DataSettings
from mezzotint.shapes import Size
from mezzotint.stages import Batch, ConditionImages, Placement, TextEmbedding

if TYPE_CHECKING:
    from mezzotint.data.catalogue.catalogue import Catalogue


@dataclass(frozen=True, slots=True)
class BatchRequest:
    """One micro-batch of one rank, as numbers. count: samples of the step on all ranks. bucket: index in the bucket
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
    """The result of a request, on the CPU. pixels: (B, 3, H, W) or (B, 3, F, H, W) uint8. latents: (B, C or 2C, …) in
    the stored dtype. geometry: (B, 6) int64: original size, crop, target size, row first. stills, dropped, is_class,
    mask, region, preserved_captions, is_preserved, preserved_text: see `Batch`. conditions: see `Batch`, with uint8
    pixels or latents in the stored dtype. broken: see `StepBatches`."""

    request: BatchRequest
    keys: tuple[str, ...]
    captions: tuple[str, ...]
    posterior_keys: Tensor
    geometry: Tensor
    weight: Tensor
    pixels: Tensor | None = None
    latents: Tensor | None = None
    is_moments: bool = False
    text: TextEmbedding | None = None
    joined_images: HostBatch | None = None
    dropped: Tensor | None = None
    is_class: Tensor | None = None
    mask: Tensor | None = None
    conditions: Mapping[str, ConditionImages] = field(default_factory=dict)
    region: Tensor | None = None
    preserved_captions: tuple[str, ...] = ()
    is_preserved: Tensor | None = None
    preserved_text: TextEmbedding | None = None
    broken: tuple[str, ...] = ()

    def pin_memory(self) -> Self:
        """A copy in page-locked memory, from which copies to the device are asynchronous. Called by torch's pinning
        thread."""
        pinned: Self = map_tensors(self, Tensor.pin_memory)
        return pinned


class BatchWorker(Dataset[Any]):
    """Answers requests, in a worker or in the main process. User errors are returned, not raised: they then arrive
    unchanged in the main process."""

    is_joined_image: ClassVar[bool] = False
    """Whether these are images joined to video batches."""

    def __init__(
        self, catalogue: Catalogue, settings: DataSettings, *, seed: int, caches: Caches, is_training: bool = True,
        preserved: PreservedCaptions | None = None,
    ) -> None:  # fmt: skip
        self._catalogue = catalogue
        self._settings = settings
        self._seed = seed
        self._latents = caches.latents
        self._text = caches.text
        self._text_images = None if caches.text is not None else caches.text_images
        self._is_training = is_training
        self._preserved = preserved
        self._table = buckets.table(settings)
        self._has_classes, self._has_masks = settings.has_class_images, settings.has_masks
        self._weights = np.array([one.weight for one in settings.image_sets()], np.float32)

    def __getitem__(self, request: BatchRequest) -> HostBatch | MezzotintError:
        try:
            return self._batch(request)
        except MezzotintError as error:
            return error

    def _batch(self, request: BatchRequest) -> HostBatch:
        seed, epoch = plan.epoch_address(self._settings, self._seed, request.epoch)
        hashes = self._catalogue.key_hash[request.rows].tolist()
        visits = [
            Visit(row, key_hash, seed, epoch, number)
            for row, key_hash, number in zip(request.rows.tolist(), hashes, request.visits.tolist(), strict=True)
        ]
        return self.of_visits(request, visits, self._table[request.bucket])

    def of_visits(self, request: BatchRequest, visits: Sequence[Visit], bucket: Size) -> HostBatch:
        """The batch of visits, which may differ from those of the request. Raises DatasetError, CacheError."""
        latents = self._latents
        keys = tuple(self._catalogue.key(visit.row) for visit in visits)
        chosen = tuple(self._caption(visit) for visit in visits)
        views = [latents.cached_view(visit) if latents is not None else -1 for visit in visits]
        placed = [self._placement(visit, bucket, view) for visit, view in zip(visits, views, strict=True)]
        broken: list[int] = []
        pixels = self._pixels(visits, placed, bucket, broken) if latents is None else None
        rows = self._rows(visits, placed, views, bucket, broken) if latents is not None else None
        conditions = {name: self._condition(name, visits, placed, broken) for name in self._catalogue.conditions}
        if rows is not None and latents is not None and not self.is_joined_image:
            rows, first = latents.split(rows, bucket)
            every = torch.ones(len(visits), dtype=torch.bool)
            conditions |= {name: ConditionImages(None, one, every) for name, one in first.items()}
        weight = torch.from_numpy(self._weight(request))
        weight[broken] = 0.0
        mask = self._masks(visits, placed, bucket, keys, broken) if self._has_masks else None
        preserved = self._preserved_captions(visits, chosen)
        batch = HostBatch(
            request,
            keys,
            chosen,
            addresses_of(visit.draw("posterior") for visit in visits),
            self._geometry(request.rows, placed),
            weight,
            pixels=pixels,
            latents=rows,
            is_moments=latents is not None and latents.content == "moments",
            text=self._embedded(visits, chosen, broken),
            dropped=self._dropped(visits),
            is_class=torch.from_numpy(self._is_class(request)) if self._has_classes else None,
            mask=mask,
            conditions=conditions,
            region=self._region(visits, bucket, mask) if self._settings.inpaint.is_on else None,
            preserved_captions=preserved,
            is_preserved=torch.tensor(list(map(operator.ne, chosen, preserved))) if preserved else None,
            preserved_text=self._embedded(visits, preserved, broken) if preserved else None,
            broken=tuple(keys[i] for i in dict.fromkeys(broken)),
        )
        return replace(batch, joined_images=self._stills(batch, visits, placed))

    def _stills(self, batch: HostBatch, visits: Sequence[Visit], placed: Sequence[Placement]) -> HostBatch | None:
        return None

    def _embedded(self, visits: Sequence[Visit], chosen: Sequence[str], broken: Sequence[int]) -> TextEmbedding | None:
        if self._text is None:
            return None
        overrides, drops, images_of = self._catalogue.overrides, self._text.drops, self._text.images_of
        kept = [i not in broken and self._has_images(visit) for i, visit in enumerate(visits)]
        images = [images_of(self._catalogue, visit.row) if kept[i] else b"" for i, visit in enumerate(visits)]
        if self._text.images is not None:  # corrupt images have no embedding; their weight is 0
            chosen = ["" if i in broken else caption for i, caption in enumerate(chosen)]
        # a dropped caption uses the embedding of the empty caption, not that of the file
        pairs = zip(visits, chosen, strict=True)
        marks = [overrides.embedding_of(visit.row) if caption or not drops else "" for visit, caption in pairs]
        return self._text.read(chosen, marks, images)

    def _preserved_captions(self, visits: Sequence[Visit], chosen: Sequence[str]) -> tuple[str, ...]:
        if self._preserved is None:
            return ()
        pairs = zip(visits, chosen, strict=True)
        return tuple(
            self._preserved.at_visit(caption, self._settings_of(visit).captions, visit) for visit, caption in pairs
        )

    def _dropout(self, visit: Visit) -> float:
        keeps = not self._settings.prior.dropout
        if not self._is_training or (keeps and self._catalogue.overrides.prior[visit.row]):
            return 0.0
        settings = self._settings_of(visit).captions
        if captions.is_dropped_in(visit.epoch, settings.dropout_every):
            return 1.0
        if not condition_dropout.has_caption(visit, self._settings.condition_dropout):
            return 1.0
        own = self._catalogue.overrides.caption_dropout_of(visit.row)
        return settings.dropout if own is None else own

    def _settings_of(self, visit: Visit) -> DataSettings:
        return self._catalogue.settings_of(visit.row, self._settings)

    def _dropped(self, visits: Sequence[Visit]) -> Tensor | None:
        zeros = [self._settings_of(visit).captions.dropped == "zeros" for visit in visits]
        if not any(zeros):
            return None
        pairs = zip(visits, zeros, strict=True)
        return torch.tensor([zero and captions.is_dropped(visit, self._dropout(visit)) for visit, zero in pairs])

    def _caption(self, visit: Visit) -> str:
        chosen = captions.choose(self._catalogue.captions(visit.row), visit, dropout=self._dropout(visit))
        settings = self._settings_of(visit)
        if not self._is_training:
            return captions.without_changes(chosen, captions.Changes.of(settings.captions))
        drawn = captions.DrawnCaptions.of(self._catalogue, visit.row, settings)
        return drawn.at_visit(chosen, visit, is_cached=self._text is not None)

    def _weight(self, request: BatchRequest) -> NDArray[np.float32]:
        if not self._is_training:
            return request.factor
        weight = np.asarray(self._catalogue.weight[request.rows] * request.factor, dtype=np.float32)
        weight *= self._weights[self._catalogue.set[request.rows]]
        prior = self._settings.prior
        if not self._has_classes:
            return weight
        # with pairs each half of a batch has its own mean: twice its share of the mean over all
        halves = np.float32(2 if prior.balance == "pairs" else 1)
        return weight * np.where(self._is_class(request), halves * np.float32(prior.weight), halves)

    def _is_class(self, request: BatchRequest) -> NDArray[np.bool_]:
        return np.asarray(self._catalogue.overrides.prior[request.rows] != 0)

    def _placement(self, visit: Visit, bucket: Size, view: int) -> Placement:
        if self._latents is not None:
            return self._latents.placement(self._catalogue, visit.row, view, bucket)
        return placement.at_visit(self._catalogue, visit, bucket, self._settings_of(visit))

    def _pixels(self, visits: Sequence[Visit], placed: Sequence[Placement], bucket: Size, broken: list[int]) -> Tensor:
        frames = (bucket.frames,) if self._settings.has_clips and not self.is_joined_image else ()
        pixels = torch.empty((len(visits), 3, *frames, bucket.height, bucket.width), dtype=torch.uint8)
        for i, (visit, its_placement) in enumerate(zip(visits, placed, strict=True)):
            fault_injection.reach("data.decode")
            try:
                pixels[i] = self._read(visit, its_placement)
            except DatasetError as error:
                if not self._spares or error.code != BROKEN:
                    raise
                pixels[i] = 0
                broken.append(i)
        return pixels

    def _masks(
        self, visits: Sequence[Visit], placed: Sequence[Placement], bucket: Size, keys: Sequence[str],
        broken: Sequence[int],
    ) -> Tensor:  # fmt: skip
        """uint8 (B, H, W), or as in the cache; white for an image that has no mask, or is corrupt."""
        if self._latents is not None:
            return self._latents.read_masks(self._catalogue, [visit.row for visit in visits], placed, keys, broken)
        masks = torch.full((len(visits), bucket.height, bucket.width), 255, dtype=torch.uint8)
        for i, (visit, its_placement) in enumerate(zip(visits, placed, strict=True)):
            if i not in broken and has_mask(self._catalogue, visit.row, self._settings):
                masks[i] = torch.from_numpy(read_mask(self._catalogue, visit.row, its_placement, self._settings))
        return masks

    def _region(self, visits: Sequence[Visit], bucket: Size, mask: Tensor | None) -> Tensor:
        """The regions to fill, uint8 (B, H, W). mask: of the batch, for `data.inpaint.masks=files`."""
        settings = self._settings.inpaint
        region = torch.zeros((len(visits), bucket.height, bucket.width), dtype=torch.uint8)
        for i, visit in enumerate(visits):
            if inpaint_masks.is_full(visit, settings.full):
                region[i] = inpaint_masks.FILLED
            elif settings.masks == "random":
                region[i] = torch.from_numpy(inpaint_masks.draw_region(visit, bucket))
            else:
                assert mask is not None
                region[i] = mask[i]
        return region

    def _condition(
        self, name: str, visits: Sequence[Visit], placed: Sequence[Placement], broken: list[int]
    ) -> ConditionImages:
        """The images of a condition; zeros for a missing or corrupt one."""
        paired = self._catalogue.conditions[name]
        place = partial(placement.of_condition, self._catalogue, name=name, settings=self._settings)
        placed = [place(visit.row, placed=one) for visit, one in zip(visits, placed, strict=True)]
        bucket = placed[0].bucket
        rows = [int(paired.rows[visit.row]) if self._has_images(visit) else -1 for visit in visits]
        kept = torch.tensor([row >= 0 for row in rows])
        if self._latents is not None:
            latents = self._cached_condition(paired.images, rows, placed, broken)
            return ConditionImages(None, latents, kept, self._whole(paired.images, rows, broken))
        pixels = torch.zeros((len(visits), 3, bucket.height, bucket.width), dtype=torch.uint8)
        for i, (row, one) in enumerate(zip(rows, placed, strict=True)):
            if row >= 0 and i not in broken:
                try:
                    pixels[i] = torch.from_numpy(read_image(paired.images, row, one, self._settings))
                except DatasetError as error:
                    if not self._spares or error.code != BROKEN:
                        raise
                    broken.append(i)
        return ConditionImages(pixels, None, kept, self._whole(paired.images, rows, broken))

    def _has_images(self, visit: Visit) -> bool:
        return condition_dropout.has_images(visit, self._settings.condition_dropout if self._is_training else 0.0)

    def _whole(self, images: Catalogue, rows: Sequence[int], broken: list[int]) -> tuple[Tensor | None, ...]:
        """See `ConditionImages`."""
        if self._text_images is None:
            return ()
        read = partial(read_whole, images, seen=self._text_images, settings=self._settings)
        return tuple(read(row) if row >= 0 and i not in broken else None for i, row in enumerate(rows))

    def _cached_condition(
        self, images: Catalogue, rows: Sequence[int], placed: Sequence[Placement], broken: list[int]
    ) -> Tensor:
        assert self._latents is not None
        chosen = [i for i, row in enumerate(rows) if row >= 0 and i not in broken]
        try:
            return self._latents.read_conditions(images, rows, placed, chosen)
        except CacheError:
            if not self._spares:
                raise
        corrupt = [i for i in chosen if is_broken(images, rows[i], self._settings)]
        broken += corrupt
        return self._latents.read_conditions(images, rows, placed, [i for i in chosen if i not in corrupt])

    @property
    def _spares(self) -> bool:
        """Whether corrupt images stay in the batch with weight 0."""
        is_clip = self.is_joined_image or self._settings.has_clips
        return self._settings.on_corrupt == "zero_weight" and self._is_training and not is_clip

    def _read(self, visit: Visit, placed: Placement) -> Tensor:
        return torch.from_numpy(read_image(self._catalogue, visit.row, placed, self._settings))

    def _rows(
        self, visits: Sequence[Visit], placed: Sequence[Placement], views: Sequence[int], bucket: Size,
        broken: list[int],
    ) -> Tensor:  # fmt: skip
        """Rows of the cache; zeros for corrupt images."""
        try:
            return self._cached(visits, placed, views, bucket)
        except CacheError:
            if not self._spares or self._latents is None or (store := self._latents.store(bucket)) is None:
                raise
        rows = torch.zeros((len(visits), *store.shape), dtype=store.dtype)
        for i, (visit, its_placement, view) in enumerate(zip(visits, placed, views, strict=True)):
            try:
                rows[i] = self._cached([visit], [its_placement], [view], bucket)[0]
            except CacheError:
                if not is_broken(self._catalogue, visit.row, self._settings):
                    raise
                broken.append(i)
        return rows

    def _cached(
        self, visits: Sequence[Visit], placed: Sequence[Placement], views: Sequence[int], bucket: Size
    ) -> Tensor:
        assert self._latents is not None
        keys = [self._catalogue.key(visit.row) for visit in visits]
        addresses = [
            self._latents.address(self._catalogue, visit.row, its_placement, view)
            for visit, its_placement, view in zip(visits, placed, views, strict=True)
        ]
        return self._latents.read(addresses, bucket, keys, is_joined_image=self.is_joined_image)

    def _geometry(self, rows: NDArray[np.int32], placed: Sequence[Placement]) -> Tensor:
        numbers = np.zeros((len(rows), 6), dtype=np.int64)
        numbers[:, 0] = self._catalogue.height[rows]
        numbers[:, 1] = self._catalogue.width[rows]
        if self._settings.original_size == "stored":
            sideways = (self._catalogue.conversions[rows] & np.uint16(Conversion.SIDEWAYS)) != 0
            numbers[sideways, :2] = numbers[sideways, 1::-1]
        for row, line, its_placement in zip(rows.tolist(), numbers, placed, strict=True):
            line[2:4] = its_placement.crop_top_left
            line[4:6] = its_placement.bucket.height, its_placement.bucket.width
            sizes = self._catalogue.overrides.sizes_of(row)
            if sizes is not None:
                line[:] = sizes
        return torch.from_numpy(numbers)


def addresses_of(addresses: Iterable[int]) -> Tensor:
    """64-bit addresses of draws, (B,) int64."""
    return torch.from_numpy(np.array(list(addresses), dtype=np.uint64).view(np.int64))


def to_batch(batch: HostBatch, device: torch.device) -> Batch:
    """A batch on the device: pixels as float32 in [−1, 1], latents and embeddings as float32."""
    moved = map_tensors(batch, lambda tensor: tensor.to(device, non_blocking=True))
    latents = None if moved.latents is None else moved.latents.float()
    return Batch(
        keys=batch.keys,
        captions=batch.captions,
        positions=torch.from_numpy(batch.request.positions),  # on the host, where addresses are computed
        posterior_keys=moved.posterior_keys,
        original_size=moved.geometry[:, 0:2],
        crop_top_left=moved.geometry[:, 2:4],
        target_size=moved.geometry[:, 4:6],
        weight=moved.weight,
        pixels=None if moved.pixels is None else to_pixels(moved.pixels, device),
        moments=latents if batch.is_moments else None,
        latents=None if batch.is_moments else latents,
        text=_to_float(moved.text),
        is_filler=batch.request.is_filler,
        joined_images=None if moved.joined_images is None else to_batch(moved.joined_images, device),
        dropped=moved.dropped,
        is_class=moved.is_class,
        mask=moved.mask,
        conditions={name: _to_condition(images, device) for name, images in moved.conditions.items()},
        region=moved.region,
        preserved_captions=batch.preserved_captions,
        is_preserved=moved.is_preserved,
        preserved_text=_to_float(moved.preserved_text),
    )


def _to_float(text: TextEmbedding | None) -> TextEmbedding | None:
    if text is None:
        return None
    return replace(text, states=text.states.float(), pooled=None if text.pooled is None else text.pooled.float())


def _to_condition(images: ConditionImages, device: torch.device) -> ConditionImages:
    pixels = None if images.pixels is None else to_pixels(images.pixels, device)
    return replace(images, pixels=pixels, latents=None if images.latents is None else images.latents.float())


def to_pixels(image: Tensor, device: torch.device) -> Tensor:
    """uint8 (B, 3, H, W) or (B, 3, F, H, W) → float32 in [−1, 1]; copied as bytes and converted on the device."""
    return image.to(device, non_blocking=True).float().div_(127.5).sub_(1.0)


def map_tensors(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Applies a function to all tensors of a batch, also nested ones."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, dict):
        return {name: map_tensors(one, change) for name, one in value.items()}
    if isinstance(value, HostBatch | TextEmbedding | ConditionImages):
        changed = {field.name: map_tensors(getattr(value, field.name), change) for field in fields(value)}
        return replace(value, **changed)
    return value
