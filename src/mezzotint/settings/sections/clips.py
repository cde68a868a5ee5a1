"""Which frames of a clip are used, and which images are trained with it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import (
    BeforeValidator,
    Field,
    PositiveFloat,
    PositiveInt,
    field_validator,
)

from mezzotint.settings.base import ALLOW, FREE, DataPath, Section, as_list

Side = Annotated[int, Field(ge=8, le=4096, multiple_of=8)]
Paths = Annotated[tuple[DataPath, ...], BeforeValidator(as_list)]


class ClipsSettings(Section):
    """Clips: which frames a visit uses, which clips are used, which images are trained with them."""

    frames: Annotated[int, Field(gt=0, le=10**5), ALLOW] = 17
    """Frames of a sample, an odd number. Video autoencoders encode the first frame separately, so 4 k + 1 frames are
    reconstructed completely (17, 65, 221). 1 trains single frames, and a list may then name images."""

    interval: Annotated[int, Field(gt=0, le=10**6), ALLOW] = 1
    """Use every n-th frame of the clip. Entries that give a start frame are read frame by frame."""

    fps: Annotated[PositiveFloat | None, ALLOW] = None
    """Frames per second of a sample, whatever the clip's frame rate; replaces `interval`. None uses the clip's
    frames."""

    start: Annotated[Literal["random", "first", "not-last"], ALLOW] = "random"
    """The frame at which a visit starts: a `random` one, the `first`, or, as in Open-Sora-Plan, a random one that is
    `not-last` of those possible. Entries that give a start frame use theirs."""

    pieces: Annotated[Annotated[int, Field(gt=0, le=10**5)] | None, ALLOW] = None
    """Each clip gives this many samples, whose starts are evenly spread from its first frame to the last possible one,
    instead of one sample per visit; fewer if it has not so many starts. `data.holdout` takes single pieces."""

    piece_stride: Annotated[Annotated[int, Field(gt=0, le=10**5)] | None, ALLOW] = None
    """Instead of `pieces`: each clip gives a sample at every n-th of its frames (as read, see `interval` and `fps`) at
    which one fits. With n equal to `frames` these are consecutive pieces."""

    short: Annotated[Literal["skip", "repeat", "trim"], ALLOW] = "skip"
    """A clip with too few frames: `skip` leaves it out (counted and named in the data report), `repeat` repeats frames,
    as Open-Sora-Plan does, and `trim` uses the most frames of the form 4 k + 1 that it has."""

    buckets: Annotated[tuple[tuple[Annotated[int, Field(gt=0, le=10**5)], Side, Side], ...], ALLOW] = ()
    """The sizes that batches may have, each [frames, height, width]. A clip goes to the buckets with the most frames
    that it has, then to the nearest shape. Empty: `frames` frames in each size that `data.resolution` and
    `data.buckets` give."""

    min_size: Annotated[PositiveInt | None, ALLOW] = None
    """Clips whose shorter side has fewer pixels are left out. The training size is set by `data.resolution`."""

    max_size: Annotated[PositiveInt | None, ALLOW] = None
    """Clips whose longer side has more pixels are left out."""

    max_aspect: Annotated[Annotated[float, Field(ge=1.0)] | None, ALLOW] = None
    """Clips with a larger aspect ratio, longer side over shorter, are left out."""

    images: Annotated[int, Field(ge=0, le=10**5), ALLOW] = 0
    """How many images are trained with each clip, in the same step and at its noise level; 4 is usual."""

    images_from: Annotated[Literal["none", "clips", "images"], ALLOW] = "none"
    """Where these images come from: evenly spaced frames of the clip with its caption (`clips`), or the image data set
    `images_path` (`images`)."""

    images_path: Annotated[Paths, FREE] = ()
    """With `images_from=images`: the lists or folders of images. Looked up like `data.path`."""

    images_format: Annotated[str | None, ALLOW] = None
    """The format of `images_path`, a name of `data.format`. None: the format of the clips if it has images, too
    (`clip-list`), otherwise `image-folder`."""

    images_order: Annotated[Literal["random", "groups"], ALLOW] = "random"
    """Which images are joined to a clip. `random`: drawn again at each visit. `groups`: always the same; images are cut
    in order into groups of `images`, clip n gets group n, and the last group is left out, as in Open-Sora-Plan."""

    @field_validator("frames")
    @classmethod
    def _check_frame_count(cls, value: int) -> int:
        if value % 2 == 0:
            raise ValueError(_even_message(value))
        return value

    @field_validator("buckets")
    @classmethod
    def _check_frame_counts(cls, value: tuple[tuple[int, int, int], ...]) -> tuple[tuple[int, int, int], ...]:
        for frames, _, _ in value:
            if frames % 2 == 0:
                raise ValueError(_even_message(frames))
        if len(set(value)) < len(value):
            raise ValueError("a size is listed twice")
        return value

    @property
    def draws_start(self) -> bool:
        """Whether the start of a visit is random."""
        return self.start != "first" and not self.is_cut

    @property
    def is_cut(self) -> bool:
        """Whether clips are cut into pieces."""
        return bool(self.pieces or self.piece_stride)

    def contradictions(self) -> Iterator[str]:
        longest = max((frames for frames, _, _ in self.buckets), default=self.frames)
        if longest != self.frames:
            yield (
                f"data.clips.frames is {self.frames}, but the longest of data.clips.buckets has {longest}; write "
                f"data.clips.frames={longest}"
            )
        if self.pieces and self.piece_stride:
            yield "data.clips.pieces and piece_stride both cut clips into pieces; give one of them"
        if self.is_cut and (self.start != "random" or self.short != "skip" or self.buckets):
            name = "start" if self.start != "random" else "short" if self.short != "skip" else "buckets"
            cut = "pieces" if self.pieces else "piece_stride"
            yield f"data.clips.{name} does not work with data.clips.{cut}, which sets the start of each sample"
        if self.short == "trim" and self.buckets:
            yield "data.clips.short=trim does not work with data.clips.buckets, which list the lengths"
        if self.fps is not None and self.interval != 1:
            yield "data.clips.fps replaces data.clips.interval; leave one of them out"
        if self.fps is not None and self.short == "repeat":
            yield (
                "data.clips.short=repeat does not work with data.clips.fps; write data.clips.short=skip, or "
                "data.clips.interval instead of the rate"
            )
        yield from self._image_contradictions()

    def _image_contradictions(self) -> Iterator[str]:
        """Images without a source, and a source without images."""
        if self.images and self.images_from == "none":
            yield (
                f"data.clips.images is {self.images}, and data.clips.images_from is none; write "
                "data.clips.images_from=clips, or images_from=images and images_path, or images=0"
            )
        if self.images_from != "none" and not self.images:
            yield ("data.clips.images_from has no effect with data.clips.images=0; set how many, such as images=4")
        if self.images_from == "clips" and self.images > min((size[0] for size in self.buckets), default=self.frames):
            yield (
                f"data.clips.images is {self.images}, more than a sample has frames; lower it, or set "
                "data.clips.images_from=images"
            )
        if (self.images_from == "images") != bool(self.images_path):
            yield ("data.clips.images_path and data.clips.images_from=images belong together; give both or none")
        if self.images_from != "images" and (self.images_format, self.images_order) != (None, "random"):
            yield (
                "data.clips.images_format and data.clips.images_order have no effect without "
                "data.clips.images_from=images; leave them out"
            )


def _even_message(frames: int) -> str:
    return (
        f"clips need an odd number of frames, got {frames}; write {frames - 1} or {frames + 1} (the autoencoder "
        "reconstructs 4 k + 1 frames completely: 17, 65, 221)"
    )
