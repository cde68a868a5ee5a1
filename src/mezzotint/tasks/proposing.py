"""Proposes a run for a newcomer: a shipped recipe, the settings to change in it, and a reason for each.

Values are those of the shipped recipes and of the guides. What they leave open X
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from mezzotint.settings.counting import format_count
from mezzotint.settings.families.base import FamilySpec, family_spec
from mezzotint.settings.reading.read import read
from mezzotint.settings.recipe import Recipe

Goal = Literal["subject", "style", "concept", "edit", "full"]
Field = Literal["goal", "model", "data", "before", "trigger", "memory", "name"]


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

_OF_SHIPPED: Mapping[bool, tuple[Mapping[str, Any], str]] = {
    False: (
        {"model.train": ["denoiser"], "model.tokens.words": {}, "optim.part_lr": {}, "data.cache.text": True},
        "as in the demonstration of preservation, which teaches this model a word by its denoiser",
    ),
    True: (
        {"run.steps": 850, "data.repeats": 1, "optim.lr": 1e-3,
         "optim.part_lr": {"text_encoder": 4e-3, "denoiser/conv_in*": 1e-2}},
        "as in the demonstration of editing, which teaches this model to edit",
    ),
}  # fmt: skip
"""By whether it learns to edit: what demonstrations change in the recipes of the model that ships, and the reason."""

_SHIPPED_WEIGHT = 3
"""Of preservation, in the same demonstration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """A model. path: for the recipe. label: for messages. pipeline, prediction: see `Starter`. side: the pixels of a
    side that it was trained at, None if unknown. shipped: its name if it ships with Mezzotint, else ""."""

    path: str
    label: str
    family: str
    pipeline: str = ""
    prediction: str = ""
    side: int | None = None
    is_distilled: bool = False
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
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
class Row:
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
    rows: Sequence[Row] = ()
    others: Mapping[str, Any] = field(default_factory=dict)
    messages: Sequence[Message] = ()

    @property
    def changes(self) -> dict[str, str]:
        """The changes by path, as text of `key=value`."""
        changed = {row.path: row.text for row in self.rows if row.path and not row.is_kept}
        return {path: setting_text(value) for path, value in self.others.items()} | changed


def setting_text(value: Any) -> str:
    """A value as in `key=value`: a text as it is, everything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def propose(choices: Choices) -> Proposal:
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
    draft = _Draft(choices, choices.model, choices.data, spec, base, recipe)
    return Proposal(base, tuple(draft.rows()), draft.others(), messages)


def _find_missing(choices: Choices) -> Iterator[Message]:
    goal, model, data = choices.goal, choices.model, choices.data
    if model is None:
        yield Message("model", "todo", "Choose the model to train.")
    elif model.is_distilled:
        text = (
            f"{model.label} is a distilled model: training destroys its few-step sampling. Choose the base model that "
            "it was made from, or train an adapter over one of `model.under` with All settings."
        )
        yield Message("model", "wrong", text)
    elif goal == "edit" and not _can_edit(model):
        text = f"{model.label} takes no image beside the caption, so it cannot learn to edit; choose another model."
        yield Message("model", "wrong", text)
    if data is None:
        yield Message("data", "todo", "Choose the folder with your images.")
    elif not data.images + data.clips:
        yield Message("data", "wrong", f"{data.name} has no images or clips.")
    elif goal != "edit" and not choices.trigger and data.captions < data.images + data.clips:
        text = f"{_without_captions(data)}: give a word for what they show, or write captions."
        yield Message("trigger", "todo", text)
    elif goal == "edit" and data.captions < data.images + data.clips:
        yield Message("data", "wrong", f"{_without_captions(data)}: each needs its instruction.")
    if goal == "edit" and not choices.before:
        text = "Choose the folder with the images before the edit; each has the name of the one after it."
        yield Message("before", "todo", text)
    if choices.name and choices.name in choices.taken:
        yield Message("name", "wrong", f"There is a run {choices.name} already; write another name.")
    if goal == "subject" and choices.trigger and " " not in choices.trigger:
        text = f"Add what it is, such as “{choices.trigger} dog”: the model then keeps other dogs as they are."
        yield Message("trigger", "hint", text)


def _without_captions(data: DataFacts) -> str:
    lacking, samples = data.images + data.clips - data.captions, "clip" if data.clips > data.images else "image"
    return f"{format_count(lacking, samples)} {'has' if lacking == 1 else 'have'} no caption"


def _find_misfits(choices: Choices, data: DataFacts, recipe: Recipe) -> Iterator[Message]:
    if _takes_clips(recipe) and not data.clips:
        yield Message("data", "wrong", f"This model learns from clips, and {data.name} has only images.")
    elif not _takes_clips(recipe) and not data.images:
        yield Message("data", "wrong", f"This model learns from images, and {data.name} has only clips.")
    if choices.card is None and choices.model is not None and not choices.model.shipped:
        text = (
            "A processor takes hours or days for what a graphics card does in minutes; mezzotint-mini is made for it."
        )
        yield Message("memory", "hint", text)


def _find_base(choices: Choices, model: ModelFacts, spec: FamilySpec) -> str | None:
    """The first of the family's recipes that fits."""
    for starter in spec.starters:
        is_for = starter.fits(
            model=model.shipped, pipeline=model.pipeline, prediction=model.prediction, card=choices.card
        )
        if is_for and _read(starter.recipe).model.has_adapter != _trains_all(choices, spec):
            return starter.recipe
    return None


def _trains_all(choices: Choices, spec: FamilySpec) -> bool:
    """Whether the whole denoiser is trained: also for new input channels, which an adapter cannot fill."""
    return choices.goal == "full" or (
        choices.goal == "edit" and choices.model is not None and not spec.is_flow_matching
        and not _edits_already(choices.model, spec)
    )  # fmt: skip


def _edits_already(model: ModelFacts, spec: FamilySpec) -> bool:
    return bool(spec.editors) and re.search(spec.editors, model.pipeline) is not None


def _can_edit(model: ModelFacts) -> bool:
    spec = family_spec(model.family)
    return _edits_already(model, spec) or "task" not in spec.refuses


def _takes_clips(recipe: Recipe) -> bool:
    return bool(recipe.data.clips.buckets)


@lru_cache(64)
def _read(name: str) -> Recipe:
    return read(name).recipe


@dataclass(frozen=True, slots=True)
class _Draft:
    """A proposal that is being made from valid choices."""

    choices: Choices
    model: ModelFacts
    data: DataFacts
    spec: FamilySpec
    base: str
    recipe: Recipe

    def rows(self) -> Iterator[Row]:
        """What the page shows, with reasons."""
        yield from self._start()
        yield from self._length()
        yield from self._learning()
        yield from self._size()
        yield from self._captions()
        yield from self._keeping()
        yield from self._previews()
        yield from self._device()

    def others(self) -> dict[str, Any]:
        """What follows from the choices and from the rows, by path."""
        goal, steps = self.choices.goal, self._steps
        values: dict[str, Any] = {"run.name": self._name, "data.path": _path_value(self.data.path)}
        if not self.model.shipped:
            values["model.path"] = self.model.path
        if self.data.format is not None:
            values["data.format"] = self.data.format
        if self.recipe.run.epochs is not None:
            values["run.epochs"] = None
        values["run.save.every"] = f"{_quarter(steps)} steps"
        if self.model.shipped and (self.recipe.model.has_adapter or goal == "edit"):
            values |= {path: value for path, value in self._measured[0].items() if path not in _SHOWN}
        if goal == "edit":
            values["data.conditions"] = {"source": {"folder": self.choices.before}}
            if self.choices.before_image:
                values["sample.conditions"] = {"source": self.choices.before_image}
            if not _edits_already(self.model, self.spec) and "task" not in self.spec.refuses:
                values["model.task"] = "edit"
        if self._side != _largest(self.recipe) and self.recipe.sample.size is not None:
            values["sample.size"] = [self._side, self._side]
        if 0 < self.data.captions < self._samples:
            values["data.captions.missing"] = "empty"
        if self.choices.card is None and self.recipe.run.frozen_dtype in ("int8", "nf4"):
            values["run.frozen_dtype"] = "same"
        return values

    # --- rows ---

    def _start(self) -> Iterator[Row]:
        what = "the whole model, which takes much memory"
        if self.recipe.model.has_adapter:
            what = "an adapter (LoRA): a small file beside the model, in a fraction of the memory"
        elif self.choices.goal == "edit":
            what = "the whole model: it gets new inputs for the image, which an adapter cannot fill"
        yield Row("Recipe", "", self.base, f"Ships with Mezzotint. It trains {what}.", True)

    def _length(self) -> Iterator[Row]:
        goal, steps, own = GOALS[self.choices.goal], self._steps, self.recipe.run.steps
        visits = max(1, round(steps * self._per_step / self._samples))
        each = f"{self._samples_text} × {format_count(visits, 'visit')} ÷ {self._per_step} in a step"
        if self.choices.steps is not None:
            why = f"{each}."
        elif self._is_measured("run.steps"):
            why = f"{each}; {self._measured[1]}."
        elif goal.visits is None or self.model.shipped:
            why = f"{each}, as in the recipe" + (f"; {goal.why}." if goal.visits is None else ".")
        elif steps == own:
            why = f"{each}: the most that the recipe trains."
        elif steps == goal.least:
            why = f"{each}: fewer steps learn too little at this rate."
        else:
            why = f"{each}; {goal.why}."
        yield Row("Steps", "run.steps", steps, why, steps == own)

    def _learning(self) -> Iterator[Row]:
        recipe, is_adapter = self.recipe, self.recipe.model.has_adapter
        lr = self._measured[0]["optim.lr"] if self._is_measured("optim.lr") else recipe.optim.lr
        if self._is_measured("optim.lr"):
            why = f"{self._measured[1][0].upper()}{self._measured[1][1:]}."
        elif is_adapter:
            why = (
                "The recipe’s: ten to twenty times that of full training, because the factors of an adapter are small."
            )
        else:
            why = "The recipe’s: small steps, because every weight of the model moves."
        yield Row("Learning rate", "optim.lr", lr, why, lr == recipe.optim.lr)
        if is_adapter:
            rank = recipe.model.adapter.rank
            why = f"The recipe’s: enough for one {self._noun}; a higher rank learns more of it, and forgets more."
            if self.model.shipped:
                why = "The recipe’s, with the convolutions: a new shape needs them."
            yield Row("Rank", "model.adapter.rank", rank, why, True)
        batch = recipe.data.batch_size
        at_once = recipe.run.micro_batch
        passes = f", {at_once} at a time to save memory" if at_once and at_once < batch else ""
        yield Row(
            "Images per step", "data.batch_size", batch, f"The recipe’s: their mean is learned from{passes}.", True
        )

    def _size(self) -> Iterator[Row]:
        if _takes_clips(self.recipe):
            return
        side = self._side
        is_own = side == _largest(self.recipe)
        why = "The size that the model was trained at; images keep their shape."
        if self.recipe.data.buckets.shape == "square":
            why = "The size that the model was trained at; images are cut to squares."
        yield Row("Image size", "data.resolution", side, why, is_own)

    def _captions(self) -> Iterator[Row]:
        trigger, goal = self._trigger, GOALS[self.choices.goal]
        if trigger and not self.data.is_named:  # otherwise the word is where the captions have it
            template = goal.template if self.data.captions else goal.alone
            why = "Write it in a prompt to get what was learned" + ("." if template else "; it is put before each caption.")
            yield Row("Trigger word", "data.captions.trigger", trigger, why)
            if template:
                why = "The image’s own caption, with the word behind it." if self.data.captions else (
                    "Images without captions get this one: only the word is new in it."
                )  # fmt: skip
                how = template.replace("{trigger}", trigger)
                yield Row("Captions", "data.captions.template", template, f"{why} “{how}”")
        if self.choices.goal == "subject" and self.recipe.data.captions.dropout:
            why = "Dropped captions would teach the subject to prompts that do not ask for it."
            yield Row("Dropped captions", "data.captions.dropout", 0, why)
        elif self.choices.goal == "edit" and not self.spec.is_flow_matching:
            yield Row("Dropped captions", "data.captions.dropout", 0, "The next setting does it.")
            why = "5 % of the visits without caption, image or both, so that both can be guided."
            yield Row("Dropped inputs", "data.condition_dropout", 0.05, why)

    def _keeping(self) -> Iterator[Row]:
        if not self._keeps_class:
            return
        _, _, noun = self.choices.trigger.partition(" ")
        why = f"Holds “{noun}” to what the model knew, so that not every {noun} becomes yours; two more passes a step."
        yield Row("Preservation", "objective.preserve.kind", "output", why)
        if self.model.shipped:
            yield Row("Its weight", "objective.preserve.weight", _SHIPPED_WEIGHT, "As in its demonstration.")
        why = f"Measures how much “{noun}” changes beside “{self.choices.trigger}”; at 1 as much."
        yield Row("Meter of leaks", "run.drift.every", f"{_quarter(self._steps)} steps", why)

    def _previews(self) -> Iterator[Row]:
        every = f"{_quarter(self._steps)} steps"
        why = (
            "With a checkpoint, four times in the run: too many steps repeat your images, so compare and keep the best."
        )
        yield Row("Previews", "run.preview.every", every, why)
        prompts = self._prompts
        if prompts:
            whys = ("What is learned", "the same in another way", "and something beside it, which must stay as it was")
            yield Row("Their prompts", "sample.prompts", prompts, ", ".join(whys[: len(prompts)]) + ".")
        elif self.recipe.sample.prompts:
            yield Row("Their prompts", "sample.prompts", [], "None: captions of your images are used.")

    def _device(self) -> Iterator[Row]:
        run = self.recipe.run
        if run.device == "cpu":
            yield Row("Device", "run.device", run.device, "Such a small model trains well on a processor.", True)
        elif self.choices.card is None:
            yield Row("Device", "run.device", "cpu", "This computer’s processor.")
            yield Row("Precision", "run.precision", "fp32", "The type that processors compute fastest.")
        else:
            why = "Half the memory of 32 bits, on every card since 2020."
            if run.precision == "fp16":
                why = "Half the memory of 32 bits."
            yield Row("Precision", "run.precision", run.precision, why, True)

    # --- values ---

    @property
    def _samples(self) -> int:
        return self.data.clips if _takes_clips(self.recipe) else self.data.images

    @property
    def _samples_text(self) -> str:
        return format_count(self._samples, "clip" if _takes_clips(self.recipe) else "image")

    @property
    def _per_step(self) -> int:
        return self.recipe.data.batch_size * self.recipe.optim.accumulation

    @property
    def _steps(self) -> int:
        goal, run = GOALS[self.choices.goal], self.recipe.run
        if self.choices.steps is not None:
            return self.choices.steps
        if self._is_measured("run.steps"):
            return int(self._measured[0]["run.steps"])
        if run.steps is not None and (goal.visits is None or self.model.shipped):
            return run.steps
        visits = goal.visits or int(run.epochs or 1)
        steps = math.ceil(self._samples * visits / self._per_step / 50) * 50
        most = run.steps if run.steps is not None else math.inf
        return int(min(max(goal.least, steps), most))

    @property
    def _side(self) -> int:
        return self.model.side or _largest(self.recipe)

    @property
    def _trigger(self) -> str:
        return "" if self.choices.goal == "edit" else self.choices.trigger

    @property
    def _keeps_class(self) -> bool:
        trigger = self._trigger
        return self.choices.goal == "subject" and " " in trigger and not self.data.is_named

    @property
    def _prompts(self) -> list[str]:
        trigger, goal = self._trigger, GOALS[self.choices.goal]
        if not trigger:
            return []
        if self.model.shipped:  # which has few words
            return [] if self.data.captions else [goal.alone.replace("{trigger}", trigger)]
        _, _, noun = trigger.partition(" ")
        prompts = [one for one in goal.prompts if noun or "{class}" not in one]
        return [one.replace("{trigger}", trigger).replace("{class}", noun) for one in prompts]

    @property
    def _noun(self) -> str:
        return {"style": "style", "concept": "concept"}.get(self.choices.goal, "subject")

    @property
    def _measured(self) -> tuple[Mapping[str, Any], str]:
        return _OF_SHIPPED[self.choices.goal == "edit"]

    def _is_measured(self, path: str) -> bool:
        is_of_demonstration = self.choices.goal == "edit" or self.recipe.model.has_adapter
        return bool(self.model.shipped) and is_of_demonstration and path in self._measured[0]

    @property
    def _name(self) -> str:
        if self.choices.name:
            return self.choices.name
        words = self._trigger or self.data.name
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", words).strip("-._")[:60] or self.choices.goal
        number = next(n for n in range(1, len(self.choices.taken) + 2) if _numbered(name, n) not in self.choices.taken)
        return _numbered(name, number)


_SHOWN = ("run.steps", "optim.lr")


def _numbered(name: str, number: int) -> str:
    return name if number == 1 else f"{name}-{number}"


def _quarter(steps: int) -> int:
    return max(1, steps // 4)


def _largest(recipe: Recipe) -> int:
    return int(max(recipe.data.resolution))


def _path_value(path: str) -> str | list[str]:
    """A path as a value of `data.path`: as it is, or in a list where it would be read as something else."""
    is_plain = not re.search(r"""[\n\r"'\[\]{},#]|: |:$""", path) and path == path.strip()
    return path if is_plain else [str(Path(path))]
