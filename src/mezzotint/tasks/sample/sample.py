"""The verb `sample`: pictures from a model, a run or a recipe, each a PNG that says how it was drawn, and a contact
sheet of them all."""

from __future__ import annotations

from collections.abc import Sequence

from mezzotint.tasks.sample import _plan
from mezzotint.tasks.sample._args import parse


def run(arguments: Sequence[str]) -> int:
    """`mezzotint sample MODEL|RUN|RECIPE [--prompt TEXT …] [switches] [key=value …]`. Returns 0.

    Raises RecipeError E1012 and E1070 to E1075, CheckpointError, WeightsError, StorageError, OutOfMemory E1751.
    """
    args = parse(arguments)
    place = _plan.look(args)
    # here, not above: torch and the networks take seconds that a mistyped line should not wait for
    from mezzotint.tasks.sample._drawing import draw

    for line in draw(args, place, say=print):
        print(line)
    return 0
