"""Which frames of a clip are seen, and which pictures are trained beside it."""

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
    """Clips: which frames a visit sees, which clips are used, which pictures are trained beside them."""

    frames: Annotated[int, Field(gt=0, le=10**5), ALLOW] = 17
    """Frames of a sample, an odd number: autoencoders of clips keep the first frame apart, so 4 k + 1 comes back whole
    (17, 65, 221). 1 trains single frames, and a list may then name pictures."""

    interval: Annotated[int, Field(gt=0, le=10**6), ALLOW] = 1
    """Every so many-th frame of the clip is seen. An entry that says where it begins is read frame by frame."""

    fps: Annotated[PositiveFloat | None, ALLOW] = None
    """Frames a second that are seen, whatever the clip's own rate; in the place of `interval`. None counts the
    clip's own frames."""

    start: Annotated[Literal["random", "first", "not-last"], ALLOW] = "random"
    """Which frame of a clip a visit starts at: a `random` one, the `first`, or, as in Open-Sora-Plan, a random one that
    is `not-last` of those possible. An entry that says where it begins has its own."""

    short: Annotated[Literal["skip", "repeat"], ALLOW] = "skip"
    """A clip with too few frames: `skip` leaves it out (counted and named in the data report), `repeat` shows frames
    several times, as Open-Sora-Plan does."""

    buckets: Annotated[tuple[tuple[Annotated[int, Field(gt=0, le=10**5)], Side, Side], ...], ALLOW] = ()
    """The sizes that batches may have, each [frames, height, width]. A clip goes to the most frames that it has, then
    to the nearest shape. Empty: `frames` of each size that `data.resolution` and `data.buckets` make."""

    min_size: Annotated[PositiveInt | None, ALLOW] = None
    """A clip whose shorter side has fewer pixels is left out. What it is trained at says `data.resolution`."""

    max_size: Annotated[PositiveInt | None, ALLOW] = None
    """A clip whose longer side has more pixels is left out."""

    max_aspect: Annotated[Annotated[float, Field(ge=1.0)] | None, ALLOW] = None
    """A clip more elongated than this, longer side over shorter, is left out."""

    images: Annotated[int, Field(ge=0, le=10**5), ALLOW] = 0
    """Pictures that are trained beside each clip, in the same step and at its noise level; 4 is usual."""

    images_from: Annotated[Literal["none", "clips", "images"], ALLOW] = "none"
    """Where those pictures come from: frames of the clip itself, evenly spread, with its caption (`clips`), or a data
    set of pictures, `images_path` (`images`)."""

    images_path: Annotated[Paths, FREE] = ()
    """With `images_from=images`: the lists or folders of pictures. Looked up as `data.path`."""

    images_format: Annotated[str | None, ALLOW] = None
    """How the pictures of `images_path` are written down, a name of `data.format`. None: as the clips, where
    their format has pictures too (`clip-list`), else as a folder of pictures, `image-folder`."""

    images_order: Annotated[Literal["random", "groups"], ALLOW] = "random"
    """Which pictures stand beside a clip: `random`, drawn anew at each visit, or always the same: `groups` cuts them in
    their order into groups of `images` and gives clip n group n; the last group is left out, as Open-Sora-Plan does."""

    @field_validator("frames")
    @classmethod
    def _is_odd(cls, value: int) -> int:
        if value % 2 == 0:
            raise ValueError(_even(value))
        return value

    @field_validator("buckets")
    @classmethod
    def _are_odd(cls, value: tuple[tuple[int, int, int], ...]) -> tuple[tuple[int, int, int], ...]:
        for frames, _, _ in value:
            if frames % 2 == 0:
                raise ValueError(_even(frames))
        if len(set(value)) < len(value):
            raise ValueError("a size stands twice")
        return value

    def contradictions(self) -> Iterator[str]:
        longest = max((frames for frames, _, _ in self.buckets), default=self.frames)
        if longest != self.frames:
            yield (
                f"data.clips.frames is {self.frames}, and the longest of data.clips.buckets has {longest}; write "
                f"data.clips.frames={longest}"
            )
        if self.fps is not None and self.interval != 1:
            yield "data.clips.fps takes the place of data.clips.interval; leave one of them out"
        if self.fps is not None and self.short == "repeat":
            yield (
                "data.clips.short=repeat has no meaning with data.clips.fps; write data.clips.short=skip, or "
                "data.clips.interval instead of the rate"
            )
        yield from self._about_stills()

    def _about_stills(self) -> Iterator[str]:
        """Pictures without a source, and a source without pictures."""
        if self.images and self.images_from == "none":
            yield (
                f"data.clips.images is {self.images} and nothing says where these pictures come from; write "
                "data.clips.images_from=clips, or images_from=images and images_path, or images=0"
            )
        if self.images_from != "none" and not self.images:
            yield ("data.clips.images_from has no effect with data.clips.images=0; set how many, such as images=4")
        if self.images_from == "clips" and self.images > min((one[0] for one in self.buckets), default=self.frames):
            yield (
                f"data.clips.images is {self.images}, more than a sample has frames; lower it, or take the pictures "
                "from data.clips.images_from=images"
            )
        if (self.images_from == "images") != bool(self.images_path):
            yield ("data.clips.images_path and data.clips.images_from=images belong together; give both or none")
        if self.images_from != "images" and (self.images_format, self.images_order) != (None, "random"):
            yield (
                "data.clips.images_format and data.clips.images_order have no effect without "
                "data.clips.images_from=images; leave them out"
            )


def _even(frames: int) -> str:
    return (
        f"clips have an odd number of frames, got {frames}; write {frames - 1} or {frames + 1} (4 k + 1 comes back "
        "whole from the autoencoder: 17, 65, 221)"
    )
