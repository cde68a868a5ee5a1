"""What is learnt besides the pictures of a subject, so that its class is not forgotten: class pictures."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import BeforeValidator, NonNegativeFloat

from mezzotint.recipe.base import ALLOW, FREE, DataPath, Section, as_list

Paths = Annotated[tuple[DataPath, ...], BeforeValidator(as_list)]


class PriorSettings(Section):
    """Prior preservation (DreamBooth, Ruiz et al. 2022, arXiv:2208.12242): pictures of the subject's class, trained
    beside those of the subject, so that the model does not forget what others of its kind look like. kohya's scripts
    call them regularisation images."""

    path: Annotated[Paths, FREE] = ()
    """The folder of class pictures, or a list of folders, in the format of the data set; of `kohya` a folder with
    `N_class` folders in it. They are neither held out nor counted by `data.max_samples`. Looked up as `data.path`."""

    weight: Annotated[NonNegativeFloat, ALLOW] = 1.0
    """What the loss of a class picture is multiplied by (`prior_loss_weight` elsewhere)."""

    balance: Annotated[Literal["visits", "pairs", "none"], ALLOW] = "visits"
    """How class pictures stand beside the others. `visits`: an epoch visits them as often as all others together, as
    kohya's scripts do; where there are more of them, others in each epoch. `pairs`: every batch has equally many of
    both, and the loss is the mean over the others + `weight` · the mean over them, as diffusers' DreamBooth scripts
    have it; all are of one size then. `none`: each once an epoch, or as often as its folder's name says."""

    def contradictions(self) -> Iterator[str]:
        if not self.path and (self.weight != 1.0 or self.balance != "visits"):
            yield "data.prior has no effect without class pictures; write data.prior.path=FOLDER, or leave it out"
