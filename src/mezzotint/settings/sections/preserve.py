"""Preservation by the base model's own prediction."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import PositiveFloat

from mezzotint.settings.base import ALLOW, NEVER, Section


class PreserveSettings(Section):
    """Holds the trained model to the prediction of the base, the same model without what is trained: what the base
    knows is kept, without class images from elsewhere. See `docs/guides/preservation.md`."""

    kind: Annotated[Literal["none", "output", "blank", "class-images"], NEVER] = "none"
    """What is preserved. `output`: the prediction for each caption with `data.captions.class_word` in place of the
    trigger and of learned tokens, at the same noise and timestep; captions without these words are left out. `blank`:
    the prediction for the empty caption. Both add `weight` · the mean squared difference between the trained model and
    the base to each sample's loss, and take one more pass with gradients and one without. `class-images`: the target of
    class images (`data.prior`) is the base's prediction for them instead of their noise; one more pass without
    gradients. The base includes `model.under` and not the adapter of `model.adapter.path`."""

    weight: Annotated[PositiveFloat, ALLOW] = 1.0
    """The weight of the difference in the loss, for `output` and `blank`. That of class images is
    `data.prior.weight`."""

    frozen_copy: Annotated[bool, NEVER] = False
    """Keep a frozen copy of the trained parts in memory as the base. Full training needs one, for `run.drift` as well;
    an adapter does not, because the base is the model with the adapter switched off."""

    @property
    def adds_pass(self) -> bool:
        """Whether a step has another pass with gradients."""
        return self.kind in ("output", "blank")

    def contradictions(self) -> Iterator[str]:
        if self.kind == "none" and self.weight != 1.0:
            yield (
                "objective.preserve.weight is set, and objective.preserve.kind is none; write "
                "objective.preserve.kind=output, or leave it out"
            )
        if self.kind == "class-images" and self.weight != 1.0:
            yield "objective.preserve.weight is for output and blank; class images have data.prior.weight"
