"""The optimizer `library`: any subclass of torch.optim.Optimizer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, NonNegativeFloat

from mezzotint.settings.base import ALLOW, NEVER
from mezzotint.settings.optimizers.base import KIND, NoDecay, Optimizer

TRUSTED = ("torch", "bitsandbytes", "pytorch_optimizer")
"""Packages that may be imported for an optimizer's class without `--allow-package`."""


@dataclass(frozen=True, slots=True)
class ClassFacts:
    """What the rest of Mezzotint needs to know of a class. state: what it stores for each weight, for the page of
    `check`. averages: it has evaluation weights, by its `train()` and `eval()`, unless an option turns that off.
    rounds: an option that rounds weights in bf16 by torch's generator, whose draws a resumed run does not repeat.
    only_matrices: it takes only matrices, and AdamW the other weights. quantized: moments in one byte, of bitsandbytes.
    """

    state: str = ""
    averages: bool = False
    rounds: str = ""
    only_matrices: bool = False
    quantized: int = 0


KNOWN: Mapping[str, ClassFacts] = {
    "schedulefree.SGD*": ClassFacts("the weights z", averages=True),
    "schedulefree.*": ClassFacts("the weights z and a second moment", averages=True),
    "pytorch_optimizer.ScheduleFree*": ClassFacts("the weights z and a second moment", averages=True),
    "prodigyplus.ProdigyPlusScheduleFree": ClassFacts(
        "the weights z, second moments by row and column, and an eleventh of the first weights and of a sum",
        averages=True,
        rounds="stochastic_rounding",
    ),
    "torch.optim.Muon": ClassFacts("a momentum of matrices, two moments of other weights", only_matrices=True),
    "pytorch_optimizer.CAME": ClassFacts("one moment, and by row and column second moments and their residuals"),
    "pytorch_optimizer.AdEMAMix": ClassFacts("three moments"),
    "bitsandbytes.optim.AdEMAMix8bit": ClassFacts("three moments in eight bits", quantized=3),
    "bitsandbytes.optim.PagedAdEMAMix8bit": ClassFacts("three moments in eight bits", quantized=3),
    "bitsandbytes.optim.*Lion8bit": ClassFacts("one moment in eight bits", quantized=1),
    "bitsandbytes.optim.*8bit": ClassFacts("two moments in eight bits", quantized=2),
}
"""Facts by name pattern; the first that matches counts."""


def facts_of(class_name: str) -> ClassFacts:
    """The facts of a class by its dotted name; plain ones for a class that is not known."""
    return next((facts for pattern, facts in KNOWN.items() if fnmatchcase(class_name, pattern)), ClassFacts())


class Library(Optimizer):
    """Any subclass of torch.optim.Optimizer, by its dotted name. The host reads one number each step, to skip
    non-finite steps. A class with `train()` and `eval()`, such as `schedulefree.RAdamScheduleFree` and
    `prodigyplus.ProdigyPlusScheduleFree`, is evaluated with the weights of its `eval()`. `torch.optim.Muon` gets the
    matrices, and AdamW all other weights, at the same rate: `options: {adjust_lr_fn: match_rms_adamw}` makes one rate
    suit both."""

    is_of_package: ClassVar[bool] = True

    kind: Annotated[Literal["library"], KIND, NEVER] = "library"

    class_name: Annotated[str, Field(pattern=r"^[A-Za-z_][\w.]*\.[A-Za-z_]\w*$"), NEVER]
    """The class, such as `torch.optim.NAdam`, or `pytorch_optimizer.DAdaptAdam`, `.DAdaptLion` and `.DAdaptSGD` of the
    extra `optimizers` (with `optim.lr=1`). Importing a package runs it: any package except torch, bitsandbytes and
    pytorch_optimizer must be allowed on the command line, `--allow-package NAME`."""

    options: Annotated[dict[str, Any], ALLOW] = Field(default_factory=dict)
    """Constructor arguments in addition to parameters, lr and weight_decay, such as `{momentum_decay: 4e-3}`."""

    weight_decay: Annotated[NonNegativeFloat, ALLOW] = 0.0
    """The weight decay, as the class defines it; usually weights shrink by rate × this at each step."""

    no_decay: NoDecay = ()

    @property
    def facts(self) -> ClassFacts:
        """What is known of the class."""
        return facts_of(self.class_name)

    @property
    def has_evaluation_weights(self) -> bool:
        return self.facts.averages and bool(self.options.get("use_schedulefree", True))

    @property
    def may_have_evaluation_weights(self) -> bool:
        is_known = any(fnmatchcase(self.class_name, pattern) for pattern in KNOWN)
        return self.has_evaluation_weights if is_known else self.class_name.partition(".")[0] not in TRUSTED

    @property
    def state_text(self) -> str:
        return self.facts.state or super().state_text

    def contradictions_of_run(self, weight_dtype: str) -> Iterator[str]:
        option = self.facts.rounds
        if option and weight_dtype == "pure" and self.options.get(option, True):
            yield (
                f"{self.class_name} rounds weights in bf16 by draws that a resumed run does not repeat, and "
                f"run.weight_dtype is pure; set optim.optimizer.options={{{option}: false}}, or run.weight_dtype=same"
            )

    @property
    def label(self) -> str:
        """The class."""
        return self.class_name

    @property
    def imported_class(self) -> str | None:
        return self.class_name


Settings = Library
