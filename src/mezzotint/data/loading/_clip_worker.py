"""Loader worker for clips: frames by time, and images joined to video batches. `worker.py` has the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from mezzotint.data.buckets.clip_sampling import stills_of_clip
from mezzotint.data.catalogue.catalogue import joined_images_settings
from mezzotint.data.loading.reading import read_frames
from mezzotint.data.loading.worker import BatchRequest, BatchWorker, HostBatch, addresses_of, map_tensors
from mezzotint.data.schedule import clip_visits
from mezzotint.data.schedule.clip_visits import draw_images, groups_of_stills
from mezzotint.data.schedule.plan import Visit
from mezzotint.settings.sections.data import DataSettings
from mezzotint.shapes import Size
from mezzotint.stages import Placement

if TYPE_CHECKING:
    from mezzotint.data.catalogue.catalogue import Catalogue


def worker_of(catalogue: Catalogue, settings: DataSettings, **options: Any) -> BatchWorker:
    """The worker for a data set of clips or of images. options: as for `BatchWorker`."""
    return (ClipWorker if settings.has_clips else BatchWorker)(catalogue, settings, **options)


class StillWorker(BatchWorker):
    """Worker for images that are joined to video batches. They are processed by the same rules as frames of clips."""

    is_joined_image = True

    def _read(self, visit: Visit, placed: Placement) -> Tensor:
        return _read_frames(self._catalogue, visit, placed, 1, self._settings)[:, 0]


class ClipWorker(BatchWorker):
    """Answers requests for clips: pixels (B, 3, F, H, W), and the images joined to them (stills)."""

    def __init__(self, catalogue: Catalogue, settings: DataSettings, **options: Any) -> None:
        super().__init__(catalogue, settings, **options)
        self._still_worker: StillWorker | None = None
        self._groups: tuple[range, ...] = ()
        if catalogue.joined_images is not None:
            self._still_worker = StillWorker(catalogue.joined_images, joined_images_settings(settings), **options)
            if settings.clips.images_order == "groups":
                self._groups = groups_of_stills(len(catalogue.joined_images), settings.clips.images)

    def _read(self, visit: Visit, placed: Placement) -> Tensor:
        return _read_frames(self._catalogue, visit, placed, placed.bucket.frames, self._settings)

    def _stills(self, batch: HostBatch, visits: Sequence[Visit], placed: Sequence[Placement]) -> HostBatch | None:
        if not self._settings.clips.images:
            return None
        return self._own_frames(batch, visits, placed) if self._still_worker is None else self._images(batch, visits)

    def _images(self, batch: HostBatch, visits: Sequence[Visit]) -> HostBatch:
        """Images of the joined data set; each is a separate visit, addressed by the clip's visit and its index."""
        assert self._still_worker is not None
        joined_images = self._catalogue.joined_images
        assert joined_images is not None
        still_visits = [
            # a visit number that no other visit has
            Visit(row, int(joined_images.key_hash[row]), clip.seed, clip.epoch, clip.draw("still-visit", index) >> 1)
            for clip in visits
            for index, row in enumerate(self._still_rows(clip, len(joined_images)))
        ]
        bucket = self._table[batch.request.bucket]
        request = self._repeat_request(batch.request, [visit.row for visit in still_visits])
        images = self._still_worker.of_visits(request, still_visits, Size(bucket.width, bucket.height))
        return replace(images, weight=self._repeat_each(batch.weight))

    def _still_rows(self, clip: Visit, count: int) -> Sequence[int]:
        if self._groups:
            return self._groups[clip.row % len(self._groups)]
        drawn = draw_images(count, self._settings.clips.images, address=clip.draw("stills"))
        return [int(row) for row in drawn]

    def _own_frames(self, batch: HostBatch, visits: Sequence[Visit], placed: Sequence[Placement]) -> HostBatch:
        """Frames of the clips themselves, after placement, with the clips' captions."""
        num = self._settings.clips.images
        keys = tuple(f"{key}[{index}]" for key in batch.keys for index in range(num))
        return replace(
            batch,
            request=self._repeat_request(batch.request, np.repeat(batch.request.rows, num).tolist()),
            keys=keys,
            captions=tuple(caption for caption in batch.captions for _ in range(num)),
            posterior_keys=addresses_of(v.draw("posterior-still", index) for v in visits for index in range(num)),
            geometry=self._repeat_each(batch.geometry),
            weight=self._repeat_each(batch.weight),
            pixels=None if batch.pixels is None else _select_frames(batch.pixels, num),
            latents=None if batch.latents is None else self._rows_of_frames(visits, placed, keys),
            text=map_tensors(batch.text, self._repeat_each),
            is_class=None,
        )

    def _rows_of_frames(self, visits: Sequence[Visit], placed: Sequence[Placement], keys: Sequence[str]) -> Tensor:
        assert self._latents is not None
        latents, num, addresses = self._latents, self._settings.clips.images, []
        for visit, placement in zip(visits, placed, strict=True):
            view = latents.cached_view(visit)
            for still in range(num):
                addresses.append(latents.address(self._catalogue, visit.row, placement, view, still=still))
        bucket = placed[0].bucket if placed else self._table[0]
        return latents.read(addresses, Size(bucket.width, bucket.height), keys, is_joined_image=True)

    def _repeat_request(self, request: BatchRequest, rows: Sequence[int]) -> BatchRequest:
        num = self._settings.clips.images
        return replace(
            request,
            rows=np.asarray(rows, dtype=np.int32),
            visits=np.repeat(request.visits, num),
            factor=np.repeat(request.factor, num),
            positions=np.repeat(request.positions, num),
        )

    def _repeat_each(self, numbers: Tensor) -> Tensor:
        return numbers.repeat_interleave(self._settings.clips.images, dim=0)


def _read_frames(catalogue: Catalogue, visit: Visit, placed: Placement, frames: int, settings: DataSettings) -> Tensor:
    clips = catalogue.settings_of(visit.row, settings).clips
    times = clip_visits.frame_times(catalogue, visit.row, frames, clips, address=visit.draw("clip"))
    return read_frames(catalogue, visit.row, placed, times, settings)


def _select_frames(pixels: Tensor, num: int) -> Tensor:
    """(B, 3, F, H, W) → (B·num, 3, H, W), the frames of `clip_sampling.stills_of_clip`."""
    indexes = torch.from_numpy(stills_of_clip(pixels.shape[2], num))
    return pixels[:, :, indexes].transpose(1, 2).reshape(len(pixels) * num, 3, *pixels.shape[3:])
