"""What single images count for: masks, class images of prior preservation, ratings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, NonNegativeFloat, PositiveInt

from mezzotint.settings.base import ALLOW, FREE, DataPath, Section, Share, take_only
from mezzotint.settings.formats.base import format_spec
from mezzotint.settings.sections.captions import CaptionSettings

Folder = Annotated[DataPath | None, BeforeValidator(take_only)]


class PriorSettings(Section):
    """Prior preservation (DreamBooth, Ruiz et al. 2022, arXiv:2208.12242): images of the subject's class, trained
    together with those of the subject, so that the model does not forget what others of the class look like. kohya's
    scripts call them regularisation images."""

    path: Annotated[Folder, FREE] = None
    """The folder of class images, in the format of the data set; with `kohya` a folder that contains `N_class` folders.
    They are neither held out nor counted by `data.max_samples`. Looked up like `data.path`. Short for an entry of
    `data.sets` with `class_images: true`. None, with `num_class_images`, means a folder in the cache, `class-images/`,
    one for each model and prompt."""

    weight: Annotated[NonNegativeFloat, ALLOW] = 1.0
    """The loss of class images is multiplied by this (`prior_loss_weight` in other trainers)."""

    balance: Annotated[Literal["visits", "pairs", "none"], ALLOW] = "visits"
    """How class images are mixed with the others. `visits`: an epoch visits them as often as all others together, as
    kohya's scripts do; if there are more of them, each epoch uses others. `pairs`: every batch has equally many of
    both, and the loss is the mean over the others + `weight` · the mean over the class images, as in diffusers'
    DreamBooth scripts; all have one size then. `none`: each once an epoch, or as often as its folder's name says."""

    class_prompt: Annotated[str, ALLOW] = ""
    """The caption of every class image, such as `a photo of a dog`, instead of caption files. Empty reads captions as
    for other images, without `data.captions.prefix`; with `num_class_images` it is the template with the class in
    `data.captions.trigger`: `a photo of dog` for the trigger `sks dog` and the template `a photo of {trigger}`."""

    dropout: Annotated[bool, ALLOW] = True
    """Whether `data.captions.dropout` applies to class images, too. If not, they always have their captions, as in
    diffusers' scripts for FLUX.2 Klein and Qwen-Image."""

    num_class_images: Annotated[int, Field(ge=0, le=10**7), ALLOW] = 0
    """If the folder has fewer class images, the model generates the missing ones before the run reads its data: with
    `class_prompt` and the section `sample`, in the model's native size (`data.resolution` if its files name none), as
    class-00000.png and so on, which record how they were generated. They are kept, an interrupted start continues, and
    no file is replaced. 100 to 300 are usual and can take hours on a CPU; 0 generates none."""

    @property
    def is_changed(self) -> bool:
        """Whether it has settings that need class images."""
        return self.weight != 1.0 or self.balance != "visits" or bool(self.class_prompt)

    def derive_prompt(self, captions: CaptionSettings) -> str:
        """The default caption of class images: the template with the class of the trigger, which is the trigger without
        its first word. "" if there is no such class."""
        kind = captions.trigger.partition(" ")[2]
        if not kind or not captions.template or "{caption}" in captions.template:
            return kind
        return captions.template.replace("{trigger}", kind)


class MaskSettings(Section):
    """Which parts of an image are trained: the loss is weighted for each latent. An image without a mask counts in
    full."""

    source: Annotated[Literal["none", "alpha", "files"], ALLOW] = "none"
    """Where masks come from. `alpha`: each image's alpha channel. `files`: `NAME-masklabel.png` next to NAME, or the
    folders of `data.mask.path`; for tables the column `mask`, for tar shards `KEY.mask.png`, for lists of clips the key
    `mask`. A clip has one mask for all its frames. White counts, black is background, grey is in between. Mask files
    are not trained as images."""

    path: Annotated[Folder, FREE] = None
    """With `files`: the folder of masks, named like their images, with any extension. Looked up like `data.path`. None
    uses files next to the images."""

    background: Annotated[Share, ALLOW] = 0.0
    """The weight of masked-out parts, 0 to 1; 0 ignores them (`unmasked_weight` in other trainers)."""

    mean: Annotated[Literal["mask", "image"], ALLOW] = "mask"
    """What the weighted error of an image is divided by. `mask`: the sum of its weights, so a small mask counts as much
    as a large one. `image`: the number of its latents, as in kohya's scripts, so a small mask counts little."""

    @property
    def is_on(self) -> bool:
        return self.source != "none"

    def contradictions(self) -> Iterator[str]:
        if not self.is_on and (self.path or self.background or self.mean != "mask"):
            yield "data.mask has no effect without masks; write data.mask.source=alpha or files, or leave it out"
        if self.source == "alpha" and self.path:
            yield "data.mask.path is a folder of mask files; write data.mask.source=files, or leave it out"

    def with_format(self, name: str, *, joined_images: int) -> Iterator[str]:
        """What does not go together with a data format, and with this many images joined to each clip."""
        spec = format_spec(name)
        if not self.is_on:
            return
        if spec.is_encoded or (self.source == "files" and not (spec.reads_masks or spec.own_masks)):
            yield f"data.mask needs decoded images, and data.format={name} has none; leave it out"
        elif spec.has_clips and self.source == "alpha":
            yield "data.mask.source=alpha is for images; clips have no alpha channel, write data.mask.source=files"
        elif spec.has_clips and joined_images:
            yield (
                "data.mask is for clips or for images, and data.clips.images trains both in one loss; write "
                "data.clips.images=0, or leave out data.mask"
            )
        elif self.path and not spec.reads_masks:
            yield f"data.format={name} defines where masks are ({spec.own_masks}); leave out data.mask.path"


class RatingSettings(Section):
    """Fewer images from epoch to epoch, better rated ones more often; for formats with ratings."""

    fraction: Annotated[Share | None, ALLOW] = None
    """Epoch n, from 0, uses the fraction 1 − (n − 1) · (1 − fraction) / `epochs` of the images; the first two epochs
    use all. The images are drawn again each epoch, in proportion to the ratings. None ignores ratings."""

    epochs: Annotated[PositiveInt | None, ALLOW] = None
    """The number of epochs over which the fraction falls; afterwards it stays. Usually the length of the run."""

    def contradictions(self) -> Iterator[str]:
        if (self.fraction is None) != (self.epochs is None):
            yield "data.rating.fraction and data.rating.epochs belong together; give both or none"
