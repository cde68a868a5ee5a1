"""Preservation by the base model's own prediction."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, PositiveFloat

from mezzotint.settings.base import ALLOW, NEVER, Section, as_list

Kind = Literal["none", "output", "blank", "prompts", "class-images"]

PROMPTS = (
    "a photo of a beach",
    "a portrait of a young woman",
    "a plate of pasta on a table",
    "a forest in autumn",
    "a train at a station",
    "a horse in a field",
    "a watercolor painting of a village",
    "two children playing football in a park",
    "a wooden chair in an empty room",
    "a skyscraper seen from below",
    "a pencil drawing of a tree",
    "a spaceship above a planet, digital art",
)
"""None of them is among those that `run.drift.unrelated` measures by default."""


class PreserveSettings(Section):
    """Holds the trained model to the prediction of the base, the same model without what is trained: what the base
    knows is kept, without class images from elsewhere. See `docs/guides/preservation.md`."""

    kind: Annotated[tuple[Kind, ...], BeforeValidator(as_list), NEVER] = ("none",)
    """What is preserved. `output`: the prediction for each caption with `data.captions.class_word` in place of the
    trigger and of learned tokens, at the same noise and timestep; captions without these words are left out. `blank`:
    the prediction for the empty caption. `prompts`: the prediction for one of `prompts`, drawn for each sample. These
    add `weight` · the mean squared difference between the trained model and the base to each sample's loss, and take
    one more pass with gradients and one without. Several of them, such as `[output, prompts]`, take turns: each sample
    draws one. `class-images`: the target of class images (`data.prior`) is the base's prediction for them instead of
    their noise; one more pass without gradients. All differences are plain mean squared errors, without
    `objective.loss`, weights by noise level, and `data.mask`. The base includes `model.under` and not the adapter of
    `model.adapter.path`."""

    prompts: Annotated[tuple[str, ...], Field(min_length=1), BeforeValidator(as_list), ALLOW] = PROMPTS
    """What `prompts` preserves. Choose prompts that the model can generate, without the subject and its class, and
    other ones than `run.drift.unrelated`, which then measures what was not trained."""

    weight: Annotated[PositiveFloat, ALLOW] = 1.0
    """The weight of the difference in the loss, for all kinds but `class-images`, which has `data.prior.weight`."""

    frozen_copy: Annotated[bool, NEVER] = False
    """Keep a frozen copy of the trained parts in memory as the base. Full training needs one, for `run.drift` as well;
    an adapter does not, because the base is the model with the adapter switched off."""

    @property
    def is_on(self) -> bool:
        """Whether anything is preserved."""
        return not {"none"}.issuperset(self.kind)

    @property
    def adds_pass(self) -> bool:
        """Whether a step has another pass with gradients, for other captions."""
        return self.is_on and self.kind != ("class-images",)

    def describe(self) -> str:
        """The setting as one writes it on the command line."""
        kinds = ",".join(self.kind)
        return f"objective.preserve.kind={kinds if len(self.kind) == 1 else f'[{kinds}]'}"

    def contradictions(self) -> Iterator[str]:
        alone = [kind for kind in self.kind if kind in ("none", "class-images")]
        if alone and len(self.kind) > 1:
            yield f"objective.preserve.kind={alone[0]} stands alone; output, blank and prompts can be combined"
        if not self.is_on and self.weight != 1.0:
            yield (
                "objective.preserve.weight is set, and objective.preserve.kind is none; write "
                "objective.preserve.kind=output, or leave it out"
            )
        if self.kind == ("class-images",) and self.weight != 1.0:
            yield ("objective.preserve.weight is for output, blank and prompts; class images have data.prior.weight")
        if self.prompts != PROMPTS and "prompts" not in self.kind:
            yield (
                "objective.preserve.prompts is set, and objective.preserve.kind does not preserve them; write "
                "objective.preserve.kind=[output,prompts], or leave it out"
            )
