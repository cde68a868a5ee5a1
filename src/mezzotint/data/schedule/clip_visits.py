"""What is seen of a clip at one visit: which frames, told by time, what becomes of each, and which pictures of a data
set stand beside it. Between the catalogue and the decoder.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mezzotint import draws
from mezzotint.data.buckets import clip_buckets
from mezzotint.data.buckets.clip_sampling import annotated, drawn, stills_of_clip, times_at_rate, times_of
from mezzotint.data.media import clip_files, clip_transforms, decoding
from mezzotint.errors import DatasetError
from mezzotint.recipe.sections.clips import ClipsSettings
from mezzotint.recipe.sections.data import DataSettings
from mezzotint.stages import Placement

if TYPE_CHECKING:
    from mezzotint.data.catalogue.catalogue import Catalogue

Instants = NDArray[np.float64]

_SQUARES: dict[str, Callable[[Tensor, int], Tensor]] = {
    "open-sora-plan": lambda clip, side: clip_transforms.to_bytes(clip_transforms.project_square(clip, side)),
    "open-sora-plan-port": clip_transforms.port_square,
}
"""Values of `data.resize` that make squares by a rule of their own, for clips and the pictures beside them."""


def instants(catalogue: Catalogue, row: int, frames: int, clips: ClipsSettings, *, address: int) -> Instants:
    """When the frames of a visit are shown, (frames,) seconds on the clip's own clock; no instants for a picture.

    address: of the draw of where they begin. The clip has enough frames: `clip_buckets.most_frames` was asked.
    """
    rate, begin, available = float(catalogue.rate[row]), float(catalogue.begin[row]), int(catalogue.frames[row])
    start = int(catalogue.overrides.start[row])
    if rate == 0:
        return np.zeros(0)
    if start >= 0:
        return times_of(annotated(start, frames), begin=begin, rate=rate)
    if clips.fps is None:
        numbers = drawn(available, clip_buckets.sampling(clips, frames), address)
        return times_of(numbers, begin=begin, rate=rate)
    span = (frames - 1) / clips.fps + 1 / rate
    seconds = span if clips.begin == "first" else available / rate
    if clips.begin == "open-sora-plan":
        seconds = max(span, seconds - 1 / rate)
    times = times_at_rate(
        seconds, num_frames=frames, wanted_rate=clips.fps, begin=begin, rate=rate, address=address
    )  # fmt: skip
    assert times is not None, f"{catalogue.key(row)}: too short"
    return times


def visit_key(seed: int, epoch: int, key_hash: int, visit: int) -> int:
    """The address at which a visit's frames are drawn."""
    return draws.key(seed, "clip", epoch, key_hash, visit)


def view_key(seed: int, key_hash: int, view: int) -> int:
    """The address at which the frames of a cached view are drawn, the same in every epoch."""
    return draws.key(seed, "clip-variant", key_hash, view)


def places_of_stills(frames: int, num: int) -> NDArray[np.int64]:
    """Which frames of a sample are trained as pictures, too, counted within it."""
    return stills_of_clip(frames, num)


def read(catalogue: Catalogue, row: int, placed: Placement, times: Instants, settings: DataSettings) -> Tensor:
    """The placed frames of a row at some instants, uint8 (3, F, H, W); (3, 1, H, W) of a picture, which has none.

    Raises DatasetError E1250 naming file and sample when they cannot be read any more.
    """
    path = catalogue.path(row)
    each = _each(placed, settings)
    try:
        if len(times):
            frames = clip_files.decoder().frames(path, times, each=each)
        else:
            frames = each(decoding.whole(path, background=settings.background, max_pixels=settings.max_pixels))[None]
    except (DatasetError, OSError) as error:
        reason = error.message if isinstance(error, DatasetError) else f"{path}: {error.strerror or error}"
        raise DatasetError(
            f"sample {catalogue.key(row)!r} could be read when the data set was indexed and cannot be now: {reason}; "
            "restore the file, or start again, which leaves it out and says so",
            code="E1250",
        ) from error
    return torch.from_numpy(frames).transpose(0, 1)


def _each(placed: Placement, settings: DataSettings) -> Callable[[NDArray[np.uint8]], NDArray[np.uint8]]:
    """What becomes of one frame (H, W, 3) → (3, h, w)."""
    square = _SQUARES.get(settings.resize)
    if square is None:
        return lambda frame: clip_transforms.place(
            frame, placed, resize=settings.resize, antialias=settings.antialias
        )  # fmt: skip

    def squared(frame: NDArray[np.uint8]) -> NDArray[np.uint8]:
        pixels = square(torch.from_numpy(frame.copy()).permute(2, 0, 1)[None], placed.bucket.width)[0]
        pixels = clip_transforms.mirrored(pixels) if placed.flipped else pixels
        return np.ascontiguousarray(pixels.numpy())

    return squared


# --- the pictures beside a clip ---------------------------------------------------------------------------------------


def drawn_stills(num_pictures: int, per_sample: int, *, address: int) -> NDArray[np.int64]:
    """Pictures drawn for a visit, (per_sample,) different ones of [0, num_pictures), in an order drawn as well.
    address: of the draw (`draws.key`)."""
    assert 0 < per_sample <= num_pictures
    numbers: list[int] = []
    for place in range(per_sample):
        # Floyd's sample: each set of that many is equally likely, however large the data set
        last = num_pictures - per_sample + place
        number = draws.below(draws.key(address, "still", place), last + 1)
        numbers.append(last if number in numbers else number)
    order = np.argsort(draws.keys(address, "still-order", np.arange(per_sample)), kind="stable")
    return np.asarray(numbers, dtype=np.int64)[order]


def groups_of_stills(num_pictures: int, per_sample: int) -> tuple[range, ...]:
    """The pictures that are trained together beside one clip (`use_image_num`), by number: consecutive groups of
    `per_sample`. The last group is left out, full or not, as in Open-Sora-Plan; a list of just one group has none."""
    assert per_sample > 0
    ends = range(per_sample, num_pictures + per_sample, per_sample)
    return tuple(range(end - per_sample, end) for end in ends)[:-1]


def stills_beside(clip: int, groups: Sequence[range]) -> range:
    """The group of pictures beside the clip of a number: groups in turn, from the first on again when there are more
    clips."""
    return groups[clip % len(groups)]
