"""Which regions of images an inpainting model learns to fill."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Literal

from mezzotint.settings.base import ALLOW, Section, Share
from mezzotint.settings.formats.base import format_spec

if TYPE_CHECKING:
    from mezzotint.settings.sections.data import DataSettings


class InpaintSettings(Section):
    """The regions that an inpainting model (`model.task=inpaint`) learns to fill. It is given the region, and the
    image without it."""

    masks: Annotated[Literal["none", "random", "files"], ALLOW] = "none"
    """Where regions come from. `random` draws up to four rectangles or brush strokes at each visit, a quarter of the
    area on average, like the wide masks of LaMa (Suvorov et al. 2021, arXiv:2109.07161). `files` fills what the masks
    of `data.mask` show in white, an image without a mask as a whole; the loss then counts as `data.mask` says, inside
    the masks only, or with `data.mask.background=1` everywhere. `none` is for other models."""

    full: Annotated[Share, ALLOW] = 0.25
    """The probability that a visit fills the whole image instead, which is text to image. Stable Diffusion's own
    inpainting models were trained with 0.25."""

    @property
    def is_on(self) -> bool:
        """Whether regions are given to the model."""
        return self.masks != "none"


def contradictions(data: DataSettings) -> Iterator[str]:
    """What does not go together with regions to fill."""
    inpaint = data.inpaint
    if not inpaint.is_on:
        if inpaint != InpaintSettings():
            yield "data.inpaint.full has no effect with data.inpaint.masks=none; leave it out, or write masks=random"
        return
    spec = format_spec(data.format)
    if spec.has_clips or spec.is_encoded:
        yield f"data.inpaint needs images, and data.format={data.format} has none; leave it out"
    if data.cache.latents:
        yield (
            "data.cache.latents stores whole images, and data.inpaint needs another masked image at each visit; write "
            "data.cache.latents=false"
        )
    if inpaint.masks == "files" and not data.has_masks:
        yield "data.inpaint.masks=files needs masks; write data.mask.source=files, or masks=random"
    if any("mask" in one.settings.conditions for one in data.image_sets()):
        yield (
            "data.conditions.mask: regions to fill are masks of the data set; write data.inpaint.masks=files "
            "data.mask.source=files data.mask.path=FOLDER instead"
        )
    elif any(one.settings.conditions for one in data.image_sets()):
        yield "data.inpaint and data.conditions are for different models; leave out one of them"
    if data.prior.num_class_images:
        yield "data.prior.num_class_images needs a text-to-image model; generate them with one, and set data.prior.path"
