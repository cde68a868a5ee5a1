"""How weights move: optimizer, rate and its schedule, clipping, averaging."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from mezzotint.recipe.base import ALLOW, NEVER, RECORDED, ModelPath, Section, Share, as_list

Names = Annotated[tuple[str, ...], BeforeValidator(as_list)]
Beta = Annotated[float, Field(ge=0.0, lt=1.0)]


class AdamW(Section):
    """AdamW (Loshchilov and Hutter 2019, arXiv:1711.05101) with float32 moments, one fused pass."""

    kind: Annotated[Literal["adamw"], NEVER] = "adamw"
    """The optimizer's name: `adamw`, `adam-weight-decay`, `adamw-8bit`, `adamw-8bit-or-adamw` (the first on a GPU of
    CUDA, the other elsewhere), `adafactor`, `lion`, `prodigy`, `adacoor`, or `library` for any class of torch.optim's
    kind."""

    betas: Annotated[tuple[Beta, Beta], ALLOW] = (0.9, 0.999)
    """Decay of the running means of the gradient and of its square."""

    eps: Annotated[PositiveFloat, ALLOW] = 1e-8
    """Added to the root of the second moment; larger values calm parameters whose gradients are tiny."""

    weight_decay: Annotated[NonNegativeFloat, ALLOW] = 0.01
    """Weights shrink by rate × this at each step, apart from the gradient."""

    no_decay: Annotated[Names, ALLOW] = ()
    """Parameters without weight decay, by name pattern, such as `*.bias` or `*norm*`, or by a rule with a name,
    which YAML wants in quotes: `@norm-and-bias` is all of norm layers and every bias, `@mindone` those that MindONE's
    trainer leaves out by the names that MindSpore gives them. A pattern after `~` may match nothing, which a note then
    says. Empty decays all, as diffusers does."""


class AdamWeightDecay(Section):
    """MindSpore's AdamWeightDecay: AdamW whose moments are not corrected for having begun at zero, so that the first
    steps are shorter (at β₂ 0.98 the first is 0.7 of a rate, at 0.999 three of them)."""

    kind: Annotated[Literal["adam-weight-decay"], NEVER] = "adam-weight-decay"
    """The optimizer's name: `adamw`, `adam-weight-decay`, `adamw-8bit`, `adamw-8bit-or-adamw` (the first on a GPU of
    CUDA, the other elsewhere), `adafactor`, `lion`, `prodigy`, `adacoor`, or `library` for any class of torch.optim's
    kind."""

    betas: Annotated[tuple[Beta, Beta], ALLOW] = (0.9, 0.999)
    """Decay of the running means of the gradient and of its square."""

    eps: Annotated[PositiveFloat, ALLOW] = 1e-6
    """Added to the root of the second moment; larger values calm parameters whose gradients are tiny."""

    weight_decay: Annotated[NonNegativeFloat, ALLOW] = 0.01
    """Weights shrink by rate × this at each step, apart from the gradient."""

    no_decay: Annotated[Names, ALLOW] = ()
    """Parameters without weight decay, by name pattern, such as `*.bias` or `*norm*`, or by a rule with a name,
    which YAML wants in quotes: `@norm-and-bias` is all of norm layers and every bias, `@mindone` those that MindONE's
    trainer leaves out by the names that MindSpore gives them. A pattern after `~` may match nothing, which a note then
    says. Empty decays all, as diffusers does."""


class AdamW8bit(Section):
    """AdamW with its two moments in eight bits (Dettmers et al. 2022, arXiv:2110.02861): a quarter of their memory.
    Needs the extra `eight-bit` and a GPU."""

    kind: Annotated[Literal["adamw-8bit"], NEVER] = "adamw-8bit"
    """The optimizer's name: `adamw`, `adam-weight-decay`, `adamw-8bit`, `adamw-8bit-or-adamw` (the first on a GPU of
    CUDA, the other elsewhere), `adafactor`, `lion`, `prodigy`, `adacoor`, or `library` for any class of torch.optim's
    kind."""

    betas: Annotated[tuple[Beta, Beta], ALLOW] = (0.9, 0.999)
    """Decay of the running means of the gradient and of its square."""

    eps: Annotated[PositiveFloat, ALLOW] = 1e-8
    """Added to the root of the second moment; larger values calm parameters whose gradients are tiny."""

    weight_decay: Annotated[NonNegativeFloat, ALLOW] = 0.01
    """Weights shrink by rate × this at each step, apart from the gradient."""

    no_decay: Annotated[Names, ALLOW] = ()
    """Parameters without weight decay, by name pattern, such as `*.bias` or `*norm*`, or by a rule with a name,
    which YAML wants in quotes: `@norm-and-bias` is all of norm layers and every bias, `@mindone` those that MindONE's
    trainer leaves out by the names that MindSpore gives them. Empty decays all, as diffusers does."""


class AdamW8bitOrAdamW(Section):
    """AdamW with moments in eight bits where that can run, on a GPU of CUDA, and plain AdamW elsewhere. Which one it is
    is settled when a run starts, said and recorded; the run keeps it wherever it goes on."""

    kind: Annotated[Literal["adamw-8bit-or-adamw"], NEVER] = "adamw-8bit-or-adamw"
    """The optimizer's name: `adamw`, `adam-weight-decay`, `adamw-8bit`, `adamw-8bit-or-adamw` (the first on a GPU of
    CUDA, the other elsewhere), `adafactor`, `lion`, `prodigy`, `adacoor`, or `library` for any class of torch.optim's
    kind."""

    betas: Annotated[tuple[Beta, Beta], ALLOW] = (0.9, 0.999)
    """Decay of the running means of the gradient and of its square."""

    eps: Annotated[PositiveFloat, ALLOW] = 1e-8
    """Added to the root of the second moment; larger values calm parameters whose gradients are tiny."""

    weight_decay: Annotated[NonNegativeFloat, ALLOW] = 0.01
    """Weights shrink by rate × this at each step, apart from the gradient."""

    no_decay: Annotated[Names, ALLOW] = ()
    """Parameters without weight decay, by name pattern, such as `*.bias` or `*norm*`, or by a rule with a name,
    which YAML wants in quotes: `@norm-and-bias` is all of norm layers and every bias, `@mindone` those that MindONE's
    trainer leaves out by the names that MindSpore gives them. A pattern after `~` may match nothing, which a note then
    says. Empty decays all, as diffusers does."""


class Adafactor(Section):
    """Adafactor (Shazeer and Stern 2018, arXiv:1804.04235) as torch has it: second moments kept by row and column, no
    first ones; the least memory of all."""

    kind: Annotated[Literal["adafactor"], NEVER] = "adafactor"
    """The optimizer's name: `adamw`, `adam-weight-decay`, `adamw-8bit`, `adamw-8bit-or-adamw` (the first on a GPU of
    CUDA, the other elsewhere), `adafactor`, `lion`, `prodigy`, `adacoor`, or `library` for any class of torch.optim's
    kind."""

    eps: Annotated[PositiveFloat, ALLOW] = 1e-3
    """The least scale of a parameter by which its steps are measured."""

    beta2_decay: Annotated[float, Field(ge=-2.0, lt=0.0), ALLOW] = -0.8
    """The exponent of the step by which the second moment's decay approaches 1."""

    clip_update: Annotated[float, Field(ge=1.0), ALLOW] = 1.0
    """The largest root mean square of an update; larger ones are shortened."""

    weight_decay: Annotated[NonNegativeFloat, ALLOW] = 0.0
    """Weights shrink by rate × this at each step, apart from the gradient."""

    no_decay: Annotated[Names, ALLOW] = ()
    """Parameters without weight decay, by name pattern, such as `*.bias` or `*norm*`, or by a rule with a name,
    which YAML wants in quotes: `@norm-and-bias` is all of norm layers and every bias, `@mindone` those that MindONE's
    trainer leaves out by the names that MindSpore gives them. A pattern after `~` may match nothing, which a note then
    says. Empty decays all, as diffusers does."""


class Lion(Section):
    """Lion (Chen et al. 2023, arXiv:2302.06675): each weight moves by the rate in the direction of the sign of a mean
    of its gradients. One moment instead of AdamW's two. Rates are a third to a tenth of AdamW's, its weight decay three
    to ten times as large."""

    kind: Annotated[Literal["lion"], NEVER] = "lion"
    """The optimizer's name: `adamw`, `adam-weight-decay`, `adamw-8bit`, `adamw-8bit-or-adamw` (the first on a GPU of
    CUDA, the other elsewhere), `adafactor`, `lion`, `prodigy`, `adacoor`, or `library` for any class of torch.optim's
    kind."""

    betas: Annotated[tuple[Beta, Beta], ALLOW] = (0.9, 0.99)
    """How much of the running mean is in the direction of a step, and its decay from step to step."""

    weight_decay: Annotated[NonNegativeFloat, ALLOW] = 0.01
    """Weights shrink by rate × this at each step, apart from the gradient."""

    no_decay: Annotated[Names, ALLOW] = ()
    """Parameters without weight decay, by name pattern, such as `*.bias` or `*norm*`, or by a rule with a name,
    which YAML wants in quotes: `@norm-and-bias` is all of norm layers and every bias, `@mindone` those that MindONE's
    trainer leaves out by the names that MindSpore gives them. Empty decays all, as diffusers does."""


class Prodigy(Section):
    """Prodigy (Mishchenko and Defazio 2024, arXiv:2306.06101): AdamW that finds its own rate. `optim.lr` is a factor of
    it and wants 1, `optim.schedule` shapes it. Needs the extra `optimizers`."""

    kind: Annotated[Literal["prodigy"], NEVER] = "prodigy"
    """The optimizer's name: `adamw`, `adam-weight-decay`, `adamw-8bit`, `adamw-8bit-or-adamw` (the first on a GPU of
    CUDA, the other elsewhere), `adafactor`, `lion`, `prodigy`, `adacoor`, or `library` for any class of torch.optim's
    kind."""

    betas: Annotated[tuple[Beta, Beta], ALLOW] = (0.9, 0.999)
    """Decay of the running means of the gradient and of its square."""

    d_beta: Annotated[Beta | None, ALLOW] = None
    """Decay of the sums from which the rate d is found, elsewhere called beta3; None takes the root of the second of
    `betas`."""

    eps: Annotated[PositiveFloat, ALLOW] = 1e-8
    """Added to the root of the second moment; larger values calm parameters whose gradients are tiny."""

    weight_decay: Annotated[NonNegativeFloat, ALLOW] = 0.0
    """Weights shrink by rate × this at each step, apart from the gradient."""

    d0: Annotated[PositiveFloat, NEVER] = 1e-6
    """The first guess of the rate; it only grows from there."""

    d_coef: Annotated[PositiveFloat, ALLOW] = 1.0
    """A factor of the rate that is found; 0.5 to 2 is sensible."""

    growth_rate: Annotated[Annotated[float, Field(gt=1.0)] | None, ALLOW] = None
    """The largest factor by which the rate may grow from one step to the next, such as 1.02; None sets no limit."""

    bias_correction: Annotated[bool, ALLOW] = False
    """Correct the moments for having begun at zero, as AdamW does."""

    safeguard_warmup: Annotated[bool, ALLOW] = False
    """Find the rate as if there were no warm-up; wanted with `optim.schedule.warmup_steps`."""

    no_decay: Annotated[Names, ALLOW] = ()
    """Parameters without weight decay, by name pattern, such as `*.bias` or `*norm*`, or by a rule with a name,
    which YAML wants in quotes: `@norm-and-bias` is all of norm layers and every bias, `@mindone` those that MindONE's
    trainer leaves out by the names that MindSpore gives them. Empty decays all, as diffusers does."""


class Library(Section):
    """Any class that is a torch.optim.Optimizer, by its dotted name. The host reads one number a step, to leave out
    steps that are not finite."""

    kind: Annotated[Literal["library"], NEVER] = "library"
    """The optimizer's name: `adamw`, `adam-weight-decay`, `adamw-8bit`, `adamw-8bit-or-adamw` (the first on a GPU of
    CUDA, the other elsewhere), `adafactor`, `lion`, `prodigy`, `adacoor`, or `library` for any class of torch.optim's
    kind."""

    class_name: Annotated[str, Field(pattern=r"^[A-Za-z_][\w.]*\.[A-Za-z_]\w*$"), NEVER]
    """The class, such as `torch.optim.NAdam`, or `pytorch_optimizer.DAdaptAdam`, `.DAdaptLion` and `.DAdaptSGD` of the
    extra `optimizers` (which want `optim.lr=1`). Importing a package runs it: one that is not torch,
    bitsandbytes or pytorch_optimizer has to be named on the command line, `--allow-package NAME`."""

    options: Annotated[dict[str, Any], ALLOW] = Field(default_factory=dict)
    """What the class is made with besides parameters, lr and weight_decay, such as `{momentum_decay: 4e-3}`."""

    weight_decay: Annotated[NonNegativeFloat, ALLOW] = 0.0
    """Weights shrink by rate × this at each step, as the class understands it."""

    no_decay: Annotated[Names, ALLOW] = ()
    """Parameters without weight decay, by name pattern, such as `*.bias` or `*norm*`, or by a rule with a name,
    which YAML wants in quotes: `@norm-and-bias` is all of norm layers and every bias, `@mindone` those that MindONE's
    trainer leaves out by the names that MindSpore gives them. A pattern after `~` may match nothing, which a note then
    says. Empty decays all, as diffusers does."""


class AdaCoor(Section):
    """EveryDream2's rule without a rate: each weight moves by gradient over the root of its gradients' summed squares,
    times √eps. `optim.lr`, its schedule and weight decay have no influence; for batches of 8 and less."""

    kind: Annotated[Literal["adacoor"], NEVER] = "adacoor"
    """The optimizer's name: `adamw`, `adam-weight-decay`, `adamw-8bit`, `adamw-8bit-or-adamw` (the first on a GPU of
    CUDA, the other elsewhere), `adafactor`, `lion`, `prodigy`, `adacoor`, or `library` for any class of torch.optim's
    kind."""

    eps: Annotated[PositiveFloat, ALLOW] = 1e-8
    """The only number of the rule; the first step of each weight is about its root. Leave it at 1e-8."""


OptimizerSettings = (
    AdamW | AdamWeightDecay | AdamW8bit | AdamW8bitOrAdamW | Adafactor | Lion | Prodigy | AdaCoor | Library
)


def _kind_or_adamw(value: object) -> object:
    return {"kind": "adamw", **value} if isinstance(value, dict) else value


class RoundSettings(Section):
    """One round of a rate: up in a straight line, then down. Factors are of `optim.lr`."""

    steps: Annotated[PositiveInt, ALLOW]
    """Its length; the next begins after its last step, which still belongs to it."""

    warmup_steps: Annotated[NonNegativeInt, ALLOW] = 0
    """Steps from `start` to `peak`."""

    start: Annotated[NonNegativeFloat, ALLOW] = 0.0
    """The factor at its first step, when there is a warm-up."""

    peak: Annotated[NonNegativeFloat, ALLOW] = 1.0
    """The highest factor."""

    end: Annotated[NonNegativeFloat, ALLOW] = 0.0
    """The factor at its end."""

    curve: Annotated[Literal["cosine", "linear"], ALLOW] = "cosine"
    """How it falls: along half a cosine from the end of the warm-up, or in a straight line that is drawn from the
    round's first step on."""

    @model_validator(mode="after")
    def _has_room(self) -> RoundSettings:
        if self.warmup_steps >= self.steps:
            raise ValueError(
                f"a round of optim.schedule.rounds has {self.steps} steps and {self.warmup_steps} of warm-up; the "
                "warm-up must be shorter"
            )
        return self


class ScheduleSettings(Section):
    """How the rate changes over the run, in optimizer steps: a factor of `optim.lr`."""

    kind: Annotated[Literal["constant", "linear", "cosine", "restarts", "polynomial", "piecewise", "rounds"], ALLOW] = (
        "constant"
    )
    """`constant` after the warm-up; `linear` and `polynomial` fall to the floor; `cosine` falls along half a cosine;
    `restarts` falls along a cosine several times; `piecewise` follows `optim.schedule.points`, `rounds` goes through
    those of `optim.schedule.rounds`."""

    warmup_steps: Annotated[NonNegativeInt, ALLOW] = 0
    """Steps over which the rate rises to its peak in a straight line."""

    warmup_from: Annotated[Share, ALLOW] = 0.0
    """The factor of the rate at the first step of the warm-up."""

    decay_steps: Annotated[PositiveInt | None, ALLOW] = None
    """The step at which the floor is reached, warm-up included; None takes `decay_of_run` times the length of the run.
    What comes after it: `optim.schedule.beyond`."""

    decay_of_run: Annotated[PositiveFloat, ALLOW] = 1.0
    """Without `decay_steps`: the decay as a multiple of the run's length. 1.5 leaves a cosine at a quarter of its peak
    when the run ends."""

    warmup_share: Annotated[Share, ALLOW] = 0.0
    """Without `warmup_steps`: the warm-up as a share of the decay, rounded down."""

    beyond: Annotated[Literal["floor", "wave"], ALLOW] = "floor"
    """After the decay the rate stays at the `floor`, or a cosine goes on as a `wave` and rises again, as diffusers'
    and EveryDream2's does."""

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
    """For `rounds`: one after the other, as latent diffusion's LambdaWarmUpCosineScheduler2 and LambdaLinearScheduler.
    Each has `steps`, `warmup_steps` (0), the factors `start` (0), `peak` (1) and `end` (0), and a `curve` (`cosine` or
    `linear`), such as [{steps: 1000, warmup_steps: 100, end: 0.1}]."""

    @model_validator(mode="after")
    def _fits(self) -> ScheduleSettings:
        if (self.kind == "rounds") != bool(self.rounds):
            raise ValueError(
                "optim.schedule.rounds and kind rounds belong together, such as kind: rounds, rounds: "
                "[{steps: 1000, warmup_steps: 100}]"
            )
        if self.kind == "rounds" and (self.warmup_steps or self.warmup_share):
            raise ValueError("of optim.schedule.rounds each has a warm-up of its own; leave out optim.schedule's")
        if self.kind == "piecewise" and not self.points:
            raise ValueError(
                "optim.schedule.kind piecewise needs optim.schedule.points, such as [[500, 0.1], [800, 0.01]]"
            )
        if any(b[0] <= a[0] for a, b in zip(self.points, self.points[1:], strict=False)):
            raise ValueError("the steps of optim.schedule.points must rise")
        if self.decay_steps is not None and self.decay_steps <= self.warmup_steps:
            raise ValueError(
                f"optim.schedule.decay_steps ({self.decay_steps}) must lie beyond warmup_steps ({self.warmup_steps})"
            )
        if self.decay_steps is not None and self.decay_of_run != 1.0:
            raise ValueError("optim.schedule.decay_steps and decay_of_run both set the decay; give one of them")
        if self.warmup_steps and self.warmup_share:
            raise ValueError("optim.schedule.warmup_steps and warmup_share both set the warm-up; give one of them")
        if self.beyond == "wave" and self.kind != "cosine":
            raise ValueError(
                f"optim.schedule.beyond wave is for the kind cosine alone; {self.kind} takes `floor`, the default"
            )
        return self


class ClipSettings(Section):
    """Gradients that are too long are shortened before the update."""

    norm: Annotated[PositiveFloat | None, ALLOW] = 1.0
    """The longest gradient that passes unchanged, in the 2-norm; None never clips."""

    scope: Annotated[Literal["all", "part", "tensor"], ALLOW] = "all"
    """What is measured and shortened together: `all` trained parameters, each `part` (denoiser, text encoder) on its
    own, or each `tensor`."""


class EmaSettings(Section):
    """The shadow: an exponential moving average of the trained weights, often better to sample from."""

    rule: Annotated[Literal["none", "constant", "ramp", "saturating"], NEVER] = "none"
    """`none` keeps no average. `constant` moves with `optim.ema.decay` from the start; `ramp` with min(decay, (1 +
    s)/(10 + s)) after s updates, as diffusers; `saturating` with decay · (1 − exp(−u/2000)), as MindONE and
    Open-Sora-Plan."""

    decay: Annotated[Annotated[float, Field(gt=0.0, lt=1.0)], ALLOW] = 0.9999
    """How much of the average stays at each of its updates; 0.999–0.9999 is sensible. It spans about 1/(1 − decay)
    updates."""

    strength: Annotated[Annotated[float, Field(gt=0.0, lt=1.0)] | None, ALLOW] = None
    """With `rule: constant`, instead of `decay`: how much of the start shall be left in the average when the run ends.
    decay = strength^(interval/steps) is worked out, printed and recorded. 0.01–0.15 is sensible."""

    start: Annotated[ModelPath | None, NEVER] = None
    """A model whose weights the average starts from, a folder or a single file; None starts from the trained
    weights."""

    interval: Annotated[PositiveInt, ALLOW] = 1
    """Optimizer steps from one update of the average to the next."""

    device: Annotated[Literal["same", "cpu"], RECORDED] = "same"
    """Where the average lives: beside the weights, or on the CPU, which saves device memory and costs a copy at each
    update."""

    @model_validator(mode="after")
    def _acts(self) -> EmaSettings:
        if self.strength is not None and self.rule != "constant":
            raise ValueError(f"optim.ema.strength is for optim.ema.rule constant, the rule is {self.rule}")
        if self.start is not None and self.rule != "constant":
            why = "keeps no average" if self.rule == "none" else "forgets what it starts from at its first updates"
            raise ValueError(f"optim.ema.start is for optim.ema.rule constant; {self.rule} {why}")
        return self


PartOptimizer = Annotated[OptimizerSettings, Field(discriminator="kind"), BeforeValidator(_kind_or_adamw)]


class OptimSettings(Section):
    """The update: optimizer, rate, accumulation, clipping, averaging."""

    optimizer: PartOptimizer = AdamW()
    """The optimizer and its own settings."""

    lr: Annotated[NonNegativeFloat, ALLOW] = 1e-5
    """The peak learning rate. 1e-5 with batches of 32 and more, 1e-6 to 5e-6 for batches of 4–8 on SD1.5; small models
    take 1e-4 and more."""

    part_lr: Annotated[dict[str, NonNegativeFloat], ALLOW] = Field(default_factory=dict)
    """Another peak rate for a part, such as `{text_encoder: 1e-6}`. Parts not named take `optim.lr`."""

    lr_batch_power: Annotated[Share, ALLOW] = 0.0
    """Multiplies every rate by (batch size × accumulation) to this power: 1 scales it in proportion, 0.55 as
    EveryDream2's scale_lr, 0 leaves it. The effective rate is printed and logged."""

    part_optimizer: Annotated[dict[str, PartOptimizer], ALLOW] = Field(default_factory=dict)
    """Another optimizer for a part, such as `{text_encoder: {kind: adamw, weight_decay: 0}}`. Parts not named take
    `optim.optimizer`."""

    schedule: ScheduleSettings = ScheduleSettings()
    """How the rate changes over the run."""

    part_schedule: Annotated[dict[str, ScheduleSettings], ALLOW] = Field(default_factory=dict)
    """Another schedule for a part, such as `{text_encoder: {kind: cosine}}`. Parts not named take
    `optim.schedule`."""

    accumulation: Annotated[PositiveInt, ALLOW] = 1
    """Batches of one optimizer step. The loss is the mean over all their samples, whatever their sizes."""

    clip: ClipSettings = ClipSettings()
    """Clipping of gradients."""

    ema: EmaSettings = EmaSettings()
    """The averaged copy of the weights."""
