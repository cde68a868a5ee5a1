"""Every renamed setting leads to one that exists, and nothing reads an old name."""

from __future__ import annotations

import pytest

from mezzotint.errors import RecipeError
from mezzotint.settings import reference, renamed
from mezzotint.settings.reading.paths import by_path, sections
from mezzotint.settings.reading.read import read_text


def test_new_names_exist_and_old_names_do_not() -> None:
    known = {*by_path(), *sections()}
    assert set(renamed.settings().values()) <= known
    assert not renamed.settings().keys() & known
    assert renamed.values().keys() <= by_path().keys()
    for path, values in renamed.values().items():
        choices = by_path()[path].shape.choices
        assert not choices or (set(values.values()) <= set(choices) and not values.keys() & set(choices)), path


@pytest.mark.parametrize("old", sorted(renamed.settings()))
def test_old_name_is_refused_with_the_new_name(old: str) -> None:
    new = renamed.settings()[old]
    with pytest.raises(RecipeError) as caught:
        read_text("schema: 1", overrides=[f"{old}=1"])
    assert f"it was renamed to {new}" in str(caught.value)
    assert reference.explain(old).startswith(f"{old} was renamed to {new}")


def test_old_value_is_refused_with_the_new_value() -> None:
    with pytest.raises(RecipeError, match="it was renamed to pure"):
        read_text("run: {weight_dtype: alone}")


def test_names_inside_renamed_sections_follow() -> None:
    assert renamed.new_path("run.recompute.enabled") == "run.gradient_checkpointing.enabled"
    assert renamed.new_path("optim.part_schedule.text_encoder.beyond") == "optim.part_schedule.text_encoder.after_decay"
    assert renamed.new_path("optim.part_schedule.text_encoder.kind") is None
    assert renamed.new_value("optim.part_schedule.text_encoder.after_decay", "wave") == "cosine"
    assert renamed.new_path("optim.lr") is None
    assert renamed.new_value("optim.lr", [1]) == [1]
