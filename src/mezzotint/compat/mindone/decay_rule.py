"""The rule `@mindone` of `optim.optimizer.no_decay`: the parameters that MindONE's optimizers exclude from weight
decay."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mezzotint.compat.mindone import sdxl_layout
from mezzotint.errors import RecipeError


def undecayed(part: str, names: Sequence[str]) -> Iterator[str]:
    """Yields the parameters of a part without weight decay. Raises RecipeError E1078 for a part that MindONE's SDXL
    does not have."""
    try:
        yield from sdxl_layout.undecayed(part, names)
    except KeyError as error:
        raise RecipeError(
            f"optim.optimizer.no_decay: @mindone needs the tensor names of MindONE's SDXL, which has no {part}; write "
            "@norm-and-bias",
            code="E1078",
        ) from error
