"""What a loader worker does with clips: frames by time, and the pictures beside them. `worker.py` has the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from mezzotint import draws, fault_injection
from mezzotint.data.catalogue.catalogue import stills_settings
from mezzotint.data.loading.worker import BatchWorker, HostBatch, Request, Visit
from mezzotint.data.schedule import clip_visits
from mezzotint.data.schedule.clip_visits import drawn_stills, groups_of_stills, stills_beside
from mezzotint.recipe.sections.data import DataSettings
from mezzotint.shapes import Size
from mezzotint.stages import Placement, TextEmbedding

if TYPE_CHECKING:
    from mezzotint.data.catalogue.catalogue import Catalogue


def worker_of(catalogue: Catalogue, settings: DataSettings, **options: Any) -> BatchWorker:
    """What answers the requests of a data set: of clips or of pictures. options: as for `BatchWorker`."""
    return (ClipWorker if settings.has_clips else BatchWorker)(catalogue, settings, **options)


class StillWorker(BatchWorker):
    """The pictures of a data set that stand beside clips. They go the way of their clips, so that a rule for frames
    holds for them, too."""

    is_still = True

    def _pixels(self, visits: Sequence[Visit], placed: Sequence[Placement], bucket: Size) -> Tensor:
        pixels = torch.empty((len(visits), 3, bucket.height, bucket.width), dtype=torch.uint8)
        for i, (visit, placement) in enumerate(zip(visits, placed, strict=True)):
            fault_injection.reach("data.decode")
            address = clip_visits.visit_key(visit.seed, visit.epoch, visit.key_hash, visit.visit)
            times = clip_visits.instants(self._catalogue, visit.row, 1, self._settings.clips, address=address)
            pixels[i] = clip_visits.read(self._catalogue, visit.row, placement, times, self._settings)[:, 0]
        return pixels


class ClipWorker(BatchWorker):
    """Answers requests for clips: pixels (B, 3, F, H, W), and the stills of the recipe."""

    def __init__(self, catalogue: Catalogue, settings: DataSettings, **options: Any) -> None:
        super().__init__(catalogue, settings, **options)
        self._beside: StillWorker | None = None
        self._groups: tuple[range, ...] = ()
        if catalogue.stills is not None:
            self._beside = StillWorker(catalogue.stills, stills_settings(settings), **options)
            if settings.clips.stills_order == "groups":
                self._groups = groups_of_stills(len(catalogue.stills), settings.clips.stills)

    def _pixels(self, visits: Sequence[Visit], placed: Sequence[Placement], bucket: Size) -> Tensor:
        pixels = torch.empty((len(visits), 3, bucket.frames, bucket.height, bucket.width), dtype=torch.uint8)
        for i, (visit, placement) in enumerate(zip(visits, placed, strict=True)):
            fault_injection.reach("data.decode")
            address = clip_visits.visit_key(visit.seed, visit.epoch, visit.key_hash, visit.visit)
            times = clip_visits.instants(
                self._catalogue, visit.row, bucket.frames, self._settings.clips, address=address
            )
            pixels[i] = clip_visits.read(self._catalogue, visit.row, placement, times, self._settings)
        return pixels

    def _stills(self, batch: HostBatch, visits: Sequence[Visit], placed: Sequence[Placement]) -> HostBatch | None:
        if not self._settings.clips.stills:
            return None
        return self._own_frames(batch, visits, placed) if self._beside is None else self._pictures(batch, visits)

    def _pictures(self, batch: HostBatch, visits: Sequence[Visit]) -> HostBatch:
        """Pictures of the data set beside, each a visit of its own, addressed by the clip's visit and its place."""
        assert self._beside is not None
        stills = self._catalogue.stills
        assert stills is not None
        beside = [
            Visit(row, int(stills.key_hash[row]), clip.seed, clip.epoch, _visit_of(clip, place))
            for clip in visits
            for place, row in enumerate(self._rows_beside(clip, len(stills)))
        ]
        bucket = self._table[batch.request.bucket]
        request = self._many(batch.request, [visit.row for visit in beside])
        pictures = self._beside.of_visits(request, beside, Size(bucket.width, bucket.height))
        return replace(pictures, weight=self._of_each(batch.weight))

    def _rows_beside(self, clip: Visit, count: int) -> Sequence[int]:
        if self._groups:
            return stills_beside(clip.row, self._groups)
        address = draws.key(clip.seed, "stills", clip.epoch, clip.key_hash, clip.visit)
        return [int(row) for row in drawn_stills(count, self._settings.clips.stills, address=address)]

    def _own_frames(self, batch: HostBatch, visits: Sequence[Visit], placed: Sequence[Placement]) -> HostBatch:
        """Frames of the clips themselves, after they were placed, with the clips' captions."""
        num, text = self._settings.clips.stills, batch.text
        keys = tuple(f"{key}[{place}]" for key in batch.keys for place in range(num))
        addresses = [
            draws.key(v.seed, "posterior-still", v.epoch, v.key_hash, v.visit, place)
            for v in visits
            for place in range(num)
        ]
        return replace(
            batch,
            request=self._many(batch.request, np.repeat(batch.request.rows, num).tolist()),
            keys=keys,
            captions=tuple(caption for caption in batch.captions for _ in range(num)),
            posterior_keys=torch.from_numpy(np.array(addresses, dtype=np.uint64).view(np.int64)),
            geometry=self._of_each(batch.geometry),
            weight=self._of_each(batch.weight),
            pixels=None if batch.pixels is None else _frames_of(batch.pixels, num),
            latents=None if batch.latents is None else self._rows_of_frames(visits, placed, keys),
            text=None if text is None else self._repeated(text),
        )

    def _rows_of_frames(self, visits: Sequence[Visit], placed: Sequence[Placement], keys: Sequence[str]) -> Tensor:
        assert self._latents is not None
        latents, num, addresses = self._latents, self._settings.clips.stills, []
        for visit, placement in zip(visits, placed, strict=True):
            view = self._view(visit)
            for still in range(num):
                addresses.append(latents.address_of_still(self._catalogue, visit.row, placement, view, still))
        bucket = placed[0].bucket if placed else self._table[0]
        return latents.read(addresses, Size(bucket.width, bucket.height), keys, is_still=True)

    def _many(self, request: Request, rows: Sequence[int]) -> Request:
        num = self._settings.clips.stills
        return replace(
            request,
            rows=np.asarray(rows, dtype=np.int32),
            visits=np.repeat(request.visits, num),
            factor=np.repeat(request.factor, num),
            positions=np.repeat(request.positions, num),
        )

    def _of_each(self, numbers: Tensor) -> Tensor:
        return numbers.repeat_interleave(self._settings.clips.stills, dim=0)

    def _repeated(self, text: TextEmbedding) -> TextEmbedding:
        mask, pooled = (None if part is None else self._of_each(part) for part in (text.mask, text.pooled))
        return TextEmbedding(self._of_each(text.states), mask, pooled)


def _visit_of(clip: Visit, place: int) -> int:
    """The number by which a picture's draws at a clip's visit are addressed: no other visit has it."""
    return draws.key(clip.seed, "still-visit", clip.epoch, clip.key_hash, clip.visit, place) >> 1


def _frames_of(pixels: Tensor, num: int) -> Tensor:
    """(B, 3, F, H, W) → (B·num, 3, H, W), the frames of `clip_sampling.stills_of_clip`."""
    places = torch.from_numpy(clip_visits.places_of_stills(pixels.shape[2], num))
    return pixels[:, :, places].transpose(1, 2).reshape(len(pixels) * num, 3, *pixels.shape[3:])
