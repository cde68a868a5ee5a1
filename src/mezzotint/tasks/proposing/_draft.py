"""The settings of a proposal, with their reasons, from valid choices."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from mezzotint.settings.counting import format_count
from mezzotint.settings.families.base import FamilySpec
from mezzotint.settings.recipe import Recipe
from mezzotint.tasks.proposing.choices import (
    GOALS,
    DataFacts,
    ModelFacts,
    ProposedSetting,
    RunChoices,
    edits_already,
)

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

_SHIPPED_WEIGHT = 1.25
_SHIPPED_PROMPTS = ("a red circle", "a blue square", "a yellow star", "a green circle", "a black square", "a pink star")
"""Of preservation, in the same demonstration."""


def takes_clips(recipe: Recipe) -> bool:
    return bool(recipe.data.clips.buckets)


@dataclass(frozen=True, slots=True)
class ProposalDraft:
    """A proposal that is being made from valid choices."""

    choices: RunChoices
    model: ModelFacts
    data: DataFacts
    spec: FamilySpec
    base: str
    recipe: Recipe

    def rows(self) -> Iterator[ProposedSetting]:
        """What the page shows, with reasons."""
        yield from self._start()
        yield from self._parts()
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
            if not edits_already(self.model, self.spec) and "task" not in self.spec.refuses:
                values["model.task"] = "edit"
        if self._side != _largest(self.recipe) and self.recipe.sample.size is not None:
            values["sample.size"] = [self._side, self._side]
        if 0 < self.data.captions < self._samples:
            values["data.captions.missing"] = "empty"
        if self.choices.card is None and self.recipe.run.frozen_dtype in ("int8", "nf4"):
            values["run.frozen_dtype"] = "same"
        return values

    # --- rows ---

    def _start(self) -> Iterator[ProposedSetting]:
        what = "the whole model, which takes much memory"
        if self.recipe.model.has_adapter:
            what = "an adapter (LoRA): a small file beside the model, in a fraction of the memory"
        elif self.choices.goal == "edit":
            what = "the whole model: it gets new inputs for the image, which an adapter cannot fill"
        yield ProposedSetting("Recipe", "", self.base, f"Ships with Mezzotint. It trains {what}.", True)

    def _parts(self) -> Iterator[ProposedSetting]:
        if self.model.config:
            why = f"A file of {self.spec.label} often has only the denoiser; the rest is read from this folder."
            yield ProposedSetting("Other parts", "model.config", self.model.config, why)

    def _length(self) -> Iterator[ProposedSetting]:
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
        yield ProposedSetting("Steps", "run.steps", steps, why, steps == own)

    def _learning(self) -> Iterator[ProposedSetting]:
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
        yield ProposedSetting("Learning rate", "optim.lr", lr, why, lr == recipe.optim.lr)
        if is_adapter:
            rank = recipe.model.adapter.rank
            why = f"The recipe’s: enough for one {self._noun}; a higher rank learns more of it, and forgets more."
            if self.model.shipped:
                why = "The recipe’s, with the convolutions: a new shape needs them."
            yield ProposedSetting("Rank", "model.adapter.rank", rank, why, True)
        batch = recipe.data.batch_size
        at_once = recipe.run.micro_batch
        passes = f", {at_once} at a time to save memory" if at_once and at_once < batch else ""
        yield ProposedSetting(
            "Images per step", "data.batch_size", batch, f"The recipe’s: their mean is learned from{passes}.", True
        )

    def _size(self) -> Iterator[ProposedSetting]:
        if takes_clips(self.recipe):
            return
        side = self._side
        is_own = side == _largest(self.recipe)
        why = "The size that the model was trained at; images keep their shape."
        if self.recipe.data.buckets.shape == "square":
            why = "The size that the model was trained at; images are cut to squares."
        yield ProposedSetting("Image size", "data.resolution", side, why, is_own)

    def _captions(self) -> Iterator[ProposedSetting]:
        trigger, goal = self._trigger, GOALS[self.choices.goal]
        if trigger and not self.data.is_named:  # otherwise the word is where the captions have it
            template = goal.template if self.data.captions else goal.alone
            where = "" if template else "; it is put before each caption"
            why = f"Write it in a prompt to get what was learned{where}."
            yield ProposedSetting("Trigger word", "data.captions.trigger", trigger, why)
            if template:
                why = "The image’s own caption, with the word behind it." if self.data.captions else (
                    "Images without captions get this one: only the word is new in it."
                )  # fmt: skip
                how = template.replace("{trigger}", trigger)
                yield ProposedSetting("Captions", "data.captions.template", template, f"{why} “{how}”")
        if self.choices.goal == "subject" and self.recipe.data.captions.dropout:
            why = "Dropped captions would teach the subject to prompts that do not ask for it."
            yield ProposedSetting("Dropped captions", "data.captions.dropout", 0, why)
        elif self.choices.goal == "edit" and not self.spec.is_flow_matching:
            yield ProposedSetting("Dropped captions", "data.captions.dropout", 0, "The next setting does it.")
            why = "5 % of the visits without caption, image or both, so that both can be guided."
            yield ProposedSetting("Dropped inputs", "data.condition_dropout", 0.05, why)

    def _keeping(self) -> Iterator[ProposedSetting]:
        if not self._keeps_class:
            return
        _, _, noun = self.choices.trigger.partition(" ")
        why = (
            f"Holds “{noun}”, and a dozen everyday prompts, to what the model knew, so that not every {noun} becomes "
            "yours; two more passes a step."
        )
        yield ProposedSetting("Preservation", "objective.preserve.kind", ["output", "prompts"], why)
        if self.model.shipped:
            yield ProposedSetting(
                "Its weight", "objective.preserve.weight", _SHIPPED_WEIGHT, "As in its demonstration."
            )
            why = "This model knows only coloured shapes."
            yield ProposedSetting("Its prompts", "objective.preserve.prompts", list(_SHIPPED_PROMPTS), why)
        why = f"Measures how much “{noun}” changes beside “{self.choices.trigger}”; at 1 as much."
        yield ProposedSetting("Meter of leaks", "run.drift.every", f"{_quarter(self._steps)} steps", why)

    def _previews(self) -> Iterator[ProposedSetting]:
        every = f"{_quarter(self._steps)} steps"
        why = (
            "With a checkpoint, four times in the run: too many steps repeat your images, so compare and keep the best."
        )
        yield ProposedSetting("Previews", "run.preview.every", every, why)
        prompts = self._prompts
        if prompts:
            whys = ("What is learned", "the same in another way", "and something beside it, which must stay as it was")
            yield ProposedSetting("Their prompts", "sample.prompts", prompts, ", ".join(whys[: len(prompts)]) + ".")
        elif self.recipe.sample.prompts:
            yield ProposedSetting("Their prompts", "sample.prompts", [], "None: captions of your images are used.")

    def _device(self) -> Iterator[ProposedSetting]:
        run = self.recipe.run
        if run.device == "cpu":
            yield ProposedSetting(
                "Device", "run.device", run.device, "Such a small model trains well on a processor.", True
            )
        elif self.choices.card is None:
            yield ProposedSetting("Device", "run.device", "cpu", "This computer’s processor.")
            yield ProposedSetting("Precision", "run.precision", "fp32", "The type that processors compute fastest.")
        else:
            why = "Half the memory of 32 bits, on every card since 2020."
            if run.precision == "fp16":
                why = "Half the memory of 32 bits."
            yield ProposedSetting("Precision", "run.precision", run.precision, why, True)

    # --- values ---

    @property
    def _samples(self) -> int:
        return self.data.clips if takes_clips(self.recipe) else self.data.images

    @property
    def _samples_text(self) -> str:
        return format_count(self._samples, "clip" if takes_clips(self.recipe) else "image")

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
    return path if is_plain else [path]
