"""Whether the type of summed gradients is open, and what of it a history keeps."""

from __future__ import annotations

import pytest

from mezzotint.recipe.reading.read import read_text
from mezzotint.tasks.check import sums


@pytest.mark.parametrize(
    ("words", "is_open"),
    [
        (["run.precision=bf16", "run.weight_dtype=same"], True),
        (["run.precision=bf16", "run.weight_dtype=same", "run.gradient_sums=fp32"], False),
        (["run.precision=bf16", "run.weight_dtype=same", "run.runtime=fsdp"], False),
        (["run.precision=bf16", "run.weight_dtype=fp32"], False),
        (["run.precision=fp32"], False),
    ],
)
def test_sums_are_open_where_weights_are_small_and_nobody_has_chosen(words: list[str], is_open: bool) -> None:
    assert sums.is_open(read_text("schema: 1", overrides=words).recipe) is is_open


def test_what_was_chosen_is_kept() -> None:
    assert sums.recorded(read_text("schema: 1").recipe) == {}
    chosen = read_text("schema: 1", overrides=["run.precision=bf16", "run.gradient_sums=fp32"]).recipe
    assert sums.recorded(chosen) == {"run.gradient_sums": "fp32"}
