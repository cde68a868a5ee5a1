"""What settings and facts of all optimizers share. A module here defines `Settings`, a subclass of `Optimizer`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, ClassVar, Self

from pydantic import BeforeValidator, Field, NonNegativeFloat, PositiveFloat

from mezzotint.settings.base import ALLOW, Section, as_list

Names = Annotated[tuple[str, ...], BeforeValidator(as_list)]
Beta = Annotated[float, Field(ge=0.0, lt=1.0)]

KIND = Field(
    description="The optimizer's name. With `or` in it, the first is used on a CUDA GPU and the second elsewhere; "
    "`library` is any subclass of torch.optim.Optimizer."
)
Betas = Annotated[
    tuple[Beta, Beta], Field(description="Decay of the running means of the gradient and of its square."), ALLOW
]
Eps = Annotated[
    PositiveFloat,
    Field(description="Added to the root of the second moment; larger values damp parameters with tiny gradients."),
    ALLOW,
]
WeightDecay = Annotated[
    NonNegativeFloat,
    Field(description="Weights shrink by rate × this at each step, apart from the gradient."),
    ALLOW,
]
NoDecay = Annotated[
    Names,
    Field(
        description="Parameters without weight decay, by name pattern, such as `*.bias` or `*norm*`, or by a named "
        "rule, which needs quotes in YAML: `@norm-and-bias` is all of norm layers and every bias; compatibility "
        "folders of other trainers add rules. A pattern after `~` may match nothing, which is reported as a note. "
        "Empty decays all, as diffusers does."
    ),
    ALLOW,
]


class Optimizer(Section):
    """Settings of one optimizer, and the facts that the rest of Mezzotint needs."""

    kind: str = ""

    allows_sharding: ClassVar[bool] = False
    """Whether it treats each number separately, and so works on shards of a tensor (fsdp)."""
    is_open: ClassVar[bool] = False
    """Whether `settled` chooses another optimizer when a run starts."""
    is_of_package: ClassVar[bool] = False
    """Whether another package computes its step. Such a step cannot skip non-finite gradients itself, so the host reads
    one number from the device at each step and waits for it."""
    has_rate: ClassVar[bool] = True
    """Whether `optim.lr` and its schedule affect it."""
    takes_usual_rates: ClassVar[bool] = False
    """Whether the learning rates advised for AdamW apply to it."""
    advised: ClassVar[str] = ""
    """How to use it, for the notes of `advice`."""
    state_description: ClassVar[str] = ""
    """What it stores for each parameter, for the page of `check`."""

    @property
    def has_evaluation_weights(self) -> bool:
        """Whether previews, validation, the EMA and exports use other weights than those that gradients are taken at.
        Such an optimizer averages its weights instead of lowering its rate."""
        return False

    @property
    def state_text(self) -> str:
        """What it stores for each parameter, for the page of `check`."""
        return self.state_description or f"the state of {self.label}"

    @property
    def label(self) -> str:
        """Its name on pages."""
        return self.kind

    @property
    def imported_class(self) -> str | None:
        """The dotted name of a class that the recipe names and that must be trusted, or None."""
        return None

    @property
    def decay(self) -> float:
        """Its weight decay."""
        return float(getattr(self, "weight_decay", 0.0))

    @property
    def no_decay_patterns(self) -> tuple[str, ...]:
        """Patterns and rules of parameters without weight decay."""
        return tuple(getattr(self, "no_decay", ()))

    def with_no_decay(self, names: Iterable[str]) -> Self:
        """A copy with other names in `no_decay_patterns`."""
        return self.model_validate(self.model_dump() | {"no_decay": tuple(names)})

    @property
    def may_have_evaluation_weights(self) -> bool:
        """The same, before the class is imported: true where that is not known."""
        return self.has_evaluation_weights

    def contradictions_of_run(self, weight_dtype: str) -> Iterator[str]:
        """What a run cannot do with it, and what to write instead. weight_dtype: `run.weight_dtype`."""
        yield from ()

    def choose_kind(self, device: str, before: str) -> Optimizer:
        """The optimizer that a run uses on a device, as in `torch.device.type`. before: the kind that the run has used
        so far, "" for a new one."""
        return self

    def explain_choice(self, chosen: Optimizer, device: str) -> str:
        """Why a new run uses another optimizer."""
        return f"using {chosen.kind}; the run keeps it"

    def advice(self, batch_size: int) -> Iterator[str]:
        """Where the recipe departs from the advice for it, as the rest of a sentence that starts with
        "optim.optimizer.kind"."""
        yield from ()

    def rate_note(self, rate: float, where: str) -> str | None:
        """A sentence about the learning rate that a recipe sets, or None."""
        return None


class Adam(Optimizer):
    """Settings shared by all kinds of AdamW."""

    betas: Betas = (0.9, 0.999)
    eps: Eps = 1e-8
    weight_decay: WeightDecay = 0.01
    no_decay: NoDecay = ()
