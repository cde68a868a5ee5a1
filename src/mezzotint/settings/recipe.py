"""The whole recipe. Only `tasks` reads it; below, a package takes its own section. It is frozen; at the start of an
epoch a run may replace a few settings by those of another recipe (`LIVE`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from mezzotint import registry
from mezzotint.settings.base import FREE, S, Section, with_values
from mezzotint.settings.families.base import FOLDER as FAMILIES
from mezzotint.settings.families.base import family_spec
from mezzotint.settings.formats.base import format_spec
from mezzotint.settings.optimizers.base import Optimizer
from mezzotint.settings.sections import tokens
from mezzotint.settings.sections.data import DataSettings
from mezzotint.settings.sections.flow import FlowSettings
from mezzotint.settings.sections.model import ModelSettings
from mezzotint.settings.sections.objective import OF_THE_LOSS, ObjectiveSettings
from mezzotint.settings.sections.optim import OptimSettings, ScheduleSettings, part_of_rate
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
"""Settings that may change during a run (`run.live`), by path."""

_NOT_FOR_FLOW = ("timesteps", "timestep_bias", "noise_levels", "time_input", "zero_terminal_snr")
"""Settings of `objective` that flow-matching models do not have."""

SINCE_ZERO = ("objective.zero_terminal_snr", "sample.guidance_rescale")
"""Live settings that earlier versions could not change during a run."""


class Recipe(Section):
    """The settings of a run. Frozen: the recorded recipe is the one that ran."""

    version: Annotated[Literal[1], FREE] = Field(default=1, alias="schema")
    """The version of this schema."""

    model: ModelSettings = ModelSettings()
    """The model and which parts are trained."""

    data: DataSettings = DataSettings()
    """The samples."""

    objective: ObjectiveSettings = ObjectiveSettings()
    """The training objective."""

    optim: OptimSettings = OptimSettings()
    """The update."""

    run: RunSettings = RunSettings()
    """The run."""

    sample: SampleSettings = SampleSettings()
    """How images are sampled from the model."""

    @model_validator(mode="before")
    @classmethod
    def _apply_family_defaults(cls, value: Any) -> Any:
        """Fills in the family's defaults for values that the recipe does not set."""
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
            yield from self._flow_contradictions()
        if self.run.steps is not None and self.run.epochs is not None:
            yield "run.steps and run.epochs are both set; give one of them"
        if self.run.whole_epochs and self.run.steps is None:
            yield "run.whole_epochs needs run.steps, which is not set; set it, or leave this out"
        is_held_out = self.data.holdout.fraction > 0 or self.data.holdout.path
        if self.run.save.best and not (is_held_out and self.run.validation.every):
            yield (
                "run.save.best needs a held-out loss, and none is measured; set data.holdout.fraction or "
                "data.holdout.path, and run.validation.every"
            )
        encoders = self.model.trained_encoders
        if self.data.cache.text and encoders:
            yield (
                "data.cache.text stores embeddings of the untrained text encoder, but "
                f"model.train includes {encoders[0]}; "
                "set data.cache.text=false or train only the denoiser"
            )
        elif self.data.cache.text and self.model.tokens.has_any:
            yield "data.cache.text does not support learned tokens (model.tokens); set data.cache.text=false"
        if tokens.PART in self.model.train and self.run.export.parts == "trained":
            yield "run.export.parts=trained exports parts of a model, and learned tokens are none; leave it out"
        if self.objective.posterior == "mean" and self.data.cache.latents and self.data.cache.content == "sample":
            yield (
                "objective.posterior=mean needs the mean of the latent posterior, and data.cache.content=sample "
                "stores one sample; set data.cache.content=moments, or leave objective.posterior out"
            )
        if self.sample.under and not self.model.under:
            yield "sample.under=true applies the adapters of model.under, and there is none; leave it out"
        yield from self._base_contradictions()
        yield from self._preservation_contradictions()
        yield from self._drift_contradictions()
        yield from self._adapter_contradictions()
        yield from self._sharding_contradictions()
        yield from self._offload_contradictions()
        if self.optim.in_backward:
            yield from self._in_backward_contradictions()
        yield from self._part_contradictions()
        yield from self._rounding_contradictions()
        if self.model.last_layers is not None and "text_encoder" not in self.model.train:
            yield (
                "model.last_layers selects layers of the text encoder, but model.train does not train it; "
                "write model.train=[denoiser, text_encoder]"
            )

    def _part_contradictions(self) -> Iterator[str]:
        """Settings of the update by part."""
        for name in ("part_lr", "part_optimizer", "part_schedule"):
            unknown = sorted({*map(part_of_rate, getattr(self.optim, name))} - set(self.model.train))
            if unknown:
                yield (
                    f"optim.{name} names {', '.join(unknown)}, which model.train does not train (it "
                    f"trains {', '.join(self.model.train)})"
                )
        for part in self.model.train:
            rule, patterns = self.optim.part_optimizer.get(part, self.optim.optimizer), self.optim.rate_patterns(part)
            yield from rule.contradictions_of_run(self.run.weight_dtype)
            schedule = self.optim.part_schedule.get(part, self.optim.schedule)
            if rule.has_evaluation_weights:
                yield from self._average_contradictions(rule, schedule)
            if patterns and not rule.has_rate:
                yield f"optim.part_lr sets a rate for {patterns[0]}, and {rule.label} has none; leave it out"

    def _average_contradictions(self, rule: Optimizer, schedule: ScheduleSettings) -> Iterator[str]:
        """What does not work with an optimizer that averages its weights."""
        if schedule.kind != "constant":
            yield (
                f"{rule.label} averages its weights instead of lowering its rate, and optim.schedule.kind is "
                f"{schedule.kind}; set optim.schedule.kind=constant, which may have a warm-up"
            )
        if getattr(rule, "warmup_steps", 0) and (schedule.warmup_steps or schedule.warmup_ratio):
            yield (
                "optim.optimizer.warmup_steps and the warm-up of optim.schedule both raise the rate; leave one of them "
                "out"
            )
        if self.model.has_adapter and self.model.adapter.max_norm is not None:
            yield (
                f"model.adapter.max_norm bounds trained weights, and {rule.label} uses their average; leave it out, or "
                "set optim.optimizer.kind=adamw"
            )

    def _rounding_contradictions(self) -> Iterator[str]:
        if not self.optim.stochastic_rounding:
            return
        if (self.run.precision, self.run.weight_dtype) != ("bf16", "pure"):
            yield (
                "optim.stochastic_rounding rounds weights in bf16 that have no float32 masters, and run.precision is "
                f"{self.run.precision}, run.weight_dtype is {self.run.weight_dtype}; leave it out, or set "
                "run.precision=bf16 and run.weight_dtype=pure"
            )
        for part in self.model.train:
            rule = self.optim.part_optimizer.get(part, self.optim.optimizer)
            if rule.is_of_package:
                yield (
                    f"optim.stochastic_rounding needs an update in float32, and {rule.label} changes weights itself; "
                    "set optim.optimizer.kind to adamw, adafactor, lion or schedule-free-adamw, or leave it out"
                )

    def _flow_contradictions(self) -> Iterator[str]:
        """Settings that flow-matching models do not have, and settings that only they have."""
        spec, objective, plain = family_spec(self.model.family), self.objective, ObjectiveSettings()
        if not spec.is_flow_matching:
            if objective.flow != FlowSettings() or objective.weighting in OF_THE_LOSS:
                name = "flow" if objective.flow != FlowSettings() else f"weighting={objective.weighting}"
                yield (
                    f"objective.{name} is for flow-matching models, and model.family={self.model.family} is none; "
                    "leave it out"
                )
            return
        for name in _NOT_FOR_FLOW:
            if getattr(objective, name) != getattr(plain, name):
                yield (
                    f"objective.{name} has no meaning for model.family={self.model.family}, a flow-matching model; "
                    "leave it out (objective.flow sets which noise levels are trained)"
                )
        if objective.huber_schedule == "snr":
            yield (
                "objective.huber_schedule=snr needs a schedule of ᾱ, and model.family="
                f"{self.model.family} is a flow-matching model; set constant or exponential"
            )
        if objective.weighting == "debiased":
            yield (
                f"objective.weighting=debiased is for predictions of epsilon and v, and model.family="
                f"{self.model.family} is a flow-matching model; leave it out"
            )
        if self.data.has_clips and self.data.clips.images:
            yield (
                f"data.clips.images joins images to clips, which model.family={self.model.family} does not support; "
                "write data.clips.images=0"
            )
        if spec.no_fp16 and self.run.precision == "fp16":
            yield f"run.precision=fp16: {spec.no_fp16}; write run.precision=bf16"

    @property
    def _partly_frozen(self) -> list[str]:
        """The parts of which `optim.part_lr` freezes some parameters, or leaves some layers without an adapter."""
        optim = self.optim
        return [part for part in self.model.train if optim.rate_patterns(part) and 0 in optim.rates_of(part)]

    def _adapter_contradictions(self) -> Iterator[str]:
        """Settings that have no meaning when an adapter is trained instead of the model's weights."""
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
            yield f"{name} is for a whole model's weights, and model.adapter trains an adapter; leave one of them out"
        if self.run.low_bit and self.model.adapter.init == "pissa":
            yield (
                "model.adapter.init=pissa subtracts vectors from the weights, and the rest does not fit into the bits "
                f"of run.frozen_dtype={self.run.frozen_dtype}; set another model.adapter.init, or "
                "run.frozen_dtype=same"
            )
        if self.model.adapter.kind == "oft" and export.adapter not in ("auto", "both", "diffusers"):
            yield (
                f"run.export.adapter={export.adapter} has no OFT that rotates the inputs of layers; leave it out, or "
                "set run.export.adapter=diffusers, which has peft's names"
            )
        if self._partly_frozen and self.model.adapter.path is not None:
            yield (
                f"optim.part_lr has a rate of 0 for layers of {self._partly_frozen[0]}, which then get no adapter, and "
                "model.adapter.path continues one; set a rate above 0, or leave model.adapter.path out"
            )
        if self.model.adapter.max_norm is not None and self.optim.in_backward:
            yield "model.adapter.max_norm measures layers after a step, optim.in_backward does not; leave one out"
        if self.model.adapter.max_norm is not None and self.run.runtime == "fsdp":
            yield (
                "model.adapter.max_norm needs whole tensors, and with run.runtime=fsdp no process has any; leave it "
                "out, or set run.runtime=ddp"
            )

    def _in_backward_contradictions(self) -> Iterator[str]:
        optim, run = self.optim, self.run
        why = "optim.in_backward frees each gradient at once, and"
        if optim.accumulation > 1:
            yield f"{why} optim.accumulation={optim.accumulation} sums them over batches; set optim.accumulation=1"
        if run.micro_batch is not None and run.micro_batch < self.data.largest_batch:
            yield f"{why} run.micro_batch={run.micro_batch} sums them over passes; leave it out"
        if optim.clip.norm is not None and optim.clip.scope != "tensor":
            yield (f"{why} optim.clip needs many of them together; set optim.clip.norm=null or optim.clip.scope=tensor")
        if run.precision == "fp16":
            yield f"{why} the loss scale of run.precision=fp16 needs all of them before the update; set bf16"
        if run.runtime in ("ddp", "fsdp"):
            yield f"{why} run.runtime={run.runtime} sums them over processes; set run.runtime=single"
        for part in self.model.train:
            optimizer = optim.part_optimizer.get(part, optim.optimizer)
            if optimizer.is_of_package:
                yield f"{why} {optimizer.label} updates all weights together; use adamw, adafactor or lion"

    def _offload_contradictions(self) -> Iterator[str]:
        """What does not work with layer streaming."""
        if self.run.offload.blocks is None:
            return
        why = "run.offload.blocks moves the weights of blocks between host and device, and"
        if self.run.runtime == "fsdp":
            yield f"{why} run.runtime=fsdp shards and gathers them itself; leave one of them out"
        if self.run.compile:
            yield f"{why} run.compile expects them to stay in place; leave one of them out"
        if self.model.has_adapter and self.model.adapter.init == "pissa":
            yield f"{why} model.adapter.init=pissa writes into them; set another model.adapter.init"
        if self.run.runtime == "ddp" and not self.model.has_adapter:
            yield (
                f"{why} without an adapter their gradients, too, which run.runtime=ddp sums on the device; set "
                "run.runtime=fsdp and leave run.offload.blocks out, or train an adapter"
            )

    def _base_contradictions(self) -> Iterator[str]:
        """What does not work with the model as it was before training (the base), which preservation and the meter of
        its drift compare with."""
        preserve = self.objective.preserve
        users = [preserve.describe()] if preserve.is_on else []
        users += ["run.drift.every"] if self.run.drift.every is not None else []
        trains_weights = not self.model.has_adapter and self.model.train != (tokens.PART,)
        if preserve.frozen_copy and not users:
            yield (
                "objective.preserve.frozen_copy is set, and nothing uses it; write objective.preserve.kind=output or "
                "run.drift.every='100 steps', or leave it out"
            )
        if users and trains_weights and not preserve.frozen_copy:
            yield (
                f"{users[0]} needs the model as it was before training; train an adapter, which can be switched off, "
                "or write objective.preserve.frozen_copy=true, which keeps a second copy of the trained parts in memory"
            )
        if preserve.frozen_copy and not trains_weights:
            yield "objective.preserve.frozen_copy is for full training: an adapter is switched off; leave it out"
        if users and self.model.adapter.init == "pissa":
            yield (
                f"{users[0]} switches the adapter off to get the base, and model.adapter.init=pissa has changed the "
                "weights under it; set another model.adapter.init"
            )
        if preserve.frozen_copy and (self.run.runtime == "fsdp" or self.run.offload.blocks is not None):
            name = "run.runtime=fsdp" if self.run.runtime == "fsdp" else "run.offload.blocks"
            yield f"objective.preserve.frozen_copy is not shared or offloaded by {name}; leave one of them out"

    def _drift_contradictions(self) -> Iterator[str]:
        if self.run.drift.every is None:
            return
        if self.data.condition_names or self.data.inpaint.masks != "none":
            yield (
                "run.drift measures prompts without images, and the model takes images as well (data.conditions or "
                "data.inpaint); leave run.drift.every out"
            )
        if format_spec(self.data.format).reads_texts(self.data):
            yield f"run.drift encodes prompts, and data.format={self.data.format} reads embeddings from files"

    def _preservation_contradictions(self) -> Iterator[str]:
        """What does not work with preservation by the base's prediction."""
        preserve, kind = self.objective.preserve, self.objective.preserve.describe()
        if not preserve.is_on:
            return
        if self.data.has_clips and self.data.clips.images:
            yield f"{kind} is for clips or for images, and data.clips.images joins both; set data.clips.images=0"
        if preserve.adds_pass and format_spec(self.data.format).reads_texts(self.data):
            yield f"{kind} encodes other captions, and data.format={self.data.format} reads embeddings from files"
        if "class-images" in preserve.kind:
            if not self.data.has_class_images:
                yield f"{kind} needs class images; write data.prior.path=FOLDER or data.prior.num_class_images=200"
            if tokens.PART in self.model.train:
                yield f"{kind} does not know what learned tokens mean to the base; write objective.preserve.kind=output"
        if "output" in preserve.kind:
            yield from self._missing_class_words()

    def _missing_class_words(self) -> Iterator[str]:
        for one in self.data.image_sets():
            captions = one.settings.captions
            if one.is_class:
                continue
            if not (captions.trigger or self.model.tokens.has_any):
                yield (
                    "objective.preserve.kind=output replaces the trigger by its class, and data.captions.trigger is "
                    "empty; write data.captions.trigger='sks dog'"
                )
            elif not captions.subject_class:
                word = captions.trigger or self.model.tokens.all[0]
                yield (
                    f"objective.preserve.kind=output replaces {word!r} by what it is one of, and that is missing; "
                    "write data.captions.class_word=dog"
                )

    def _sharding_contradictions(self) -> Iterator[str]:
        """What needs whole tensors and cannot work on shards of rows."""
        if self.run.runtime != "fsdp":
            return
        if self.run.low_bit:
            yield (
                f"run.frozen_dtype={self.run.frozen_dtype} needs whole matrices, and run.runtime=fsdp shards rows "
                "of weights; set run.runtime=ddp, or run.frozen_dtype=same"
            )
        if self.run.export.optimizer_file is not None or self.run.start.optimizer is not None:
            yield (
                "run.export.optimizer_file and run.start.optimizer need whole tensors, and with run.runtime=fsdp "
                "no process has any; leave them out, or set run.runtime=ddp"
            )
        for part, optimizer in {"optimizer": self.optim.optimizer, **self.optim.part_optimizer}.items():
            if not optimizer.allows_sharding:
                where = "optim.optimizer" if part == "optimizer" else f"optim.part_optimizer of {part}"
                yield (
                    f"run.runtime is fsdp, and {where} is {optimizer.kind}, which needs whole tensors; set one of "
                    f"{', '.join(_shardable_optimizers())}, or run.runtime=ddp"
                )


def _shardable_optimizers() -> list[str]:
    names = registry.names("settings/optimizers", skip_unimported=True)
    return [name for name in names if registry.find("settings/optimizers", name).Settings.allows_sharding]


def plain_values(recipe: Recipe) -> dict[str, Any]:
    """The recipe as plain values, with all defaults."""
    return recipe.model_dump(mode="json", by_alias=True)


def live_values(recipe: Recipe) -> dict[str, Any]:
    """The values of live settings in a recipe, as JSON, by path."""
    tree = recipe.model_dump(mode="json", by_alias=True)
    return {path: reduce(lambda inside, word: inside[word], path.split("."), tree) for path in LIVE}


def with_live(recipe: Recipe, values: Mapping[str, Any]) -> Recipe:
    """The recipe with other values of live settings, validated. values: as `live_values` returns them; others stay.
    Raises pydantic's ValidationError."""
    for path, value in values.items():
        assert path in LIVE, path
        recipe = replace_value(recipe, path.split("."), value)
    return recipe


def replace_value(section: S, keys: Sequence[str], value: Any) -> S:
    """The section with another value of one setting, validated. keys: its path. value: as JSON. Raises pydantic's
    ValidationError."""
    name, *inside = keys
    if inside:
        return with_values(section, {name: replace_value(getattr(section, name), inside, value)})
    return type(section).model_validate(section.model_dump(mode="json", by_alias=True) | {name: value})
