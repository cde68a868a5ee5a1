"""The update: optimizer, learning rates and schedules, clipping, averaging."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union

from pydantic import (
    BeforeValidator,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    SerializeAsAny,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)

from mezzotint import registry
from mezzotint.settings.base import ALLOW, NEVER, RECORDED, ModelPath, Section, Share
from mezzotint.settings.optimizers.base import Optimizer


def _list_optimizers() -> tuple[type[Optimizer], ...]:
    """The settings classes of all optimizers in this package, the default first."""
    available = registry.names("settings/optimizers", skip_unimported=True)
    names = sorted(available, key=lambda name: (name != _DEFAULT, name))
    return tuple(registry.find("settings/optimizers", name).Settings for name in names)


def _kind_or_default(value: object) -> object:
    return {"kind": _DEFAULT, **value} if isinstance(value, dict) else value


def _any_optimizer(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
    """Also accepts an optimizer that was registered later: its module is imported when a recipe names it."""
    if isinstance(value, Optimizer):
        return value
    kind = value.get("kind") if isinstance(value, dict) else None
    if isinstance(kind, str) and kind not in _KINDS and kind in registry.names("settings/optimizers"):
        settings: type[Optimizer] = registry.find("settings/optimizers", kind).Settings
        return settings.model_validate(value)
    return handler(value)


_DEFAULT = "adamw"
_CLASSES = _list_optimizers()
_KINDS = frozenset(str(settings.model_fields["kind"].default) for settings in _CLASSES)

if TYPE_CHECKING:
    PartOptimizer = Optimizer
else:
    PartOptimizer = Annotated[
        SerializeAsAny[Annotated[Union[_CLASSES], Field(discriminator="kind")]],  # noqa: UP007 (built at run time)
        WrapValidator(_any_optimizer),
        BeforeValidator(_kind_or_default),
    ]


class RoundSettings(Section):
    """One round of a learning rate schedule: a linear warm-up, then a decay. Factors are multiples of `optim.lr`."""

    steps: Annotated[PositiveInt, ALLOW]
    """Its length; the next round starts after its last step."""

    warmup_steps: Annotated[NonNegativeInt, ALLOW] = 0
    """Steps from `start` to `peak`."""

    start: Annotated[NonNegativeFloat, ALLOW] = 0.0
    """The factor at its first step, if there is a warm-up."""

    peak: Annotated[NonNegativeFloat, ALLOW] = 1.0
    """The highest factor."""

    end: Annotated[NonNegativeFloat, ALLOW] = 0.0
    """The factor at its end."""

    curve: Annotated[Literal["cosine", "linear"], ALLOW] = "cosine"
    """The decay: half a cosine from the end of the warm-up, or a straight line that starts at the round's first
    step."""

    def contradictions(self) -> Iterator[str]:
        if self.warmup_steps >= self.steps:
            yield (
                f"a round of optim.schedule.rounds has {self.steps} steps and {self.warmup_steps} of warm-up; the "
                "warm-up must be shorter"
            )


_DECAYING = ("linear", "cosine", "restarts", "polynomial")
"""Kinds of schedules that fall to the floor."""


class ScheduleSettings(Section):
    """How the learning rate changes over the run, in optimizer steps: a factor of `optim.lr`."""

    kind: Annotated[
        Literal["constant", "linear", "cosine", "restarts", "polynomial", "inverse-sqrt", "piecewise", "rounds"], ALLOW
    ] = "constant"
    """How the learning rate changes: `constant` after the warm-up; `linear` and `polynomial` fall to the floor;
    `cosine` falls along half a cosine; `restarts` falls along a cosine several times; `inverse-sqrt` falls with the
    square root of the steps since the warm-up, whatever the length of the run (Zhai et al. 2022, arXiv:2106.04560);
    `piecewise` follows `optim.schedule.points`; `rounds` follows `optim.schedule.rounds`. For warm-up, stable, decay
    (WSD) see `optim.schedule.cooldown_ratio`."""

    warmup_steps: Annotated[NonNegativeInt, ALLOW] = 0
    """Steps over which the learning rate rises linearly to its peak."""

    warmup_from: Annotated[Share, ALLOW] = 0.0
    """The factor of the rate at the first step of the warm-up."""

    decay_steps: Annotated[PositiveInt | None, ALLOW] = None
    """The step at which the floor is reached, warm-up included; None is `decay_ratio` times the length of the run. For
    the steps after it see `optim.schedule.after_decay`."""

    decay_ratio: Annotated[PositiveFloat, ALLOW] = 1.0
    """Without `decay_steps`: the decay as a multiple of the run's length. With 1.5 a cosine ends the run at a quarter
    of its peak."""

    warmup_ratio: Annotated[Share, ALLOW] = 0.0
    """Without `warmup_steps`: the warm-up as a fraction of the decay, rounded down."""

    cooldown_steps: Annotated[PositiveInt | None, ALLOW] = None
    """How many steps the decay takes; the rate stays at its peak between the warm-up and them. None is `cooldown_ratio`
    times the step at which the decay ends (`decay_steps`)."""

    cooldown_ratio: Annotated[Annotated[float, Field(gt=0.0, le=1.0)] | None, ALLOW] = None
    """Without `cooldown_steps`: the decay of `linear`, `cosine`, `restarts` and `polynomial` takes only this last
    fraction of it, rounded down, and the rate stays at its peak before: warm-up, stable, decay (WSD, Hu et al. 2024,
    arXiv:2404.06395); 0.1 to 0.2 is usual. None decays from the end of the warm-up."""

    timescale_steps: Annotated[PositiveInt | None, ALLOW] = None
    """For `inverse-sqrt`: s steps after the warm-up the factor is √(n/(n + s)), n being this number. None is the length
    of the warm-up, or 10,000 without one."""

    after_decay: Annotated[Literal["floor", "cosine"], ALLOW] = "floor"
    """After the decay the rate stays at the `floor`, or the `cosine` continues and rises again, as in diffusers and
    EveryDream2."""

    floor: Annotated[Share, ALLOW] = 0.0
    """The lowest factor of the rate, for linear, cosine, restarts and polynomial."""

    cycles: Annotated[PositiveInt, ALLOW] = 1
    """How many times `restarts` falls from the peak."""

    power: Annotated[PositiveFloat, ALLOW] = 1.0
    """The exponent of `polynomial`; 1 is a straight line."""

    points: Annotated[tuple[tuple[NonNegativeInt, NonNegativeFloat], ...], ALLOW] = ()
    """For `piecewise`: pairs of (step, factor). From each step on the rate has that factor; before the first it is
    1."""

    rounds: Annotated[tuple[RoundSettings, ...], ALLOW] = ()
    """For `rounds`: rounds one after the other, as in latent diffusion's LambdaWarmUpCosineScheduler2 and
    LambdaLinearScheduler. Each has `steps`, `warmup_steps` (0), the factors `start` (0), `peak` (1) and `end` (0), and
    a `curve` (`cosine` or `linear`), such as [{steps: 1000, warmup_steps: 100, end: 0.1}]."""

    def contradictions(self) -> Iterator[str]:
        if (self.kind == "rounds") != bool(self.rounds):
            yield (
                "optim.schedule.rounds and kind rounds belong together, such as kind: rounds, rounds: "
                "[{steps: 1000, warmup_steps: 100}]"
            )
        if self.kind == "rounds" and (self.warmup_steps or self.warmup_ratio):
            yield "each of optim.schedule.rounds has its own warm-up; leave out optim.schedule's"
        if self.kind == "piecewise" and not self.points:
            yield ("optim.schedule.kind piecewise needs optim.schedule.points, such as [[500, 0.1], [800, 0.01]]")
        if any(b[0] <= a[0] for a, b in zip(self.points, self.points[1:], strict=False)):
            yield "the steps of optim.schedule.points must increase"
        if self.decay_steps is not None and self.decay_steps <= self.warmup_steps:
            yield (f"optim.schedule.decay_steps ({self.decay_steps}) must be above warmup_steps ({self.warmup_steps})")
        if self.decay_steps is not None and self.decay_ratio != 1.0:
            yield "optim.schedule.decay_steps and decay_ratio both set the decay; give one of them"
        if self.warmup_steps and self.warmup_ratio:
            yield "optim.schedule.warmup_steps and warmup_ratio both set the warm-up; give one of them"
        if self.cooldown_steps and self.cooldown_ratio:
            yield "optim.schedule.cooldown_steps and cooldown_ratio both set the decay; give one of them"
        if (self.cooldown_steps or self.cooldown_ratio) and self.kind not in _DECAYING:
            name = "cooldown_steps" if self.cooldown_steps else "cooldown_ratio"
            yield f"optim.schedule.{name} is for the kinds {', '.join(_DECAYING)}, got {self.kind}; leave it out"
        if self.timescale_steps and self.kind != "inverse-sqrt":
            yield f"optim.schedule.timescale_steps is for the kind inverse-sqrt, got {self.kind}; leave it out"
        if self.after_decay == "cosine" and self.kind != "cosine":
            yield (
                f"optim.schedule.after_decay=cosine is for the kind cosine only; with {self.kind} use `floor`, the "
                "default"
            )


class ClipSettings(Section):
    """Gradient clipping before the update."""

    norm: Annotated[PositiveFloat | None, ALLOW] = 1.0
    """Gradients with a larger 2-norm are scaled down to it; None never clips."""

    scope: Annotated[Literal["all", "part", "tensor"], ALLOW] = "all"
    """What is measured and clipped together: `all` trained parameters, each `part` (denoiser, text encoder), or each
    `tensor`."""


class EmaSettings(Section):
    """The EMA: an exponential moving average of the trained weights, often better to sample from."""

    rule: Annotated[Literal["none", "constant", "ramp", "saturating"], NEVER] = "none"
    """`none` keeps no average. `constant` uses `optim.ema.decay` from the start; `ramp` uses min(decay, (1 + s)/(10 +
    s)) after s updates, as diffusers; `saturating` uses decay · (1 − exp(−u/2000)) after u updates, as MindONE and
    Open-Sora-Plan."""

    decay: Annotated[Annotated[float, Field(gt=0.0, lt=1.0)], ALLOW] = 0.9999
    """The fraction of the average kept at each update; 0.999–0.9999 is sensible. It spans about 1/(1 − decay)
    updates."""

    strength: Annotated[Annotated[float, Field(gt=0.0, lt=1.0)] | None, ALLOW] = None
    """With `rule: constant`, instead of `decay`: the fraction of the starting weights left in the average at the end of
    the run. decay = strength^(interval/steps) is computed, printed and recorded. 0.01–0.15 is sensible."""

    start: Annotated[ModelPath | None, NEVER] = None
    """A model whose weights the average starts from, a folder or a single file; None starts from the trained
    weights."""

    interval: Annotated[PositiveInt, ALLOW] = 1
    """Optimizer steps between updates of the average."""

    device: Annotated[Literal["same", "cpu"], RECORDED] = "same"
    """Where the average is stored: on the device of the weights, or on the CPU, which saves device memory and costs a
    copy at each update."""

    def contradictions(self) -> Iterator[str]:
        if self.strength is not None and self.rule != "constant":
            yield f"optim.ema.strength is for optim.ema.rule=constant, got {self.rule}"
        if self.start is not None and self.rule != "constant":
            why = "keeps no average" if self.rule == "none" else "forgets its starting weights at the first updates"
            yield f"optim.ema.start is for optim.ema.rule=constant; {self.rule} {why}"


class OptimSettings(Section):
    """The update: optimizer, rate, accumulation, clipping, averaging."""

    optimizer: PartOptimizer = _CLASSES[0]()
    """The optimizer and its settings."""

    lr: Annotated[NonNegativeFloat, ALLOW] = 1e-5
    """The peak learning rate. 1e-5 with batches of 32 and more, 1e-6 to 5e-6 for batches of 4–8 on SD1.5; 1e-4 and more
    for small models."""

    part_lr: Annotated[dict[str, NonNegativeFloat], ALLOW] = Field(default_factory=dict)
    """Another peak learning rate for a part, such as `{text_encoder: 1e-6}`, or for parameters of a part, by name
    pattern after a slash: `{"denoiser/down_blocks.0.*": 1e-5, "denoiser/*attn2*": 0}`. A pattern comes before the
    part's rate, and of several that match the last one wins. It matches names of parameters as in `model.freeze`, or
    of their layers; with an adapter, of the layers that it changes. With a rate of 0 they are frozen, and get no
    adapter. A pattern that matches nothing is refused, unless it starts with `~`. Everything else uses `optim.lr`."""

    lr_batch_power: Annotated[Share, ALLOW] = 0.0
    """Multiplies every learning rate by (batch size × accumulation) to this power: 1 scales it in proportion, 0.55 as
    EveryDream2's scale_lr, 0 leaves it. The effective rate is printed and logged."""

    part_optimizer: Annotated[dict[str, PartOptimizer], ALLOW] = Field(default_factory=dict)
    """Another optimizer for a part, such as `{text_encoder: {kind: adamw, weight_decay: 0}}`. Other parts use
    `optim.optimizer`."""

    schedule: ScheduleSettings = ScheduleSettings()
    """The learning rate schedule: how the rate changes over the run."""

    part_schedule: Annotated[dict[str, ScheduleSettings], ALLOW] = Field(default_factory=dict)
    """Another learning rate schedule for a part, such as `{text_encoder: {kind: cosine}}`. Other parts use
    `optim.schedule`."""

    accumulation: Annotated[int, Field(gt=0, le=10**6), ALLOW] = 1
    """Batches per optimizer step (gradient accumulation). The loss is the mean over all their samples, whatever their
    sizes."""

    in_backward: Annotated[bool, ALLOW] = False
    """Update each weight during the backward pass as soon as its gradient is computed, then free the gradient. This
    saves the memory of all gradients, for full training on small GPUs. Requires one process, one pass per step,
    `optim.clip.norm: null` or `optim.clip.scope: tensor`, fp32 or bf16, and an optimizer of Mezzotint. A non-finite
    gradient skips only its tensor, a non-finite loss the whole step."""

    stochastic_rounding: Annotated[bool, ALLOW] = False
    """With `run.weight_dtype: pure` in bf16: compute each update in float32, optimizer state included, and round the
    weights up or down at random, so that small updates count on average (arXiv:2010.06192). Almost as good as float32
    masters, for 4 bytes less per weight. Drawn by address, so it is the same after an interruption and in every
    process."""

    clip: ClipSettings = ClipSettings()
    """Gradient clipping."""

    ema: EmaSettings = EmaSettings()
    """The moving average of the weights."""

    def rate_of(self, key: str) -> float:
        """The peak rate of a part without its patterns, or of an entry of `part_lr` by its key."""
        return self.part_lr.get(key, self.lr)

    def rate_patterns(self, part: str) -> tuple[str, ...]:
        """The keys of `part_lr` that are name patterns of a part, in order."""
        return tuple(key for key in self.part_lr if "/" in key and part_of_rate(key) == part)

    def rates_of(self, part: str) -> tuple[float, ...]:
        """All peak rates of a part: its own, then those of its patterns."""
        return tuple(self.rate_of(key) for key in (part, *self.rate_patterns(part)))


def part_of_rate(key: str) -> str:
    """The part that a key of `optim.part_lr` is for."""
    return key.removeprefix("~").partition("/")[0]
