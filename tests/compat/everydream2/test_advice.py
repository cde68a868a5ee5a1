"""Advice about what this trainer adds."""

from __future__ import annotations

import pytest

from mezzotint.settings import advice
from mezzotint.settings.reading.read import read_text


@pytest.mark.parametrize(
    ("words", "path"),
    [
        (["optim.optimizer={kind: adacoor}", "data.batch_size=9"], "optim.optimizer.kind"),
        (["optim.optimizer={kind: adacoor, eps: 1e-7}"], "optim.optimizer.kind"),
    ],
)
def test_deviations_from_the_advice_are_reported(words: list[str], path: str) -> None:
    recipe = read_text("schema: 1", overrides=["optim.lr=1e-6", *words]).recipe
    assert [note.partition(" ")[0] for note in advice.notes(recipe)] == [path]
