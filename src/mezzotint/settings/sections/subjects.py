"""What single pictures count: masks, class pictures beside those of a subject, ratings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, NonNegativeFloat, PositiveInt

from mezzotint.settings.base import ALLOW, FREE, DataPath, Section, Share, as_list
from mezzotint.settings.formats.base import format_spec
from mezzotint.settings.sections.captions import CaptionSettings

Paths = Annotated[tuple[DataPath, ...], BeforeValidator(as_list)]


class PriorSettings(Section):
    """Prior preservation (DreamBooth, Ruiz et al. 2022, arXiv:2208.12242): pictures of the subject's class, trained
    beside those of the subject, so that the model does not forget what others of its kind look like. kohya's scripts
    call them regularisation images."""

    path: Annotated[Paths, FREE] = ()
    """The folder of class pictures, or a list of folders, in the format of the data set; of `kohya` a folder with
    `N_class` folders in it. They are neither held out nor counted by `data.max_samples`. Looked up as `data.path`.
    Empty, with `num_class_images`, is a folder in the cache, `class-pictures/`, of its own for each model and
    prompt."""

    weight: Annotated[NonNegativeFloat, ALLOW] = 1.0
    """What the loss of a class picture is multiplied by (`prior_loss_weight` elsewhere)."""

    balance: Annotated[Literal["visits", "pairs", "none"], ALLOW] = "visits"
    """How class pictures stand beside the others. `visits`: an epoch visits them as often as all others together, as
    kohya's scripts do; where there are more of them, others in each epoch. `pairs`: every batch has equally many of
    both, and the loss is the mean over the others + `weight` · the mean over them, as diffusers' DreamBooth scripts
    have it; all are of one size then. `none`: each once an epoch, or as often as its folder's name says."""

    class_prompt: Annotated[str, ALLOW] = ""
    """The caption of every class picture, such as `a photo of a dog`, whatever lies beside it. Empty takes captions as
    those of other pictures, without `data.captions.prefix`; with `num_class_images`, the template with the class in
    `data.captions.trigger`: `a photo of dog` for the trigger `sks dog` and the template `a photo of {trigger}`."""

    dropout: Annotated[bool, ALLOW] = True
    """Whether `data.captions.dropout` holds for class pictures, too. Without it they always have their captions, as
    diffusers' scripts for FLUX.2 Klein and Qwen-Image have it."""

    num_class_images: Annotated[int, Field(ge=0, le=10**7), ALLOW] = 0
    """Where the folder has fewer class pictures, the model generates the missing ones before the run looks at its
    data: by `class_prompt` and the section `sample`, in the size that the model was made for (`data.resolution` where
    its files name none), as class-00000.png and so on, which record how they were made. They are kept, an interrupted
    start goes on, and no file is replaced. 100 to 300 are usual, which can take hours on a CPU; 0 generates none."""

    def contradictions(self) -> Iterator[str]:
        if self.num_class_images and len(self.path) > 1:
            yield (
                "data.prior.num_class_images generates pictures into one folder, and data.prior.path names several; "
                "give one, or leave out num_class_images"
            )
        is_set = self.weight != 1.0 or self.balance != "visits" or self.class_prompt
        if is_set and not (self.path or self.num_class_images):
            yield (
                "data.prior has no effect without class pictures; write data.prior.path=FOLDER, "
                "data.prior.num_class_images=100, or data.prior={} for none"
            )

    def derived_prompt(self, captions: CaptionSettings) -> str:
        """The caption of class pictures where none is written: the one template with the class of the one trigger,
        which is the trigger without its first word. "" where there is no such class."""
        triggers, templates = set(captions.trigger), set(captions.template)
        kind = next(iter(triggers)).partition(" ")[2] if len(triggers) == 1 else ""
        template = next(iter(templates)) if len(templates) == 1 else ""
        if not kind or "{caption}" in template:
            return kind
        return template.replace("{trigger}", kind) if template else kind


class MaskSettings(Section):
    """Which parts of a picture are learnt: the loss is weighted latent by latent. A picture without a mask counts
    whole."""

    source: Annotated[Literal["none", "alpha", "files"], ALLOW] = "none"
    """Where masks are: `alpha` takes each picture's own opacity; `files` takes `NAME-masklabel.png` beside NAME, or the
    folders of `data.mask.path`; of tables the column `mask`, of tar shards `KEY.mask.png`, of lists of clips the key
    `mask`. A clip has one mask for all its frames. White counts, black is background, grey lies between. Files that are
    masks are not trained as pictures."""

    path: Annotated[Paths, FREE] = ()
    """With `files`, the folder in which masks lie under the names of their pictures, with any ending; or one folder for
    each of `data.path`. Looked up as `data.path`. Empty takes files beside the pictures."""

    background: Annotated[Share, ALLOW] = 0.0
    """The weight of what a mask leaves out, 0 to 1: 0 learns nothing of it (`unmasked_weight` elsewhere)."""

    mean: Annotated[Literal["mask", "picture"], ALLOW] = "mask"
    """What the weighted error of a picture is divided by: `mask`, the sum of its weights, so that a small mask counts
    as much as a large one; `picture`, the number of its latents, as kohya's scripts do, so that a small mask counts
    little."""

    @property
    def is_on(self) -> bool:
        return self.source != "none"

    def contradictions(self) -> Iterator[str]:
        if not self.is_on and (self.path or self.background or self.mean != "mask"):
            yield "data.mask has no effect without masks; write data.mask.source=alpha or files, or leave it out"
        if self.source == "alpha" and self.path:
            yield "data.mask.path is a folder of mask files; write data.mask.source=files, or leave it out"

    def with_format(self, name: str, *, stills: int) -> Iterator[str]:
        """What does not go together with a format of data, and with so many pictures beside each clip."""
        spec = format_spec(name)
        if not self.is_on:
            return
        if spec.is_encoded or (self.source == "files" and not (spec.reads_masks or spec.own_masks)):
            yield f"data.mask is for pictures that are decoded, and data.format={name} gives none; leave it out"
        elif spec.has_clips and self.source == "alpha":
            yield "data.mask.source=alpha is of pictures, and clips have no opacity; write data.mask.source=files"
        elif spec.has_clips and stills:
            yield (
                "data.mask is of clips or of pictures, and data.clips.images trains both in one loss; write "
                "data.clips.images=0, or leave out data.mask"
            )
        elif self.path and not spec.reads_masks:
            yield f"data.format={name} has masks of its own ({spec.own_masks}); leave out data.mask.path"


class RatingSettings(Section):
    """Fewer pictures from epoch to epoch, the better ones more often; for formats in which pictures are rated."""

    fraction: Annotated[Share | None, ALLOW] = None
    """Epoch n, from 0, uses the share 1 − (n − 1) · (1 − share) / `epochs` of the pictures, the first two epochs all
    of them. Which, is drawn anew each epoch, in proportion to the ratings. None does not look at ratings."""

    epochs: Annotated[PositiveInt | None, ALLOW] = None
    """Over so many epochs the share falls; afterwards it stays. Usually the length of the run."""

    def contradictions(self) -> Iterator[str]:
        if (self.fraction is None) != (self.epochs is None):
            yield "data.rating.fraction and data.rating.epochs belong together; give both or none"
