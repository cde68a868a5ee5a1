"""How far a run has come: all that the loop remembers besides tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(slots=True)
class Progress:
    """step: optimizer steps attempted. epoch: of the last step. samples: seen so far. last_step: where the run ends.
    seconds: of training, over all attempts.

    bad_in_a_row: non-finite steps just now. bad_steps: the steps of the last thousand that were bad. rate_peak:
    highest rate of each part so far. live: values of settings that were replaced while the run went, by path.
    first_step: steps that lay behind the weights at the run's own start (`run.start.step`). broken: keys of samples
    whose files have proved damaged, sorted (`data.on_broken`).
    """

    step: int = 0
    last_step: int = 0
    epoch: int = 0
    epoch_ends: bool = False
    samples: int = 0
    seconds: float = 0.0
    applied: int = 0
    bad_in_a_row: int = 0
    bad_steps: list[int] = field(default_factory=list)
    rate_peak: dict[str, float] = field(default_factory=dict)
    live: dict[str, Any] = field(default_factory=dict)
    first_step: int = 0
    broken: list[str] = field(default_factory=list)

    @property
    def is_done(self) -> bool:
        return self.step >= self.last_step

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps, as JSON."""
        return asdict(self)

    def load(self, state: Mapping[str, Any], *, last_step: int) -> None:
        """Takes back what `state` gave; the run's end is the new recipe's."""
        for name, value in state.items():
            if name in Progress.__slots__:
                setattr(self, name, value)
        self.last_step = last_step
