"""One of several sets of images (`data.sets`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BeforeValidator, Field, NonNegativeFloat

from mezzotint.settings.base import (
    ALLOW,
    FREE,
    DataPath,
    PartialSection,
    Share,
    as_list,
    make_optional_copy,
    override,
    take_only,
    with_values,
)
from mezzotint.settings.sections.buckets import BucketSettings
from mezzotint.settings.sections.captions import CaptionSettings
from mezzotint.settings.sections.clips import ClipsSettings
from mezzotint.settings.sections.conditions import Conditions
from mezzotint.settings.sections.subjects import MaskSettings

if TYPE_CHECKING:
    from mezzotint.settings.sections.data import DataSettings

Factor = Annotated[float, Field(gt=0.0, le=10**6), BeforeValidator(take_only)]
BatchSize = Annotated[int, Field(gt=0, le=10**6)]
Crop = Literal["center", "random", "triangular", "stretch"]
Resolutions = Annotated[
    tuple[Annotated[int, Field(ge=16, le=4096, multiple_of=8)], ...], BeforeValidator(as_list), Field(min_length=1)
]

SetCaptions = make_optional_copy(CaptionSettings, "SetCaptions")
SetBuckets = make_optional_copy(BucketSettings, "SetBuckets")
SetClips = make_optional_copy(
    ClipsSettings, "SetClips", ("frames", "interval", "fps", "start", "pieces", "piece_stride", "short")
)
SetMask = make_optional_copy(MaskSettings, "SetMask", ("source", "path"))


class SetSettings(PartialSection):
    """One of several sets of images (`data.sets`). What it does not set is as in `data`."""

    path: Annotated[DataPath, BeforeValidator(take_only), FREE]
    """The folder of its images, in the format `data.format`. Looked up like `data.path`."""

    class_images: Annotated[bool, ALLOW] = False
    """Whether these are class images (`data.prior`), which are neither held out nor counted by `data.max_samples`, and
    do not get the trigger, template and prefix of `data.captions`."""

    weight: Annotated[NonNegativeFloat, ALLOW] = 1.0
    """The loss of its images is multiplied by this; of class images, by `data.prior.weight`, too."""

    repeats: Annotated[Factor | None, ALLOW] = None
    """How often an epoch visits each of its images."""

    batch_size: Annotated[BatchSize | None, ALLOW] = None
    """Samples of one batch over all devices. Sets with different batch sizes are never in one batch."""

    resolution: Annotated[Resolutions | None, ALLOW] = None
    """Its base size, or several."""

    resolution_mode: Annotated[Literal["each", "random"] | None, ALLOW] = None
    """With several base sizes: trained at `each` of them, or at a `random` one."""

    buckets: SetBuckets = SetBuckets()  # type: ignore[valid-type]
    """Its sizes."""

    crop: Annotated[Crop | None, ALLOW] = None
    """Where its images are cropped."""

    jitter: Annotated[Share | None, ALLOW] = None
    """With `crop=triangular`: the largest fraction that is cut from each edge."""

    flip: Annotated[Share | None, ALLOW] = None
    """The probability that its images are mirrored."""

    small_images: Annotated[Literal["upscale", "skip"] | None, ALLOW] = None
    """What happens to images smaller than their bucket."""

    captions: SetCaptions = SetCaptions()  # type: ignore[valid-type]
    """Its captions; every setting of `data.captions`."""

    clips: SetClips = SetClips()  # type: ignore[valid-type]
    """Which frames of its clips are used: `frames`, `interval`, `fps`, `start`, `pieces`, `piece_stride` and `short` of
    `data.clips`. A folder may be listed several times, with another length each."""

    conditions: Annotated[Conditions | None, ALLOW] = None
    """Its condition images, instead of those of `data.conditions`; the names must be the same."""

    mask: SetMask = SetMask()  # type: ignore[valid-type]
    """Where its masks come from: `source` and `path` of `data.mask`."""

    def over(self, shared: DataSettings) -> DataSettings:
        """The section for this set only: the shared one with its own values."""
        if self.class_images:
            none = {"captions.prefix": "", "captions.trigger": "", "captions.template": "", "mask.path": None}
            shared = with_values(shared, none)
        alone = {"path": None, "sets": (), "prior.path": None, "prior.num_class_images": 0}
        return override(with_values(shared, alone), self)
