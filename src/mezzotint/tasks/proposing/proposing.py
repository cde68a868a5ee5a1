"""Proposes a run for choices, or says at which of them it is missing something."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal

from mezzotint.settings.counting import format_count
from mezzotint.settings.families.base import FamilySpec, family_spec
from mezzotint.settings.reading.read import read
from mezzotint.settings.recipe import Recipe
from mezzotint.tasks.proposing._draft import ProposalDraft, takes_clips
from mezzotint.tasks.proposing.choices import (
    DataFacts,
    ModelFacts,
    ProposedSetting,
    RunChoices,
    edits_already,
    setting_text,
)

Field = Literal["goal", "model", "data", "before", "trigger", "memory", "name"]


@dataclass(frozen=True, slots=True)
class Message:
    """A message at a field. kind: `todo` for a choice that is missing, `wrong` for one that is impossible, `hint`."""

    field: Field
    kind: Literal["todo", "wrong", "hint"]
    text: str


@dataclass(frozen=True, slots=True)
class Proposal:
    """The recipe to start from, the settings to change in it, and messages. base: "" if a choice is missing or
    impossible. others: settings that follow from the rest, such as the paths."""

    base: str = ""
    rows: Sequence[ProposedSetting] = ()
    others: Mapping[str, Any] = field(default_factory=dict)
    messages: Sequence[Message] = ()

    @property
    def changes(self) -> dict[str, str]:
        """The changes by path, as text of `key=value`."""
        changed = {row.path: row.text for row in self.rows if row.path and not row.is_kept}
        return {path: setting_text(value) for path, value in self.others.items()} | changed


def propose(choices: RunChoices) -> Proposal:
    """The proposal for choices; without a base recipe as long as one is missing or impossible."""
    messages = list(_find_missing(choices))
    if choices.model is None or choices.data is None or any(one.kind != "hint" for one in messages):
        return Proposal(messages=messages)
    spec = family_spec(choices.model.family)
    base = _find_base(choices, choices.model, spec)
    if base is None:
        trains = "full fine-tuning" if _trains_all(choices, spec) else "adapters"
        text = f"Mezzotint ships no recipe for {trains} of {spec.label}; write one with All settings."
        return Proposal(messages=[*messages, Message("model", "wrong", text)])
    recipe = _read(base)
    messages += _find_misfits(choices, choices.data, recipe)
    if any(one.kind == "wrong" for one in messages):
        return Proposal(messages=messages)
    draft = ProposalDraft(choices, choices.model, choices.data, spec, base, recipe)
    return Proposal(base, tuple(draft.rows()), draft.others(), messages)


def _find_missing(choices: RunChoices) -> Iterator[Message]:
    goal, model, data = choices.goal, choices.model, choices.data
    if model is None:
        yield Message("model", "todo", "Choose the model to train.")
    elif model.is_distilled:
        text = (
            f"{model.label} is a distilled model: training destroys its few-step sampling. Choose the base model that "
            "it was made from, or train an adapter over one of `model.under` with All settings."
        )
        yield Message("model", "wrong", text)
    elif model.is_file and not model.config and family_spec(model.family).is_flow_matching:
        text = (
            "Such a file often has only the denoiser. If text encoders or VAE are missing, put a folder of the model "
            "in diffusers’ layout below the page’s folders, or set model.config with All settings."
        )
        yield Message("model", "hint", text)
    if model is not None and goal == "edit" and not _can_edit(model):
        text = f"{model.label} takes no image beside the caption, so it cannot learn to edit; choose another model."
        yield Message("model", "wrong", text)
    if data is None:
        yield Message("data", "todo", "Choose the folder with your images.")
    elif not data.images + data.clips:
        yield Message("data", "wrong", f"{data.name} has no images or clips.")
    elif goal != "edit" and not choices.trigger and not data.is_captioned:
        text = f"{_without_captions(data)}: give a word for what they show, or write captions."
        yield Message("trigger", "todo", text)
    elif goal == "edit" and not data.is_captioned:
        yield Message("data", "wrong", f"{_without_captions(data)}: each needs its instruction.")
    if goal == "edit" and not choices.before:
        text = "Choose the folder with the images before the edit; each has the name of the one after it."
        yield Message("before", "todo", text)
    if choices.name and choices.name in choices.taken:
        yield Message("name", "wrong", f"There is a run {choices.name} already; write another name.")
    if goal in ("subject", "concept") and not choices.trigger and data is not None and data.is_captioned:
        text = "Without a word of its own, what is learned answers to the words of the captions."
        yield Message("trigger", "hint", text)
    if goal == "subject" and choices.trigger and " " not in choices.trigger:
        text = f"Add what it is, such as “{choices.trigger} dog”: the model then keeps other dogs as they are."
        yield Message("trigger", "hint", text)


def _without_captions(data: DataFacts) -> str:
    lacking, samples = data.images + data.clips - data.captions, "clip" if data.clips > data.images else "image"
    return f"{format_count(lacking, samples)} {'has' if lacking == 1 else 'have'} no caption"


def _find_misfits(choices: RunChoices, data: DataFacts, recipe: Recipe) -> Iterator[Message]:
    if takes_clips(recipe) and not data.clips:
        yield Message("data", "wrong", f"This model learns from clips, and {data.name} has only images.")
    elif not takes_clips(recipe) and not data.images:
        yield Message("data", "wrong", f"This model learns from images, and {data.name} has only clips.")
    if choices.card is None and choices.model is not None and not choices.model.shipped:
        text = (
            "A processor takes hours or days for what a graphics card does in minutes; mezzotint-mini is made for it."
        )
        yield Message("memory", "hint", text)


def _find_base(choices: RunChoices, model: ModelFacts, spec: FamilySpec) -> str | None:
    """The first of the family's recipes that fits."""
    for starter in spec.starters:
        is_for = starter.fits(
            model=model.shipped, pipeline=model.pipeline, prediction=model.prediction, card=choices.card
        )
        if is_for and _read(starter.recipe).model.has_adapter != _trains_all(choices, spec):
            return starter.recipe
    return None


def _trains_all(choices: RunChoices, spec: FamilySpec) -> bool:
    """Whether the whole denoiser is trained: also for new input channels, which an adapter cannot fill."""
    return choices.goal == "full" or (
        choices.goal == "edit" and choices.model is not None and not spec.is_flow_matching
        and not edits_already(choices.model, spec)
    )  # fmt: skip


def _can_edit(model: ModelFacts) -> bool:
    spec = family_spec(model.family)
    return edits_already(model, spec) or "task" not in spec.refuses


@lru_cache(64)
def _read(name: str) -> Recipe:
    return read(name).recipe
