"""What settings and facts of all optimizers have in common. A module here defines `Settings`, a kind of `Optimizer`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, ClassVar, Self

from pydantic import BeforeValidator, Field, NonNegativeFloat, PositiveFloat

from mezzotint.settings.base import ALLOW, Section, as_list

Names = Annotated[tuple[str, ...], BeforeValidator(as_list)]
Beta = Annotated[float, Field(ge=0.0, lt=1.0)]

KIND = Field(
    description="The optimizer's name. Where two are joined by `or`, the first is taken on a GPU of CUDA and the other "
    "elsewhere; `library` takes any class of torch.optim's kind."
)
Betas = Annotated[
    tuple[Beta, Beta], Field(description="Decay of the running means of the gradient and of its square."), ALLOW
]
Eps = Annotated[
    PositiveFloat,
    Field(
        description="Added to the root of the second moment; larger values calm parameters whose gradients are tiny."
    ),
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
        description="Parameters without weight decay, by name pattern, such as `*.bias` or `*norm*`, or by a rule with "
        "a name, which YAML wants in quotes: `@norm-and-bias` is all of norm layers and every bias; folders of other "
        "trainers add rules of theirs. A pattern after `~` may match nothing, which a note then says. Empty decays "
        "all, as diffusers does."
    ),
    ALLOW,
]


class Optimizer(Section):
    """Settings of one optimizer, and what the rest of the house asks of it."""

    kind: str = ""

    allows_sharding: ClassVar[bool] = False
    """Whether it treats each number by itself, and so works where each process holds a part of a tensor (fsdp)."""
    is_open: ClassVar[bool] = False
    """Whether `settled` chooses another one when a run starts."""
    is_of_package: ClassVar[bool] = False
    """Whether its step is another package's own, which knows no steps that are not finite: the host reads one number of
    the device at each, and waits for it."""
    has_rate: ClassVar[bool] = True
    """Whether `optim.lr` and its schedule act on it."""
    takes_usual_rates: ClassVar[bool] = False
    """Whether the rates that are advised for AdamW hold for it."""
    advised: ClassVar[str] = ""
    """How it is to be used, for the notes of `advice`."""
    state_words: ClassVar[str] = ""
    """What it keeps of each parameter, for the page of `check`."""

    @property
    def label(self) -> str:
        """Its name on pages."""
        return self.kind

    @property
    def imported_class(self) -> str | None:
        """The dotted name of a class that the recipe itself names, which has to be trusted."""
        return None

    @property
    def decay(self) -> float:
        """Its weight decay."""
        return float(getattr(self, "weight_decay", 0.0))

    @property
    def undecayed(self) -> tuple[str, ...]:
        """Patterns and rules of what its weight decay leaves out."""
        return tuple(getattr(self, "no_decay", ()))

    def with_undecayed(self, names: Iterable[str]) -> Self:
        """The same with other names in the place of `undecayed`."""
        return self.model_validate(self.model_dump() | {"no_decay": tuple(names)})

    def settled(self, device: str, before: str) -> Optimizer:
        """The optimizer that a run takes on a device, as in `torch.device.type`. before: the kind that the run has had
        so far, "" for a new one."""
        return self

    def settled_words(self, chosen: Optimizer, device: str) -> str:
        """Why another one was taken in a new run."""
        return f"{chosen.kind} is taken; the run keeps it"

    def advice(self, batch_size: int) -> Iterator[str]:
        """How the recipe leaves what is advised for it, in words behind "optim.optimizer.kind"."""
        yield from ()

    def rate_note(self, rate: float, where: str) -> str | None:
        """A sentence about the rate that a recipe gives it at a setting, or None."""
        return None


class Adam(Optimizer):
    """What the kinds of AdamW have in common."""

    betas: Betas = (0.9, 0.999)
    eps: Eps = 1e-8
    weight_decay: WeightDecay = 0.01
    no_decay: NoDecay = ()
