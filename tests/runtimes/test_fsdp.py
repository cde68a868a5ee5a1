"""Who holds which rows; whole runs that share weights are in tests/journeys."""

from __future__ import annotations

import pytest

from mezzotint.errors import RecipeError
from mezzotint.recipe.sections.run import ShardSettings
from mezzotint.runtimes import fsdp


@pytest.mark.parametrize(("rows", "held"), [(8, [2, 2, 2, 2]), (5, [2, 2, 1, 0]), (1, [1, 0, 0, 0])])
def test_rows_are_cut_as_the_library_cuts_them(rows: int, held: list[int]) -> None:
    shares = [fsdp._share((rows, 3), count, place, 4) for place, count in enumerate(held)]
    assert [share.stop - share.start for share in shares] == held
    assert shares[0].start == 0
    assert shares[-1].stop == rows
    with pytest.raises(AssertionError, match="another way"):
        fsdp._share((rows, 3), held[0] + 1, 0, 4)


def test_a_group_divides_the_processes() -> None:
    assert [fsdp.group_size(ShardSettings(group=group), 6) for group in (None, 2, 6)] == [6, 2, 6]
    with pytest.raises(RecipeError, match="write one of 1, 2, 3, 6"):
        fsdp.group_size(ShardSettings(group=4), 6)
