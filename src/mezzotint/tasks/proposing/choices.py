"""What a newcomer chooses, what is known of the chosen model and data, and a setting that is proposed."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from mezzotint.settings.families.base import FamilySpec

Goal = Literal["subject", "style", "concept", "edit", "full"]


@dataclass(frozen=True, slots=True)
class GoalFacts:
    """label, about: of the choice. visits: how often each image is shown, with the reason; None for the steps of the
    recipe. least: steps of a short run. template: how captions are made from the trigger and an image's caption, "" for
    the trigger before it; alone: from the trigger only. prompts: of previews, from the trigger and its class."""

    label: str
    about: str
    visits: int | None
    why: str
    least: int = 0
    template: str = ""
    alone: str = "{trigger}"
    prompts: tuple[str, ...] = ()


GOALS: Mapping[Goal, GoalFacts] = {
    "subject": GoalFacts(
        "Person or subject", "One person, animal or thing, from a few photos.",
        160, "the recipe `subject` shows its three to ten images 1,600 times in all", 400,
        alone="a photo of {trigger}",
        prompts=("a photo of {trigger}", "a drawing of {trigger}, by the sea", "a photo of {class}"),
    ),
    "style": GoalFacts(
        "Style", "How images are made, whatever they show.",
        100, "the recipe `style` shows 20 images 400 times each, and 200 images 40 times", 500,
        template="{caption}, in the style of {trigger}", alone="an image in the style of {trigger}",
        prompts=("a harbour at night, in the style of {trigger}", "a portrait, in the style of {trigger}",
                 "a harbour at night"),
    ),
    "concept": GoalFacts(
        "Concept", "A kind of thing, a pose or a look that captions describe.",
        100, "between the few images of a subject and the many of a style", 500,
        prompts=("{trigger}", "a drawing of {trigger}, by the sea"),
    ),
    "edit": GoalFacts(
        "Edit", "A change by an instruction, from pairs of images before and after.",
        None, "edits differ too much for a rule: compare the previews of several checkpoints",
    ),
    "full": GoalFacts(
        "Full fine-tune", "Every weight of the model, from many captioned images.",
        100, "more visits of few images make the model repeat them", 500,
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """A model. path: for the recipe. label: for messages. pipeline, prediction: see `Starter`. side: the pixels of a
    side that it was trained at, None if unknown. is_file: whether it is a single file. config: for a file that may hold
    only the denoiser, a folder with the other parts, "" for none. shipped: its name if it ships with Mezzotint, else
    ""."""

    path: str
    label: str
    family: str
    pipeline: str = ""
    prediction: str = ""
    side: int | None = None
    is_distilled: bool = False
    is_file: bool = False
    config: str = ""
    shipped: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFacts:
    """A folder of images or clips. captions: how many of them have one. is_named: whether the captions that were read
    contain the trigger. format: of `data.format`, None for the recipe's."""

    path: str
    name: str
    images: int = 0
    clips: int = 0
    captions: int = 0
    is_named: bool = False
    format: str | None = None

    @property
    def is_captioned(self) -> bool:
        """Whether every image and clip has a caption; not of an empty folder."""
        return 0 < self.images + self.clips <= self.captions


@dataclass(frozen=True, slots=True, kw_only=True)
class RunChoices:
    """What a newcomer chooses. before: the images before the edit, as `DataFacts.path`. card: bytes of the graphics
    card, None for the processor. steps: of the run, None for a proposal. name: of the run, "" for one of the trigger or
    the data; taken: names in use."""

    goal: Goal
    model: ModelFacts | None = None
    data: DataFacts | None = None
    before: str = ""
    before_image: str = ""
    trigger: str = ""
    card: int | None = None
    steps: int | None = None
    name: str = ""
    taken: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ProposedSetting:
    """A proposed setting. path: "" for the recipe itself. is_kept: whether the recipe has it already."""

    label: str
    path: str
    value: Any
    reason: str
    is_kept: bool = False

    @property
    def text(self) -> str:
        """The value as in `key=value`."""
        return setting_text(self.value)


def setting_text(value: Any) -> str:
    """A value as in `key=value`: a text as it is, everything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def edits_already(model: ModelFacts, spec: FamilySpec) -> bool:
    return bool(spec.editors) and re.search(spec.editors, model.pipeline) is not None
