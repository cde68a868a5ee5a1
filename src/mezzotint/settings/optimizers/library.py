"""The optimizer `library`: any subclass of torch.optim.Optimizer."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, NonNegativeFloat

from mezzotint.settings.base import ALLOW, NEVER
from mezzotint.settings.optimizers.base import KIND, NoDecay, Optimizer


class Library(Optimizer):
    """Any subclass of torch.optim.Optimizer, by its dotted name. The host reads one number each step, to skip
    non-finite steps."""

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
    def label(self) -> str:
        """The class."""
        return self.class_name

    @property
    def imported_class(self) -> str | None:
        return self.class_name


Settings = Library
