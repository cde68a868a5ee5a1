"""What becomes of a run whose numbers go wrong."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field, PositiveInt

from mezzotint.recipe.base import FREE, RECORDED, Section


class RollBackSettings(Section):
    """How `run.on_divergence: roll-back` goes on: with the weights of the last checkpoint that was written before the
    first of the bad steps."""

    times: Annotated[PositiveInt, FREE] = 3
    """How often at most; once more ends the run with status 3."""

    skip: Annotated[bool, RECORDED] = True
    """Leave out the batches from that checkpoint to the step that ended it, as PaLM was trained (Chowdhery et al. 2022,
    arXiv:2204.02311): they count as steps and move nothing. false trains them again, which goes the same way unless
    `factor` is below 1."""

    factor: Annotated[float, Field(gt=0.0, le=1.0), RECORDED] = 1.0
    """What every learning rate is multiplied by from then on, each time anew."""

    def contradictions(self) -> Iterator[str]:
        if not self.skip and self.factor == 1.0:
            yield (
                "run.roll_back.skip=false trains the same batches again, which end the same way; write a "
                "run.roll_back.factor below 1, such as 0.5, or leave skip out"
            )
