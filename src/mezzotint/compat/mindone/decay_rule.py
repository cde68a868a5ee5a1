"""What MindONE's optimizers leave out of weight decay: the rule `@mindone` of `optim.optimizer.no_decay`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mezzotint.compat.mindone import sdxl_layout
from mezzotint.errors import RecipeError


def undecayed(part: str, names: Sequence[str]) -> Iterator[str]:
    """Of the parameters of a part, those without decay. Raises RecipeError E1078 for a part that MindONE's SDXL
    does not have."""
    try:
        yield from sdxl_layout.undecayed(part, names)
    except KeyError as error:
        raise RecipeError(
            f"optim.optimizer.no_decay: @mindone goes by the names of MindONE's SDXL, and {part} has none there; write "
            "@norm-and-bias",
            code="E1078",
        ) from error
