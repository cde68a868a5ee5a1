"""Clips drawn from a model: their length, and the files they are written to."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, PositiveInt

from mezzotint.recipe.base import FREE, Section

Codec = Literal["h264", "mpeg4"]


class ClipSampleSettings(Section):
    """Clips of models that draw them (family `latte`). Each is an .mp4, and a strip of its frames on the contact
    sheet."""

    frames: Annotated[PositiveInt | None, FREE] = None
    """How many frames are drawn; 4k + 1 wastes none (17, 65, 221). 1 draws pictures. None is as many as are trained
    (`data.clips.frames`), and of a model alone as many as its configuration was made for."""

    rate: Annotated[Annotated[float, Field(gt=0.0, le=240.0)], FREE] = 24.0
    """Frames a second of the files."""

    codec: Annotated[Codec, FREE] = "h264"
    """How they are encoded: `h264` plays everywhere; `mpeg4`, the older MPEG-4 part 2, where this PyAV has no encoder
    for it. The verb says so and takes the other when the one that is asked for is not there."""

    quality: Annotated[Annotated[int, Field(ge=1, le=31)], FREE] = 10
    """How much is lost: 1 nearly nothing, 31 most."""
