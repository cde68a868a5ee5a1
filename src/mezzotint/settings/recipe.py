"""The whole recipe. Only `tasks` reads it; below, a package takes its own section. It never changes: a few settings may
be replaced while a run goes, at the start of an epoch, by those of another one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from mezzotint import registry
from mezzotint.settings.base import FREE, S, Section, with_values
from mezzotint.settings.families.base import FOLDER as FAMILIES
from mezzotint.settings.families.base import family_spec
from mezzotint.settings.sections import tokens
from mezzotint.settings.sections.data import DataSettings
from mezzotint.settings.sections.flow import FlowSettings
from mezzotint.settings.sections.model import ModelSettings
from mezzotint.settings.sections.objective import OF_THE_LOSS, ObjectiveSettings
from mezzotint.settings.sections.optim import OptimSettings
from mezzotint.settings.sections.run import RunSettings
from mezzotint.settings.sections.sample import SampleSettings

LIVE = (
    "objective.noise_offset",
    "objective.zero_terminal_snr",
    "objective.min_snr_gamma",
    "model.clip_skip",
    "run.save.every",
    "run.export.every",
    "run.export.from_epoch",
    "run.export.dtype",
    "run.export.single_file_dtype",
    "sample.guidance_rescale",
)
"""The settings, by path."""

OFF_THE_PATH = ("timesteps", "timestep_bias", "noise_levels", "time_input", "zero_terminal_snr")
"""Settings of `objective` that models on straight paths do not know."""

SINCE_ZERO = ("objective.zero_terminal_snr", "sample.guidance_rescale")
"""Those of them that runs of before could not change."""


class Recipe(Section):
    """What a run is to do. Frozen: what ran is what was asked."""

    version: Annotated[Literal[1], FREE] = Field(default=1, alias="schema")
    """The version of this schema."""

    model: ModelSettings = ModelSettings()
    """The model and what of it is trained."""

    data: DataSettings = DataSettings()
    """The samples."""

    objective: ObjectiveSettings = ObjectiveSettings()
    """The mathematics."""

    optim: OptimSettings = OptimSettings()
    """The update."""

    run: RunSettings = RunSettings()
    """The run."""

    sample: SampleSettings = SampleSettings()
    """The pictures drawn from the model."""

    @model_validator(mode="before")
    @classmethod
    def _usual_of_family(cls, value: Any) -> Any:
        """Fills in what a family has by default and the recipe does not write."""
        model = value.get("model") if isinstance(value, dict) else None
        name = model.get("family") if isinstance(model, dict) else None
        if isinstance(name, str) and name in registry.names(FAMILIES):
            for section, usual in family_spec(name).usual.items():
                written = value.get(section, {})
                if isinstance(written, dict):
                    value = {**value, section: {**usual, **written}}
        return value

    def contradictions(self) -> Iterator[str]:
        if self.model.family in registry.names(FAMILIES):
            yield from self._off_the_path()
        if self.run.steps is not None and self.run.epochs is not None:
            yield "run.steps and run.epochs are both set; give one of them"
        if self.run.whole_epochs and self.run.steps is None:
            yield "run.whole_epochs is about run.steps, which is not set; set it, or leave this out"
        is_held_out = self.data.holdout.fraction > 0 or self.data.holdout.path
        if self.run.save.best and not (is_held_out and self.run.validation.every):
            yield (
                "run.save.best goes by the held-out loss, and nothing is held out and measured; set "
                "data.holdout.fraction or data.holdout.path, and run.validation.every"
            )
        encoders = self.model.trained_encoders
        if self.data.cache.text and encoders:
            yield (
                "data.cache.text keeps what the text encoder said before training, but "
                f"model.train includes {encoders[0]}; "
                "set data.cache.text=false or train the denoiser alone"
            )
        elif self.data.cache.text and self.model.tokens.are_there:
            yield "data.cache.text knows no new words, and model.tokens brings some; set data.cache.text=false"
        if tokens.PART in self.model.train and self.run.export.parts == "trained":
            yield "run.export.parts=trained is about a model's own parts, and new words are none of them; leave it out"
        if self.objective.posterior == "mean" and self.data.cache.latents and self.data.cache.content == "sample":
            yield (
                "objective.posterior=mean takes the mean of what an autoencoder says, and data.cache.content=sample "
                "keeps one draw; set data.cache.content=moments, or leave objective.posterior out"
            )
        yield from self._with_adapter()
        yield from self._unshared()
        yield from self._offloaded()
        if self.optim.in_backward:
            yield from self._not_in_backward()
        for name in ("part_lr", "part_optimizer", "part_schedule"):
            unknown = sorted(set(getattr(self.optim, name)) - set(self.model.train))
            if unknown:
                yield (
                    f"optim.{name} names {', '.join(unknown)}, which model.train does not train (it "
                    f"trains {', '.join(self.model.train)})"
                )
        if self.model.last_layers is not None and "text_encoder" not in self.model.train:
            yield (
                "model.last_layers says how much of the text encoder is trained, but model.train does not train it; "
                "write model.train=[denoiser, text_encoder]"
            )

    def _off_the_path(self) -> Iterator[str]:
        """What has no meaning for models on straight paths, and what has a meaning for them alone."""
        spec, objective, plain = family_spec(self.model.family), self.objective, ObjectiveSettings()
        if not spec.is_straight:
            if objective.flow != FlowSettings() or objective.weighting in OF_THE_LOSS:
                name = "flow" if objective.flow != FlowSettings() else f"weighting={objective.weighting}"
                yield (
                    f"objective.{name} is about models on straight paths, and those of model.family="
                    f"{self.model.family} are not; leave it out"
                )
            return
        for name in OFF_THE_PATH:
            if getattr(objective, name) != getattr(plain, name):
                yield (
                    f"objective.{name} has no meaning for model.family={self.model.family}, whose models are on "
                    "straight paths; leave it out (objective.flow says which levels of noise are trained)"
                )
        if self.data.has_clips and self.data.clips.images:
            yield (
                f"data.clips.images joins pictures to clips, which model.family={self.model.family} does not take; "
                "write data.clips.images=0"
            )
        if spec.no_fp16 and self.run.precision == "fp16":
            yield f"run.precision=fp16: {spec.no_fp16}; write run.precision=bf16"

    def _with_adapter(self) -> Iterator[str]:
        """What has no meaning where an adapter is trained and no weight of the model's own."""
        if not self.model.has_adapter:
            return
        export = self.run.export
        whole = {
            "run.export.parts": export.parts == "trained",
            "run.export.trained_file": export.trained_file is not None,
            "run.export.single_file": export.single_file,
            "run.export.optimizer_file": export.optimizer_file is not None,
            "optim.ema.start": self.optim.ema.start is not None,
            "run.start.optimizer": self.run.start.optimizer is not None,
        }
        for name in (name for name, is_set in whole.items() if is_set):
            yield f"{name} is about a whole model's weights, and model.adapter trains an adapter; leave one of them out"
        if self.run.low_bit and self.model.adapter.init == "pissa":
            yield (
                "model.adapter.init=pissa takes vectors out of the weights, and what is left does not fit in as few "
                f"bits as run.frozen_dtype={self.run.frozen_dtype} has; take another model.adapter.init, or "
                "run.frozen_dtype=same"
            )
        if self.model.adapter.max_norm is not None and self.optim.in_backward:
            yield "model.adapter.max_norm measures layers after a step, optim.in_backward has none; leave one out"
        if self.model.adapter.max_norm is not None and self.run.runtime == "fsdp":
            yield (
                "model.adapter.max_norm measures whole tensors, and with run.runtime=fsdp no process has any; leave it "
                "out, or take run.runtime=ddp"
            )

    def _not_in_backward(self) -> Iterator[str]:
        optim, run = self.optim, self.run
        why = "optim.in_backward lets each gradient go at once, and"
        if optim.accumulation > 1:
            yield f"{why} optim.accumulation={optim.accumulation} sums them over batches; set optim.accumulation=1"
        if run.micro_batch is not None and run.micro_batch < self.data.batch_size:
            yield f"{why} run.micro_batch={run.micro_batch} sums them over passes; leave it out"
        if optim.clip.norm is not None and optim.clip.scope != "tensor":
            yield (
                f"{why} optim.clip measures many of them together; set optim.clip.norm=null or optim.clip.scope=tensor"
            )
        if run.precision == "fp16":
            yield f"{why} the loss scale of run.precision=fp16 wants to see them all before any moves; take bf16"
        if run.runtime in ("ddp", "fsdp"):
            yield f"{why} run.runtime={run.runtime} sums them over processes; take run.runtime=single"
        for part in self.model.train:
            one = optim.part_optimizer.get(part, optim.optimizer)
            if one.is_of_package:
                yield f"{why} {one.label} moves its weights together; take adamw, adafactor or lion"

    def _offloaded(self) -> Iterator[str]:
        """What cannot be where blocks come and go."""
        if self.run.offload.blocks is None:
            return
        why = "run.offload.blocks sends the weights of blocks to and fro, and"
        if self.run.runtime == "fsdp":
            yield f"{why} run.runtime=fsdp shares them out and gathers them itself; leave one of them out"
        if self.run.compile:
            yield f"{why} run.compile takes them to be where they are; leave one of them out"
        if self.model.has_adapter and self.model.adapter.init == "pissa":
            yield f"{why} model.adapter.init=pissa writes into them; take another model.adapter.init"
        if self.run.runtime == "ddp" and not self.model.has_adapter:
            yield (
                f"{why} without an adapter their gradients with them, which run.runtime=ddp sums on the device; take "
                "run.runtime=fsdp and leave run.offload.blocks out, or train an adapter"
            )

    def _unshared(self) -> Iterator[str]:
        """An optimizer that looks at a whole tensor, or at all of them, cannot work on rows of it."""
        if self.run.runtime != "fsdp":
            return
        if self.run.low_bit:
            yield (
                f"run.frozen_dtype={self.run.frozen_dtype} keeps whole matrices, and run.runtime=fsdp shares out rows "
                "of weights; take run.runtime=ddp, or run.frozen_dtype=same"
            )
        if self.run.export.optimizer_file is not None or self.run.start.optimizer is not None:
            yield (
                "run.export.optimizer_file and run.start.optimizer hold whole tensors, and with run.runtime=fsdp "
                "no process has any; leave them out, or take run.runtime=ddp"
            )
        for place, optimizer in {"optimizer": self.optim.optimizer, **self.optim.part_optimizer}.items():
            if not optimizer.allows_sharding:
                where = "optim.optimizer" if place == "optimizer" else f"optim.part_optimizer of {place}"
                yield (
                    f"run.runtime is fsdp, and {where} is {optimizer.kind}, which needs whole tensors; take one of "
                    f"{', '.join(_that_allow_sharding())}, or run.runtime=ddp"
                )


def _that_allow_sharding() -> list[str]:
    names = registry.names("settings/optimizers", skip_unimported=True)
    return [name for name in names if registry.find("settings/optimizers", name).Settings.allows_sharding]


def effective(recipe: Recipe) -> dict[str, Any]:
    """The recipe as plain values, every default written out."""
    return recipe.model_dump(mode="json", by_alias=True)


def live_values(recipe: Recipe) -> dict[str, Any]:
    """Their values in a recipe, as JSON, by path."""
    tree = recipe.model_dump(mode="json", by_alias=True)
    return {path: reduce(lambda inside, word: inside[word], path.split("."), tree) for path in LIVE}


def with_live(recipe: Recipe, values: Mapping[str, Any]) -> Recipe:
    """The recipe with other values of live settings, checked as any. values: as `live_values` gives them; those that
    are not named stay. Raises pydantic's ValidationError."""
    for path, value in values.items():
        assert path in LIVE, path
        recipe = replaced(recipe, path.split("."), value)
    return recipe


def replaced(section: S, words: Sequence[str], value: Any) -> S:
    """The section with another value of one setting, checked as any. words: of its path. value: as JSON. Raises
    pydantic's ValidationError."""
    name, *inside = words
    if inside:
        return with_values(section, {name: replaced(getattr(section, name), inside, value)})
    return type(section).model_validate(section.model_dump(mode="json", by_alias=True) | {name: value})
